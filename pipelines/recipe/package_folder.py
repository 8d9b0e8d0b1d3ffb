"""What a package's folder is called: by the recipe, and by what the command line changes in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pipelines.documents.trees import is_path_like
from pipelines.recipe.recipe import Recipe, flatten
from pipelines.store import keys

_DIGITS = 8


def board_name(hardware: str) -> str:
    """Return the name of a board; one given by path counts by its name."""
    return Path(hardware).stem if is_path_like(hardware) else hardware


def folder(
    recipe: str,
    *,
    built: Recipe,
    stated: Recipe | None,
    board: str,
    is_taken: Callable[[str], bool],
) -> str:
    """Return RECIPE, then _BOARD and _HASH where what is built differs from what is stated.

    `stated` is the recipe as its file says it, None where that alone is none, and `board` the
    hardware it states. The hash is of the fields that differ, but for `hardware`; of that too where
    a recipe of its own has the name.
    """
    wanted = board_name(built.hardware)
    name = recipe if wanted == board_name(board) else f"{recipe}_{wanted}"
    differing = _differing(built, stated)
    if name != recipe and is_taken(name):
        differing["hardware"] = wanted
    if differing:
        text = json.dumps(differing, sort_keys=True)
        name = f"{name}_{keys.digest(text)[:_DIGITS]}"
    return name


def _differing(built: Recipe, stated: Recipe | None) -> dict[str, object]:
    """Return the fields that differ, with what is built of them; None where that has none such."""
    new, old = _leaves(built), {} if stated is None else _leaves(stated)
    names = {name for name in new.keys() | old.keys() if new.get(name) != old.get(name)}
    return {name: new.get(name) for name in names}


def _leaves(recipe: Recipe) -> dict[str, object]:
    return dict(flatten(recipe.model_dump(mode="json", exclude={"hardware"})))
