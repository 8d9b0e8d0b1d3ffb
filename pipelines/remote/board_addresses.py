"""Which boards `board=` means: addresses, `local`, and the names of a boards file of one's own.

`BITKILN_BOARDS` names a YAML file with a list `boards`, whose entries have the fields of `Board`;
without it `boards.yaml` in the work folder is that file, if it is there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pipelines import paths, work_folder
from pipelines.documents import validate
from pipelines.documents.board_files import list_boards
from pipelines.documents.trees import read
from pipelines.errors import Fault, UserError, did_you_mean, nearest, shown

VARIABLE = "BITKILN_BOARDS"
LOCAL = "local"
"""The address of this machine, where QEMU runs what is for another architecture."""
_HOST = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\])"
_ADDRESS = re.compile(rf"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?{_HOST}(?::([0-9]{{1,5}}))?")
ACCEPTED = f"user@host[:port], {LOCAL}, or a name or kind of the file that {VARIABLE} names"


class Board(BaseModel):
    """A board that packages and kernels can be sent to."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*$", max_length=100)]
    """What it is called on the command line and in tables."""
    address: str
    """`user@host`, `user@host:port`, a host of the user's ssh configuration, or `local`."""
    cores: tuple[Annotated[int, Field(ge=0, le=1023)], ...] = ()
    """The numbers of the cores to use; all of them where none is named."""
    kind: str | None = None
    """The board of `hw/boards` that it is, as `hardware=` takes it; any where it is not said."""
    ssh_config: str | None = None
    """A configuration file for `ssh -F`; without it the user's own."""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        return self.address == LOCAL


class _File(BaseModel):
    """A boards file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    boards: tuple[Board, ...]


def boards(text: str) -> tuple[Board, ...]:
    """Return the boards that `board=` names, each once.

    UserError if a part of the text is no address and no name, or the boards file is at fault.
    """
    known = _known()
    found: dict[str, Board] = {}
    for word in text.split(","):
        for board in _named(word.strip(), known):
            found.setdefault(board.address, board)
    return tuple(found.values())


def _named(word: str, known: tuple[Board, ...]) -> list[Board]:
    if word.startswith("-"):
        raise UserError(f"board={word}: an address does not begin with '-'; accepted: {ACCEPTED}")
    named = [board for board in known if word in (board.name, board.kind)]
    if named:
        return named
    if fault := _fault(word):
        close = nearest(word, [board.name for board in known])
        meant = f"; did you mean '{close}'?" if close else ""
        raise UserError(f"board={word}: {fault}{meant}")
    if known and "@" not in word and word != LOCAL:
        close = did_you_mean(word, [board.name for board in known])
        raise UserError(f"board={word}: {shown(_path())} has no board of this name{close}")
    return [Board(name=word, address=word)]


def _fault(address: str) -> str:
    """What is wrong with an address, or nothing."""
    match = _ADDRESS.fullmatch(address)
    if match is None or len(address) > 300:
        return f"is no address; accepted: {ACCEPTED}"
    if match.group(1) is not None and not 1 <= int(match.group(1)) <= 65535:
        return f"{match.group(1)} is no port; accepted: 1 to 65535"
    return ""


def _path() -> Path:
    named = os.environ.get(VARIABLE)
    return paths.expanded(named) if named else work_folder.BOARDS


def _known() -> tuple[Board, ...]:
    """The boards of the user's own file; none if there is no such file."""
    path = _path()
    if not os.environ.get(VARIABLE) and not paths.is_file(path):
        return ()
    if not paths.is_file(path):
        raise UserError(f"{VARIABLE}={shown(path)}: there is no such file; it lists boards")
    faults: list[Fault] = []
    tree = read(path, faults)
    made = validate.validate(_File, tree, faults) if tree is not None else None
    if tree is not None and made is not None:
        for index, board in enumerate(made.boards):
            place = validate.locate(tree, ("boards", index, "address"))
            if board.address.startswith("-") or _fault(board.address):
                sentence = f"'{board.address}' is no address; accepted: user@host[:port], {LOCAL}"
                faults.append(Fault(place, f"boards[{index}].address", sentence))
            if board.kind is not None and board.kind not in list_boards():
                place = validate.locate(tree, ("boards", index, "kind"))
                sentence = f"no board '{board.kind}'{did_you_mean(board.kind, list_boards())}"
                faults.append(Fault(place, f"boards[{index}].kind", sentence))
            if [other.name for other in made.boards].count(board.name) > 1:
                place = validate.locate(tree, ("boards", index, "name"))
                sentence = f"'{board.name}' is the name of several boards"
                faults.append(Fault(place, f"boards[{index}].name", sentence))
    if faults or made is None:
        raise UserError.of(faults)
    return made.boards
