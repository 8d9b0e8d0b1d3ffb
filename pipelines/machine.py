"""The machine at hand, as results name it."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

from hw import host
from hw.profile import Hardware
from pipelines.errors import UserError

EMULATED = "QEMU "
"""What the name of a processor that is emulated begins with."""
_PROCESSORS, _BOARD = Path("/proc/cpuinfo"), Path("/proc/device-tree/model")


def processor() -> str:
    """Return what this machine's processor is called; on ARM, its cores and the board."""
    found = processor_of(_text(_PROCESSORS), _text(_BOARD))
    return found or platform.processor() or platform.machine()


def processor_of(cpuinfo: str, board: str) -> str:
    """Return a processor's name from `/proc/cpuinfo` and the device tree's model, or "".

    ARM processors have numbers instead of names: `0x41 0xd03 r0p4, Raspberry Pi 3 Model B Rev 1.2`.
    What 32-bit systems call a model name is that of an architecture, which many cores share.
    """
    cores: dict[str, None] = {}
    for paragraph in cpuinfo.split("\n\n"):
        fields = host.parse_cpuinfo(paragraph)
        if "CPU implementer" in fields:
            words = [fields.get(f"CPU {name}", "?") for name in ("implementer", "part")]
            variant = fields.get("CPU variant", "?").removeprefix("0x")
            cores[f"{' '.join(words)} r{variant}p{fields.get('CPU revision', '?')}"] = None
    if not cores:
        return host.parse_cpuinfo(cpuinfo).get("model name", "")
    model = board.strip("\0 \n") or host.parse_cpuinfo(cpuinfo).get("Model", "")
    return ", ".join([*cores, *([model] if model else [])])


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""


def core() -> str | None:
    """Return the core whose costs are this machine's, which its name seldom tells; None if none.

    Processors of several generations call themselves "AMD EPYC" in a virtual machine.
    """
    with contextlib.suppress(ValueError):
        return host.detect().core
    return None


def is_here(architecture: str) -> bool:
    """Whether this machine's processor is of an architecture."""
    try:
        return host.detect().architecture == architecture
    except ValueError:
        return False


def check_runs(hardware: Hardware, doing: str, instead: str) -> None:
    """Raise UserError, with what to do `instead`, unless code for a profile runs here."""
    found = host.detect()
    if found.architecture != hardware.architecture:
        lack = f"is {found.architecture}, not {hardware.architecture}"
    elif missing := sorted(set(hardware.features) - set(found.features)):
        lack = f"lacks {', '.join(name.removeprefix('+') for name in missing)}"
    else:
        return
    raise UserError(f"{doing} for {hardware.name}: this machine {lack}; {instead}")
