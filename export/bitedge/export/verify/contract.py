"""The contract of docs/export.md, and the verdict on every artifact that is held to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitedge.export.report.tables import text_table
from bitedge.export.verify.agreement import LayerAgreement

TOLERANCE = 1e-3
TOP1 = 0.999


@dataclass(frozen=True)
class EngineVerdict:
    """One engine's result; `skipped` says why it did not run, `breach` how it broke the contract."""

    engine: str
    file: str
    images: int = 0
    logit_error: float | None = None
    top1_agreement: float | None = None
    accuracy: float | None = None
    rounded_images: int = 0
    layers: tuple[LayerAgreement, ...] = ()
    skipped: str | None = None
    required: bool = False
    breach: str | None = None

    @property
    def bits(self) -> int:
        """How many bits were compared."""
        return sum(layer.total for layer in self.layers)


@dataclass(frozen=True)
class Verdict:
    """The results of all engines."""

    network: str
    images: int
    exact: bool
    torch_accuracy: float | None
    engines: tuple[EngineVerdict, ...]

    @property
    def passed(self) -> bool:
        """Tell whether every engine that ran kept the contract, and at least one ran."""
        return not self.breach

    @property
    def breach(self) -> str:
        """Give the first breach of the contract, empty if there is none."""
        for row in self.engines:
            if row.breach:
                return f"{row.engine}: {row.breach}"
        for row in self.engines:
            if row.skipped and row.required:
                return f"{row.engine}: required, but skipped: {row.skipped}"
        if all(row.skipped for row in self.engines):
            return "no artifact could be run"
        return ""

    @property
    def summary(self) -> str:
        """Give the result in one line."""
        if self.breach:
            return f"FAILED: {self.breach}"
        ran = [row for row in self.engines if not row.skipped]
        agreement = min(row.top1_agreement or 0.0 for row in ran)
        names = ", ".join(row.engine for row in ran)
        return f"torch = {names} on {self.images:,} images: top-1 agreement {100 * agreement:.2f} %"

    def as_dict(self) -> dict[str, Any]:
        """Give everything as plain data."""
        return {"passed": self.passed, "summary": self.summary, **asdict(self)}

    def text(self) -> str:
        """Lay the result out for a terminal."""
        header = ("engine", "images", "top-1 as torch", "logit error", "accuracy", "bits differing", "result")
        rows: list[list[object]] = [["torch", self.images, "-", "-", _percent(self.torch_accuracy), "-", "reference"]]
        for row in self.engines:
            if row.skipped:
                rows.append([row.engine, "-", "-", "-", "-", "-", f"skipped: {row.skipped}"])
                continue
            bits = f"{sum(layer.differing for layer in row.layers):,} of {sum(layer.total for layer in row.layers):,}"
            error = "-" if row.logit_error is None else f"{row.logit_error:.1e}"
            result = "BREACH" if row.breach else "as the contract says"
            rows.append(
                [row.engine, row.images, _percent(row.top1_agreement), error, _percent(row.accuracy), bits, result]
            )
        parts = [text_table(header, rows)]
        for row in self.engines:
            if row.layers:
                parts.append(f"{row.engine}, layer by layer:\n" + _layer_table(row))
        return "\n\n".join([*parts, self.summary])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def _layer_table(row: EngineVerdict) -> str:
    rows = [
        [layer.name, "exact" if layer.exact else "after float layers", layer.total, layer.differing]
        for layer in row.layers
    ]
    return text_table(("bits of", "must be", "compared", "differing"), rows)


def answer_errors(answers: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Give each image's largest difference, relative to its largest answer."""
    scale = np.maximum(np.abs(expected).max(axis=1), 1e-30)
    largest: NDArray[np.float64] = np.abs(answers.astype(np.float64) - expected).max(axis=1) / scale
    return largest


def answer_breach(answers: NDArray[Any], expected: NDArray[Any], excused: set[int]) -> str | None:
    """Hold answers to the contract; images whose signs hang on rounding are excused from the tolerance."""
    errors = answer_errors(answers, expected)
    far = [image for image in np.nonzero(~(errors <= TOLERANCE))[0] if int(image) not in excused]
    if far:
        return f"the answer to image {far[0]} is off by {errors[far[0]]:.1e} of its size, allowed are {TOLERANCE:g}"
    best = answers.argmax(axis=1)
    same = best == expected.argmax(axis=1)
    if len(answers) * (1 - TOP1) < 1:  # too few images to allow one: those that rounding decides do not count
        chosen = np.take_along_axis(expected, best[:, None], axis=1)[:, 0]
        ties = expected.max(axis=1) - chosen <= 2 * TOLERANCE * np.abs(expected).max(axis=1)
        same |= ties | np.isin(np.arange(len(answers)), sorted(excused))
    if same.mean() < TOP1:
        first = int(np.nonzero(~same)[0][0])
        return f"the best class agrees for {100 * same.mean():.2f} % of the images, first other one: image {first}"
    return None
