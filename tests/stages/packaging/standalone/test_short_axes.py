"""Tensors whose last axis is shorter than a vector: the one before it is taken instead."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.graph.builder import FunctionBuilder
from stages.packaging.standalone.te_kernel import tensor_function
from stages.packaging.standalone.te_loops import LEAST
from stages.packaging.standalone.te_schedule import scheduled
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import AARCH64, AVX2, AVX512BW, skip_unless_runnable

op = relax.op
MOVES = {
    "pixels of blocks of channels": ((4, 20, 3, 2, 2), (2, 0, 3, 1, 4)),
    "blocks of channels, depth last": ((4, 7, 2, 2, 3), (4, 0, 2, 1, 3)),
    "rows between each other": ((3, 2, 2, 5, 17), (0, 3, 1, 4, 2)),
    "colours last": ((3, 9, 33), (1, 2, 0)),
    "nothing but short axes": ((2, 3, 5), (2, 1, 0)),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("hardware", (AVX2, AVX512BW, AARCH64), ids=lambda item: item.name)
def test_transposes(move: str, hardware: Hardware) -> None:
    """With something computed of every element, by place along the last axis."""
    skip_unless_runnable(hardware)
    shape, axes = MOVES[move]
    net = Net(shape, "int8")
    turned = net.emit(op.permute_dims(net.x, list(axes)), "turned")
    wide = net.emit(op.astype(turned, "float32"), "wide")
    last = net.builder.tensor("last", np.arange(1, 1 + shape[axes[-1]], dtype=np.float32))
    model = net.model(turned, net.emit(op.multiply(wide, last), "scaled"))
    x = np.arange(prod(shape)).astype(np.int8).reshape(shape)
    assert_exact(model, {"x": x}, hardware, tasks=(1, 3))


@pytest.mark.parametrize(
    ("extents", "lanes"), [((40, 64, 3), 32), ((40, 12, 3), 12), ((40, 5, 3), None)]
)
def test_vectors_are_along_the_axis_before(extents: tuple[int, ...], lanes: int | None) -> None:
    builder = FunctionBuilder()
    x = builder.param("x", (extents[2], *extents[:2]), "int8")
    turned = builder.emit(op.permute_dims(x, [1, 2, 0]), "turned")
    function = tensor_function(builder.finish([turned], {"composite": "plain"}))
    text = scheduled(function, 32).script()
    found = [int(extent) for extent in re.findall(r"T\.vectorized\((\d+)\)", text)]
    assert found == ([] if lanes is None else [lanes])
    assert lanes is None or lanes >= LEAST
