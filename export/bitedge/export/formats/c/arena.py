"""The arena of a generated C network: where every value lies, from how long each one lives.

A value and the scratch memory of a node are buffers. Two buffers that live at the same time lie apart, with one
exception: a node may write over an input that nobody reads later, as long as it never writes where it has still to
read. How far the output must start before the input for that is the pair's lead, counted in words.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ORDERS = 200


@dataclass(frozen=True)
class Buffer:
    """So many words, needed from node `first` to node `last`, both included."""

    name: str
    words: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Where each buffer starts, in words, and how many words there are."""

    offsets: Mapping[str, int]
    words: int
    peak: int
    """The node whose buffers reach furthest apart."""


def place(buffers: Sequence[Buffer], leads: Mapping[tuple[str, str], int]) -> Arena:
    """Place all buffers in as few words as can be found; `leads` maps (output, input) to their lead.

    Several orders are tried, the same ones every time: of execution, by size, and shuffled.
    """
    shuffler = random.Random(0)
    orders = [list(buffers), list(reversed(buffers)), sorted(buffers, key=lambda each: -each.words)]
    while len(orders) < ORDERS and len(buffers) > 2:
        orders.append(shuffler.sample(list(buffers), len(buffers)))
    placed = min((_place_in_order(order, leads) for order in orders), key=lambda each: _extent(buffers, each))
    start = min(placed.values(), default=0)
    offsets = {name: offset - start for name, offset in placed.items()}
    return Arena(offsets, _extent(buffers, placed), _peak(buffers, offsets))


def _place_in_order(order: Sequence[Buffer], leads: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Put each buffer where it makes the whole extent grow least; offsets may be negative."""
    offsets: dict[str, int] = {}
    done: list[Buffer] = []
    for buffer in order:
        rivals = [(other, offsets[other.name]) for other in done if _together(buffer, other)]
        low = min((offsets[other.name] for other in done), default=0)
        high = max((offsets[other.name] + other.words for other in done), default=0)
        candidates = {low, high - buffer.words}
        for other, offset in rivals:
            candidates |= {offset + other.words, offset - buffer.words}
            if (lead := leads.get((buffer.name, other.name))) is not None:
                candidates.add(offset - lead)
            if (lead := leads.get((other.name, buffer.name))) is not None:
                candidates.add(offset + lead)
        fitting = [each for each in candidates if all(_apart(buffer, each, *rival, leads) for rival in rivals)]
        offsets[buffer.name] = min(
            fitting, key=lambda at: (max(high, at + buffer.words) - min(low, at), abs(at - low), at)
        )
        done.append(buffer)
    return offsets


def _together(a: Buffer, b: Buffer) -> bool:
    return a.first <= b.last and b.first <= a.last


def _apart(a: Buffer, at: int, b: Buffer, offset: int, leads: Mapping[tuple[str, str], int]) -> bool:
    if at + a.words <= offset or offset + b.words <= at:
        return True
    if (lead := leads.get((a.name, b.name))) is not None and at + lead <= offset:
        return True
    return (lead := leads.get((b.name, a.name))) is not None and offset + lead <= at


def _extent(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> int:
    if not buffers:
        return 0
    return max(offsets[each.name] + each.words for each in buffers) - min(offsets.values())


def _peak(buffers: Sequence[Buffer], offsets: Mapping[str, int]) -> int:
    extents = {
        node: _extent(live, {each.name: offsets[each.name] for each in live})
        for node in range(max((each.last for each in buffers), default=-1) + 1)
        if (live := [each for each in buffers if each.first <= node <= each.last])
    }
    return max(extents, key=lambda node: extents[node], default=0)
