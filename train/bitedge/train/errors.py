"""The one error of the training room."""

from __future__ import annotations


class TrainError(ValueError):
    """Something in the caller's recipe, data or arguments is wrong; the message says what to do."""

    bad_input = True
