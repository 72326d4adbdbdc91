"""Keep torch's bfloat16 off AMX where a virtual machine hides how its tiles are laid out.

oneDNN asks CPUID leaf 0x1D. Some hypervisors announce AMX but answer no leaf beyond 0x1C, and then the first bfloat16
product fails ("could not create a primitive") or kills the process (SIGILL). oneDNN reads the variable once, at its
first operation, so it has to be set before.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

VARIABLE = "ONEDNN_MAX_CPU_ISA"
TILE_LEAF = 0x1D


def hides_tiles(cpuinfo: str) -> bool:
    """Whether a processor, as /proc/cpuinfo describes it, has AMX but not the leaf that describes its tiles."""
    level = re.search(r"^cpuid level\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    return level is not None and int(level[1]) < TILE_LEAF and re.search(r"\bamx_tile\b", cpuinfo) is not None


def avoid_hidden_tiles(path: Path = Path("/proc/cpuinfo")) -> None:
    """Limit oneDNN to AVX-512 on such a machine, unless the user has chosen."""
    try:
        cpuinfo = path.read_text()
    except OSError:
        return
    if hides_tiles(cpuinfo):
        os.environ.setdefault(VARIABLE, "AVX512_CORE_FP16")
