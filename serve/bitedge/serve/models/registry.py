"""The models that are served, and how they are replaced while requests run.

A new or changed version is loaded beside the one that serves, must reproduce its golden vectors, and then takes over in
one assignment: a request sees the old table or the new one. A version that fails is reported, and the old one stays.
Jobs hold the model they were accepted for, so a replaced version is freed after its last job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    misses: int = 0  # scans in a row that did not find it

    @property
    def state(self) -> str:
        """READY or UNAVAILABLE, as in Triton's repository index."""
        return "READY" if self.model is not None else "UNAVAILABLE"


Table = Mapping[str, Mapping[str, Entry]]  # by model and version, oldest version first


@dataclass(frozen=True)
class Event:
    """A version was loaded, replaced, refused, removed or unloaded; `error` says why it was refused."""

    kind: str
    name: str
    version: str
    error: str = ""


class Registry:
    """The table of models, read by the event loop and written by one refresh at a time."""

    def __init__(
        self, paths: Sequence[Path], name: str | None = None, *, kernels: str | None = None, default: str | None = None
    ) -> None:
        """Take the paths of models; `name` is for a single one."""
        if name is not None and len(paths) > 1:
            raise ServeError(f"model-name {name}: expected one model, got {len(paths)}; rename the files instead")
        self.roots = [Root.of(path, name) for path in paths]
        self.default = default
        self.on_event: Callable[[Event], None] = lambda _: None
        self.unloaded: frozenset[str] = frozenset()
        self.table: Table = {}  # replaced as a whole, never changed
        self._kernels = kernels
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """List every version, sorted by model and version."""
        return [entry for versions in self.table.values() for entry in versions.values()]

    def refresh(self, *, retry: bool = False) -> list[Event]:
        """Load what is new or changed on disk, drop what is gone or unloaded; `retry` loads refused files again."""
        with self._lock:
            old = {(e.candidate.name, e.candidate.version): e for e in self.entries()}
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
            table: dict[str, dict[str, Entry]] = {}
            for entry in sorted(entries, key=lambda entry: (entry.candidate.name, int(entry.candidate.version))):
                table.setdefault(entry.candidate.name, {})[entry.candidate.version] = entry
            self.table = table
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
        if name not in self.table and all(candidate.name != name for candidate in scan_all(self.roots)):
            where = ", ".join(str(root.path) for root in self.roots)
            raise UnknownModelError(f"there is no model {name} in {where}")

    def check_loaded(self, name: str) -> None:
        """Refuse with its reason a model that has a version which could not be loaded."""
        for entry in self.table.get(name, {}).values():
            if entry.reason:
                raise ServeError(f"model {name} version {entry.candidate.version} is refused: {entry.reason}")

    def entry(self, name: str | None = None, version: str | None = None) -> Entry:
        """Return the version that serves a request; the newest, of the default model, where none is named."""
        table = self.table
        name = name or self.default_name or ""
        if name not in table:
            known = ", ".join(table) or "none"
            if not name and table:
                raise ServeError(f"there is no default model; name one of {known}, or start with --default-model")
            raise UnknownModelError(f"there is no model {name or 'at all'}; these are served: {known}")
        ready = [entry for entry in table[name].values() if entry.model is not None]
        entry = table[name].get(version) if version else ready[-1] if ready else None
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
        return self.default or (next(iter(self.table)) if len(self.table) == 1 else None)

    @property
    def ready(self) -> bool:
        """Whether a model can be served; a bad one beside it does not matter."""
        return any(entry.model is not None for entry in self.entries())
