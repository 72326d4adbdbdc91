"""What to say when a format or an engine lacks a package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

NEWEST_PYTHON = {"larq_compute_engine": (3, 12)}
"""Packages that have wheels only up to some Python; elsewhere their extra leaves them out."""


def missing(packages: Sequence[str]) -> tuple[str, ...]:
    """Give the packages that are not installed."""
    return tuple(package for package in packages if importlib.util.find_spec(package) is None)


def needs(packages: Sequence[str], extra: str | None, python: tuple[int, int] = sys.version_info[:2]) -> str:
    """Say what is missing and how to get it; empty if nothing is."""
    lacking = missing(packages)
    for package in lacking:
        newest = NEWEST_PYTHON.get(package, python)
        if python > newest:
            have, want = (".".join(map(str, version)) for version in (python, newest))
            return f"needs {package.replace('_', '-')}, which has no wheel for Python {have}: use Python {want}"
    return f"needs {', '.join(lacking)}: pip install 'bitedge[{extra}]'" if lacking else ""
