"""Products of two computed matrices whose columns fit no vector: the same bits, of more columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from stages.dialect.calls import is_op, shape_of
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.kinds import Model
from stages.quantizing.pad_columns import PadColumns
from tests.stages.packaging.integer_net import Net, op
from tests.stages.packaging.programs import assert_exact
from tests.targets import EVERY, skip_unless_runnable


def attention(tokens: int, dtype: str, end: str = "one") -> tuple[Net, Model]:
    """Tokens times tokens, then what is computed of each sum alone."""
    net = Net((2, tokens, 5))
    x = net.emit(op.astype(net.x, dtype), "wide")
    turned = net.emit(op.permute_dims(x, [0, 2, 1]), "turned")
    sums = net.emit(op.matmul(x, turned), "sums")
    if end == "sums":
        return net, net.model(sums)
    factor = net.builder.tensor("factor", np.asarray(3, dtype))
    result = net.emit(op.nn.relu(net.emit(op.multiply(sums, factor), "scaled")), "relu")
    if end == "several":  # one reader knows of single values alone, one does not
        each = net.builder.tensor("each", np.arange(tokens).astype(dtype))
        result = net.emit(op.add(net.emit(op.add(sums, each), "added"), result), "both")
    return net, net.model(result)


def columns(model: Model) -> int:
    (call,) = (b.value for b in bindings_of(model.module["main"]) if is_op(b.value, "relax.matmul"))
    return shape_of(call.ty)[-1]


@pytest.mark.parametrize("end", ["sums", "one", "several"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
@EVERY
def test_bits_stay(end: str, dtype: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net, model = attention(67, dtype, end)
    inputs = net.inputs()
    (expected,) = interpret.run(model, inputs).values()
    (found,) = interpret.run(PadColumns(model).run(), inputs).values()
    np.testing.assert_array_equal(found, expected)
    assert_exact(model, inputs, hardware, tasks=(1, 2))


@pytest.mark.parametrize(
    ("tokens", "expected"), [(67, 80), (197, 208), (37, 37), (130, 130), (64, 64), (5, 5), (22, 22)]
)
def test_columns_are_added_where_none_fit(tokens: int, expected: int) -> None:
    assert columns(PadColumns(attention(tokens, "int32")[1]).run()) == expected


def test_matrices_of_weights_stay() -> None:
    net = Net((3, 5))
    weight: Any = net.builder.tensor("w", np.ones((5, 67), np.float32))
    x = net.emit(op.astype(net.x, "float32"), "real")
    assert columns(PadColumns(net.model(net.emit(op.matmul(x, weight), "product"))).run()) == 67
