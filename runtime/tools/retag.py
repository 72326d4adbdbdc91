"""Give a cross-built wheel the manylinux tag that its library deserves: the newest glibc that a symbol of it asks for.

    python runtime/tools/retag.py dist/bitedge-0.1.0-py3-none-linux_aarch64.whl

The tag promises that the wheel runs wherever that glibc or a later one is (PEP 600). A cross compiler's library depends
on the cross compiler's glibc, so the tag is read off, never assumed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIBRARY = "bitedge/runtime/libbitedge.so"
BESIDES_GLIBC = re.compile(r"NEEDED\s+(?!libc\.|libm\.|libpthread\.|libdl\.|ld-linux)(\S+)")


def newest_glibc(library: Path, objdump: str) -> tuple[int, int]:
    """The newest version among the symbols that a library takes from glibc."""
    symbols = subprocess.run([objdump, "-T", str(library)], capture_output=True, text=True, check=True).stdout
    return max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))


def main() -> None:
    """Rename the wheel, its own record included."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    arguments = parser.parse_args()
    machine = arguments.wheel.stem.split("-linux_")[1]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(arguments.wheel) as archive:
        library = Path(archive.extract(LIBRARY, folder))
        head = subprocess.run([arguments.objdump, "-p", str(library)], capture_output=True, text=True, check=True)
        if foreign := BESIDES_GLIBC.findall(head.stdout):
            sys.exit(f"{LIBRARY} needs {', '.join(foreign)}, so no manylinux tag is true of it")
        major, minor = newest_glibc(library, arguments.objdump)
    tag = f"manylinux_{major}_{minor}_{machine}"
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(arguments.wheel)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(arguments.wheel.with_name(arguments.wheel.name.replace(f"linux_{machine}", tag)))


if __name__ == "__main__":
    main()
