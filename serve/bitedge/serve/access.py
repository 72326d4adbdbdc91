"""Which paths need which permission, and how a request shows that it has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bitedge.serve.api.errors import ForbiddenError

if TYPE_CHECKING:
    from bitedge.serve.service import Service

OPEN_PATHS = frozenset(("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"))


def scope_of(path: str) -> str | None:
    """Which permission a path needs; None: open to all."""
    if path in OPEN_PATHS or path.startswith("/static/"):
        return None
    if path == "/metrics":
        return "metrics"
    return "admin" if path.startswith("/v2/repository/models/") else "infer"


def closed_scopes(service: Service) -> frozenset[str]:
    """The permissions that need a key; none when there are no keys."""
    if not service.keys:
        return frozenset()
    policies = {"infer": "key", "metrics": service.config.metrics, "admin": service.config.admin}
    return frozenset(scope for scope, policy in policies.items() if policy == "key")


def presented_key(headers: Mapping[bytes, bytes]) -> str | None:
    """The key in `Authorization: Bearer` or `X-API-Key`."""
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip().decode("latin-1")
    return headers.get(b"x-api-key", b"").decode("latin-1") or None


def check_admin(service: Service, headers: Mapping[bytes, bytes]) -> None:
    """Loading and unloading: only when it is switched on, and never from a page of another site."""
    policy = service.config.admin
    if policy == "off" or (policy == "key" and not service.keys):
        raise ForbiddenError(
            "models are loaded from their folder; start with --admin open, or with API keys, to allow this"
        )
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
        raise ForbiddenError("this may not be called from another site's page")
