"""Softmax of floats, compiled: rows of any length, in vectors whose last one overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.kernels.byte_shift import as_unsigned
from stages.numerics import linear_quantizers, onnx_luts
from stages.numerics.float_softmax import softmax
from stages.numerics.onnx_layers import qlinear_softmax
from stages.packaging.standalone.softmax_rows import MOST
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import AARCH64, AVX2, AVX512BW, SSE2, skip_unless_runnable

EVERY = pytest.mark.parametrize(
    "hardware",
    [
        SSE2,
        AVX2,
        AVX512BW,
        pytest.param(AARCH64, marks=pytest.mark.slow),
    ],
    ids=lambda item: item.name,
)


def floats(net: Net) -> dict[str, Any]:
    return {"x": (net.rng.normal(size=net.shape) * 9).astype(np.float32)}


@EVERY
@pytest.mark.parametrize("length", [1, 2, 7, 16, 33, 197, MOST + 1])
@pytest.mark.parametrize("rows", [(), (3,), (5,), (2, 4)])
def test_rows_of_any_length(rows: tuple[int, ...], length: int, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net((*rows, length), "float32")
    y = net.emit(softmax(net.x, beta=0.5), "softmax")
    assert_exact(net.model(y), floats(net), hardware)


@EVERY
def test_what_follows_is_computed_with_it(hardware: Hardware) -> None:
    """Of scalars, and of tensors of the same shape."""
    skip_unless_runnable(hardware)
    net = Net((2, 3, 21), "float32")
    y = net.emit(softmax(net.x, beta=1.0), "softmax")
    y = net.emit(relax.op.multiply(y, net.x), "weighed")
    scale = net.builder.tensor("scale", np.array(0.03, np.float32))
    zero_point = net.builder.tensor("point", np.array(-7, np.int8))
    y = net.emit(
        linear_quantizers.quantize_linear(y, scale, zero_point, low=-128, high=127), "bytes"
    )
    _, program = assert_exact(net.model(y), floats(net), hardware)
    assert len(program.calls) == 1


@EVERY
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(2, 2), (7, 3), (2, 4, 16), (3, 197), (1, MOST + 1)])
def test_bytes(shape: tuple[int, ...], dtype: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net = Net(shape, dtype)
    table = net.builder.tensor("table", onnx_luts.exponentials(np.float32(0.1), shape[-1]))
    y = net.emit(qlinear_softmax(net.x, table, levels=254.0, zero_point=-128), "softmax")
    if dtype == "int8":
        y = net.emit(as_unsigned(y), "unsigned")
    _, program = assert_exact(net.model(y), net.inputs(), hardware)
    assert len(program.calls) == 1
