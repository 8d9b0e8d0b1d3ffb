"""Polyphase rows: even ones, then odd ones, which a stride of two reads side by side."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.bitpacking import kernel_choice
from stages.dialect import integer
from stages.numerics import onnx_elementwise
from tests.stages.networks import SourceNet
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.stages.pipeline import random_inputs
from tests.targets import (
    AARCH64,
    AMX,
    AVX2,
    AVX512VNNI,
    SSE2,
    skip_unless_runnable,
)


@pytest.mark.parametrize(
    "hardware", (AMX, AVX512VNNI, AVX2, SSE2, AARCH64), ids=lambda item: item.name
)
@pytest.mark.parametrize("size", [(14, 14), (9, 13), (8, 5)])
@pytest.mark.parametrize("before", ("conv", "pool", "nothing", "sum"))
@pytest.mark.parametrize("has_point", (False, True))
def test_rows_in_phases_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
    hardware: Hardware,
    size: tuple[int, int],
    before: str,
    has_point: bool,
) -> None:
    """Whatever writes them, and for a window of one pixel that begins in an odd row."""
    skip_unless_runnable(hardware)
    monkeypatch.setattr(kernel_choice, "POLYPHASE_GAIN", inf)
    net = Net((1, *size, 32), "uint8")
    x = net.x if before == "nothing" else net.conv(net.x, "first", 32, dtype="uint8")
    if before == "pool":
        attrs = {"kernel": [3, 3], "strides": [1, 1], "padding": [1, 1, 1, 1]}
        x = net.emit(integer.max_pool2d(x, **attrs), "pool")
    if before == "sum":
        ratios = [net.builder.tensor(n, np.array(0.5, np.float32)) for n in ("a", "b", "c")]
        x = net.emit(onnx_elementwise.qlinear_add(x, net.x, *ratios, low=0, high=255), "sum")
    y = net.conv(x, "window", 40, strides=[2, 2], zero_point=3)
    z = net.conv(x, "point", 40, kernel=1, strides=[2, 2], zero_point=3) if has_point else y
    packed, _ = assert_exact(net.model(y, z) if has_point else net.model(y), net.inputs(), hardware)
    assert str(packed.module).count("phases=2") >= 2 + has_point


@pytest.mark.parametrize("hardware", (AMX, AVX2), ids=lambda item: item.name)
@pytest.mark.parametrize("reader", ("window", "sum", "output"))
def test_rows_that_anything_else_reads_lie_one_below_the_other(
    monkeypatch: pytest.MonkeyPatch, hardware: Hardware, reader: str
) -> None:
    skip_unless_runnable(hardware)
    monkeypatch.setattr(kernel_choice, "POLYPHASE_GAIN", inf)
    net = Net((1, 14, 14, 32), "uint8")
    x = net.conv(net.x, "first", 32, dtype="uint8")
    y = net.conv(x, "strided", 32, strides=[2, 2])
    if reader == "window":
        other = net.conv(x, "other", 32)
    elif reader == "sum":
        ratios = [net.builder.tensor(n, np.array(0.5, np.float32)) for n in ("a", "b", "c")]
        other = net.emit(onnx_elementwise.qlinear_add(x, net.x, *ratios, low=0, high=255), "sum")
    else:
        other = x
    packed, _ = assert_exact(net.model(y, other), net.inputs(), hardware)
    assert "phases=2" not in str(packed.module)


@pytest.mark.parametrize("hardware", (AMX, AVX2, AARCH64), ids=lambda item: item.name)
@pytest.mark.parametrize("size", (14, 11))
def test_rows_of_a_network_with_quantizers_lie_in_phases(
    monkeypatch: pytest.MonkeyPatch, hardware: Hardware, size: int
) -> None:
    """Beside readers with paddings of their own, which need not be even together."""
    skip_unless_runnable(hardware)
    monkeypatch.setattr(kernel_choice, "POLYPHASE_GAIN", inf)
    source = SourceNet((1, 32, size, size))
    x = source.quant(source.x, "data", 8, 0.5)
    first = source.op(
        relax.op.nn.conv2d(x, source.weights("w1", (32, 32, 3, 3), 8, "signed"), 1, 1), "c"
    )
    x = source.quant(first, "levels", 8, 0.5)
    window = source.weights("w2", (40, 32, 3, 3), 8, "signed")
    y = source.op(relax.op.nn.conv2d(x, window, (2, 2), (1, 1, 1, 1)), "window")
    point = source.weights("w3", (40, 32, 1, 1), 8, "signed")
    z = source.op(relax.op.nn.conv2d(x, point, (2, 2), (0, 0, 0, 0)), "point")
    y, z = (source.quant(v, f"{v.name}.q", 8, 0.5, signed=True) for v in (y, z))
    model = source.model(source.op(relax.op.add(y, z), "sum"))
    packed, _ = assert_exact(model, random_inputs(model, 1), hardware)
    assert "phases=2" in str(packed.module)
