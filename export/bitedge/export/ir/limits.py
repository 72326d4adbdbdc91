"""The limits of a graph: the exporter refuses what lies beyond, and so does the core.

`runtime/src/file/limits.h` and docs/format.md say the same; `tests/export/ir/test_limits.py` holds them together.
"""

from __future__ import annotations

NODES = 4096
VALUE_ELEMENTS = 2**28
"""Elements of one value, and of one padded input."""
WINDOW = 65_535
"""Any kernel, stride, pad, dilation or pooled size."""
TAPS = 2**23
"""Taps of one output: the sum fits a float32 exactly."""
IMAGE_TAPS = 2**16
"""The same for pixels of up to 255."""
STEPS = 16
"""Steps of an epilogue."""
