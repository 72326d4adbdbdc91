"""Real small networks, exported once, and applications that serve them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from starlette.testclient import TestClient
from tests.serve.running_server import RunningServer

from bitedge.serve.app import create_app
from bitedge.serve.settings import ServeSettings

LABELS = [f"class-{i}" for i in range(10)]
GEOMETRY: dict[str, Any] = {
    "size": [32, 32],
    "resize": None,
    "interpolation": "bilinear",
    "scale": [2 / 256] * 3,
    "offset": [-255 / 256] * 3,
}


def export_network(folder: Path, seed: int, formats: tuple[str, ...] = ("gguf",)) -> None:
    import torch

    from bitedge.export import export
    from bitedge.train.models import BinaryNet

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = BinaryNet(width=8, dense=32).eval()
    export(network, (1, 3, 32, 32), folder, formats=formats, labels=LABELS, preprocessing=GEOMETRY)


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, Path]:
    """Two packed networks with the same classes and different answers."""
    base = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    folders = [base / f"serve-network-{seed}" for seed in (1, 2)]
    with FileLock(base / "serve-networks.lock"):
        for seed, folder in enumerate(folders, 1):
            if not (folder / "model.gguf").exists():
                export_network(folder, seed)
    return folders[0] / "model.gguf", folders[1] / "model.gguf"


def fill(root: Path, networks: tuple[Path, Path]) -> Path:
    for place, source in (("first/1", 0), ("first/2", 1), ("second/1", 1)):
        (root / place).mkdir(parents=True)
        shutil.copy(networks[source], root / place / "model.gguf")
    return root


@pytest.fixture
def repository(tmp_path: Path, networks: tuple[Path, Path]) -> Path:
    """A folder with the model `first` in versions 1 and 2, and the model `second` in version 1."""
    return fill(tmp_path / "models", networks)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory, networks: tuple[Path, Path]) -> Iterator[RunningServer]:
    """One server for the tests of a module that leave it as it is."""
    server = RunningServer(fill(tmp_path_factory.mktemp("shared") / "models", networks))
    yield server
    server.close()


@pytest.fixture
def make_client(repository: Path) -> Iterator[Callable[..., TestClient]]:
    """Start applications in this process; they end with the test."""
    clients: list[TestClient] = []

    def make(**options: Any) -> TestClient:
        if "models" in options and "default_model" not in options:
            options["default_model"] = None
        options = {"models": repository, "poll_seconds": 0, "deadline_ms": 30_000, "default_model": "first", **options}
        options["run_folder"] = repository.parent / f"run-{len(clients)}"
        client = TestClient(create_app(ServeSettings(**options)), raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(make_client: Callable[..., TestClient]) -> TestClient:
    return make_client()


@pytest.fixture
def start_server(repository: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start servers as processes of their own; they end with the test."""
    servers: list[RunningServer] = []

    def start(*options: str, models: Path = repository, env: dict[str, str] | None = None) -> RunningServer:
        servers.append(RunningServer(models, *options, env=env))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
