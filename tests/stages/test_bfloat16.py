"""Layers left in float as products of bfloat16: what is rounded, how often, by which kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages import quantizing
from stages.errors import StageError
from stages.kinds import Model
from stages.options import QuantizeOptions
from stages.qnn import interpret
from stages.qnn.builder import needed_bindings
from stages.qnn.composites import is_float_product
from stages.qnn.elementwise import ARITHMETIC
from stages.qnn.numbers import NUMPY
from stages.qnn.packed import parse_signature
from stages.qnn.registry import attributes, dtype_of, is_op
from tests.stages.packaging.programs import assert_exact
from tests.stages.packaging.test_plain import Net, op
from tests.stages.test_channels_last import dense_model, operators
from tests.targets import AMX, PROFILES, skip_unless_runnable

HALF = QuantizeOptions(floats="bfloat16")
TO, FROM = (ARITHMETIC[f"relax.qnn.{name}_bfloat16"] for name in ("to", "from"))


def residual(shape: tuple[int, ...] = (1, 3, 11, 9)) -> tuple[Net, Model]:
    """A first layer of few channels, and a block whose input is added to its result.

    Factors are whole numbers of at most 8 bits, and so are sums before they are rounded but for
    their trailing zeros: nothing depends on the order of additions.
    """
    net = Net(shape)
    x = net.emit(op.astype(net.x, "float32"), "real")
    x = _conv(net, x, "first", 34, 3)
    y = _conv(net, x, "second", 34, 34)
    y = net.emit(op.add(y, x), "sum")
    y = net.emit(op.nn.relu(y), "relu")
    return net, net.model(_conv(net, y, "last", 20, 34))


def _conv(net: Net, x: Any, name: str, outputs: int, depth: int) -> Any:
    weight = net.rng.integers(-1, 2, (outputs, depth, 3, 3)).astype(np.float32)
    x = net.emit(op.nn.conv2d(x, net.builder.tensor(f"{name}.w", weight), padding=1), name)
    bias = net.rng.integers(-9, 10, (1, outputs, 1, 1)).astype(np.float32)
    return net.emit(op.add(x, net.builder.tensor(f"{name}.b", bias)), f"{name}.bias")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_become_the_nearest_bfloat16(x: float) -> None:
    value = np.array([x], np.float32)
    found = FROM(NUMPY, TO(NUMPY, value).astype(np.uint16))
    if np.isinf(found[0]) and np.isfinite(x):
        assert abs(x) >= 2.0**127 * (2 - 2.0**-8)  # half a unit beyond the largest
        return
    bits = TO(NUMPY, value).astype(np.uint16)
    for step in (-1, 1):
        beside = FROM(NUMPY, (bits.astype(np.int32) + step).astype(np.uint16))
        if np.isfinite(beside[0]) and np.signbit(beside[0]) == np.signbit(found[0]):
            nearer, other = abs(np.float64(found[0]) - x), abs(np.float64(beside[0]) - x)
            assert nearer < other or (nearer == other and not bits[0] & 1)


def test_what_is_no_number_stays_none() -> None:
    bits = np.array([0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000], np.uint32)
    found = FROM(NUMPY, TO(NUMPY, bits.view(np.float32)).astype(np.uint16))
    assert np.isnan(found[:2]).all()
    assert found[2:].tolist() == [np.inf, -np.inf]


def test_every_tensor_is_rounded_once_and_the_sum_reads_it_rounded() -> None:
    _, model = residual()
    found = quantizing.run(model=model, options=HALF)
    counts = operators(found)
    assert counts["relax.qnn.float_conv2d"] == counts["relax.qnn.to_bfloat16"] == 3
    assert counts["relax.qnn.from_bfloat16"] == 1
    for binding in needed_bindings(found.module["main"]):
        if is_float_product(binding.value):
            assert {dtype_of(argument.ty) for argument in binding.value.args} == {"bfloat16"}
        if is_op(binding.value, "relax.nn.pad"):
            assert dtype_of(binding.var.ty) == "bfloat16"


def test_rounding_is_all_that_changes() -> None:
    net, model = residual()
    inputs = net.inputs()
    (expected,) = interpret.run(model, inputs).values()
    (found,) = interpret.run(quantizing.run(model=model, options=HALF), inputs).values()
    assert not np.array_equal(found, expected)
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("hardware", (*PROFILES, AMX), ids=lambda item: item.name)
@pytest.mark.parametrize("shape", [(1, 3, 11, 9), (2, 3, 6, 17)])
def test_kernels_give_the_same_bits(shape: tuple[int, ...], hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net, model = residual(shape)
    halved = quantizing.run(model=model, options=HALF)
    packed, _ = assert_exact(halved, net.inputs(), hardware)
    kernels = [
        parse_signature(attributes(binding.value)["signature"])
        for function in packed.module.functions.values()
        if "composite" in (function.attrs or {})
        for binding in needed_bindings(function)
        if is_op(binding.value, "relax.qnn.packed_conv2d")
    ]
    assert {kernel.family for kernel in kernels} == {"macbf16"}
    assert any(kernel.is_tiled for kernel in kernels) == (hardware == AMX)


@pytest.mark.parametrize("hardware", (*PROFILES, AMX), ids=lambda item: item.name)
def test_matrix_products(hardware: Hardware) -> None:
    """Of an odd number of channels, which fill up words with a zero."""
    skip_unless_runnable(hardware)
    net, model = dense_model(is_whole=True)
    assert_exact(quantizing.run(model=model, options=HALF), net.inputs(), hardware)


def test_only_kernels_that_read_a_tensor_widen_it() -> None:
    """No composite does nothing but that, so that no wider tensor is stored."""
    _, model = residual()
    halved = quantizing.run(model=model, options=HALF)
    packed, _ = assert_exact(halved, {"x": np.zeros((1, 3, 11, 9), np.int8)}, PROFILES[0])
    stored = [
        (str(binding.var.name), dtype_of(kind))
        for binding in needed_bindings(packed.module["main"])
        for kind in getattr(binding.var.ty, "fields", [binding.var.ty])
    ]
    assert [name for name, dtype in stored if dtype == "float32" and "last" not in name] == []


def test_a_model_without_float_layers_is_refused() -> None:
    net = Net((1, 6, 6, 8))
    model = net.model(net.conv(net.x, "c", 8))
    with pytest.raises(StageError, match="no layer is left in float"):
        quantizing.run(model=model, options=HALF)
