"""C in the making: constants, calls, and the operators that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from bitedge.export.formats.c import text
from bitedge.export.formats.c.arena import Arena
from bitedge.export.formats.c.memory import scratch_name, scratch_words
from bitedge.export.ir import ops
from bitedge.export.ir.graph import Graph, Kind, Node, Value


@dataclass
class Code:
    """What has been written so far."""

    graph: Graph
    values: Mapping[str, Value]
    arena: Arena
    constants: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    kernels: dict[str, str] = field(default_factory=dict)
    """Inner loops for one length each: name and type, and the line that defines it."""
    flash: list[int] = field(default_factory=list)
    """Bytes of constants, node by node."""

    def array(self, name: str, content: NDArray[Any]) -> str:
        """Write a constant array and give its name."""
        self.constants.append(text.array(name, content))
        self.flash[-1] += content.nbytes
        return name

    def function(self, name: str) -> str:
        """Give the C name of an operator, and take it into bitedge_mcu.c."""
        self.used.add(name)
        return f"bitedge_{name}"

    def pointer(self, name: str) -> str:
        """Give the address of a value."""
        value = self.values[name]
        if name == self.graph.input.name:
            return "image"
        if name == self.graph.output:
            return "answer"
        place = f"arena + {self.arena.offsets[name]}"
        return f"(float *)({place})" if value.kind is Kind.FLOAT else place

    def call(self, function: str, *arguments: object) -> None:
        """Write a call of an operator."""
        self.calls.append(f"  {self.function(function)}({', '.join(map(str, arguments))});")

    def layer_call(self, index: int, node: Node, function: str, layer: str) -> None:
        """Write a call of an operator with an epilogue: its description, its input, and the memory of the call."""
        self.constants.append(f"static const bitedge_{layer};\n")
        inputs = [self.pointer(name) for name in node.inputs[1:]]
        made = {self.values[name].kind: self.pointer(name) for name in node.outputs}
        scratch = f"arena + {self.arena.offsets[scratch_name(index)]}" if scratch_words(node.op) else "0"
        memory = ", ".join(["inputs" if inputs else "0", made.get(Kind.FLOAT, "0"), made.get(Kind.BITS, "0"), scratch])
        body = [f"const void *const inputs[] = {{{', '.join(inputs)}}};"] if inputs else []
        body.append(f"const bitedge_io io = {{{memory}}};")
        body.append(f"{self.function(function)}(&layer_{index}, {self.pointer(node.inputs[0])}, &io);")
        self.calls += ["  {", *(f"    {line}" for line in body), "  }"]


def window(place: ops.Window, entering: Value, made: Value) -> str:
    """Give a `bitedge_window`."""
    places = (*place.kernel, *place.stride, *place.pads[:2], *place.dilation, place.groups)
    return "{" + ", ".join(map(str, (*entering.shape, *made.shape, *places))) + "}"
