"""API keys and rate limits.

Keys are long random strings, kept as SHA-256: a file or an environment variable holds lines of
`name:scopes:sha256`, scopes being a comma-separated choice of `infer`, `metrics` and `admin`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bitedge.serve.api.errors import ForbiddenError, RateLimitedError, ServeError, UnauthorizedError

SCOPES = ("infer", "metrics", "admin")
MAX_CALLERS = 10_000  # buckets that are remembered; the least recently seen one makes room


@dataclass(frozen=True)
class Key:
    """A key as it is stored."""

    name: str
    scopes: frozenset[str]
    digest: bytes


def new_key(name: str, scopes: Iterable[str] = ("infer",)) -> tuple[str, str]:
    """Make a key: the secret for its owner, and the line for the key file."""
    secret = f"be_{secrets.token_urlsafe(32)}"
    line = f"{name}:{','.join(scopes)}:{hashlib.sha256(secret.encode()).hexdigest()}"
    parse_keys(line)
    return secret, line


def parse_keys(text: str) -> tuple[Key, ...]:
    """Read the lines of a key file; `#` begins a comment."""
    keys = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([\w.@-]{1,64}):([a-z,]+):([0-9a-f]{64})", line)
        scopes = frozenset(match[2].split(",")) if match else frozenset()
        if match is None or not scopes <= set(SCOPES):
            expected = f"name:scopes:sha256 with scopes of {', '.join(SCOPES)}"
            raise ServeError(f"API keys, line {number}: expected {expected}; bitedge serve --new-key NAME makes one")
        keys.append(Key(match[1], scopes, bytes.fromhex(match[3])))
    return tuple(keys)


def load_keys(path: Path | None, variable: str) -> tuple[Key, ...]:
    """Read the keys from the file and the environment variable; none at all means an open service."""
    text = os.environ.get(variable, "").replace(";", "\n")
    if path is not None:
        text += "\n" + path.read_text(encoding="utf-8")
        if not parse_keys(text):
            raise ServeError(f"{path}: holds no API key; bitedge serve --new-key NAME makes one")
    return parse_keys(text)


def authorize(keys: tuple[Key, ...], presented: str | None, scope: str) -> Key:
    """Find the key that was presented, in a time that does not tell which one came near."""
    if not presented:
        raise UnauthorizedError("this needs an API key: send Authorization: Bearer KEY, or X-API-Key: KEY")
    digest = hashlib.sha256(presented.encode("utf-8", "replace")).digest()
    found: Key | None = None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key
    if found is None:
        raise UnauthorizedError("this API key is not known")
    if scope not in found.scopes:
        raise ForbiddenError(f"the API key {found.name} does not allow {scope}")
    return found


class RateLimiter:
    """One token bucket for each caller."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count one request, or refuse it and say when the next one fits."""
        now = self._clock()
        tokens, seen = self._buckets.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - seen) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            message = f"more than {self._rate:g} requests a second; come back later"
            raise RateLimitedError(message, reason="rate_limit", retry_after=(1 - tokens) / self._rate)
