"""Errors of requests and models; each class carries its HTTP status and a reason for the metrics."""

from __future__ import annotations

import math


class ServeError(ValueError):
    """The caller's fault: one line that says what was expected, what came and what to do."""

    bad_input = True
    status = 400
    reason = "bad_request"

    def headers(self) -> dict[str, str]:
        """Headers that the answer needs besides the usual ones."""
        return {}


class ImageError(ServeError):
    """The bytes are not an image that can be decoded."""

    reason = "bad_image"


class ModelFaultError(ServeError):
    """A model file cannot be served; the message says why."""

    reason = "model_fault"


class UnauthorizedError(ServeError):
    """No API key came, or one that is not known."""

    status, reason = 401, "unauthorized"

    def headers(self) -> dict[str, str]:
        """Name the scheme, as RFC 9110 asks."""
        return {"www-authenticate": 'Bearer realm="bitedge"'}


class ForbiddenError(ServeError):
    """The key does not allow this, or the service does not offer it."""

    status, reason = 403, "forbidden"


class UnknownModelError(ServeError):
    """There is no such model or version."""

    status, reason = 404, "unknown_model"


class BodyTimeoutError(ServeError):
    """The request's body did not arrive in time."""

    status, reason = 408, "body_timeout"


class TooLargeError(ServeError):
    """The request has more bytes, or the image more pixels, than are allowed."""

    status, reason = 413, "too_large"


class MediaTypeError(ServeError):
    """The content type, its encoding, or the format of the image is not accepted."""

    status, reason = 415, "media_type"


class ShedError(ServeError):
    """The service cannot do this now and says when to come back."""

    status = 503

    def __init__(self, message: str, *, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after

    def headers(self) -> dict[str, str]:
        """Retry-After in whole seconds, at least one."""
        return {"retry-after": str(max(1, math.ceil(self.retry_after)))}


class RateLimitedError(ShedError):
    """One caller asks more often than its share."""

    status = 429


class DeadlineExceededError(ServeError):
    """The work did not end in time."""

    status, reason = 504, "timeout"


class InternalError(ServeError):
    """A fault of the service; the log says which."""

    bad_input = False
    status, reason = 500, "internal"
