"""Keep the module paths of version 0.1 importable: `bitedge.train.layers` is `bitedge.train.nn`, with a warning."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from types import ModuleType

_ENGINE = "checkpoint curves distributed environment evaluate execution metrics objective optimization progress renorm"
MOVED = {
    "assembly": "engine.build",
    "binary": "nn.parameter",
    "box": "pretrained",
    "layers": "nn",
    "networks": "models",
    "quantize": "nn.quantize",
    "recipe": "recipes.recipe",
    "summary": "models.summary",
    **{name: f"engine.{name}" for name in (*_ENGINE.split(), "run", "session", "trainer")},
    **{name: f"experiments.{name}" for name in ("compare", "sweep", "sweep_report")},
}
PACKAGE = "bitedge.train."


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import a module by its old path: the very module of the new path, under both names."""

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Answer for old paths only."""
        return importlib.machinery.ModuleSpec(fullname, self) if _new_path(fullname) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module of the new path."""
        new = _new_path(spec.name)
        warnings.warn(f"{spec.name} is now {new}: import it from there", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        self._kept = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Put back what the import system overwrote; the module has been executed under its new path."""
        module.__spec__, module.__loader__ = self._kept


def _new_path(fullname: str) -> str:
    head, _, rest = fullname.removeprefix(PACKAGE).partition(".")
    new = MOVED.get(head) if fullname.startswith(PACKAGE) else None
    return "" if new is None else f"{PACKAGE}{new}" + (f".{rest}" if rest else "")


def install() -> None:
    """Make the old paths importable, once."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedModules())  # before the one that would import a second copy
