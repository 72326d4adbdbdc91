from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bitedge.serve.api.errors import ServeError
from bitedge.serve.settings import ServeConfig


def test_it_binds_to_this_machine_and_is_open_to_nobody_by_default() -> None:
    config = ServeConfig(models=Path("models"))
    assert config.host == "127.0.0.1"
    assert config.admin == "key"


def test_a_worker_reads_what_the_supervisor_wrote() -> None:
    config = ServeConfig(models=Path("a"), keys_file=Path("k"), workers=3, rate_limit=2.5, metrics="key")
    assert ServeConfig.from_json(config.to_json()) == config


def test_several_models_go_to_the_workers_too() -> None:
    config = ServeConfig(models=(Path("a.gguf"), Path("b")))
    assert ServeConfig.from_json(config.to_json()) == config
    with pytest.raises(ServeError, match="expected models to serve, got none"):
        ServeConfig(models=())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70_000}, "port: expected a number from 0 to 65535, got 70000"),
        ({"workers": 0}, "workers"),
        ({"deadline_ms": 50_000.0}, "deadline-ms 50000 is above max-deadline-ms 30000"),
        ({"metrics": "maybe"}, "metrics: expected one of off, key, open, got maybe"),
        ({"model_name": "../x"}, "model-name"),
        ({"max_pixels": float("nan")}, "max-pixels"),
    ],
)
def test_values_without_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ServeError, match=message):
        ServeConfig(models=Path("models"), **options)
