"""Passes of a true recipe through the front door: the column, and the one that breaks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.builds import plan
from pipelines.commands import show, verify
from pipelines.errors import CheckError, UserError
from pipelines.recipe import load
from pipelines.recipe.overrides import Variables
from stages.graph.passes import Pass
from stages.nodes import Call, Expr, VarBinding
from stages.quantizing.negate_falling_channels import NegateFallingChannels
from tests.pipelines.fake_clone import ROOT, doit

LAYER = "layer1.0.conv1.input_quant"
"""Of the first thresholds."""
RECIPE = "recipes/ci/residual_block_a2w1_rpi3.yaml"


def given(**variables: str) -> dict[str, Any]:
    """What the commands are called with for the recipe, once it is built."""
    resolved = load.load_recipe(str(ROOT / RECIPE))
    return {"plan": plan.of(resolved), "resolved": resolved, "variables": Variables(variables, {})}


def test_show_prints_the_column_of_passes(tmp_path: Path) -> None:
    target = tmp_path / "passes.json"
    done = doit("show", f"recipe={RECIPE}", "passes=all", f"json={target}")
    assert done.returncode == 0, done.stderr
    rows = json.loads(target.read_text())["passes"]
    assert [row["pass"] for row in rows] == [
        "LiftRows",
        "SplitWholeBatch",
        "QuantizeLayers",
        "NegateFallingChannels",
        "LegalizeProducts",
        "CopySharedOutputs",
        "OutlineComposites",
        "PackComposites",
    ]
    made = {row["pass"]: row["rewrites"] for row in rows}
    assert made["LiftRows"] == made["SplitWholeBatch"] == made["CopySharedOutputs"] == 0
    assert made["LegalizeProducts"] == 5  # conv1, two of 3x3, one of 1x1, fc
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["quantizing", "QuantizeLayers"] in [line[:2] for line in lines]


def test_a_pattern_of_no_pass_is_refused() -> None:
    doit("build", f"recipe={RECIPE}")
    with pytest.raises(UserError, match=r"passes=Lift: matches no pass"):
        show.run(**given(passes="Lift"))


class Breaking(Pass):
    """Takes the first threshold's input for its negative, and changes nothing else."""

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A threshold that falls where it rose."""
        from tvm import relax

        call = binding.value
        if self.rewrites or not str(call.op.name).endswith("threshold"):
            return None
        data = self.builder.emit(relax.op.negative(self.read(call.args[0])), "broken")
        return Call(call.op, [data, *map(self.read, call.args[1:])], call.attrs)


def test_verify_names_the_pass_and_the_layer_that_it_breaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stored modules are right, so the stage is exact, and one pass of it departs."""
    assert doit("build", f"recipe={RECIPE}").returncode == 0
    right = NegateFallingChannels.run

    def broken(self: NegateFallingChannels) -> Any:
        breaking = Breaking(right(self))
        result = breaking.run()
        self.rewrites += breaking.rewrites
        return result

    monkeypatch.setattr(NegateFallingChannels, "run", broken)
    with pytest.raises(CheckError) as error:
        verify.run(**given(layer="all", passes="all"))
    said = str(error.value)
    assert said.startswith(f"layer '{LAYER}' ")
    assert "is the first to depart, in quantizing after NegateFallingChannels: differs from" in said
    assert "of quantizing, QuantizeLayers" in said
    assert capsys.readouterr().out.count(" departs") > 1  # what is computed from it departs, too
    monkeypatch.setattr(NegateFallingChannels, "run", right)
    verify.run(**given(layer="all", passes="all"))
    assert " departs" not in capsys.readouterr().out
