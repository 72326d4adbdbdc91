"""Export: from a trained module to artifacts that give the same answer everywhere.

The public names are imported on first use, so that what needs only numpy (graphs, pictures) does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitedge.export.api import export as export
    from bitedge.export.api import export_run as export_run
    from bitedge.export.capture.capture import capture as capture
    from bitedge.export.errors import ExportError as ExportError
    from bitedge.export.importers.api import Imported as Imported
    from bitedge.export.importers.api import import_model as import_model
    from bitedge.export.ir.graph import Graph as Graph
    from bitedge.export.lowering.lower import lower as lower
    from bitedge.export.report.report import Report as Report
    from bitedge.export.verify.compare import verify_artifacts as verify_artifacts
    from bitedge.export.verify.contract import Verdict as Verdict
    from bitedge.export.verify.folder import verify as verify
    from bitedge.export.verify.folder import verify_export as verify_export

_HOMES = {
    "ExportError": "bitedge.export.errors",
    "Imported": "bitedge.export.importers.api",
    "Graph": "bitedge.export.ir.graph",
    "Report": "bitedge.export.report.report",
    "Verdict": "bitedge.export.verify.contract",
    "capture": "bitedge.export.capture.capture",
    "export": "bitedge.export.api",
    "export_run": "bitedge.export.api",
    "import_model": "bitedge.export.importers.api",
    "lower": "bitedge.export.lowering.lower",
    "verify": "bitedge.export.verify.folder",
    "verify_artifacts": "bitedge.export.verify.compare",
    "verify_export": "bitedge.export.verify.folder",
}

__all__ = sorted(_HOMES)

# A function has the name of the sub-package that it comes from. Importing a sub-package for the first time binds its
# name here, so that is done now (it holds no code), and the name is left to the function.
for _name in ("capture", "verify"):
    importlib.import_module(f"{__name__}.{_name}")
    del globals()[_name]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
