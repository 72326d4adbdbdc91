"""Any module as a teacher: with the preprocessing that it was trained with, and its classes in the data's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitedge.train.data.preprocessing import normalization_terms
from bitedge.train.errors import TrainError


@dataclass(frozen=True)
class Teacher:
    """A module to distill from.

    `preprocessing` is what the module expects, as a data set has it (`scale`, `offset`, `size`), or a normalization by
    name ("imagenet"); None: the same as the student's. `labels` are its classes in the order of its outputs; None:
    those of the data, in their order.
    """

    module: nn.Module
    preprocessing: Mapping[str, Any] | str | None = None
    labels: Sequence[str] | None = None
    name: str = "the teacher"

    def ready(
        self, labels: Sequence[str], preprocessing: Mapping[str, Any], device: torch.device
    ) -> Callable[[Tensor], Tensor]:
        """Return a function from the student's images to the teacher's logits, checked against the data's classes."""
        order = self._order(labels)
        convert = self._converter(preprocessing, device)
        module = self.module.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)  # type: ignore[call-overload]

        def answer(images: Tensor) -> Tensor:
            with torch.no_grad():
                logits: Tensor = module(convert(images)).float()
            if logits.ndim != 2 or (order is None and logits.shape[1] != len(labels)):
                raise TrainError(f"{self.name} gives logits of shape {list(logits.shape)}, expected [N, {len(labels)}]")
            return logits if order is None else logits[:, order]

        return answer

    def _order(self, labels: Sequence[str]) -> list[int] | None:
        if self.labels is None or list(self.labels) == list(labels):
            return None
        missing = [label for label in labels if label not in self.labels]
        if missing:
            raise TrainError(
                f"{self.name} knows {len(self.labels)} classes, the data has {len(labels)}: "
                f"it does not know {missing[0]!r} and {len(missing) - 1} more"
            )
        return [list(self.labels).index(label) for label in labels]

    def _converter(self, student: Mapping[str, Any], device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from the student's input to the teacher's: another affine map, another size."""
        if self.preprocessing is None:
            return lambda images: images
        if isinstance(self.preprocessing, str):
            scale, offset = normalization_terms(self.preprocessing)
            size = list(student["size"])
        else:
            scale, offset = list(self.preprocessing["scale"]), list(self.preprocessing["offset"])
            size = list(self.preprocessing["size"])
        ours, theirs = (student["scale"], student["offset"]), (scale, offset)
        same = [list(part) for part in ours] == [list(part) for part in theirs]
        if same and size == list(student["size"]):
            return lambda images: images

        # u·scale + offset for pixels u: x_teacher = (x_student - offset_s)·(scale_t / scale_s) + offset_t
        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device).reshape(1, -1, 1, 1)

        factor = column([t / s for t, s in zip(scale, ours[0], strict=True)])
        before, after = column(ours[1]), column(offset)

        def convert(images: Tensor) -> Tensor:
            images = images if same else (images - before) * factor + after
            if list(images.shape[2:]) != size:
                images = F.interpolate(images, size=size, mode="bilinear", align_corners=False, antialias=True)
            return images

        return convert
