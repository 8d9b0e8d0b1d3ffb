"""`show` says why: every ingredient that differs from what this recipe was built with last."""

from __future__ import annotations

import json

from pipelines.builds import staleness
from tests.pipelines.fake_clone import Clone


def stages(clone: Clone, *arguments: str) -> dict[str, str]:
    clone.doit("show", "recipe=toy", *arguments, "json=shown.json")
    result = json.loads((clone.root / "shown.json").read_text())
    return {row["stage"]: f"{row['state']}: {row['why']}" for row in result["stages"]}


def test_differences_name_what_changed() -> None:
    before = {
        "code": {"stages/a.py": "1", "stages/b.py": "2", "stages/c.py": "3"},
        "tools": {"apache-tvm": "0.27"},
        "inputs": {"model": "x", "golden": "y"},
        "options": {"layers": [], "seed": 0},
        "hardware": {"cpu": "a", "features": ["+x"]},
    }
    after = {
        "code": {"stages/a.py": "1", "stages/b.py": "4", "stages/d.py": "5"},
        "tools": {"apache-tvm": "0.28"},
        "inputs": {"model": "z", "golden": None},
        "options": {"layers": [{"match": "conv1"}], "seed": 0},
        "hardware": {"cpu": "b", "features": ["+x"]},
    }
    assert list(staleness.differences(before, after)) == [
        "stages/b.py changed",
        "stages/c.py is gone",
        "stages/d.py is new",
        "hardware.cpu: a -> b",
        "its input 'model' changed",
        "options.layers: [] -> none",
        "options.layers[0].match: none -> conv1",
        "tools.apache-tvm: 0.27 -> 0.28",
    ]
    assert list(staleness.differences(before, before)) == []


def test_a_recipe_never_built(clone: Clone) -> None:
    found = stages(clone)
    assert found["zoo"] == "will run: never built for this recipe"
    assert set(found) == {"zoo", "importing", "golden", "legalizing", "packaging"}


def test_a_recipe_just_built(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    assert {text.partition(":")[0] for text in stages(clone).values()} == {"cached"}


def test_an_option_that_changed_is_named(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    found = stages(clone, "golden.samples=3")
    assert found["golden"] == "will run: options.samples: 2 -> 3"
    assert found["importing"].startswith("cached")
    assert (
        found["packaging"] == "will run: follows golden; runs only if what comes from there differs"
    )


def test_code_and_hardware_that_changed_are_named(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.edit("stages/legalizing/__init__.py", "time.sleep", "x = 1\n    time.sleep")
    clone.edit("hw/boards/rpi3.yaml", "l2_kib: 512", "l2_kib: 256")
    found = stages(clone)
    assert found["legalizing"] == (
        "will run: stages/legalizing/__init__.py changed; hardware.l2_kib: 512 -> 256"
    )
    assert found["packaging"] == "will run: hardware.l2_kib: 512 -> 256"


def test_what_was_removed_or_damaged_is_said(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    folder = clone.manifests("golden")[0].parent
    (folder / "manifest.json").unlink()
    assert stages(clone)["golden"] == (
        f"will run: damaged: golden/{folder.name}: its manifest is missing"
    )
    folder.rename(clone.root / "gone")
    assert stages(clone)["golden"] == "will run: its artifact was removed"


def test_values_come_with_their_origin(clone: Clone) -> None:
    out, _ = clone.doit("show", "recipe=toy", "golden.samples=3")
    lines = [line.split() for line in out.splitlines()]
    assert ["model.zoo", "residual_block", "toy.yaml:3"] in lines
    assert ["golden.samples", "3", "command", "line"] in lines
    assert ["golden.seed", "0", "default"] in lines
