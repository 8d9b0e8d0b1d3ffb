"""The rooms of packaging: each imports those above it on the page, and none below."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_house import imports_of, module_name

FOLDER = Path(__file__).resolve().parents[3] / "stages" / "packaging"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8").partition("| room |")[2]
ROOMS = re.findall(r"^\| `(\w+)(?:\.py)?` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way(room: str) -> None:
    files = sorted((FOLDER / room).glob("*.py")) or [FOLDER / f"{room}.py"]
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for path in files:
        for name, line in imports_of(path, False):
            target = name.split(".")
            if target[:2] == ["stages", "packaging"] and len(target) > 2:
                assert target[2] in allowed, f"{module_name(path)}:{line} imports {name}"


def test_every_room_is_on_the_page() -> None:
    rooms = {path.stem for path in FOLDER.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert rooms - {"__init__", "__pycache__"} <= {*ROOMS, "runtime", "shipped"}
