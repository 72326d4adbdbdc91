"""Check that the includes of the C++ core go one way, and that tests and tools do not include each other.

python runtime/tools/check_includes.py
"""

import re
import sys
from pathlib import Path

RUNTIME = Path(__file__).parents[1]
LAYERS = ["base", "file", "graph", "kernels", "layers", "plan", "run", "api"]
INCLUDE = re.compile(r'^#include "(\w+)/[\w./]+"', re.MULTILINE)
SOURCES = {".cpp", ".h", ".inl"}


def defects(runtime: Path) -> list[str]:
    """List every include that points the wrong way, one line each."""
    may_include = {f"src/{layer}": {*LAYERS[: i + 1], "bitedge"} for i, layer in enumerate(LAYERS)}
    may_include["testing"] = {*LAYERS, "testing"}
    for user in ("tests", "tools", "fuzz"):
        may_include[user] = {*LAYERS, "testing", "bitedge"}
    found = []
    for folder, allowed in may_include.items():
        for path in sorted((runtime / folder).glob("*")):
            if path.suffix not in SOURCES:
                continue
            for included in INCLUDE.findall(path.read_text()):
                if included not in allowed:
                    found.append(f"{path.relative_to(runtime)} includes from {included}/")
    found += [f"src/{path.name} is in none of {', '.join(LAYERS)}" for path in (runtime / "src").glob("*.*")]
    return found


if __name__ == "__main__":
    lines = defects(RUNTIME)
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(1 if lines else 0)
