from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from bitedge.serve.api.errors import ServeError
from bitedge.serve.security.limits import cpu_count
from bitedge.serve.settings import load_settings


def test_it_listens_on_this_machine_and_nobody_may_load_models_by_default() -> None:
    settings = load_settings({"models": Path("models")})
    assert settings.host == "127.0.0.1"
    assert settings.admin == "key"


def test_a_worker_gets_the_same_settings() -> None:
    settings = load_settings({"models": (Path("a"), Path("b")), "workers": "3", "rate_limit": "2.5"})
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert (settings.workers, settings.rate_limit) == (3, 2.5)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('models = ["from-file"]\nqueue = 1\nmax_batch = 1\nport = 1\n')
    monkeypatch.setenv("BITEDGE_SERVE_MAX_BATCH", "2")
    monkeypatch.setenv("BITEDGE_SERVE_PORT", "2")
    settings = load_settings({"port": "3"}, file)
    assert (settings.queue, settings.max_batch, settings.port) == (1, 2, 3)
    assert settings.models == (Path("from-file"),)
    monkeypatch.setenv("BITEDGE_SERVE_FILE", str(file))
    monkeypatch.setenv("BITEDGE_SERVE_MODELS", "a:b")
    assert load_settings({}).models == (Path("a"), Path("b"))
    assert load_settings({}).queue == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70_000}, "port: Input should be less than or equal to 65535, got '70000'"),
        ({"workers": 0}, "workers"),
        ({"queue": "many"}, "queue: .*integer.*got 'many'"),
        ({"deadline_ms": 50_000.0}, "deadline-ms 50000 is above max-deadline-ms 30000"),
        ({"metrics": "maybe"}, "metrics: Input should be 'off', 'key' or 'open', got 'maybe'"),
        ({"model_name": "../x"}, "model-name"),
        ({"idle_seconds": float("nan")}, "idle-seconds"),
        ({"max_pixels": 100_000_000}, "max-pixels 100000000 is above max-pixels-in-flight"),
        ({"tls_cert": "x"}, "TLS needs both"),
        ({"nonsense": 1}, "nonsense"),
        ({"require_auth": True}, "require-auth: there are no API keys"),
    ],
)
def test_values_without_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ServeError, match=message):
        load_settings({"models": Path("models"), **options})


def test_a_misspelt_variable_or_a_bad_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.toml").write_text("port = ")
    with pytest.raises(ServeError, match=r"bad\.toml"):
        load_settings({}, tmp_path / "bad.toml")
    with pytest.raises(ServeError, match="No such file"):
        load_settings({}, tmp_path / "nowhere.toml")
    monkeypatch.setenv("BITEDGE_SERVE_PROT", "1")
    with pytest.raises(ServeError, match="BITEDGE_SERVE_PROT: there is no such setting"):
        load_settings({})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_the_cgroup_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int | None
) -> None:
    """Defect 15: threads were counted by the machine, not by the container; macOS has no affinity."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert cpu_count(tmp_path) == (expected or 64)
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert cpu_count(tmp_path) == (expected or 8)
    assert load_settings({"models": Path("m"), "threads": 3}).thread_count == 3
