"""NumPy meanings of ordinary Relax operators, against Relax itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import Call

from stages.dialect.relax_numpy import STANDARD
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Model
from tests.stages.dialect.test_legalize import in_relax

Build = Callable[[Any, Any], Any]
RNG = np.random.default_rng(3)


def whole(*shape: int) -> Array:
    """Small integers as float32: sums in any order are exact."""
    return RNG.integers(-9, 10, shape).astype(np.float32)


PICTURE, WEIGHT = whole(1, 4, 7, 6), whole(6, 4, 3, 2)
nn = relax.op.nn
CASES: dict[str, tuple[Array, Array, Build]] = {
    "conv2d": (PICTURE, WEIGHT, lambda x, w: nn.conv2d(x, w, (2, 1), (1, 0, 2, 1))),
    "conv2d_dilated": (PICTURE, WEIGHT, lambda x, w: nn.conv2d(x, w, 1, 2, dilation=(2, 3))),
    "conv2d_groups": (PICTURE, whole(6, 2, 3, 3), lambda x, w: nn.conv2d(x, w, 1, 1, groups=2)),
    "depthwise": (PICTURE, whole(4, 1, 3, 3), lambda x, w: nn.conv2d(x, w, 1, 1, groups=4)),
    "max_pool2d": (PICTURE, WEIGHT, lambda x, _: nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1))),
    "avg_pool2d": (PICTURE, WEIGHT, lambda x, _: nn.avg_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1))),
    "avg_pool2d_padded": (
        PICTURE,
        WEIGHT,
        lambda x, _: nn.avg_pool2d(x, (3, 2), 2, (1, 0, 1, 1), count_include_pad=True),
    ),
    "mean": (PICTURE[:, :, :4, :4], WEIGHT, lambda x, _: relax.op.mean(x, [2, 3], True)),
    "mean_dropped": (PICTURE[:, :, :4, :4], WEIGHT, lambda x, _: relax.op.mean(x, [-1, 2])),
    "matmul": (whole(1, 5), whole(5, 3), relax.op.matmul),
    "add": (PICTURE, whole(4, 1, 1), relax.op.add),
    "subtract": (PICTURE, whole(1), relax.op.subtract),
    "multiply": (PICTURE, whole(1, 4, 1, 1), relax.op.multiply),
    "divide": (PICTURE, np.array([0.7], np.float32), relax.op.divide),
    "maximum": (PICTURE, whole(4, 1, 1), relax.op.maximum),
    "minimum": (PICTURE, whole(4, 1, 1), relax.op.minimum),
    "relu": (PICTURE, WEIGHT, lambda x, _: nn.relu(x)),
    "sign": (PICTURE, WEIGHT, lambda x, _: relax.op.sign(x)),
    "sqrt": (np.abs(PICTURE), WEIGHT, lambda x, _: relax.op.sqrt(x)),
    "clip": (PICTURE, WEIGHT, lambda x, _: relax.op.clip(x, -2.5, 3)),
    "reshape": (PICTURE, WEIGHT, lambda x, _: relax.op.reshape(x, (1, -1))),
    "flatten": (PICTURE, WEIGHT, lambda x, _: relax.op.flatten(x)),
    "squeeze": (PICTURE, WEIGHT, lambda x, _: relax.op.squeeze(x, [0])),
    "expand_dims": (PICTURE, WEIGHT, lambda x, _: relax.op.expand_dims(x, 2)),
    "permute_dims": (PICTURE, WEIGHT, lambda x, _: relax.op.permute_dims(x, [0, 2, 3, 1])),
    "transpose": (PICTURE, WEIGHT, lambda x, _: relax.op.permute_dims(x)),
    "astype": (PICTURE, WEIGHT, lambda x, _: relax.op.astype(x, "int8")),
    "abs": (PICTURE, WEIGHT, lambda x, _: relax.op.abs(x)),
    "negative": (PICTURE, WEIGHT, lambda x, _: relax.op.negative(x)),
    "floor": (PICTURE / 4, WEIGHT, lambda x, _: relax.op.floor(x)),
    "ceil": (PICTURE / 4, WEIGHT, lambda x, _: relax.op.ceil(x)),
    "round": (PICTURE / 4, WEIGHT, lambda x, _: relax.op.round(x)),
    "rsqrt": (4.0 ** whole(1, 5), WEIGHT, lambda x, _: relax.op.rsqrt(x)),
    "square": (PICTURE, WEIGHT, lambda x, _: relax.op.square(x)),
    "sum": (PICTURE, WEIGHT, lambda x, _: relax.op.sum(x, [1, -1])),
    "sum_of_all": (PICTURE, WEIGHT, lambda x, _: relax.op.sum(x, keepdims=True)),
    "concat": (PICTURE, whole(1, 2, 7, 6), lambda x, w: relax.op.concat([x, w, x], 1)),
    "stack": (PICTURE, PICTURE + 1, lambda x, w: relax.op.stack([x, w], 2)),
    "split": (PICTURE, WEIGHT, lambda x, _: relax.TupleGetItem(relax.op.split(x, 2, 1), 1)),
    "split_at": (PICTURE, WEIGHT, lambda x, _: relax.TupleGetItem(relax.op.split(x, [1, 4], 3), 1)),
    "strided_slice": (
        PICTURE,
        WEIGHT,
        lambda x, _: relax.op.strided_slice(x, [1, 2], [0, 1], [4, 6], [1, 2]),
    ),
    "strided_slice_backwards": (
        PICTURE,
        WEIGHT,
        lambda x, _: relax.op.strided_slice(x, [2, 3], [-1, 4], [-8, -5], [-1, -2]),
    ),
    "take": (PICTURE, np.array([[3, 0], [1, 1]], np.int32), lambda x, i: relax.op.take(x, i, 1)),
    "pad": (PICTURE, WEIGHT, lambda x, _: nn.pad(x, [0, 0, 1, 0, 2, 3, 0, 1], pad_value=2.5)),
    "pad_reflect": (
        PICTURE,
        WEIGHT,
        lambda x, _: nn.pad(x, [0, 0, 0, 0, 2, 3, 0, 1], pad_mode="reflect"),
    ),
    "broadcast_to": (PICTURE, WEIGHT, lambda x, _: relax.op.broadcast_to(x, (2, 4, 7, 6))),
    "tile": (PICTURE, WEIGHT, lambda x, _: relax.op.tile(x, [1, 2, 1, 3])),
    "repeat": (PICTURE, WEIGHT, lambda x, _: relax.op.repeat(x, 2, 2)),
    "flip": (PICTURE, WEIGHT, lambda x, _: relax.op.flip(x, 2)),
    "argmax": (PICTURE, WEIGHT, lambda x, _: relax.op.argmax(x, 1)),
    "argmin": (PICTURE, WEIGHT, lambda x, _: relax.op.argmin(x, -1, True)),
    "max": (PICTURE, WEIGHT, lambda x, _: relax.op.max(x, [1, 3])),
    "min": (PICTURE, WEIGHT, lambda x, _: relax.op.min(x, keepdims=True)),
    "where": (PICTURE > 0, PICTURE[:, ::-1] > 2, lambda x, w: relax.op.where(w, w, x)),
    "less": (PICTURE, whole(4, 1, 1), relax.op.less),
    "less_equal": (PICTURE, whole(4, 1, 1), relax.op.less_equal),
    "greater": (PICTURE, whole(4, 1, 1), relax.op.greater),
    "greater_equal": (PICTURE, whole(4, 1, 1), relax.op.greater_equal),
    "equal": (PICTURE, whole(4, 1, 1), relax.op.equal),
    "not_equal": (PICTURE, whole(4, 1, 1), relax.op.not_equal),
    **{
        name: (PICTURE > 0, PICTURE[:, ::-1] > 2, getattr(relax.op, name))
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    "logical_not": (PICTURE > 0, WEIGHT, lambda x, _: relax.op.logical_not(x)),
}


def network(x: Array, w: Array, build: Build) -> Model:
    builder = ModelBuilder()
    variables = builder.input("x", x.shape, str(x.dtype)), builder.tensor("w", w)
    call = build(*variables)
    if isinstance(call, relax.TupleGetItem):
        parts = builder.emit(call.tuple_value, "parts")
        call = relax.TupleGetItem(parts, call.index)
    return builder.model([builder.emit(call, "y")], ["y"])


def test_every_operator_has_a_case() -> None:
    called = {
        str(binding.value.op.name)
        for case in CASES.values()
        for binding in bindings_of(network(*case).module["main"])
        if isinstance(binding.value, Call)
    }
    assert called == STANDARD.keys()


@pytest.mark.parametrize("name", CASES)
def test_meaning(name: str) -> None:
    x, w, build = CASES[name]
    model = network(x, w, build)
    expected = in_relax(model, {"x": np.ascontiguousarray(x)})
    found = interpret.run(model, {"x": x})["y"]
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def test_an_operator_without_meaning() -> None:
    builder = ModelBuilder()
    x = builder.input("x", (1, 4), "float32")
    model = builder.model([builder.emit(relax.op.tanh(x), "y")], ["y"])
    with pytest.raises(NotImplementedError, match=r"no NumPy meaning for relax\.tanh"):
        interpret.run(model, {"x": np.zeros((1, 4), np.float32)})


def test_a_missing_input() -> None:
    builder = ModelBuilder()
    model = builder.model([builder.input("x", (1, 4), "float32")], ["y"])
    with pytest.raises(KeyError, match="x"):
        interpret.run(model, {})


def test_every_binding_can_be_seen() -> None:
    builder = ModelBuilder()
    x = builder.input("x", (1, 4), "float32")
    doubled = builder.emit(relax.op.add(x, x), "doubled")
    model = builder.model([builder.emit(nn.relu(doubled), "y")], ["out"])
    seen: dict[str, Any] = {}
    interpret.run(model, {"x": whole(1, 4)}, observe=seen.__setitem__)
    assert list(seen) == ["doubled", "y", "y.out"]
