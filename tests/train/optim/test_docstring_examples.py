"""The examples in the docstrings run as written."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["bop", "bop2nd", "model_optimizer", "schedules", "telemetry"])
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"bitedge.train.optim.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
