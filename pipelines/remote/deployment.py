"""Getting the runner onto a board, and starting it there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import UserError
from pipelines.machine import is_here
from pipelines.remote import board_programs
from pipelines.remote.facts import architecture_of, glibc_of
from pipelines.remote.ssh_errors import explained
from pipelines.remote.transport import (
    FOLDER,
    Transport,
    UnreachableBoardError,
    printable_tail,
    script,
)
from pipelines.store import keys

_PROBE = f"""PATH="$PATH:/usr/bin:/bin:/usr/sbin:/sbin"
mkdir -p {FOLDER} && cd {FOLDER} || exit 1
echo "machine $(uname -m) $(getconf LONG_BIT 2>/dev/null)"
echo "libc $(getconf GNU_LIBC_VERSION 2>/dev/null)"
for each in runner-*; do test -x "$each" && echo "has $each"; done
exit 0
"""
_IN_FOLDER = f'cd {FOLDER} && exec "$@"'


class BoardError(UserError):
    """Something about a board that keeps it from being used."""


@dataclass(frozen=True)
class Probe:
    """What a board's own shell says of it, before anything is started there."""

    architecture: str
    glibc: tuple[int, int] | None
    runners: frozenset[str]
    """The names of the runners that lie there, to be compared with ours."""


def probe(to: Transport) -> Probe:
    """Ask a board's shell what it is, and which runners lie in our folder."""
    try:
        told = script(to, _PROBE)
    except UnreachableBoardError as error:
        raise explained(to, error) from None
    said = [line.partition(" ")[::2] for line in told.splitlines()[-20:]]
    found = dict(said)
    if "machine" not in found:
        raise BoardError(
            f"{to.board.name} answers '{printable_tail(told, 100)}' where its processor was asked "
            f"for; `doit doctor board={to.board.name}` says more"
        )
    machine, _, bits = found["machine"].partition(" ")
    architecture = architecture_of(machine, 32 if bits == "32" else None)
    if not architecture:
        raise BoardError(
            f"{to.board.name}: its processor is called '{printable_tail(machine, 50)}'; accepted: "
            f"{', '.join(board_programs.ARCHITECTURES)}"
        )
    glibc = glibc_of(found.get("libc", ""))
    return Probe(architecture, glibc, frozenset(text for key, text in said if key == "has"))


def is_static(to: Transport, architecture: str, found: Probe) -> bool:
    """Whether a board's C library is too old for our programs, or another than glibc.

    BoardError if the board is of another architecture.
    """
    if is_emulated(to, architecture):
        return False
    if found.architecture != architecture:
        raise BoardError(
            f"{to.board.name} is {found.architecture}, and what is to run there is {architecture}; "
            "name a hardware= of its architecture"
        )
    return found.glibc is None or found.glibc < board_programs.GLIBC


def installed(to: Transport, architecture: str, data: bytes, found: Probe) -> list[str]:
    """Put a runner on a board unless it is there; return the words that start it in our folder."""
    name = f"runner-{keys.digest(data)[:16]}"
    if name not in found.runners:
        _copied(to, data, name)
    return [*emulator_for(to, architecture), f"./{name}"]


def in_folder(to: Transport, words: Sequence[str]) -> list[str]:
    """Return the command line of this machine that runs words in our folder on a board."""
    return to.command(["sh", "-c", _IN_FOLDER, "sh", *words])


def emulator_for(to: Transport, architecture: str) -> list[str]:
    """Return the words before a program of an architecture; none where the board runs it itself."""
    return to.emulator(architecture) if is_emulated(to, architecture) else []


def is_emulated(to: Transport, architecture: str) -> bool:
    """Whether QEMU runs what is for an architecture, so that times mean nothing."""
    return to.board.is_local and not is_here(architecture)


def _copied(to: Transport, data: bytes, name: str) -> None:
    """Put a program in place of others of before; one that was cut off is never run."""
    with tempfile.TemporaryDirectory(prefix="bitkiln-copy-") as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        part = f"part-{os.getpid()}"
        try:
            to.copy(file, f"{FOLDER}/{part}")
        except UnreachableBoardError as error:
            with contextlib.suppress(UnreachableBoardError):
                script(to, f"rm -f {FOLDER}/{part}\n")
            hint = f"doit doctor board={to.board.name} says more"
            raise BoardError(f"{error.message}; {hint}") from None
    script(to, f"cd {FOLDER} && chmod 755 {part} && rm -f runner-* && mv -f {part} {name}\n")
