"""API keys: making, storing as SHA-256, checking, and reading them again when their file changes.

A key file, or the setting `api_keys`, holds lines of `name:scopes:sha256`; scopes are a comma-separated choice of
`infer`, `metrics` and `admin`.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bitedge.serve.api.errors import ForbiddenError, ServeError, UnauthorizedError

log = logging.getLogger("bitedge.serve")

SCOPES = ("infer", "metrics", "admin")
CHECK_SECONDS = 1.0  # how often the key file is looked at


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


class KeyRing:
    """The keys that are valid now. Once any are configured, a key is needed, even if none can be read any more."""

    def __init__(
        self, file: Path | None = None, text: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.required = file is not None or text is not None
        self._file = file
        self._fixed = parse_keys((text or "").replace(";", "\n"))
        self._clock = clock
        self._keys: tuple[Key, ...] = self._fixed
        self._signature: tuple[int, int, int] | None = None
        self._checked = float("-inf")

    def check(self) -> None:
        """Refuse a configuration that holds no key at all."""
        if self._file is not None:
            try:
                self._read()
            except OSError as error:
                raise ServeError(f"API keys: {self._file} cannot be read: {error.strerror}") from None
        if self.required and not self._keys:
            where = self._file or "the setting api_keys"
            raise ServeError(f"{where}: expected API keys, got none; bitedge serve --new-key NAME makes one")

    def _read(self) -> None:
        assert self._file is not None
        status = self._file.stat()
        signature = status.st_ino, status.st_mtime_ns, status.st_size
        if signature != self._signature:
            self._keys = self._fixed + parse_keys(self._file.read_text(encoding="utf-8"))
            self._signature = signature

    def current(self) -> tuple[Key, ...]:
        """Return the keys, read again if the file changed; a file that cannot be read leaves them as they are."""
        now = self._clock()
        if self._file is not None and now - self._checked >= CHECK_SECONDS:
            self._checked = now
            try:
                self._read()
            except (OSError, ServeError, UnicodeDecodeError) as error:
                log.error("the key file cannot be read; the keys stay as they were", extra={"error": str(error)})
        return self._keys

    def authorize(self, presented: str | None, scope: str) -> Key:
        """Find the key that was presented, in a time that does not depend on which one came near."""
        if not presented:
            raise UnauthorizedError("this needs an API key: send Authorization: Bearer KEY, or X-API-Key: KEY")
        digest = hashlib.sha256(presented.encode("utf-8", "replace")).digest()
        found: Key | None = None
        for key in self.current():
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None:
            raise UnauthorizedError("this API key is not known")
        if scope not in found.scopes:
            raise ForbiddenError(f"the API key {found.name} does not allow {scope}")
        return found
