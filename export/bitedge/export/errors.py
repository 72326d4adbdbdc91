"""The one error of the export room: the caller's network, options or files are at fault."""

from __future__ import annotations


class ExportError(ValueError):
    """A network cannot be exported, or an export cannot be read: the message says what to do."""

    bad_input = True
