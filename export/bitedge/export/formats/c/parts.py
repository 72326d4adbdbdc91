"""The C operators: one file each in `mcu/`, put together to what a network uses."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

NEEDS: dict[str, tuple[str, ...]] = {
    "binary_conv2d": ("dots",),
    "conv2d_half": ("from_half",),
    "finish_integers": ("finish_floats",),
    "step_fma": ("fma",),
    "normalize": ("fma",),
    "exp": ("fma",),
    "layer_norm": ("rsqrt",),
    "group_norm": ("rsqrt",),
    "softmax": ("exp",),
    "step_sigmoid": ("exp",),
    "step_silu": ("exp",),
    "step_tanh": ("exp",),
}
"""What an operator calls, beside what its layer's description points to."""


def part(name: str) -> str:
    """Read one file of `mcu/`."""
    return resources.files(__package__).joinpath("mcu", name).read_text(encoding="utf-8")


def source(used: Iterable[str], kernels: Iterable[str]) -> str:
    """Give bitedge_mcu.c: the operators that are used, by name, and an inner loop for every length."""
    ordered: list[str] = []

    def include(name: str) -> None:
        for needed in NEEDS.get(name, ()):
            include(needed)
        if name not in ordered:
            ordered.append(name)

    for name in sorted(used):
        include(name)
    lines = "".join(f"{each}\n" for each in kernels)
    texts = [part("start.c"), *(part(f"{name}.c") for name in ordered)]
    return "\n".join([*texts, lines] if lines else texts)
