"""Model files on disk.

A repository has one folder for each model, and in it one numbered folder for each version. What a root is (a file, an
export folder or a repository) is decided once, when the service starts; a stray file never changes it.
"""

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
        """Return what changes when the file is written, replaced, or swapped behind a link."""
        status = self.path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(frozen=True)
class Root:
    """A place with models; `single` is the name of the only one, or None for a repository."""

    path: Path
    single: str | None = None

    @staticmethod
    def of(path: Path, name: str | None = None) -> Root:
        """Decide what a path is: a model file, an export folder or training run, or a repository.

        A folder with at least one model's folder is a repository, whatever files lie beside it. `name` names a single
        model; without it, the model is named after its file or folder.
        """
        if path.is_file():
            return Root(path, name or name_of(path))
        if not path.is_dir():
            raise ServeError(
                f"{path}: no such folder; give a model file, an export folder, or a folder with one per model"
            )
        others = [folder for folder in path.iterdir() if folder.name != "export"]
        single = model_file(path) or model_file(path / "export")
        if single is None or any(versions(folder) for folder in others) or numbered(path / "export"):
            return Root(path)
        return Root(path, name or name_of(single))

    def scan(self) -> list[Candidate]:
        """List the versions that are there now."""
        if self.single is None:
            if not self.path.is_dir():
                raise ServeError(f"{self.path}: no such folder")
            return [candidate for folder in sorted(self.path.iterdir()) for candidate in versions(folder)]
        found = self.path if self.path.is_file() else model_file(self.path) or model_file(self.path / "export")
        return [] if found is None else [Candidate(self.single, "1", found)]


def scan_all(roots: Sequence[Root]) -> list[Candidate]:
    """List the versions below several roots; no two may have one name and version."""
    found: dict[tuple[str, str], Candidate] = {}
    for candidate in (candidate for root in roots for candidate in root.scan()):
        other = found.setdefault((candidate.name, candidate.version), candidate)
        if other is not candidate:
            raise ServeError(f"{other.path} and {candidate.path} are both called {candidate.name}; rename one")
    return list(found.values())


def numbered(folder: Path) -> list[Candidate]:
    """List the numbered versions of one model's folder."""
    if not folder.is_dir():
        return []
    inner = sorted((path for path in folder.iterdir() if VERSION.fullmatch(path.name)), key=lambda path: int(path.name))
    return [Candidate(folder.name, path.name, file) for path in inner if (file := model_file(path)) is not None]


def versions(folder: Path) -> list[Candidate]:
    """List the versions of one model's folder; without numbered folders, its file is version 1."""
    if not folder.is_dir() or not NAME.fullmatch(folder.name):
        return []
    single = model_file(folder) or model_file(folder / "export")
    return numbered(folder) or ([Candidate(folder.name, "1", single)] if single is not None else [])


def model_file(folder: Path) -> Path | None:
    """Return the file of a folder that is served: `model.gguf` before `model.onnx` before others by name."""
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
