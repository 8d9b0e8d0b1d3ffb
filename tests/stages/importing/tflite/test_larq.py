"""Larq's custom operators against a NumPy program of xor and popcount on packed words.

The program (`larq_program`) follows Larq's reference kernel word by word and shares nothing with
the converters, which compute with levels and half-integer zero points. Where BITKILN_LARQ names a
Python that has larq-compute-engine, that too runs the files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.benchmarks import larq_engine
from pipelines.benchmarks.engines import EngineError, load
from pipelines.benchmarks.variants import Variant
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.zero_point import BIPOLAR
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.importing.twins.tflite_writer import flexible
from tests.stages.importing.tflite.cases import compiled_outputs, fed, imported
from tests.stages.importing.tflite.larq_program import accumulators, packed, same_padding
from tests.stages.importing.tflite_models import (
    Operation,
    Tensor,
    build,
    constant,
    run_reference,
    single,
)

Array = np.ndarray[Any, Any]
F = "float32"


def run(source: bytes, x: Array, *, compiled: bool = True) -> Array:
    """The import's output in NumPy, the same compiled."""
    model = imported(source)
    (found,) = interpret.run(model, fed(model, (x,))).values()
    if not compiled:
        return found
    (again,) = compiled_outputs(model, fed(model, (x,)))
    assert np.array_equal(found, again)
    return found


def run_beside_larq(source: bytes, x: Array, *, compiled: bool = True) -> Array:
    """The import's output, which Larq's interpreter gives too where there is one."""
    found = run(source, x, compiled=compiled)
    python = os.environ.get("BITKILN_LARQ")
    if not python:
        return found
    try:
        loaded = load(
            larq_engine.engines(python)[0], Variant("as stored", source, "tflite"), {"x": x}, 1
        )
    except EngineError:
        # It pads with 0 for floats alone, and has groups on ARM alone.
        return found
    (theirs,) = loaded.outputs()
    assert theirs.dtype == found.dtype
    np.testing.assert_allclose(theirs, found, rtol=1e-5, atol=1e-4)
    return found


CASES = st.fixed_dictionaries(
    {
        "size": st.tuples(st.integers(5, 6), st.integers(3, 6)),
        "kernel": st.tuples(st.integers(1, 3), st.integers(1, 2)),
        "channels": st.sampled_from([(1, 5), (1, 32), (1, 70), (2, 64)]),
        "stride": st.integers(1, 2),
        "dilation": st.integers(1, 2),
        "padding": st.sampled_from([("same", 0), ("same", 1), ("valid", 0)]),
        "activation": st.integers(0, 3),
        "seed": st.integers(0, 99),
    }
)


class Layer:
    """LceQuantize → LceBconv2d on random tensors, and the accumulators it must have."""

    def __init__(self, case: dict[str, Any]) -> None:
        rng = self.rng = np.random.default_rng(case["seed"])
        (self.groups, channels), (kh, kw) = case["channels"], case["kernel"]
        self.depth, self.units = channels // self.groups, 4
        padding, pad_value = case["padding"]
        self.x = rng.normal(size=(1, *case["size"], channels)).astype(np.float32)
        self.x[rng.random(self.x.shape) < 0.1] = 0
        self.weight = packed(rng.integers(0, 2, (self.units, kh, kw, self.depth)))
        zeros = padding == "same" and pad_value == 0 and self.depth % 2 == 0
        self.options = flexible(
            channels_in=channels, stride_height=case["stride"], stride_width=case["stride"],
            dilation_height_factor=case["dilation"], dilation_width_factor=case["dilation"],
            padding=int(padding == "valid"), pad_values=int(padding == "same" and not zeros),
            fused_activation_function=case["activation"],
        )  # fmt: skip
        self.count = kh * kw * self.depth
        self.accum = accumulators(
            packed(self.x < 0), self.weight, case["stride"], padding == "same", case["dilation"],
            zeros, self.depth,
        )  # fmt: skip
        # LiteRT's schema has 1 for RELU, 2 for RELU_N1_TO_1, 3 for RELU6.
        bounds = [(None, None), (0, None), (-1, 1), (0, 6)][case["activation"]]
        self.low = -self.count if bounds[0] is None else max(bounds[0], -self.count)
        self.high = self.count if bounds[1] is None else min(bounds[1], self.count)

    def source(self, results: list[Tensor], *rest: Operation, **operands: Tensor | None) -> bytes:
        data = Tensor(self.x.shape, F)
        words = Tensor((*self.x.shape[:3], -(-self.x.shape[3] // 32)), "int32")
        order = ("multiplier", "bias", "thresholds")
        inputs = [words, constant(self.weight), *(operands.get(name) for name in order)]
        convolution = Operation("LceBconv2d", inputs, results, custom_options=self.options)
        quantize = Operation("LceQuantize", [data], [words])
        operations = [quantize, convolution, *rest]
        return build(operations, [data], operations[-1].outputs)


@settings(max_examples=10)
@given(case=CASES)
def test_convolutions_to_floats_and_int8(case: dict[str, Any]) -> None:
    layer = Layer(case)
    factor, addend = (layer.rng.normal(size=layer.units).astype(np.float32) for _ in range(2))
    operands = {"multiplier": constant(factor), "bias": constant(addend)}
    doubled = np.clip(2 * layer.accum, layer.count - layer.high, layer.count - layer.low)
    for scale, zero_point in ((1.0, 0), (0.25, 3)):
        is_float = scale == 1.0
        result = Tensor(layer.accum.shape, F) if is_float else Tensor(
            layer.accum.shape, "int8", scale=scale, zero_point=zero_point
        )  # fmt: skip
        multiplier = (-factor.astype(np.float64) / scale).astype(np.float32)
        total = addend.astype(np.float64) + layer.count * factor.astype(np.float64)
        bias = (total / scale + zero_point).astype(np.float32)
        expected = (doubled.astype(np.float32) * multiplier).astype(np.float32) + bias
        if not is_float:
            rounded = np.copysign(np.floor(np.abs(expected) + 0.5), expected)
            expected = np.clip(rounded, -128, 127).astype(np.int8)
        found = run_beside_larq(
            layer.source([result], **operands), layer.x, compiled=case["seed"] % 4 == 0
        )
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


@settings(max_examples=6)
@given(case=CASES)
def test_convolutions_to_bits_that_are_dequantized(case: dict[str, Any]) -> None:
    layer = Layer(case | {"activation": 0})
    limits = layer.rng.integers(-1, layer.count + 1, layer.units).astype(np.int32)
    limits[0] = np.iinfo(np.int32).max
    words = Tensor((*layer.accum.shape[:3], 1), "int32")
    unpack = Operation("LceDequantize", [words], [Tensor(layer.accum.shape, F)])
    source = layer.source([words], unpack, thresholds=constant(limits))
    found = run_beside_larq(source, layer.x, compiled=case["seed"] % 4 == 0)
    assert np.array_equal(found, np.where(layer.accum > limits, -1.0, 1.0))


@pytest.mark.parametrize("scale", [1 / 40, 1.0, 3.0])
def test_signs_of_int8(scale: float) -> None:
    x = np.arange(-128, 128).astype(np.int8).reshape(1, 2, 2, 64)
    data = Tensor(x.shape, "int8", scale=0.1, zero_point=-5)
    words = Tensor((1, 2, 2, 2), "int32")
    result = Tensor(x.shape, "int8", scale=scale, zero_point=100)
    source = build(
        [Operation("LceQuantize", [data], [words]), Operation("LceDequantize", [words], [result])],
        [data],
        [result],
    )
    steps = int(np.floor(1 / np.float32(scale) + 0.5))
    expected = np.where(x < -5, 100 - steps, min(127, 100 + steps))
    assert np.array_equal(run(source, x), expected)


@pytest.mark.parametrize("is_same", [True, False])
def test_pools_of_bits(is_same: bool) -> None:
    x = np.random.default_rng(0).normal(size=(1, 5, 7, 40)).astype(np.float32) - 1.5
    stated = flexible(
        filter_height=3, filter_width=2, stride_height=2, stride_width=2, padding=int(not is_same)
    )
    data, words = Tensor(x.shape, F), Tensor((1, 5, 7, 2), "int32")
    size = (3, 4) if is_same else (2, 3)
    pooled, result = Tensor((1, *size, 2), "int32"), Tensor((1, *size, 40), F)
    source = build(
        [
            Operation("LceQuantize", [data], [words]),
            Operation("LceBMaxPool2d", [words], [pooled], custom_options=stated),
            Operation("LceDequantize", [pooled], [result]),
        ],
        [data],
        [result],
    )
    bits = packed(x < 0)
    (top, _), (left, _) = (
        (same_padding(5, 3, 2), same_padding(7, 2, 2)) if is_same else ((0, 0),) * 2
    )
    expected = np.empty((1, *size, 2), np.int32)
    for y, column in np.ndindex(*size):
        rows = range(max(0, 2 * y - top), min(5, 2 * y - top + 3))
        columns = range(max(0, 2 * column - left), min(7, 2 * column - left + 2))
        window = [bits[0, r, c] for r in rows for c in columns]
        expected[0, y, column] = np.bitwise_and.reduce(window)
    assert np.array_equal(packed(run_beside_larq(source, x) < 0), expected)


def test_convolutions_are_what_bitserial_kernels_take() -> None:
    case = {
        "size": (4, 4), "kernel": (3, 2), "channels": (1, 64), "stride": 1, "dilation": 1,
        "padding": ("same", 1), "activation": 0, "seed": 0,
    }  # fmt: skip
    layer = Layer(case)
    words = Tensor((*layer.accum.shape[:3], 1), "int32")
    unpack = Operation("LceDequantize", [words], [Tensor(layer.accum.shape, F)])
    limits = constant(np.zeros(4, np.int32))
    model = imported(layer.source([words], unpack, thresholds=limits))
    (binding,) = [
        b for b in bindings_of(model.module["main"]) if is_op(b.value, "relax.qnn.conv2d")
    ]
    assert [dtype_of(argument.ty) for argument in binding.value.args] == ["uint1", "uint1"]
    attrs = attributes(binding.value)
    assert (attrs["data_zero_point"], attrs["weight_zero_point"]) == (BIPOLAR, BIPOLAR)


def test_packed_bits_stay_between_the_operators_of_larq() -> None:
    data, words = Tensor((1, 2, 2, 64), F), Tensor((1, 2, 2, 2), "int32")
    quantize = Operation("LceQuantize", [data], [words])
    with pytest.raises(StageError, match="packed bits"):
        imported(build([quantize], [data], [words]))
    negated = Tensor((1, 2, 2, 2), "int32")
    with pytest.raises(StageError, match="Larq packs"):
        imported(build([quantize, Operation("NEG", [words], [negated])], [data], [negated]))
    with pytest.raises(StageError, match="no operator of Larq made"):
        imported(single("LceDequantize", [words], [data]))


@pytest.mark.parametrize("raw", [b"", b"\0" * 7, b"\xff" * 90, flexible(stride_height=1)])
def test_damaged_options_are_one_error(raw: bytes) -> None:
    data, words = Tensor((1, 4, 4, 64), F), Tensor((1, 4, 4, 2), "int32")
    result = Tensor((1, 4, 4, 64), F)
    out = Tensor((1, 4, 4, 2), "int32")
    pooled = Operation("LceBMaxPool2d", [words], [out], custom_options=raw)
    rest = Operation("LceDequantize", [out], [result])
    with pytest.raises(StageError, match="option"):
        imported(build([Operation("LceQuantize", [data], [words]), pooled, rest], [data], [result]))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("is_binary", [True, False])
def test_convolutions_of_signs_are_bitserial_and_the_same_floats(
    padding: int, is_binary: bool
) -> None:
    """LiteRT has no Bsign: it is given the signs, and sums that float32 holds exactly."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 5, 6, 8)).astype(np.float32)
    weight = rng.choice([-0.375, 0.375], (4, 3, 2, 8)).astype(np.float32)
    weight *= np.array([1, 2, 4, 1], np.float32)[:, None, None, None]
    if not is_binary:
        weight[0, 0, 0, 0] *= 2
    tensors = [constant(weight), constant(rng.normal(size=4).astype(np.float32))]
    shape = (1, 5, 6, 4) if padding == 0 else (1, 3, 5, 4)
    stated = {"padding": padding, "stride_h": 1, "stride_w": 1, "fused_activation_function": 1}
    data, signs, result = Tensor(x.shape, F), Tensor(x.shape, F), Tensor(shape, F)
    convolution = Operation("CONV_2D", [signs, *tensors], [result], "Conv2DOptions", stated)
    sign = Operation("Bsign", [data], [signs])
    source = build([sign, convolution], [data], [result])
    (expected,) = run_reference(
        build([convolution], [signs], [result]), np.where(x < 0, -1, 1).astype(np.float32)
    )
    assert np.array_equal(run(source, x), expected)
    bindings = bindings_of(imported(source).module["main"])
    assert any(is_op(b.value, "relax.qnn.conv2d") for b in bindings) == is_binary


def test_a_network_of_larqs_first_converter() -> None:
    folder = os.environ.get("BITKILN_REALDATA")
    if not folder:
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    path = Path(folder) / "larq+compute-engine/examples/example_model.tflite"
    model = imported(path.read_bytes())
    x = np.random.default_rng(0).normal(size=(1, 28, 28, 3)).astype(np.float32)
    (found,) = interpret.run(model, fed(model, (x,))).values()
    assert found.shape == (1, 10)
    assert np.isclose(found.sum(), 1)
    assert np.ptp(found) > 1e-4
