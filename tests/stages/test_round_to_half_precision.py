"""Layers left in float as products of bfloat16 or float16: what is rounded, and how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages import quantizing
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.float_linear import HALF_PRECISION_CASTS, HalfPrecision
from stages.dialect.numbers_numpy import NUMPY
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import needed_bindings
from stages.graph.composites import is_float_product
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model
from stages.options import QuantizeOptions
from tests.stages.packaging.integer_net import Net, op
from tests.stages.packaging.programs import assert_exact
from tests.stages.test_move_channels_last import dense_model, operators
from tests.targets import AMX, PROFILES, skip_unless_runnable

HALF = QuantizeOptions(floats="bfloat16")
EACH = pytest.mark.parametrize("half", HALF_PRECISION_CASTS)


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


def both_ways(half: HalfPrecision, value: Any) -> tuple[Any, Any]:
    """The bits of what a float32 is rounded to, and how bits read."""
    to, back = (ARITHMETIC[f"relax.qnn.{way}_{half}"] for way in ("to", "from"))
    stored = to(NUMPY, value)
    bits = stored.view(np.uint16) if half == "float16" else stored.astype(np.uint16)

    def read(bits: Any) -> Any:
        return back(NUMPY, bits.view(np.float16) if half == "float16" else bits)

    return bits, read


@EACH
@given(x=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_become_the_nearest_half(half: HalfPrecision, x: float) -> None:
    bits, read = both_ways(half, np.array([x], np.float32))
    found = read(bits)
    if np.isinf(found[0]) and np.isfinite(x):  # half a unit beyond the largest
        assert abs(x) >= (65520 if half == "float16" else 2.0**127 * (2 - 2.0**-8))
        return
    for step in (-1, 1):
        beside = read((bits.astype(np.int32) + step).astype(np.uint16))
        if np.isfinite(beside[0]) and np.signbit(beside[0]) == np.signbit(found[0]):
            nearer, other = abs(np.float64(found[0]) - x), abs(np.float64(beside[0]) - x)
            assert nearer < other or (nearer == other and not bits[0] & 1)


@EACH
def test_what_is_no_number_stays_none(half: HalfPrecision) -> None:
    given = np.array([0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000], np.uint32)
    bits, read = both_ways(half, given.view(np.float32))
    found = read(bits)
    assert np.isnan(found[:2]).all()
    assert found[2:].tolist() == [np.inf, -np.inf]


@EACH
def test_every_tensor_is_rounded_once_and_the_sum_reads_it_rounded(half: HalfPrecision) -> None:
    _, model = residual()
    found = quantizing.run(model=model, options=QuantizeOptions(floats=half))
    counts = operators(found)
    assert counts["relax.qnn.float_conv2d"] == counts[f"relax.qnn.to_{half}"] == 3
    assert counts[f"relax.qnn.from_{half}"] == 1
    for binding in needed_bindings(found.module["main"]):
        if is_float_product(binding.value):
            assert {dtype_of(argument.ty) for argument in binding.value.args} == {half}
        if is_op(binding.value, "relax.nn.pad"):
            assert dtype_of(binding.var.ty) == half


@pytest.mark.parametrize(("half", "most"), [("bfloat16", 0.02), ("float16", 0.02 / 8)])
def test_rounding_is_all_that_changes(half: HalfPrecision, most: float) -> None:
    """Float16 has three bits more."""
    net, model = residual()
    inputs, options = net.inputs(), QuantizeOptions(floats=half)
    (expected,) = interpret.run(model, inputs).values()
    (found,) = interpret.run(quantizing.run(model=model, options=options), inputs).values()
    assert not np.array_equal(found, expected)
    assert np.abs(found - expected).max() < most * np.abs(expected).max()


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


@EACH
def test_a_model_without_float_layers_is_refused(half: HalfPrecision) -> None:
    net = Net((1, 6, 6, 8))
    model = net.model(net.conv(net.x, "c", 8))
    with pytest.raises(StageError, match=f"no layer is left in float to be rounded to {half}"):
        quantizing.run(model=model, options=QuantizeOptions(floats=half))
