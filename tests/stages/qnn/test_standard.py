"""NumPy meanings of ordinary Relax operators, against Relax itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages.qnn import interpret
from stages.qnn.builder import ModelBuilder
from stages.qnn.standard import STANDARD
from tests.stages.qnn.test_legalize import in_relax

Array = np.ndarray[Any, Any]
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
}


def test_every_operator_has_a_case() -> None:
    called = set()
    for x, w, build in CASES.values():
        builder = ModelBuilder()
        call = build(builder.input("x", x.shape, "float32"), builder.tensor("w", w))
        called.add(str(call.op.name))
    assert called == STANDARD.keys()


@pytest.mark.parametrize("name", CASES)
def test_meaning(name: str) -> None:
    x, w, build = CASES[name]
    builder = ModelBuilder()
    variables = builder.input("x", x.shape, "float32"), builder.tensor("w", w)
    model = builder.model([builder.emit(build(*variables), "y")], ["y"])
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
