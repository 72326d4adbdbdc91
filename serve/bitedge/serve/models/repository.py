"""Find model files on disk: one sub-folder for each model, and in it one numbered sub-folder for each version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bitedge.serve.api.errors import ServeError

SUFFIXES = (".gguf", ".onnx")  # the first one found in a folder is served
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
VERSION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Candidate:
    """A file that may be served as one version of a model."""

    name: str
    version: str
    path: Path

    def signature(self) -> tuple[int, int, int]:
        """What changes when the file is written, replaced or swapped behind a link."""
        status = self.path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


def scan(root: Path, name: str | None = None) -> list[Candidate]:
    """List the versions below `root`: a model repository, a training run, an export folder, or a single file.

    `name` is for the one model of the last three; without it they are named after their file or folder.
    """
    if root.is_file():
        return [Candidate(name or name_of(root), "1", root)]
    if not root.is_dir():
        raise ServeError(f"{root}: no such folder; give a model file, an export folder, or a folder with one per model")
    single = model_file(root) or model_file(root / "export")
    if single is not None:
        return [Candidate(name or name_of(single), "1", single)]
    return [candidate for folder in sorted(root.iterdir()) for candidate in versions(folder)]


def scan_all(roots: Sequence[Path], name: str | None = None) -> list[Candidate]:
    """List the versions below several roots, each as `scan` takes it; no two may have one name and version."""
    if name is not None and len(roots) > 1:
        raise ServeError(f"model-name {name}: expected one model to name, got {len(roots)}; rename the files instead")
    found: dict[tuple[str, str], Candidate] = {}
    for candidate in (candidate for root in roots for candidate in scan(root, name)):
        other = found.setdefault((candidate.name, candidate.version), candidate)
        if other is not candidate:
            raise ServeError(f"{other.path} and {candidate.path} are both called {candidate.name}; rename one")
    return list(found.values())


def versions(folder: Path) -> list[Candidate]:
    """List the versions of one model's folder; a file without a version folder is version 1."""
    if not folder.is_dir() or not NAME.fullmatch(folder.name):
        return []
    single = model_file(folder) or model_file(folder / "export")
    if single is not None:
        return [Candidate(folder.name, "1", single)]
    numbered = [inner for inner in folder.iterdir() if VERSION.fullmatch(inner.name)]
    found = [(inner.name, model_file(inner)) for inner in sorted(numbered, key=lambda inner: int(inner.name))]
    return [Candidate(folder.name, version, path) for version, path in found if path is not None]


def model_file(folder: Path) -> Path | None:
    """The file of a folder that is served: `model.gguf` before `model.onnx` before any other of these suffixes."""
    for suffix in SUFFIXES:
        preferred = folder / f"model{suffix}"
        if preferred.is_file():
            return preferred
    for suffix in SUFFIXES:
        others = sorted(folder.glob(f"*{suffix}")) if folder.is_dir() else []
        if others:
            return others[0]
    return None


def name_of(path: Path) -> str:
    """Name a lone file: by its own name, or by the nearest folder that says more than `model` or `export`."""
    words = [path.stem, *(parent.name for parent in path.resolve().parents)]
    for word in words:
        if word not in ("model", "export") and NAME.fullmatch(word) and not VERSION.fullmatch(word):
            return word
    return "model"
