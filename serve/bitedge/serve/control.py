"""Make an order to load or unload a model hold for every worker.

Workers share a folder that the supervisor made. An order is one small file, replaced atomically, which holds the set
of unloaded models and a number; every worker looks at it a few times a second, carries it out and writes the number
down as done.
The worker that took the order answers when all have.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bitedge.serve.api.errors import ServeError
from bitedge.serve.models.registry import ModelStore

log = logging.getLogger("bitedge.serve")

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 30.0


class Control:
    """This worker's view of the orders; without a shared folder there is only this worker."""

    def __init__(self, folder: Path | None, store: ModelStore) -> None:
        self._folder = folder
        self._store = store
        self._done = 0
        self._parent = 0

    async def load(self, name: str) -> None:
        """Load a model in every worker."""
        await self._order("load", name, self._store.load)

    async def unload(self, name: str) -> None:
        """Unload a model in every worker."""
        await self._order("unload", name, self._store.unload)

    async def _order(self, verb: str, name: str, carry_out: Callable[[str], None]) -> None:
        if self._folder is None:
            await asyncio.to_thread(carry_out, name)
            return
        with (self._folder / "lock").open("w") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)  # one order at a time, whoever takes it
            latest = self._read()
            self._store.unloaded = frozenset(latest["unloaded"])
            await asyncio.to_thread(carry_out, name)
            await self._announce(latest["number"] + 1, verb, name)

    def enter(self) -> None:
        """Take part: carry out what was ordered before this worker started."""
        if self._folder is None:
            return
        self._parent = int((self._folder / "supervisor").read_text())  # asking for it now may be too late
        order = self._read()
        self._store.unloaded = frozenset(order["unloaded"])
        self._acknowledge(order["number"])

    async def follow(self) -> None:
        """Carry out the orders that other workers take, for as long as the service runs; without a parent, end."""
        while self._folder is not None:
            await asyncio.sleep(LOOK_SECONDS)
            if os.getppid() != self._parent:
                log.error("the supervisor is gone; ending")
                signal.raise_signal(signal.SIGTERM)
                return
            order = self._read()
            if order["number"] > self._done:
                self._store.unloaded = frozenset(order["unloaded"])
                await asyncio.to_thread(self._store.refresh, force=order["name"])
                self._acknowledge(order["number"])

    async def _announce(self, number: int, verb: str, name: str) -> None:
        assert self._folder is not None
        order = {"number": number, "verb": verb, "name": name, "unloaded": sorted(self._store.unloaded)}
        self._acknowledge(number)
        write(self._folder / "order.json", json.dumps(order))
        until = time.monotonic() + PATIENCE_SECONDS
        while any(int(file.read_text()) < number for file in self._workers()):
            if time.monotonic() > until:
                raise ServeError(f"{verb} {name}: not every worker has done it within {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(LOOK_SECONDS / 2)

    def _workers(self) -> list[Path]:
        assert self._folder is not None
        alive = []
        for file in self._folder.glob("worker-*"):
            if Path(f"/proc/{file.name.removeprefix('worker-')}").exists():
                alive.append(file)
            else:
                file.unlink(missing_ok=True)
        return alive

    def _read(self) -> dict[str, Any]:
        assert self._folder is not None
        try:
            order: dict[str, Any] = json.loads((self._folder / "order.json").read_text())
        except FileNotFoundError:
            return {"number": 0, "name": None, "unloaded": []}
        return order

    def _acknowledge(self, number: int) -> None:
        assert self._folder is not None
        self._done = number
        write(self._folder / f"worker-{os.getpid()}", str(number))


def write(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
