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

from bitedge.serve.api.errors import ServeError, UnknownModelError
from bitedge.serve.models.backends import ServedModel, load_model
from bitedge.serve.models.repository import Candidate, Root, scan_all

MISSES_BEFORE_REMOVAL = 2  # a folder that is being replaced may be gone for a moment
UNLOADED = "unloaded"


@dataclass(frozen=True)
class Entry:
    """One version on disk, and the model that was loaded from it."""

    candidate: Candidate
    signature: tuple[int, int, int] | None
    model: ServedModel | None
    reason: str = ""
    misses: int = 0

    @property
    def state(self) -> str:
        """READY or UNAVAILABLE, as in Triton's repository index."""
        return "READY" if self.model is not None else "UNAVAILABLE"


@dataclass(frozen=True)
class Event:
    """A version was loaded, replaced, refused, removed or unloaded; `error` says why it was refused."""

    kind: str
    name: str
    version: str
    error: str = ""


@dataclass(frozen=True)
class Snapshot:
    """All versions, and the newest of each model that can be served; requests read one snapshot."""

    table: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    newest: Mapping[str, Entry] = field(default_factory=dict)

    @staticmethod
    def of(entries: Sequence[Entry]) -> Snapshot:
        """Sort entries by model and version, and find the newest version of every model."""
        table: dict[str, dict[str, Entry]] = {}
        newest: dict[str, Entry] = {}
        for entry in sorted(entries, key=lambda entry: (entry.candidate.name, int(entry.candidate.version))):
            table.setdefault(entry.candidate.name, {})[entry.candidate.version] = entry
            if entry.model is not None:
                newest[entry.candidate.name] = entry
        return Snapshot(table, newest)

    def entries(self) -> list[Entry]:
        """List every version, sorted by model and version."""
        return [entry for versions in self.table.values() for entry in versions.values()]


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
    def of(
        paths: Sequence[Path], name: str | None = None, *, kernels: str | None = None, default: str | None = None
    ) -> Registry:
        """Make a registry of paths; `name` is for a single model."""
        if name is not None and len(paths) > 1:
            raise ServeError(f"model-name {name}: expected one model, got {len(paths)}; rename the files instead")
        return Registry([Root.of(path, name) for path in paths], kernels=kernels, default=default)

    def refresh(self, *, retry: bool = False) -> list[Event]:
        """Load what is new or changed on disk, drop what is gone or unloaded; `retry` loads refused files again."""
        with self._lock:
            old = {(e.candidate.name, e.candidate.version): e for e in self.snapshot.entries()}
            events: list[Event] = []
            entries: list[Entry] = []
            for candidate in scan_all(self.roots):
                known = old.pop((candidate.name, candidate.version), None)
                entry, kind = self._refresh_one(candidate, known, retry)
                entries += [entry] if entry is not None else []
                if kind:
                    error = entry.reason if entry is not None and kind == "refused" else ""
                    events.append(Event(kind, candidate.name, candidate.version, error))
            for entry in old.values():
                if entry.misses + 1 < MISSES_BEFORE_REMOVAL:
                    entries.append(replace(entry, misses=entry.misses + 1))
                else:
                    events.append(Event("removed", entry.candidate.name, entry.candidate.version))
            self.snapshot = Snapshot.of(entries)
        for event in events:
            self.on_event(event)
        return events

    def _refresh_one(self, candidate: Candidate, old: Entry | None, retry: bool) -> tuple[Entry | None, str]:
        """Return the entry of a version, and what happened to it, if anything did."""
        if candidate.name in self.unloaded:
            kind = "" if old is not None and old.reason == UNLOADED else "unloaded"
            return Entry(candidate, None, None, UNLOADED), kind
        try:
            signature = candidate.signature()
        except OSError:  # gone since the scan; the next one reports it
            return old, ""
        if old is not None and old.signature == signature and not (retry and old.reason):
            return replace(old, misses=0), ""
        serving = old.model if old is not None else None
        try:
            model = load_model(candidate.path, name=candidate.name, version=candidate.version, kernels=self._kernels)
        except ServeError as error:
            return Entry(candidate, signature, serving, reason=str(error)), "refused"
        return Entry(candidate, signature, model), "loaded" if serving is None else "replaced"

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
        name = name or self.default_name or ""
        if name not in snapshot.table:
            known = ", ".join(snapshot.table) or "none"
            if not name and snapshot.table:
                raise ServeError(f"there is no default model; name one of {known}, or start with --default-model")
            raise UnknownModelError(f"there is no model {name or 'at all'}; these are served: {known}")
        entry = snapshot.table[name].get(version) if version else snapshot.newest.get(name)
        if entry is None or entry.model is None:
            why = f" ({entry.reason})" if entry is not None else ""
            which = f"version {version}" if version else "version"
            raise UnknownModelError(f"model {name} has no {which} that can be served{why}; GET /v1/models says more")
        return entry

    def get(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """Return the model that serves a request."""
        model = self.entry(name, version).model
        assert model is not None
        return model

    @property
    def default_name(self) -> str | None:
        """The model for requests that name none: the configured one, or the only one."""
        return self.default or (next(iter(self.snapshot.table)) if len(self.snapshot.table) == 1 else None)

    @property
    def ready(self) -> bool:
        """Whether a model can be served; a bad one beside it does not matter."""
        return bool(self.snapshot.newest)
