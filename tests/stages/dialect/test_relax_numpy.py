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


IMAGE, WEIGHT = whole(1, 4, 7, 6), whole(6, 4, 3, 2)
nn = relax.op.nn
CASES: dict[str, tuple[Array, Array, Build]] = {
    "conv2d": (IMAGE, WEIGHT, lambda x, w: nn.conv2d(x, w, (2, 1), (1, 0, 2, 1))),
    "conv2d_dilated": (IMAGE, WEIGHT, lambda x, w: nn.conv2d(x, w, 1, 2, dilation=(2, 3))),
    "conv2d_groups": (IMAGE, whole(6, 2, 3, 3), lambda x, w: nn.conv2d(x, w, 1, 1, groups=2)),
    "depthwise": (IMAGE, whole(4, 1, 3, 3), lambda x, w: nn.conv2d(x, w, 1, 1, groups=4)),
    "max_pool2d": (IMAGE, WEIGHT, lambda x, _: nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1))),
    "avg_pool2d": (IMAGE, WEIGHT, lambda x, _: nn.avg_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1))),
    "avg_pool2d_padded": (
        IMAGE,
        WEIGHT,
        lambda x, _: nn.avg_pool2d(x, (3, 2), 2, (1, 0, 1, 1), count_include_pad=True),
    ),
    "mean": (IMAGE[:, :, :4, :4], WEIGHT, lambda x, _: relax.op.mean(x, [2, 3], True)),
    "mean_dropped": (IMAGE[:, :, :4, :4], WEIGHT, lambda x, _: relax.op.mean(x, [-1, 2])),
    "matmul": (whole(1, 5), whole(5, 3), relax.op.matmul),
    "add": (IMAGE, whole(4, 1, 1), relax.op.add),
    "subtract": (IMAGE, whole(1), relax.op.subtract),
    "multiply": (IMAGE, whole(1, 4, 1, 1), relax.op.multiply),
    "divide": (IMAGE, np.array([0.7], np.float32), relax.op.divide),
    "maximum": (IMAGE, whole(4, 1, 1), relax.op.maximum),
    "minimum": (IMAGE, whole(4, 1, 1), relax.op.minimum),
    "relu": (IMAGE, WEIGHT, lambda x, _: nn.relu(x)),
    "sign": (IMAGE, WEIGHT, lambda x, _: relax.op.sign(x)),
    "sqrt": (np.abs(IMAGE), WEIGHT, lambda x, _: relax.op.sqrt(x)),
    "clip": (IMAGE, WEIGHT, lambda x, _: relax.op.clip(x, -2.5, 3)),
    "reshape": (IMAGE, WEIGHT, lambda x, _: relax.op.reshape(x, (1, -1))),
    "flatten": (IMAGE, WEIGHT, lambda x, _: relax.op.flatten(x)),
    "squeeze": (IMAGE, WEIGHT, lambda x, _: relax.op.squeeze(x, [0])),
    "expand_dims": (IMAGE, WEIGHT, lambda x, _: relax.op.expand_dims(x, 2)),
    "permute_dims": (IMAGE, WEIGHT, lambda x, _: relax.op.permute_dims(x, [0, 2, 3, 1])),
    "transpose": (IMAGE, WEIGHT, lambda x, _: relax.op.permute_dims(x)),
    "astype": (IMAGE, WEIGHT, lambda x, _: relax.op.astype(x, "int8")),
    "abs": (IMAGE, WEIGHT, lambda x, _: relax.op.abs(x)),
    "negative": (IMAGE, WEIGHT, lambda x, _: relax.op.negative(x)),
    "floor": (IMAGE / 4, WEIGHT, lambda x, _: relax.op.floor(x)),
    "ceil": (IMAGE / 4, WEIGHT, lambda x, _: relax.op.ceil(x)),
    "round": (IMAGE / 4, WEIGHT, lambda x, _: relax.op.round(x)),
    "rsqrt": (4.0 ** whole(1, 5), WEIGHT, lambda x, _: relax.op.rsqrt(x)),
    "square": (IMAGE, WEIGHT, lambda x, _: relax.op.square(x)),
    "sum": (IMAGE, WEIGHT, lambda x, _: relax.op.sum(x, [1, -1])),
    "sum_of_all": (IMAGE, WEIGHT, lambda x, _: relax.op.sum(x, keepdims=True)),
    "concat": (IMAGE, whole(1, 2, 7, 6), lambda x, w: relax.op.concat([x, w, x], 1)),
    "stack": (IMAGE, IMAGE + 1, lambda x, w: relax.op.stack([x, w], 2)),
    "split": (IMAGE, WEIGHT, lambda x, _: relax.TupleGetItem(relax.op.split(x, 2, 1), 1)),
    "split_at": (IMAGE, WEIGHT, lambda x, _: relax.TupleGetItem(relax.op.split(x, [1, 4], 3), 1)),
    "strided_slice": (
        IMAGE,
        WEIGHT,
        lambda x, _: relax.op.strided_slice(x, [1, 2], [0, 1], [4, 6], [1, 2]),
    ),
    "strided_slice_backwards": (
        IMAGE,
        WEIGHT,
        lambda x, _: relax.op.strided_slice(x, [2, 3], [-1, 4], [-8, -5], [-1, -2]),
    ),
    "take": (IMAGE, np.array([[3, 0], [1, 1]], np.int32), lambda x, i: relax.op.take(x, i, 1)),
    "pad": (IMAGE, WEIGHT, lambda x, _: nn.pad(x, [0, 0, 1, 0, 2, 3, 0, 1], pad_value=2.5)),
    "pad_reflect": (
        IMAGE,
        WEIGHT,
        lambda x, _: nn.pad(x, [0, 0, 0, 0, 2, 3, 0, 1], pad_mode="reflect"),
    ),
    "broadcast_to": (IMAGE, WEIGHT, lambda x, _: relax.op.broadcast_to(x, (2, 4, 7, 6))),
    "tile": (IMAGE, WEIGHT, lambda x, _: relax.op.tile(x, [1, 2, 1, 3])),
    "repeat": (IMAGE, WEIGHT, lambda x, _: relax.op.repeat(x, 2, 2)),
    "flip": (IMAGE, WEIGHT, lambda x, _: relax.op.flip(x, 2)),
    "argmax": (IMAGE, WEIGHT, lambda x, _: relax.op.argmax(x, 1)),
    "argmin": (IMAGE, WEIGHT, lambda x, _: relax.op.argmin(x, -1, True)),
    "max": (IMAGE, WEIGHT, lambda x, _: relax.op.max(x, [1, 3])),
    "min": (IMAGE, WEIGHT, lambda x, _: relax.op.min(x, keepdims=True)),
    "where": (IMAGE > 0, IMAGE[:, ::-1] > 2, lambda x, w: relax.op.where(w, w, x)),
    "less": (IMAGE, whole(4, 1, 1), relax.op.less),
    "less_equal": (IMAGE, whole(4, 1, 1), relax.op.less_equal),
    "greater": (IMAGE, whole(4, 1, 1), relax.op.greater),
    "greater_equal": (IMAGE, whole(4, 1, 1), relax.op.greater_equal),
    "equal": (IMAGE, whole(4, 1, 1), relax.op.equal),
    "not_equal": (IMAGE, whole(4, 1, 1), relax.op.not_equal),
    **{
        name: (IMAGE > 0, IMAGE[:, ::-1] > 2, getattr(relax.op, name))
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    "logical_not": (IMAGE > 0, WEIGHT, lambda x, _: relax.op.logical_not(x)),
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
