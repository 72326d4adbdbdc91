"""Export: from a trained module to artifacts that give the same answer everywhere.

The public names are imported on first use, so that what needs only numpy (graphs, pictures) does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitedge.export.errors import ExportError as ExportError
    from bitedge.export.exporting import export as export
    from bitedge.export.exporting import export_run as export_run
    from bitedge.export.graph import Graph as Graph
    from bitedge.export.lowering import lower as lower
    from bitedge.export.report import Report as Report
    from bitedge.export.tracing.capture import capture as capture
    from bitedge.export.verify import Verdict as Verdict
    from bitedge.export.verify import verify_artifacts as verify_artifacts
    from bitedge.export.verify import verify_export as verify_export

_HOMES = {
    "ExportError": "bitedge.export.errors",
    "Graph": "bitedge.export.graph",
    "Report": "bitedge.export.report",
    "Verdict": "bitedge.export.verify",
    "capture": "bitedge.export.tracing.capture",
    "export": "bitedge.export.exporting",
    "export_run": "bitedge.export.exporting",
    "lower": "bitedge.export.lowering",
    "verify_artifacts": "bitedge.export.verify",
    "verify_export": "bitedge.export.verify",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
