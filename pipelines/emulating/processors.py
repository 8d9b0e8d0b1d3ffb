"""Processors to emulate: what QEMU calls a core, and what Linux says of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hw.profile import Hardware
from pipelines.emulating import userland
from pipelines.errors import UserError
from pipelines.runners.replay import QEMU


@dataclass(frozen=True)
class Processor:
    """A core of ARM's."""

    qemu: str
    """QEMU's name; of a core that QEMU 7.2 has not, `max` with what the core lacks turned off."""
    part: int
    """The part number by which libraries tell cores apart."""
    features: str
    """What Linux lists: libraries look for `asimddp` and the like."""


_PLAIN = "fp asimd evtstrm crc32 cpuid"
_DOT = f"{_PLAIN} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
_NO_SME = "max,sme=off"

PROCESSORS: Mapping[str, Processor] = {
    "cortex-a53": Processor("cortex-a53", 0xD03, _PLAIN),
    "cortex-a72": Processor("cortex-a72", 0xD08, _PLAIN),
    "cortex-a76": Processor("cortex-a76", 0xD0B, _DOT),
    "neoverse-n1": Processor("neoverse-n1", 0xD0C, _DOT),
    "neoverse-v1": Processor(f"{_NO_SME},sve256=on", 0xD40, f"{_DOT} sve i8mm bf16"),
    "neoverse-v2": Processor(f"{_NO_SME},sve128=on", 0xD4F, f"{_DOT} sve i8mm bf16 sve2"),
}
"""By a core's name in a hardware profile. Part numbers are those of Linux,
arch/arm64/include/asm/cputype.h."""
_GENERIC = "cortex-a72"
"""What stands for `generic-aarch64`."""
_IN_32_BITS = "max"
"""QEMU's 32-bit program has no A53; this has its instructions."""


def processor(hardware: Hardware) -> Processor:
    """Return the processor of an ARM board; UserError if QEMU has none for its core."""
    core = _GENERIC if hardware.core.startswith("generic") else hardware.core
    if hardware.architecture not in ("aarch64", "armv7") or core not in PROCESSORS:
        raise UserError(
            f"{hardware.name} has a {hardware.core}, which bench cannot emulate; it emulates "
            f"{', '.join(PROCESSORS)}"
        )
    found = PROCESSORS[core]
    if hardware.architecture == "armv7":
        return Processor(_IN_32_BITS, found.part, found.features)
    return found


def qemu_version(architecture: str) -> str:
    """Return the release of QEMU that runs programs of an architecture."""
    program = QEMU[architecture].program
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\S+)", done.stdout)
    return found[1] if found else "unknown"


@contextmanager
def root(found: Processor) -> Iterator[Path]:
    """Give a root whose files are the userland's, but for what it says of the processor.

    Engines choose their kernels by that; without it they would read this machine's own, and LiteRT
    crashes on what stands there.
    """
    with tempfile.TemporaryDirectory(prefix="bitkiln-root-") as name:
        for entry in userland.root().iterdir():
            if entry.name != "proc":
                (Path(name) / entry.name).symlink_to(entry)
        (Path(name) / "proc").mkdir()
        (Path(name) / "proc" / "cpuinfo").write_text(_cpuinfo(found))
        yield Path(name)


def _cpuinfo(found: Processor) -> str:
    lines = {
        "processor\t": "0",
        "BogoMIPS\t": "100.00",
        "Features\t": found.features,
        "CPU implementer\t": "0x41",
        "CPU architecture": "8",
        "CPU variant\t": "0x0",
        "CPU part\t": f"{found.part:#x}",
        "CPU revision\t": "3",
    }
    return "".join(f"{name}: {value}\n" for name, value in lines.items()) + "\n"
