"""The generated schemas are fresh, and agree with the recipes and boards they describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.documents.board_files import BOARDS
from pipelines.documents.positions import Plain
from pipelines.documents.trees import read
from pipelines.recipe import schema
from pipelines.work_folder import SHIPPED
from tests.pipelines.test_load import shipped


@pytest.mark.parametrize("path", schema.files(), ids=lambda path: path.parent.name)
def test_is_fresh(path: Path) -> None:
    fresh = schema.files()[path]
    assert path.read_text(encoding="utf-8") == fresh, "run: python -m pipelines.recipe.schema"


def test_every_field_is_described() -> None:
    made = schema.recipe_schema()
    for part in (made, *made["$defs"].values()):
        for name, field in part.get("properties", {}).items():
            # A description equal to that of the model referred to is written there only.
            target = made["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
            says = field.get("description") or target.get("description")
            assert says, f"{part.get('title')}.{name}"


@pytest.mark.parametrize(
    "path",
    sorted([*(SHIPPED / f"{name}.yaml" for name in [*shipped(), "base"]), *BOARDS.glob("*.yaml")]),
    ids=lambda path: path.stem,
)
def test_files_name_their_schema_and_hold_its_fields_only(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = first.partition("$schema=")[2]
    target = (path.parent / named).resolve()
    assert target in schema.files()
    is_board = target.parent == BOARDS
    made = schema.board_schema() if is_board else schema.recipe_schema()
    tree = read(path, [])
    assert tree is not None
    data: Plain = tree.plain()
    assert isinstance(data, dict)
    assert set(data) <= set(made["properties"])
