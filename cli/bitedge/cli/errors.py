"""The command line's own error."""

from __future__ import annotations


class CommandError(ValueError):
    """The caller asked for something that cannot be done; the message says what to do instead."""

    bad_input = True
