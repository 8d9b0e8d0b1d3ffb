"""What keeps the house readable: how long files are, how full rooms, how files are called, and how
many parameters say `Any`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from pipelines.commands.untyped import LIMIT, Untyped, untyped_rooms

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ("pipelines", "stages", "hw")
CODE = (".py", ".pyi", ".c", ".h")
MOST_LINES, MOST_FILES = 300, 40
ALIKE = {
    "__init__.py": "every package has one",
    "errors.py": "pipelines and stages have errors of their own",
}
"""Names that several files have, and why."""


def code(*folders: str) -> list[Path]:
    """The files of code in some folders."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in CODE)


def test_no_file_is_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in code(*HOUSE, "tests")
        if path.suffix == ".py"
    }
    assert len(lengths) > 900
    assert not {file: lines for file, lines in lengths.items() if lines > MOST_LINES}


def test_no_room_is_full() -> None:
    rooms = defaultdict[Path, int](int)
    for path in code(*HOUSE):
        rooms[path.parent.relative_to(ROOT)] += 1
    assert not {str(room): files for room, files in rooms.items() if files > MOST_FILES}


def test_no_name_of_a_file_stands_for_two_notions() -> None:
    files = defaultdict[str, list[str]](list)
    for path in code(*HOUSE):
        files[path.name].append(str(path.parent.relative_to(ROOT)))
    assert {name for name, places in files.items() if len(places) > 1} == ALIKE.keys()


@pytest.mark.parametrize("room", untyped_rooms(ROOT), ids=lambda room: room.room)
def test_parameters_have_types(room: Untyped) -> None:
    assert room.share < LIMIT, f"{room.untyped} of {room.parameters} parameters say Any"
