"""The names that users import from `bitedge.train`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bitedge.train


@pytest.mark.parametrize("name", bitedge.train.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    value = getattr(bitedge.train, name)
    assert isinstance(value, dict) or value.__module__.startswith("bitedge.train.")
    assert name in dir(bitedge.train)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Boop'"):
        bitedge.train.Boop  # noqa: B018


def test_importing_the_room_alone_does_not_load_torch() -> None:
    code = "import sys, bitedge.train, bitedge.train.errors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_old_module_paths_give_the_same_modules_with_a_warning() -> None:
    """In a process of its own, because an import is remembered."""
    code = """
import importlib, warnings
from bitedge.train._moved import MOVED
for old, new in [*MOVED.items(), ("networks.binarynet", "models.binarynet")]:
    module = importlib.import_module(f"bitedge.train.{new}")
    spec = module.__spec__
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert importlib.import_module(f"bitedge.train.{old}") is module and module.__spec__ is spec, old
    assert f"is now bitedge.train.{new}:" in str(caught[0].message), caught
"""
    subprocess.run([sys.executable, "-c", code], check=True)
