"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Protocol, TextIO


class Progress(Protocol):
    """Hears about the steps and epochs of a run."""

    def start(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """An epoch of so many steps begins, `done` of them already behind it."""

    def step(self) -> None:
        """One step is done."""

    def note(self, line: str) -> None:
        """Something worth a line: the result of an epoch, a warning, a resume."""

    def close(self) -> None:
        """The run is over, well or not."""


class Silent:
    """Says nothing."""

    def start(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """Say nothing."""

    def step(self) -> None:
        """Say nothing."""

    def note(self, line: str) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""


class Lines(Silent):
    """Prints one line per note: for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream

    def note(self, line: str) -> None:
        """Print the line at once."""
        print(line, file=self.stream, flush=True)


class Bar(Lines):
    """Shows the current epoch as a bar, with the notes above it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._bar: Any = None

    def start(self, epoch: int, epochs: int, steps: int, done: int) -> None:
        """Begin a new bar."""
        from tqdm import tqdm

        self.close()
        label = f"epoch {epoch}/{epochs}"
        self._bar = tqdm(total=steps, initial=done, desc=label, unit="step", leave=False, file=self.stream)

    def step(self) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.update()

    def note(self, line: str) -> None:
        """Print above the bar."""
        if self._bar is not None:
            self._bar.clear()
        super().note(line)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def default_progress() -> Progress:
    """A bar when standard error is a terminal, plain lines otherwise."""
    return Bar() if sys.stderr.isatty() else Lines()
