"""A package's static library linked with a small program, and what each of its functions runs."""

from __future__ import annotations

import bisect
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.modelling.code_blocks import Block
from pipelines.modelling.memory import NO_MEMORY, Memory
from pipelines.modelling.qemu_counts import count
from pipelines.runners.package import Package

Array = np.ndarray[Any, Any]

OTHER = ""
"""What stands for the name of code outside the program's own functions: that of libraries."""


@dataclass(frozen=True)
class Ran:
    """One inference: the outputs, and the blocks that it executed by the function they are in."""

    outputs: Mapping[str, Array]
    functions: Mapping[str, Sequence[Block]]


def run(
    package: Package,
    hardware: Hardware,
    inputs: Mapping[str, Array],
    cpu: str,
    memory: Memory = NO_MEMORY,
) -> Ran:
    """Run one inference of an ARM package under QEMU, on a processor of QEMU's.

    `inputs` are one sample by name. UserError says what is not installed, or what failed.
    """
    with tempfile.TemporaryDirectory(prefix="bitkiln-emulating-") as name:
        folder = Path(name)
        program = _linked(package, hardware, folder)
        given, outputs = folder / "inputs", folder / "outputs"
        given.write_bytes(b"".join(x.tobytes() for x in package.check_inputs(inputs)))
        command = [str(program), str(given), str(outputs)]
        found = count(command, architecture=package.architecture, cpu=cpu, memory=memory)
        blocks = by_function(found[0], functions(program))
        return Ran(_split(package, outputs.read_bytes()), blocks)


def _linked(package: Package, hardware: Hardware, folder: Path) -> Path:
    header, library = package.file(f"{package.name}.h"), package.file(f"lib{package.name}.a")
    defined = {
        "HEADER": f'"{header.resolve()}"',
        "NAME(x)": f"{package.name}_##x",
        "IN": ",".join(str(item.nbytes) for item in package.inputs),
        "OUT": ",".join(str(item.nbytes) for item in package.outputs),
    }
    return linked("harness.c", defined, library.resolve(), hardware, folder)


def linked(
    text: str, defined: Mapping[str, str], objects: Path, hardware: Hardware, folder: Path
) -> Path:
    """Compile one of the programs here, with macros defined, and link it with objects.

    Its addresses are those of its symbols: it is not moved about.
    """
    from stages.packaging.compiling.linker import default_cache

    program = folder / "program"
    with as_file(files("pipelines.emulating") / text) as source:
        command = [
            *(sys.executable, "-m", "ziglang", "cc", "-target", hardware.zig_target, "-O2"),
            *("-fno-pie", "-no-pie", *(f"-D{name}={value}" for name, value in defined.items())),
            *(str(source), str(objects), "-lpthread", "-o", str(program)),
        ]
        cache = {
            "ZIG_GLOBAL_CACHE_DIR": str(default_cache()),
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
        }
        done = subprocess.run(
            command, env={**os.environ, **cache}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise UserError(f"{objects.name} was not linked: {done.stderr.strip()[-500:]}")
    return program


def functions(program: Path) -> list[tuple[int, str]]:
    """Return addresses and names of a program's functions, in the order of addresses."""
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise UserError("pyelftools is not installed; run: pip install -e '.[emulator]'") from error
    with program.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        found = {
            # In 32 bits the lowest bit of an address says which instruction set it is.
            (symbol["st_value"] & ~1, symbol["st_value"] + max(4, symbol["st_size"]), symbol.name)
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
        }
    ends = {end: OTHER for _, end, _ in found}
    return sorted((ends | {start: name for start, _, name in found}).items())


def by_function(
    blocks: Sequence[Block], known: Sequence[tuple[int, str]]
) -> dict[str, list[Block]]:
    """Return blocks by the name of the function that they are in, of those of `functions`."""
    starts = [start for start, _ in known]
    found: dict[str, list[Block]] = {}
    for block in blocks:
        index = bisect.bisect_right(starts, block.address) - 1
        name = known[index][1] if index >= 0 else OTHER
        found.setdefault(name, []).append(block)
    return found


def _split(package: Package, data: bytes) -> dict[str, Array]:
    """Undo the program's writing of outputs one behind the other."""
    found, at = {}, 0
    for item in package.outputs:
        values = np.frombuffer(data, item.dtype, int(np.prod(item.shape)), at)
        found[item.name] = values.reshape(item.shape)
        at += item.nbytes
    return found
