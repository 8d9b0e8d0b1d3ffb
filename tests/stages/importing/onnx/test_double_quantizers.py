"""Pairs of quantizers in a row beside ONNX Runtime's default session, which makes one of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.stages.importing.onnx.integer_graphs import build, compare, random

BETWEEN: dict[str, tuple[str, list[Any]]] = {
    "nothing": ("", []),
    "identity": ("Identity", []),
    "dropout": ("Dropout", []),
    "add 0": ("Add", [np.float32(0)]),
    "times 1": ("Mul", [np.ones(1, np.float32)]),
    "less a half": ("Sub", [np.float32(0.5)]),
    "relu": ("Relu", []),
}


class Chain:
    """Pairs of quantizers one after the other; names are counted up."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.tensor = dtype, "x"
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.outputs: list[str] = []

    def apply(self, op: str, operands: list[Any]) -> str:
        names = [f"c{len(self.constants) + i}" for i in range(len(operands))]
        self.constants |= dict(zip(names, operands, strict=True))
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.tensor, *names], [result]))
        self.tensor = result
        return result

    def pair(self, scale: float, zero_point: int, across: str = "nothing") -> None:
        grid = [np.float32(scale), np.array(zero_point + np.iinfo(self.dtype).min, self.dtype)]
        self.apply("QuantizeLinear", grid)
        if across != "nothing":
            self.apply(*BETWEEN[across])
        self.apply("DequantizeLinear", grid)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_pairs_in_a_row(data: st.DataObject) -> None:
    draw = data.draw
    chain = Chain(draw(st.sampled_from(["uint8", "int8"])))
    grid = st.tuples(st.floats(0.01, 0.1), st.integers(0, 255))
    grids = draw(st.lists(grid, min_size=2, max_size=6, unique_by=lambda each: each[0]))
    opset = draw(st.sampled_from([13, 19, 21]))
    for each in grids:
        chain.pair(*each, draw(st.sampled_from(["nothing", "identity"])))
        between = draw(st.sampled_from(list(BETWEEN)))
        if draw(st.integers(0, 4)) == 0:  # a second reader, which keeps the pairs apart
            chain.outputs.append(chain.apply("Neg", []))
            chain.tensor = chain.nodes[-1].input[0]
        if between != "nothing":
            chain.apply(*BETWEEN[between])
    outputs = {name: ("float32", 2) for name in dict.fromkeys([*chain.outputs, chain.tensor])}
    source = build(chain.nodes, {"x": ("float32", (4, 9))}, chain.constants, outputs, opset=opset)
    x = random(np.random.default_rng(draw(st.integers(0, 99))), "float32", (4, 9))
    compare(source, {"x": x}, fuse=True, compiled=False)


def test_pairs_of_one_grid_are_one() -> None:
    chain = Chain("uint8")
    for grid in ((0.03, 7), (0.03, 7), (0.05, 9)):
        chain.pair(*grid)
    outputs = {chain.tensor: ("float32", 2)}
    source = build(chain.nodes, {"x": ("float32", (9, 9))}, chain.constants, outputs)
    x = random(np.random.default_rng(0), "float32", (9, 9))
    compare(source, {"x": x}, fuse=True, compiled=False)


@pytest.mark.parametrize("across", [name for name in BETWEEN if name != "less a half"])
def test_two_pairs_are_one(across: str) -> None:
    """The middle is gone, also where nodes that change nothing stand in it."""
    chain = Chain("int8")
    chain.pair(0.03, 120)
    if across != "nothing":
        chain.apply(*BETWEEN[across])
    chain.pair(0.05, 100)
    source = build(
        chain.nodes, {"x": ("float32", (9, 9))}, chain.constants, {chain.tensor: ("float32", 2)}
    )
    x = random(np.random.default_rng(0), "float32", (9, 9))
    model = compare(source, {"x": x}, fuse=True, compiled=False)
    quantizers = [name for name in model.params if name.endswith("joined_scale")]
    assert len(quantizers) == (across != "relu")
