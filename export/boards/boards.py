"""The emulated boards: processor, memory, and how to build for each of them."""

from __future__ import annotations

from dataclasses import dataclass

ARM = "arm-none-eabi-"
RISCV = "riscv64-unknown-elf-"


@dataclass(frozen=True)
class Board:
    """A machine of qemu with its memory map, and the compiler's flags for its processor."""

    name: str
    processor: str
    emulator: str
    machine: tuple[str, ...]
    prefix: str
    flags: tuple[str, ...]
    flash: tuple[int, str] = (0x00000000, "4M")
    ram: tuple[int, str] = (0x20000000, "4M")

    @property
    def start(self) -> str:
        """File with the start of a program."""
        return "start_arm.c" if self.prefix == ARM else "start_riscv.c"

    @property
    def tools(self) -> tuple[str, ...]:
        """Programs that are needed."""
        return (f"{self.prefix}gcc", self.emulator)


def _arm(name: str, processor: str, machine: str, *flags: str, **memory: tuple[int, str]) -> Board:
    return Board(name, processor, "qemu-system-arm", ("-M", machine), ARM, ("-mthumb", *flags), **memory)


def _riscv(name: str, processor: str, march: str) -> Board:
    memory = {"flash": (0x80000000, "4M"), "ram": (0x80400000, "4M")}
    machine = ("-M", "virt", "-bios", "none", "-cpu", "rv32")
    return Board(
        name,
        processor,
        "qemu-system-riscv32",
        machine,
        RISCV,
        ("--specs=picolibc.specs", f"-march={march}", "-mabi=ilp32"),
        **memory,
    )


_SMALL = {"flash": (0x00000000, "256K"), "ram": (0x20000000, "16K")}
_TIGHT = {"flash": (0x00000000, "512K"), "ram": (0x20000000, "512K")}
_HARD = ("-mfloat-abi=hard",)

BOARDS = (
    _arm("m0", "Cortex-M0, the instructions of an M0+", "microbit", "-mcpu=cortex-m0plus", **_SMALL),
    _arm("m3", "Cortex-M3", "mps2-an385", "-mcpu=cortex-m3"),
    _arm("m4", "Cortex-M4", "mps2-an386", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", *_HARD),
    _arm("m7", "Cortex-M7", "mps2-an500", "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", *_HARD),
    _arm("m55", "Cortex-M55, vectors", "mps3-an547", "-mcpu=cortex-m55", *_HARD, **_TIGHT),
    _riscv("rv32", "RISC-V, RV32IMAC", "rv32imac"),
    _riscv("rv32-zbb", "RISC-V, RV32IMAC and Zbb", "rv32imac_zbb"),
)
