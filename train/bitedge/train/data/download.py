"""Fetch CIFAR-10's official archive, only when asked: checked against its known size and digest, unpacked by name."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

from bitedge.train.data.cifar10_files import FOLDER, LABELS_FILE, TEST_FILE, TRAIN_FILES
from bitedge.train.errors import TrainError

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
ARCHIVE_LIMIT = 400_000_000
MEMBER_LIMIT = 40_000_000
TIMEOUT_SECONDS = 30
BLOCK = 1 << 20


def download_cifar10(root: Path, *, url: str = URL, md5: str = MD5, progress: bool = True) -> Path:
    """Download the archive and unpack its eight known files into `root/cifar-10-batches-bin`; return that folder.

    The folder appears at once and complete: everything happens under a temporary name beside it.
    """
    target = root / FOLDER
    if target.exists():
        raise TrainError(f"{target} exists but is not complete: remove it, then download again")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cifar10-", dir=root) as work:
        archive = Path(work) / "archive.tar.gz"
        _fetch(url, archive, md5, progress)
        unpacked = Path(work) / FOLDER
        unpacked.mkdir()
        _unpack(archive, unpacked)
        if not target.exists():  # another process may have been quicker, with the same files
            unpacked.rename(target)
    return target


def _fetch(url: str, path: Path, md5: str, progress: bool) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as reply, path.open("wb") as file:
            total = int(reply.headers.get("Content-Length") or 0) or None
            with tqdm(total=total, unit="B", unit_scale=True, desc="CIFAR-10", disable=not progress) as bar:
                while block := reply.read(BLOCK):
                    digest.update(block)
                    file.write(block)
                    bar.update(len(block))
                    if file.tell() > ARCHIVE_LIMIT:
                        raise TrainError(
                            f"{url} is longer than {ARCHIVE_LIMIT:,} bytes: it is not the CIFAR-10 archive"
                        )
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is also the reply, with an open connection
        raise TrainError(f"cannot download {url}: {error}; fetch it by other means and give its folder") from error
    if digest.hexdigest() != md5:
        raise TrainError(f"{url} has the digest {digest.hexdigest()}, expected {md5}: try again, or fetch it elsewhere")


def _unpack(archive: Path, folder: Path) -> None:
    """Copy the known members by their names; nothing in the archive decides where a file is written."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for name in (*TRAIN_FILES, TEST_FILE, LABELS_FILE):
                member = tar.getmember(f"{FOLDER}/{name}")
                source = tar.extractfile(member) if member.isfile() and member.size <= MEMBER_LIMIT else None
                if source is None:
                    raise TrainError(
                        f"{name} in the CIFAR-10 archive is not a plain file of at most {MEMBER_LIMIT:,} bytes"
                    )
                with source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target, BLOCK)
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        raise TrainError(f"the CIFAR-10 archive cannot be unpacked: {error}") from error
