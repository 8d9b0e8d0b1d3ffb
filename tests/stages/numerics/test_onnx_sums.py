"""Sums in ONNX Runtime's orders: compiled ones are the ones that NumPy gives, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from stages.graph.builder import ModelBuilder
from stages.graph.interpret import run
from stages.numerics.onnx_sums import ORDERS, sum_in_order
from tests.stages.importing.compiling import in_relax

SHAPES = [(3, 1, 2), (2, 3, 5), (3, 4, 4), (5, 7, 3), (2, 10, 1), (1, 33, 6)]


@pytest.mark.parametrize("order", ORDERS)
def test_compiled_sums(order: str) -> None:
    rng = np.random.default_rng(0)
    for outer, extent, inner in SHAPES:
        value = rng.normal(size=(outer, extent, inner if order in ORDERS[:2] else 1))
        given = {"x": value.astype(np.float32)}
        builder = ModelBuilder()
        x = builder.input("x", value.shape, "float32")
        model = builder.model([builder.emit(sum_in_order(x, order=order), "y")], ["y"])
        assert np.array_equal(in_relax(model, given), run(model, given)["y"])
