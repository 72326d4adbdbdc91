"""Count the instructions of the binary kernels' inner loops in a cross-built core, and run llvm-mca over them.

    python runtime/tools/arm_mix.py build/arm/CMakeFiles/bitedge_core.dir/src/kernels

A loop is the innermost one that counts bits. Products per vector operation count every instruction that takes a vector
pipe: logic, counts, sums and broadcasts, but not loads.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

VECTOR = re.compile(r"[vq]\d+")
LOADS = {"ldr", "ldp", "ldur", "str", "stp", "stur", "ld1r", "ld1"}
CORES = {"neon": "cortex-a72", "neondot": "cortex-a76"}


class Instruction(NamedTuple):
    """One line of a disassembly."""

    address: int
    name: str
    operands: str


class Loop(NamedTuple):
    """The innermost loop of a kernel that counts bits."""

    kernel: str
    body: tuple[Instruction, ...]

    @property
    def vector(self) -> Counter[str]:
        """Instructions that take a vector pipe."""
        return Counter(i.name for i in self.body if i.name not in LOADS and VECTOR.match(i.operands))

    @property
    def products(self) -> int:
        """Binary multiply-accumulates of one turn: a group of three words takes two counts, a single word one."""
        counts = self.vector["cnt"]
        grouped = sum(self.vector[name] for name in ("bsl", "bit", "bif"))
        return 128 * (3 * grouped + (counts - 2 * grouped))


def functions(text: str) -> list[tuple[str, list[Instruction]]]:
    """Split a disassembly into functions."""
    found: list[tuple[str, list[Instruction]]] = []
    for line in text.splitlines():
        if head := re.match(r"^[0-9a-f]+ <(.*)>:$", line):
            found.append((head[1].replace("bitedge::(anonymous namespace)::", ""), []))
        elif found and (row := re.match(r"^\s+([0-9a-f]+):\s+(\S+)\s*(.*)$", line)):
            found[-1][1].append(Instruction(int(row[1], 16), row[2], row[3].strip()))
    return found


def inner_loops(name: str, body: list[Instruction]) -> list[Loop]:
    """Find the loops that count bits and hold no other loop."""
    index = {instruction.address: i for i, instruction in enumerate(body)}
    spans = []
    for i, instruction in enumerate(body):
        target = (
            re.search(r"\b([0-9a-f]+) <", instruction.operands) if instruction.name.startswith(("b.", "cb")) else None
        )
        if target and index.get(int(target[1], 16), len(body)) < i:
            spans.append((index[int(target[1], 16)], i))
    inner = [(s, e) for s, e in spans if not any((a, b) != (s, e) and s <= a and b <= e for a, b in spans)]
    loops = [Loop(name, tuple(body[s : e + 1])) for s, e in inner]
    return [loop for loop in loops if loop.vector["cnt"]]


def cycles(loop: Loop, core: str, llvm_mca: str) -> float:
    """Ask llvm-mca for the cycles of one turn of the loop when nothing else waits."""
    lines = [f"{i.name} {re.sub(r'<.*', '', i.operands)}".strip() for i in loop.body]
    source = "\n".join(line for line in lines if not line.startswith(("b.", "cb")))
    command = [llvm_mca, "-mtriple=aarch64", f"-mcpu={core}", "-iterations=200"]
    report = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    total = re.search(r"Total Cycles:\s+(\d+)", report)
    assert total is not None, report
    return int(total[1]) / 200


def main() -> None:
    """Print one line per kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", type=Path, help="folder with neon.cpp.o and neondot.cpp.o")
    parser.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    parser.add_argument("--llvm-mca", default="llvm-mca")
    arguments = parser.parse_args()
    head = ("file", "core", "loop", "products", "vector", "per op", "cycles", "per cycle")
    print("{:8} {:10} {:7} {:>8} {:>7} {:>7} {:>7} {:>9}  mix".format(*head))
    for file, core in CORES.items():
        command = [arguments.objdump, "-d", "-C", "--no-show-raw-insn", str(arguments.objects / f"{file}.cpp.o")]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seen = set()
        for name, body in functions(text):
            for loop in inner_loops(name, body):
                if "<2," not in name:
                    continue  # the full tile; the others are what is left over
                kind = "groups" if loop.products > 128 * loop.vector["cnt"] else "words"
                row = (kind, tuple(sorted(loop.vector.items())))
                if row in seen:
                    continue
                seen.add(row)
                operations, turn = sum(loop.vector.values()), cycles(loop, core, arguments.llvm_mca)
                mix = " ".join(f"{count} {op}" for op, count in loop.vector.most_common())
                print(
                    f"{file:8} {core:10} {kind:7} {loop.products:8d} {operations:7d} "
                    f"{loop.products / operations:7.1f} {turn:7.1f} {loop.products / turn:9.1f}  {mix}"
                )


if __name__ == "__main__":
    main()
