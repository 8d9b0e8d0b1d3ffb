"""Layer by layer: values found again under layouts and composites, and the first that departs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pipelines.errors import UserError
from pipelines.evaluation import layerwise
from pipelines.recipe.layer_patterns import ALL
from stages.graph import interpret
from stages.graph.builder import ModelBuilder
from stages.kinds import Golden, Model

SHAPE = (1, 2, 3, 4)


def unfolded() -> Model:
    """NCHW: c = x + 1, c.relu = max(c, 0), d = c.relu + 2."""
    build = ModelBuilder()
    x = build.input("x", SHAPE, "int32")
    c = build.emit(relax.op.add(x, build.tensor("one", np.ones(1, np.int32))), "c")
    relu = build.emit(relax.op.nn.relu(c), "c.relu")
    d = build.emit(relax.op.add(relu, build.tensor("two", np.full(1, 2, np.int32))), "d")
    return build.model([d], ["d"])


def grouped(added: int = 1) -> Model:
    """NHWC: what is called c gives what c.relu was, as a composite does; then d."""
    build = ModelBuilder()
    x = build.input("x", SHAPE, "int32")
    moved = build.emit(relax.op.permute_dims(x, [0, 2, 3, 1]), "x.nhwc")
    sums = build.emit(relax.op.add(moved, build.tensor("k", np.full(1, added, np.int32))), "inner")
    c = build.emit(relax.op.nn.relu(sums), "c")
    d = build.emit(relax.op.add(c, build.tensor("two", np.full(1, 2, np.int32))), "d")
    back = build.emit(relax.op.permute_dims(d, [0, 3, 1, 2]), "d.nchw")
    return build.model([back], ["d"])


def compared(*models: Model, pattern: str = ALL) -> list[layerwise.ComparedLayer]:
    return found(*models, pattern=pattern).layers


def found(*models: Model, pattern: str = ALL) -> layerwise.Found:
    """The first model is golden."""
    x = np.random.default_rng(0).integers(-9, 9, (3, *SHAPE)).astype(np.int32)
    artifacts: dict[str, Any] = {f"stage{index}": model for index, model in enumerate(models)}
    each = [interpret.run(models[0], {"x": sample}) for sample in x]
    artifacts["golden"] = Golden({"x": x}, {n: np.stack([o[n] for o in each]) for n in each[0]})
    steps = [
        SimpleNamespace(name=name, stage=SimpleNamespace(gives="model"), options={})
        for name in artifacts
        if name != "golden"
    ]
    execution: Any = SimpleNamespace(
        plan=SimpleNamespace(steps=steps, step=lambda name: SimpleNamespace(name=name)),
        load=lambda step: artifacts[step.name],
    )
    return layerwise.by_layer(execution, pattern)


def verdicts(rows: list[layerwise.ComparedLayer], stage: str) -> dict[str, str]:
    return {row.layer: row.verdict for row in rows if row.stage == stage}


def test_a_composite_is_compared_with_what_it_took_in_in_its_own_layout() -> None:
    rows = compared(unfolded(), grouped())
    assert set(verdicts(rows, "stage0").values()) == {"new"}
    found = verdicts(rows, "stage1")
    assert (found["c"], found["d"]) == ("exact", "exact")
    (c,) = [row for row in rows if (row.stage, row.layer) == ("stage1", "c")]
    assert (c.like, c.since, c.values) == ("c.relu", "stage0", 3 * 24)


def test_outputs_tell_what_makes_other_values_of_all_layers() -> None:
    """Of another type, so that no layer can be compared: the outputs can."""
    for added, verdict in ((1, "exact"), (2, "departs")):
        rows = found(unfolded(), of_bytes(added))
        assert {row.verdict for row in rows.layers} == {"new"}
        assert [items[0].verdict for _, _, items in rows.outputs] == ["exact", verdict]


def of_bytes(added: int) -> Model:
    """max(x + added, 0) + 2 by other layers, in int16."""
    build = ModelBuilder()
    x = build.emit(relax.op.astype(build.input("x", SHAPE, "int32"), "int16"), "narrow")
    one = build.tensor("one", np.full(1, added, np.int16))
    relu = build.emit(relax.op.nn.relu(build.emit(relax.op.add(x, one), "moved")), "positive")
    total = build.emit(relax.op.add(relu, build.tensor("two", np.full(1, 2, np.int16))), "total")
    return build.model([build.emit(relax.op.astype(total, "int32"), "wide")], ["d"])


def test_the_first_to_depart_is_said_with_how_far() -> None:
    rows = compared(unfolded(), grouped(), grouped(added=4))
    strayed = [row for row in rows if row.verdict == "departs"]
    assert (strayed[0].stage, strayed[0].layer) == ("stage2", "inner")
    (c,) = [row for row in strayed if row.layer == "c"]
    assert c.largest_difference == 3 and 0 < c.differing <= c.values
    assert "by at most 3" in str(c) and "'c.relu' of stage0" in str(c)
    assert {row.stage for row in strayed} == {"stage2"}


def test_a_pattern_picks_layers_and_one_that_picks_none_is_refused() -> None:
    rows = compared(unfolded(), grouped(), pattern="c*")
    assert {row.layer for row in rows} == {"c", "c.relu"}
    with pytest.raises(UserError, match=r"layer=e\*: matches no layer"):
        compared(unfolded(), pattern="e*")


def test_another_element_type_is_nothing_to_compare_with() -> None:
    build = ModelBuilder()
    x = build.input("x", SHAPE, "int32")
    c = build.emit(relax.op.astype(x, "int64"), "c")
    rows = compared(unfolded(), build.model([build.emit(relax.op.astype(c, "int32"), "e")], ["d"]))
    assert verdicts(rows, "stage1") == {"c": "new", "e": "new"}


def test_floats_that_differ_by_rounding_are_close() -> None:
    def model(scale: float) -> Model:
        build = ModelBuilder()
        x = build.emit(relax.op.astype(build.input("x", SHAPE, "int32"), "float32"), "f")
        scaled = relax.op.multiply(x, build.tensor("s", np.full(1, scale, np.float32)))
        return build.model([build.emit(scaled, "y")], ["y"])

    near = np.nextafter(np.float32(0.1), np.float32(1))
    assert verdicts(compared(model(0.1), model(near)), "stage1")["y"] == "close"
    assert verdicts(compared(model(0.1), model(0.2)), "stage1")["y"] == "departs"
