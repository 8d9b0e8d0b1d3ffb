"""Instructions a layer of small networks: emulated, pinned, and no more than that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.builds import plan
from pipelines.emulating import emulated_bench, pinned_counts
from pipelines.emulating.pinned_counts import Pinned
from pipelines.errors import UserError
from pipelines.recipe import load
from pipelines.recipe.overrides import Variables
from tests.pipelines.fake_clone import doit

FILES = sorted(pinned_counts.FOLDER.glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_layer_executes_more_than_is_pinned(path: Path) -> None:
    """Counted in unicorn, from packages that the same compiler builds alike on every machine."""
    pytest.importorskip("unicorn", reason="unicorn is not installed")
    kept = pinned_counts.read(path)
    done = doit("build", f"recipe={kept.recipe}")
    assert done.returncode == 0, done.stdout + done.stderr
    resolved = load.load_recipe(kept.recipe, {})
    found = pinned_counts.counted(plan.of(resolved), resolved)
    assert not (said := pinned_counts.faults(kept, found)), "\n".join(said)
    assert found.keys() == kept.layers.keys()


def test_layers_that_execute_more_and_new_ones_are_faults() -> None:
    kept = Pinned("ci/toy", {"a": 1000, "b": 1000, "gone": 5, "none": 0})
    found = {"a": 1020, "b": 1021, "new": 1, "none": 3}
    advice = 'if it must be so: doit bench recipe=ci/toy pin="why"'
    assert pinned_counts.faults(kept, found) == [
        f"b executes 1,021 instructions (emulated), 2.1% more than the 1,000 that are pinned; "
        f"{advice}",
        f"new is not pinned; {advice}",
        f"none executes 3 instructions (emulated) instead of the 0 that are pinned; {advice}",
    ]


def test_what_is_kept_says_why_counts_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resolved: Any = SimpleNamespace(name="toy")
    counts = {"a": 10, "b": 20}
    monkeypatch.setattr(pinned_counts, "FOLDER", tmp_path)
    monkeypatch.setattr(pinned_counts, "counted", lambda *_: dict(counts))

    def pin(reason: str) -> Pinned:
        given = Variables({"recipe": "ci/toy", "pin": reason}, {})
        pinned_counts.pin(resolved, resolved, given)
        return pinned_counts.read(tmp_path / "toy.json")

    assert pin("the first") == Pinned("ci/toy", {"a": 10, "b": 20})
    counts["b"] = 30
    kept = pin("exact sums")
    assert kept.layers == counts
    (rise,) = kept.rises
    assert (rise["reason"], rise["layers"]) == ("exact sums", {"b": [20, 30]})
    assert "b: 20 -> 30 instructions (emulated)\n" in capsys.readouterr().out
    # Nothing has changed, so there is nothing to give a reason for.
    assert pin("again").rises == [rise]


@pytest.mark.parametrize(
    ("given", "fields", "architecture", "said"),
    [
        ({"pin": " "}, {}, "aarch64", "pin=: say why counts may rise, for example: pin="),
        (
            {"pin": "x"},
            {"model.seed": "2"},
            "aarch64",
            "pin=: a recipe is pinned as it stands; leave out model.seed",
        ),
        ({"pin": "x"}, {}, "armv7", "pin=: recipes of aarch64 boards are pinned"),
    ],
)
def test_what_cannot_be_pinned(
    given: dict[str, str], fields: dict[str, str], architecture: str, said: str
) -> None:
    hardware = SimpleNamespace(name="board", architecture=architecture)
    resolved: Any = SimpleNamespace(name="toy", hardware=hardware)
    with pytest.raises(UserError) as error:
        emulated_bench.check(resolved, Variables(given, fields))
    assert error.value.message.startswith(said)
