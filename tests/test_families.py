"""Every family of kernels that a board has is in a package of `recipes/ci` for it."""

from __future__ import annotations

import pytest

from pipelines.documents.board_files import list_boards
from pipelines.recipe import load
from tests import families


def test_every_board_has_recipes() -> None:
    found = {name for name, _ in load.list_recipes() if name.startswith("ci/")}
    assert {
        f"ci/{kind}_{board}" for kind in ("levels", "bytes") for board in list_boards()
    } <= found
    assert set(families.kept()) == set(families.boards())


@pytest.mark.parametrize("board", families.boards())
def test_its_packages_run_every_family_it_has(board: str) -> None:
    hardware = load.load_recipe(f"ci/levels_{board}").hardware
    assert (f"ci/halves_{board}" in families.recipes_of(board)) == hardware.multiplies_float16
    assert list(families.faults(hardware, families.kept()[board])) == []


def test_a_family_too_many_and_one_too_few_are_told() -> None:
    hardware = load.load_recipe("ci/levels_x86_64").hardware
    used = {*families.kept()["x86_64"], "mac8 tile_dots"} - {"bitserial a1w1"}
    assert list(families.faults(hardware, used)) == [
        "x86_64: mac8 tile_dots is used, and is not of its instruction set",
        "x86_64: bitserial a1w1 is of its instruction set, and no recipe runs it",
    ]


def test_what_one_board_does_not_run_another_does() -> None:
    found = set[str]().union(*families.kept().values())
    assert families.CHEAPER.keys() - found == {"mac8 signed_matrix_dots"}


@pytest.mark.slow
def test_what_is_kept_is_what_is_built() -> None:
    """Of one board, whose kernels take least to find; CI compares all after `doit ci`."""
    assert list(families.differences("x86_64")) == []
