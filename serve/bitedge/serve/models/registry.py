"""The models that are served, and how they are exchanged while requests run.

A new or changed version is loaded beside the one that serves, must reproduce its golden vectors, and then takes over in
one assignment: a request sees the old table or the new one. One that fails is reported, and the old one stays.
Jobs hold the model they were accepted for, so a version that was replaced ends with its last job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bitedge.serve.api.errors import ServeError, UnknownModelError
from bitedge.serve.models.backends import ServedModel, load_model
from bitedge.serve.models.repository import Candidate, scan_all

MISSES_BEFORE_REMOVAL = 2  # a folder that is being replaced may be gone for a moment


@dataclass(frozen=True)
class Entry:
    """One version on disk and what came of loading it."""

    candidate: Candidate
    signature: tuple[int, int, int]
    model: ServedModel | None
    reason: str = ""
    misses: int = 0

    @property
    def state(self) -> str:
        """READY or UNAVAILABLE, in the words of Triton's repository index."""
        return "READY" if self.model is not None else "UNAVAILABLE"


@dataclass(frozen=True)
class Event:
    """Something happened to a version; `error` says why it was refused."""

    kind: Literal["loaded", "replaced", "refused", "removed"]
    name: str
    version: str
    error: str = ""


Table = Mapping[str, Mapping[str, Entry]]


@dataclass
class ModelStore:
    """The table of models, read by the event loop and written by one refresh at a time."""

    roots: Path | tuple[Path, ...]
    kernels: str | None = None
    default: str | None = None
    name: str | None = None  # of a single model, see `scan`
    on_event: Callable[[Event], None] = lambda _: None
    unloaded: frozenset[str] = frozenset()
    table: Table = field(default_factory=dict)
    _newest: Mapping[str, ServedModel] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def sources(self) -> tuple[Path, ...]:
        """The folders and files to look at."""
        return (self.roots,) if isinstance(self.roots, Path) else self.roots

    def refresh(self, *, force: str | None = None) -> list[Event]:
        """Look at the folder, load what is new or changed, drop what is gone; `force` retries a refused model."""
        with self._lock:
            found = {(c.name, c.version): c for c in scan_all(self.sources, self.name) if c.name not in self.unloaded}
            events: list[Event] = []
            for key, candidate in found.items():
                self._refresh_one(key, candidate, force == candidate.name, events)
            for name, entries in list(self.table.items()):
                for version, entry in list(entries.items()):
                    if (name, version) not in found:
                        self._miss(entry, events)
        for event in events:
            self.on_event(event)
        return events

    def _refresh_one(self, key: tuple[str, str], candidate: Candidate, force: bool, events: list[Event]) -> None:
        name, version = key
        old = self.table.get(name, {}).get(version)
        try:
            signature = candidate.signature()
        except OSError:  # gone since the scan; the next one tells
            return
        if old is not None and old.signature == signature and not (force and old.reason):
            if old.misses:
                self._put(replace(old, misses=0))
            return
        try:
            model = load_model(candidate.path, name=name, version=version, kernels=self.kernels)
        except ServeError as error:
            kept = old.model if old is not None else None
            self._put(Entry(candidate, signature, kept, reason=str(error)))
            events.append(Event("refused", name, version, str(error)))
            return
        self._put(Entry(candidate, signature, model))
        replaced = old is not None and old.model is not None
        if old is not None and old.model is not None:
            old.model.retired = True
        events.append(Event("replaced" if replaced else "loaded", name, version))

    def _miss(self, entry: Entry, events: list[Event]) -> None:
        name, version = entry.candidate.name, entry.candidate.version
        if entry.misses + 1 < MISSES_BEFORE_REMOVAL and name not in self.unloaded:
            self._put(replace(entry, misses=entry.misses + 1))
            return
        entries = {key: value for key, value in self.table[name].items() if key != version}
        rest = {key: value for key, value in self.table.items() if key != name}
        self._publish({**rest, name: entries} if entries else rest)
        if entry.model is not None:
            entry.model.retired = True
        events.append(Event("removed", name, version))

    def _put(self, entry: Entry) -> None:
        name, version = entry.candidate.name, entry.candidate.version
        self._publish({**self.table, name: {**self.table.get(name, {}), version: entry}})

    def _publish(self, table: Table) -> None:
        """Exchange the tables that requests read."""
        newest_of = {name: newest(table[name]) for name in sorted(table)}
        self.table = table
        self._newest = {name: model for name, model in newest_of.items() if model is not None}

    def load(self, name: str) -> None:
        """Load a model by name, again if it was unloaded or refused."""
        before, self.unloaded = self.unloaded, self.unloaded - {name}
        self.refresh(force=name)
        entries = self.table.get(name)
        if entries is None:
            self.unloaded = before
            raise UnknownModelError(f"there is no model {name} in {', '.join(map(str, self.sources))}")
        refused = [entry for entry in entries.values() if entry.reason]
        if refused:
            raise ServeError(f"model {name} version {refused[0].candidate.version} is refused: {refused[0].reason}")

    def unload(self, name: str) -> None:
        """Stop serving a model until it is loaded again."""
        if name not in self.table and name not in self.unloaded:
            raise UnknownModelError(f"there is no model {name}")
        self.unloaded = self.unloaded | {name}
        self.refresh()

    def get(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """The version that serves a request; the newest one, and the default model, where none is named."""
        table = self.table
        name = name or self.default_name
        entries = table.get(name or "")
        if not entries:
            known = ", ".join(sorted(table)) or "none"
            raise UnknownModelError(f"there is no model {name or 'at all'}; these are served: {known}")
        if version:
            entry = entries.get(version)
            if entry is None or entry.model is None:
                why = f" ({entry.reason})" if entry is not None else ""
                raise UnknownModelError(f"model {name} has no version {version} that can be served{why}")
            return entry.model
        model = self._newest.get(name or "")
        if model is None:
            raise UnknownModelError(f"model {name} has no version that can be served; GET /v1/models says why")
        return model

    @property
    def default_name(self) -> str | None:
        """The model that serves requests which name none."""
        if self.default is not None:
            return self.default
        return next(iter(self._newest), None)

    @property
    def ready(self) -> bool:
        """Whether a model serves that passed its golden vectors; a bad one beside it takes nobody out of service."""
        return bool(self._newest)

    def entries(self) -> list[Entry]:
        """Every version that is known, sorted by model and version."""
        table = self.table
        return [table[name][version] for name in sorted(table) for version in sorted(table[name], key=int)]


def newest(entries: Mapping[str, Entry]) -> ServedModel | None:
    """The highest version that can be served."""
    models = [entry.model for entry in entries.values() if entry.model is not None]
    return max(models, key=lambda model: int(model.version), default=None)
