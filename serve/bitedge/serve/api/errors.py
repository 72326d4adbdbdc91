"""Errors of requests and models; each class carries its HTTP status, its gRPC status and a reason for the metrics."""

from __future__ import annotations

import math


class ServeError(ValueError):
    """The caller's fault: one line that says what was expected, what came and what to do."""

    bad_input = True
    status = 400
    grpc_status = "INVALID_ARGUMENT"
    reason = "bad_request"

    def headers(self) -> list[tuple[str, str]]:
        """Headers that the answer needs besides the usual ones."""
        return []


class ImageError(ServeError):
    """The bytes are not an image that can be decoded."""

    reason = "bad_image"


class ImageFormatError(ImageError):
    """The bytes are of no format that is allowed."""

    status = 415
    reason = "image_format"


class ImageTooLargeError(ImageError):
    """The image has more pixels than are allowed."""

    status = 413
    reason = "image_too_large"


class BodyTooLargeError(ServeError):
    """The request has more bytes than are allowed."""

    status = 413
    reason = "body_too_large"


class BodyTimeoutError(ServeError):
    """The request's body did not arrive in time."""

    status = 408
    grpc_status = "DEADLINE_EXCEEDED"
    reason = "body_timeout"


class MediaTypeError(ServeError):
    """The request's content type or encoding is not understood."""

    status = 415
    reason = "media_type"


class UnauthorizedError(ServeError):
    """No API key came, or one that is not known."""

    status = 401
    grpc_status = "UNAUTHENTICATED"
    reason = "unauthorized"

    def headers(self) -> list[tuple[str, str]]:
        """Name the scheme, as RFC 9110 asks."""
        return [("www-authenticate", 'Bearer realm="bitedge"')]


class ForbiddenError(ServeError):
    """The key does not allow this, or the service does not offer it."""

    status = 403
    grpc_status = "PERMISSION_DENIED"
    reason = "forbidden"


class UnknownModelError(ServeError):
    """There is no such model or version."""

    status = 404
    grpc_status = "NOT_FOUND"
    reason = "unknown_model"


class ShedError(ServeError):
    """The service cannot do this now and says when to come back."""

    status = 503
    grpc_status = "UNAVAILABLE"
    reason = "shed"

    def __init__(self, message: str, *, reason: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after

    def headers(self) -> list[tuple[str, str]]:
        """Retry-After in whole seconds, at least one."""
        return [("retry-after", str(max(1, math.ceil(self.retry_after))))]


class RateLimitedError(ShedError):
    """One caller asks more often than its share."""

    status = 429
    grpc_status = "RESOURCE_EXHAUSTED"


class ModelFaultError(ServeError):
    """A model file cannot be served; the message says why."""

    status = 400
    reason = "model_fault"


class DeadlineExceededError(ServeError):
    """The work did not end in time."""

    status = 504
    grpc_status = "DEADLINE_EXCEEDED"
    reason = "timeout"


class InternalError(ServeError):
    """A fault of the service; the log says which."""

    bad_input = False
    status = 500
    grpc_status = "INTERNAL"
    reason = "internal"


class ClientDisconnectedError(Exception):
    """The client closed its connection; nobody waits for the answer."""
