"""The download, against a server in this process that gives a small archive in the official layout."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitedge.train.data.cifar10_files import FOLDER, LABELS_FILE, TEST_FILE, TRAIN_FILES
from bitedge.train.data.download import download_cifar10
from bitedge.train.errors import TrainError

NAMES = (*TRAIN_FILES, TEST_FILE, LABELS_FILE)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the address of a local server and the folder that it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", folder
        running.shutdown()
        thread.join()


def write_archive(path: Path, names: tuple[str, ...] = NAMES, *, link: str | None = None) -> str:
    """Write an archive with these members, and one that tries to leave its folder; return its digest."""
    with tarfile.open(path, "w:gz") as tar:
        for name in (*(f"{FOLDER}/{name}" for name in names), "../outside.txt"):
            info = tarfile.TarInfo(name)
            content = name.encode()
            if link and name.endswith(link):
                info.type, info.linkname, content = tarfile.SYMTYPE, "/etc/passwd", b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_unpacks_the_known_files_and_nothing_else(server: tuple[str, Path], tmp_path: Path) -> None:
    address, served = server
    digest = write_archive(served / "a.tar.gz")
    root = tmp_path / "data"
    folder = download_cifar10(root, url=f"{address}/a.tar.gz", md5=digest, progress=False)
    assert folder == root / FOLDER
    assert sorted(file.name for file in folder.iterdir()) == sorted(NAMES)
    assert (folder / TEST_FILE).read_text() == f"{FOLDER}/{TEST_FILE}"
    assert [entry.name for entry in root.iterdir()] == [FOLDER]
    assert not (tmp_path / "outside.txt").exists()


def test_wrong_digest_leaves_nothing_behind(server: tuple[str, Path], tmp_path: Path) -> None:
    address, served = server
    digest = write_archive(served / "a.tar.gz")
    with pytest.raises(TrainError, match=f"has the digest {digest}, expected {'0' * 32}"):
        download_cifar10(tmp_path / "data", url=f"{address}/a.tar.gz", md5="0" * 32, progress=False)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("names", "link", "message"),
    [(NAMES[:-1], None, "cannot be unpacked"), (NAMES, TEST_FILE, "is not a plain file")],
)
def test_odd_archives_are_refused(
    server: tuple[str, Path], tmp_path: Path, names: tuple[str, ...], link: str | None, message: str
) -> None:
    address, served = server
    digest = write_archive(served / "a.tar.gz", names, link=link)
    with pytest.raises(TrainError, match=message):
        download_cifar10(tmp_path / "data", url=f"{address}/a.tar.gz", md5=digest, progress=False)


def test_truncated_archive_is_refused(server: tuple[str, Path], tmp_path: Path) -> None:
    address, served = server
    write_archive(served / "a.tar.gz")
    cut = (served / "a.tar.gz").read_bytes()[:100]
    (served / "a.tar.gz").write_bytes(cut)
    digest = hashlib.md5(cut, usedforsecurity=False).hexdigest()
    with pytest.raises(TrainError, match="cannot be unpacked"):
        download_cifar10(tmp_path / "data", url=f"{address}/a.tar.gz", md5=digest, progress=False)


def test_a_server_that_does_not_answer_is_one_line(server: tuple[str, Path], tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"cannot download .*404") as caught:
        download_cifar10(tmp_path / "data", url=f"{server[0]}/none", progress=False)
    assert "\n" not in str(caught.value)


def test_an_incomplete_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    with pytest.raises(TrainError, match="exists but is not complete: remove it"):
        download_cifar10(tmp_path, url="http://127.0.0.1:9/never-asked")
