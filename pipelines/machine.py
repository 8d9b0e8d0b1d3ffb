"""The machine at hand, as results name it."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

from hw import host
from hw.profile import Hardware
from pipelines.errors import UserError


def processor() -> str:
    """Return what this machine's processor calls itself."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def core() -> str | None:
    """Return the core whose costs are this machine's, which its name seldom tells; None if none.

    Processors of several generations call themselves "AMD EPYC" in a virtual machine.
    """
    with contextlib.suppress(ValueError):
        return host.detect().core
    return None


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
