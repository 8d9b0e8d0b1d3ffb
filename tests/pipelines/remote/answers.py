"""What boards print, in the form that they print it in, and boards that print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.remote.board_addresses import Board
from pipelines.remote.facts import BEGIN, END, Facts, parse
from pipelines.remote.transport import Ssh

CORE = """\
processor	: {number}
BogoMIPS	: 108.00
Features	: fp asimd evtstrm crc32 cpuid
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: 0xd08
CPU revision	: 3
"""
MODEL = "Raspberry Pi 4 Model B Rev 1.4"
PI4: dict[str, str | Sequence[str]] = {
    "machine": "aarch64",
    "bits": "64",
    "libc": "glibc 2.36",
    "cpuinfo": "\n".join(CORE.format(number=n) for n in range(4)).splitlines(),
    "cpus": "4",
    "model": MODEL,
    "governor": [f"{n} performance" for n in range(4)],
    "clock": [f"{n} 1800000" for n in range(4)],
    "clock_max": [f"{n} 1800000" for n in range(4)],
    "heat": ["0 48312"],
    "throttled": "0",
    "load": "0.08 0.11 0.07 1/136 1234",
    "memory": ["total 3884360", "available 3501232"],
    "disk": ["home 10485760", "tmp 1942180"],
    "home": "writable",
}
"""A Raspberry Pi 4 with which nothing is wrong."""


def told(**changed: str | Sequence[str] | None) -> str:
    """What such a board prints with some facts changed, or left out where they are None."""
    lines = []
    for key, values in (PI4 | changed).items():
        stated = [values] if isinstance(values, str) else values or ()
        lines += [f"{key} {value}" for value in stated]
    return "\n".join([BEGIN, *lines, END, ""])


def facts(**changed: str | Sequence[str] | None) -> Facts:
    """The same, read."""
    found = parse(told(**changed))
    assert isinstance(found, Facts)
    return found


@dataclass(frozen=True)
class Recorded(Ssh):
    """A board whose ssh prints a text, says another on standard error, and ends with a status."""

    prints: str = ""
    says: str = ""
    status: int = 0

    def command(self, words: Sequence[str]) -> list[str]:
        """Print what was recorded."""
        del words
        inside = 'cat >/dev/null; printf %s "$1"; printf %s "$2" >&2; exit "$3"'
        return ["sh", "-c", inside, "sh", self.prints, self.says, str(self.status)]


def recorded(prints: str = "", says: str = "", address: str = "pi@raspberrypi") -> Recorded:
    """A board that answers a text, or that ssh does not reach and says why."""
    board, status = Board(name="pi", address=address), 255 if says else 0
    return Recorded(board, prints=prints, says=says, status=status)
