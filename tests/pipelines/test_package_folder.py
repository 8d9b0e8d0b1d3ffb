"""Where a package lies: what the command line changes gets a folder of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pipelines.recipe.load import load_recipe
from tests.pipelines.fake_clone import TOY, Clone

NAME = "resnet18_a2w1_rpi3"
HASH = "[0-9a-f]{8}"


@pytest.mark.parametrize(
    ("fields", "folder"),
    [
        ({}, ""),
        ({"hardware": "rpi3"}, ""),
        ({"quantization.weights.bits": "1", "golden.seed": "0"}, ""),
        ({"hardware": "rpi4"}, "_rpi4"),
        ({"hardware": "host"}, "_host"),
        ({"hardware": "BOARDS/rpi3.yaml"}, ""),
        ({"hardware": "BOARDS/rpi4.yaml"}, "_rpi4"),
        ({"golden.seed": "1"}, f"_{HASH}"),
        ({"hardware": "rpi4", "golden.seed": "1"}, f"_rpi4_{HASH}"),
        ({"package.name": "other"}, f"_{HASH}"),
        # A recipe of its own has the name resnet18_a2w1_rpi3_armv7, if not this board.
        ({"hardware": "BOARDS/armv7.yaml"}, f"_armv7_{HASH}"),
    ],
)
def test_folders(fields: dict[str, str], folder: str, tmp_path: Path) -> None:
    boards = Path(__file__).resolve().parents[2] / "hw" / "boards"
    for board, name in (("rpi3", "rpi3"), ("rpi4", "rpi4"), ("rpi3_armv7", "armv7")):
        (tmp_path / f"{name}.yaml").write_text((boards / f"{board}.yaml").read_text())
    given = {name: value.replace("BOARDS", str(tmp_path)) for name, value in fields.items()}
    found = load_recipe(NAME, given)
    assert re.fullmatch(NAME + folder, found.package)
    assert found.name == NAME


def test_the_hash_is_of_what_differs_alone() -> None:
    def folder(**fields: str) -> str:
        return load_recipe(
            NAME, {name.replace("_", "."): at for name, at in fields.items()}
        ).package

    assert folder(golden_seed="1") == folder(golden_seed="1", golden_samples="2")
    assert folder(golden_seed="1") != folder(golden_seed="2") != folder(golden_samples="1")
    assert folder(golden_seed="1", hardware="rpi4") == f"{NAME}_rpi4{folder(golden_seed='1')[-9:]}"


def folders(clone: Clone) -> list[str]:
    return sorted(path.name for path in (clone.root / "artifacts" / "packages").iterdir())


def test_another_board_leaves_the_recipes_package_alone(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    first = clone.package()
    out, _ = clone.doit("build", "recipe=toy", "hardware=x86_64")
    assert "artifacts/packages/toy_x86_64\n" in out
    assert clone.package("toy_x86_64")["formats"] == first["formats"]  # the name in it is the same
    out, _ = clone.doit("build", "recipe=toy", "golden.samples=3")
    (other,) = set(folders(clone)) - {"toy", "toy_x86_64"}
    assert re.fullmatch(f"toy_{HASH}", other) and f"artifacts/packages/{other}\n" in out
    assert clone.package() == first
    out, _ = clone.doit("show", "recipe=toy", "golden.samples=3", "json=r.json")
    assert out.endswith(f"package: artifacts/packages/{other}\n")
    assert json.loads((clone.root / "r.json").read_text())["package"].endswith(other)
    out, _ = clone.doit("show", "recipe=toy", "hardware=rpi4")
    assert out.endswith("package: artifacts/packages/toy_rpi4, not built yet\n")


def test_commands_find_the_package_of_the_same_fields(clone: Clone) -> None:
    np.save(clone.root / "x.npy", np.zeros((2, 3), np.float32))
    fields = ("recipe=toy", "hardware=x86_64", "quantization.weights.bits=2")
    clone.doit("build", *fields)
    clone.doit("build", "recipe=toy")
    (other,) = set(folders(clone)) - {"toy"}
    (clone.root / "artifacts/packages/toy/added").write_text("1000")  # that of another package
    out, _ = clone.doit("run", *fields, "input=x.npy", "json=r.json")
    values = json.loads((clone.root / "r.json").read_text())["outputs"]["y"]["values"]
    assert values[0][0] == float(clone.package(other)["added"]) and "publishing" not in out


def test_clean_removes_all_packages_of_a_recipe_and_no_others(clone: Clone) -> None:
    clone.write("recipes/toy_rpi4.yaml", TOY)
    clone.doit("build", "recipe=toy_rpi4")
    for fields in ([], ["hardware=x86_64"], ["golden.seed=1"], ["hardware=rpi4"]):
        clone.doit("build", "recipe=toy", *fields)
    assert len(folders(clone)) == 5 and "toy_x86_64" in folders(clone)
    out, _ = clone.doit("clean", "-n", "recipe=toy")
    assert out.count("would remove artifacts/packages/toy") == 4
    assert len(folders(clone)) == 5
    clone.doit("clean", "recipe=toy")
    assert folders(clone) == ["toy_rpi4"]
    assert not list((clone.root / "artifacts/roots").glob("toy.*"))
