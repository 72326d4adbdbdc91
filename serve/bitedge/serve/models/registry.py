"""The models that are served, and how they are replaced while requests run.

A new or changed version is loaded beside the one that serves, must reproduce its golden vectors, and then takes over in
one assignment: a request sees the old snapshot or the new one. A version that fails is reported, and the old one stays.
Jobs hold the model they were accepted for, so a replaced version is freed after its last job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bitedge.serve.api.errors import ServeError, UnknownModelError
from bitedge.serve.models.backends import ServedModel, load_model
from bitedge.serve.models.repository import Candidate, Root, scan_all

MISSES_BEFORE_REMOVAL = 2  # a folder that is being replaced may be gone for a moment
UNLOADED = "unloaded"
NO_SIGNATURE = (0, 0, 0)


@dataclass(frozen=True)
class Entry:
    """One version on disk, and the model that was loaded from it."""

    candidate: Candidate
    signature: tuple[int, int, int]
    model: ServedModel | None
    reason: str = ""
    misses: int = 0

    @property
    def state(self) -> str:
        """READY or UNAVAILABLE, as in Triton's repository index."""
        return "READY" if self.model is not None else "UNAVAILABLE"


@dataclass(frozen=True)
class Event:
    """A change of a version; `error` says why it was refused."""

    kind: Literal["loaded", "replaced", "refused", "removed", "unloaded"]
    name: str
    version: str
    error: str = ""


@dataclass(frozen=True)
class Snapshot:
    """All versions, and the newest of each model that can be served; requests read one snapshot."""

    table: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    newest: Mapping[str, Entry] = field(default_factory=dict)

    @staticmethod
    def of(table: Mapping[str, Mapping[str, Entry]]) -> Snapshot:
        """Find the newest version of every model."""
        newest = {}
        for name, entries in sorted(table.items()):
            ready = [entry for entry in entries.values() if entry.model is not None]
            if ready:
                newest[name] = max(ready, key=lambda entry: int(entry.candidate.version))
        return Snapshot(table, newest)

    def entries(self) -> list[Entry]:
        """List every version, sorted by model and version."""
        return [self.table[name][v] for name in sorted(self.table) for v in sorted(self.table[name], key=int)]


class Registry:
    """The table of models, read by the event loop and written by one refresh at a time."""

    def __init__(
        self,
        roots: Sequence[Root],
        *,
        kernels: str | None = None,
        default: str | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self.roots = tuple(roots)
        self.default = default
        self.on_event = on_event
        self.unloaded: frozenset[str] = frozenset()
        self.snapshot = Snapshot()
        self._kernels = kernels
        self._lock = threading.Lock()

    @staticmethod
    def of(paths: Sequence[Path], name: str | None = None, **options: str | None) -> Registry:
        """Make a registry of paths; `name` is for a single model."""
        if name is not None and len(paths) > 1:
            raise ServeError(f"model-name {name}: expected one model, got {len(paths)}; rename the files instead")
        return Registry([Root.of(path, name) for path in paths], **options)  # type: ignore[arg-type]

    def refresh(self, *, unloaded: frozenset[str] | None = None, retry: str = "") -> list[Event]:
        """Load what is new or changed on disk, drop what is gone or unloaded; `retry` names a model to try again."""
        with self._lock:
            if unloaded is not None:
                self.unloaded = unloaded
            found = {(c.name, c.version): c for c in scan_all(self.roots)}
            events: list[Event] = []
            for candidate in found.values():
                self._refresh_one(candidate, retry == candidate.name, events)
            for entry in self.snapshot.entries():
                if (entry.candidate.name, entry.candidate.version) not in found:
                    self._miss(entry, events)
        for event in events:
            self.on_event(event)
        return events

    def _refresh_one(self, candidate: Candidate, retry: bool, events: list[Event]) -> None:
        name, version = candidate.name, candidate.version
        old = self.snapshot.table.get(name, {}).get(version)
        if name in self.unloaded:
            if old is None or old.reason != UNLOADED:
                self._put(Entry(candidate, NO_SIGNATURE, None, UNLOADED))
                events.append(Event("unloaded", name, version))
            return
        try:
            signature = candidate.signature()
        except OSError:  # gone since the scan; the next one reports it
            return
        if old is not None and old.signature == signature and not (retry and old.reason):
            if old.misses:
                self._put(replace(old, misses=0))
            return
        try:
            model = load_model(candidate.path, name=name, version=version, kernels=self._kernels)
        except ServeError as error:
            kept = old.model if old is not None else None
            self._put(Entry(candidate, signature, kept, reason=str(error)))
            events.append(Event("refused", name, version, str(error)))
            return
        self._put(Entry(candidate, signature, model))
        events.append(Event("loaded" if old is None or old.model is None else "replaced", name, version))

    def _miss(self, entry: Entry, events: list[Event]) -> None:
        name, version = entry.candidate.name, entry.candidate.version
        if entry.misses + 1 < MISSES_BEFORE_REMOVAL:
            self._put(replace(entry, misses=entry.misses + 1))
            return
        table = self.snapshot.table
        entries = {key: value for key, value in table[name].items() if key != version}
        rest = {key: value for key, value in table.items() if key != name}
        self.snapshot = Snapshot.of({**rest, name: entries} if entries else rest)
        events.append(Event("removed", name, version))

    def _put(self, entry: Entry) -> None:
        name, version = entry.candidate.name, entry.candidate.version
        table = self.snapshot.table
        self.snapshot = Snapshot.of({**table, name: {**table.get(name, {}), version: entry}})

    def check_known(self, name: str) -> None:
        """Refuse the name of a model that is neither in the table nor on disk."""
        if name not in self.snapshot.table and all(candidate.name != name for candidate in scan_all(self.roots)):
            where = ", ".join(str(root.path) for root in self.roots)
            raise UnknownModelError(f"there is no model {name} in {where}")

    def check_loaded(self, name: str) -> None:
        """Refuse with its reason a model that has a version which could not be loaded."""
        for entry in self.snapshot.table.get(name, {}).values():
            if entry.reason:
                raise ServeError(f"model {name} version {entry.candidate.version} is refused: {entry.reason}")

    def entry(self, name: str | None = None, version: str | None = None) -> Entry:
        """Return the version that serves a request; the newest, of the default model, where none is named."""
        snapshot = self.snapshot
        name = name or self.default_name
        if name is None and snapshot.table:
            known = ", ".join(sorted(snapshot.table))
            raise ServeError(f"there is no default model; name one of {known}, or start with --default-model")
        entries = snapshot.table.get(name or "")
        if not entries:
            known = ", ".join(sorted(snapshot.table)) or "none"
            raise UnknownModelError(f"there is no model {name or 'at all'}; these are served: {known}")
        if version:
            entry = entries.get(version)
            if entry is None or entry.model is None:
                why = f" ({entry.reason})" if entry is not None else ""
                raise UnknownModelError(f"model {name} has no version {version} that can be served{why}")
            return entry
        newest = snapshot.newest.get(name or "")
        if newest is None:
            raise UnknownModelError(f"model {name} has no version that can be served; GET /v1/models says why")
        return newest

    def get(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """Return the model that serves a request."""
        model = self.entry(name, version).model
        assert model is not None
        return model

    @property
    def default_name(self) -> str | None:
        """The model for requests that name none: the configured one, or the only one."""
        if self.default is not None:
            return self.default
        table = self.snapshot.table
        return next(iter(table)) if len(table) == 1 else None

    @property
    def ready(self) -> bool:
        """Whether a model can be served; a bad one beside it does not matter."""
        return bool(self.snapshot.newest)
