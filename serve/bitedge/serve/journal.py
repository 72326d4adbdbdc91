"""The journal of a connection: all that another process needs to go on with it when the worker that holds it is killed.

It is memory which worker and supervisor share. The kernel puts the bytes of requests straight into it, so none is ever
in the worker alone, and it keeps them until the requests are answered. Before an answer is written, its end is marked
as a position in everything that was ever written to the connection. The kernel knows how much was really read and
written (`tcpcount.py`). So at any instant both sides of a connection are known to the byte, and nothing depends on
which of two steps a worker died between: every change here takes effect by storing one word.

    word 0: which of two slots holds; each slot has
    ORIGIN  what had been read from the connection before the first byte in here; LOST: the journal is incomplete
    CLOSING 1: the connection will be closed after the last mark
    BEGUN   how many requests in here the worker has begun to parse
    COUNT   how many marks follow the first one
    MARKS   positions, shifted by one bit; the lowest is 1 where the position ends an answer, 0 where the next begins
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

HEADER = 64 << 10
SLOTS = (8, 4100)  # words
ORIGIN, CLOSING, BEGUN, COUNT, MARKS = range(5)
MOST_MARKS = SLOTS[1] - SLOTS[0] - MARKS - 1
LOST = (1 << 64) - 1

BESIDE_THE_BODY = 256 << 10  # room for the head of a request, and for the first bytes of the next
ONE_READ = 256 << 10
SMALL = 64 << 10  # what may stay allocated when a journal is empty


def create_journal(max_body_bytes: int) -> int:
    """An empty journal, as a descriptor. Its pages take memory when they are first used."""
    descriptor = os.memfd_create("bitedge-journal")
    os.ftruncate(descriptor, HEADER + max_body_bytes + BESIDE_THE_BODY)
    return descriptor


class Journal:
    """The worker's side. It begins where the last worker stopped: `received` bytes were read, `mark` was reached."""

    def __init__(self, descriptor: int, received: int = 0, mark: int = 0) -> None:
        self._map = mmap.mmap(descriptor, 0)
        self._words = words = memoryview(self._map)[:HEADER].cast("Q")
        self._data = memoryview(self._map)[HEADER:]
        self._slot = slot = SLOTS[words[0]]
        words[slot + CLOSING] = 0  # what was to come after the mark has to be done again
        words[slot + COUNT] = mark
        words[slot + BEGUN] = 0
        self._marks = mark
        self._received = received
        self._end = received - words[slot + ORIGIN]
        self.sent = words[slot + MARKS + mark] >> 1
        self.closed = False

    @property
    def used(self) -> int:
        """The bytes in it."""
        return self._end

    @property
    def content(self) -> bytes:
        """What has been received and not been forgotten."""
        return bytes(self._data[: self._end])

    @property
    def answered(self) -> int:
        """How many of the requests in it have been answered."""
        first = self._slot + MARKS
        return sum(word & 1 for word in self._words[first : first + self._marks + 1])

    def room(self) -> memoryview:
        """Where the next bytes are to be received."""
        if self._end >= len(self._data):
            self._give_up()
            self._end = 0
        return self._data[self._end : self._end + ONE_READ]

    def take(self, count: int) -> bytes:
        """The bytes that were just received."""
        begin = HEADER + self._end
        self._end += count
        self._received += count
        return self._map[begin : begin + count]

    def begin(self) -> None:
        """A request begins."""
        self._words[self._slot + BEGUN] += 1

    def mark(self, answers: int) -> None:
        """What is about to be written, and is in `sent` already, ends an answer (1), or goes before one (0)."""
        if self._marks == MOST_MARKS:
            self._give_up()
            return
        self._marks += 1
        self._words[self._slot + MARKS + self._marks] = self.sent << 1 | answers
        self._words[self._slot + COUNT] = self._marks

    def end(self) -> None:
        """After the last mark, the connection is to be closed."""
        self._words[self._slot + CLOSING] = 1

    def restart(self) -> None:
        """Forget everything: all requests have been answered, and the kernel has the answers."""
        words, other = self._words, SLOTS[0] + SLOTS[1] - self._slot
        words[other + ORIGIN] = self._received
        words[other + CLOSING] = words[other + BEGUN] = words[other + COUNT] = 0
        words[other + MARKS] = self.sent << 1
        words[0] = SLOTS.index(other)
        self._slot = other
        self._marks = 0
        if self._end > SMALL:
            self._map.madvise(mmap.MADV_REMOVE, HEADER + SMALL)
        self._end = 0

    def close(self) -> None:
        """Let go of the memory; it lives on while the supervisor has it."""
        self.closed = True
        self._words.release()
        self._data.release()
        self._map.close()

    def _give_up(self) -> None:
        """Go on without: this much unanswered comes only from clients whose requests are refused, or never stop."""
        self._words[self._slot + ORIGIN] = LOST


@dataclass(frozen=True)
class Standing:
    """Where a dead worker left a connection."""

    mark: int  # the last one that was reached
    request: tuple[int, int]  # which one is to be answered next: where the journal begins, and its place in there
    busy: bool  # whether that one has begun


def standing(descriptor: int, written: int) -> Standing | None:
    """The supervisor's side: from where another worker can go on; None if an answer was cut short, or all is said."""
    words = memoryview(os.pread(descriptor, HEADER, 0)).cast("Q")
    slot = SLOTS[words[0]]
    origin, closing, begun, count = words[slot : slot + MARKS]
    marks = words[slot + MARKS : slot + MARKS + count + 1].tolist()
    positions = [mark >> 1 for mark in marks]
    if origin == LOST or written not in positions:
        return None
    reached = positions.index(written)
    if closing and reached == count:
        return None
    answered = sum(mark & 1 for mark in marks[: reached + 1])
    return Standing(reached, (origin, answered), begun > answered)
