"""Chains of float32 steps between an accumulator and a quantizer, on every reachable sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from stages import quantizing
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.kinds import Model
from stages.numerics import qonnx_operators
from stages.numerics.qonnx_operators import ROUNDING
from tests.stages.networks import SourceNet
from tests.stages.pipeline import assert_same, random_inputs

Array = np.ndarray[Any, Any]
CHANNELS = 5
SIDE = 24
"""An image of 24 x 24 holds every sum of two 4-bit inputs at weights 16 and 1, and more."""


def operators(model: Model) -> list[str]:
    return [
        str(b.value.op.name).removeprefix("relax.").removeprefix("qnn.")
        for b in bindings_of(model.module["main"])
        if hasattr(b.value, "op")
    ]


def assert_exact(model: Model, inputs: dict[str, Array] | None = None) -> Model:
    given_inputs = random_inputs(model) if inputs is None else inputs
    result = quantizing.run(model=model)
    expected = interpret.run(model, given_inputs)
    assert_same(expected, interpret.run(result, given_inputs), "quantizing")
    return result


@dataclass(frozen=True)
class Link:
    """A float32 operation on accumulators, with operands per channel."""

    op: str
    operands: tuple[Array, ...]


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
GAINS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, -2.0, 1e-30, -1e-42, 0.1, -0.3]),
    st.floats(-4, 4, width=32),
)
OFFSETS = st.one_of(
    st.sampled_from([0.0, 0.5, -0.5, 1e-8, 0.1, 16777216.0]), st.floats(-99, 99, width=32)
)
DIVISORS = st.one_of(st.sampled_from([1.0, 3.0, -0.7, 1e-6]), st.floats(0.25, 9, width=32))


def per_channel(values: st.SearchStrategy[float]) -> st.SearchStrategy[Array]:
    vector = st.lists(values, min_size=CHANNELS, max_size=CHANNELS)
    return vector.map(lambda found: np.array(found, np.float32))


LINKS = st.one_of(
    st.builds(lambda c: Link("multiply", (c,)), per_channel(GAINS)),
    st.builds(lambda c: Link("divide", (c,)), per_channel(DIVISORS)),
    st.builds(
        lambda op, c: Link(op, (c,)),
        st.sampled_from(["add", "subtract", "subtract_from"]),
        per_channel(OFFSETS),
    ),
    st.just(Link("relu", ())),
    st.builds(
        lambda low, size: Link("clip", (np.asarray(low), np.asarray(low + size))),
        st.floats(-20, 5),
        st.floats(0, 50),
    ),
    st.builds(
        lambda *parts: Link("batch_norm", parts),
        per_channel(GAINS),
        per_channel(OFFSETS),
        per_channel(OFFSETS),
        per_channel(st.floats(2**-10, 50, width=32)),
    ),
)


def apply(net: SourceNet, x: Any, link: Link, name: str) -> Any:
    if link.op == "relu":
        return net.op(relax.op.nn.relu(x), name)
    if link.op == "clip":
        return net.op(relax.op.clip(x, float(link.operands[0]), float(link.operands[1])), name)
    if link.op == "batch_norm":
        operands = [net.constant(f"{name}.{i}", part) for i, part in enumerate(link.operands)]
        return net.op(qonnx_operators.batch_norm(x, *operands, epsilon=1e-5), name)
    operand = net.constant(f"{name}.c", link.operands[0].reshape(-1, 1, 1))
    if link.op == "subtract_from":
        return net.op(relax.op.subtract(operand, x), name)
    return net.op(getattr(relax.op, link.op)(x, operand), name)


@dataclass(frozen=True)
class Quantizer:
    """Any of the three quantizers of source graphs."""

    kind: str
    bits: int = 2
    scale: float = 1.0
    zero_point: float = 0.0
    signed: bool = False
    narrow: bool = False
    rounding: str = "ROUND"
    thresholds: Array | None = None


SCALES = st.one_of(
    st.sampled_from([2.0, 0.5, 4.0, 1.0, 64.0, 0.1, 3.0]), st.floats(2**-7, 99, width=32)
)
QUANTIZERS = st.one_of(
    st.builds(
        Quantizer,
        st.just("quant"),
        st.integers(1, 8),
        SCALES,
        st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.5, -3.0]),
        st.booleans(),
        st.booleans(),
        st.sampled_from(sorted(ROUNDING)),
    ).filter(lambda found: found.bits > 1 or not found.narrow),
    st.builds(lambda scale: Quantizer("bipolar", scale=scale), SCALES),
    st.builds(
        lambda rows, count, scale, zero_point: Quantizer(
            "thresholds",
            bits=count,
            scale=scale,
            zero_point=zero_point,
            thresholds=np.sort(np.array(rows, np.float32).reshape(CHANNELS, -1)[:, :count]),
        ),
        st.lists(
            st.one_of(st.integers(-60, 60), st.floats(-99, 99, width=32)),
            min_size=CHANNELS * 7,
            max_size=CHANNELS * 7,
        ),
        st.integers(1, 7),
        st.sampled_from([1.0, 2.0, 0.5]),
        st.sampled_from([0.0, 0.5, 3.5, 4.0]),
    ),
)


def quantize(net: SourceNet, x: Any, quantizer: Quantizer) -> Any:
    scale = net.constant("q.scale", quantizer.scale)
    if quantizer.kind == "bipolar":
        return net.op(qonnx_operators.bipolar_quant(x, scale), "q")
    if quantizer.kind == "thresholds":
        call = qonnx_operators.multi_threshold(
            x,
            net.constant("q.thresholds", quantizer.thresholds),
            out_scale=quantizer.scale,
            out_bias=-quantizer.zero_point * quantizer.scale,
            channel_axis=1,
        )
        return net.op(call, "q")
    call = qonnx_operators.quant(
        x,
        scale,
        net.constant("q.zp", quantizer.zero_point),
        bits=quantizer.bits,
        signed=quantizer.signed,
        narrow=quantizer.narrow,
        rounding=quantizer.rounding,
    )
    return net.op(call, "q")


SIGNED, UNSIGNED = (16.0, -1.0), (16.0, 1.0)
"""Weights of the two inputs; only signed ones can be negated."""


def every_sum(
    links: list[Link], quantizer: Quantizer, weights: tuple[float, float] = SIGNED
) -> tuple[Model, dict[str, Array]]:
    """A 1x1 convolution whose sums are 256 integers in a row, a chain, a quantizer."""
    net = SourceNet((1, 2, SIDE, SIDE))
    data = net.quant(net.x, "data", 4, 1.0, signed=True)
    weight = net.constant("w", np.tile(weights, (CHANNELS, 1)).reshape(CHANNELS, 2, 1, 1))
    value = net.op(relax.op.nn.conv2d(data, weight), "sums")
    for number, link in enumerate(links):
        value = apply(net, value, link, f"link{number}")
    pairs = [(a, b) for a in range(-8, 8) for b in range(-8, 8)]
    pairs += [(0, 0)] * (SIDE * SIDE - len(pairs))
    image = np.array(pairs, np.float32).T.reshape(1, 2, SIDE, SIDE)
    return net.model(quantize(net, value, quantizer)), {"x": image}


@settings(max_examples=100)
@given(st.lists(LINKS, max_size=4), QUANTIZERS, st.sampled_from([SIGNED, UNSIGNED]))
def test_every_reachable_sum_gets_its_level(
    links: list[Link], quantizer: Quantizer, weights: tuple[float, float]
) -> None:
    model, image = every_sum(links, quantizer, weights)
    assert_exact(model, image)


def batch_norm(gain: float, beta: float, mean: float, variance: float) -> Link:
    parts = (gain, beta, mean, variance)
    return Link("batch_norm", tuple(np.full(CHANNELS, part, np.float32) for part in parts))


@pytest.mark.parametrize(
    ("links", "quantizer"),
    [
        ([], Quantizer("quant", 3, 2.0, signed=True)),
        ([batch_norm(-1.0, 0.0, 0.5, 1.0)], Quantizer("quant", 3, 2.0)),
        ([batch_norm(0.0, 3.0, 0.5, 1.0)], Quantizer("quant", 3, 2.0)),
        ([batch_norm(1e-38, 0.0, 0.0, 1.0)], Quantizer("quant", 3, 1e-37)),
        ([batch_norm(-1e-45, 0.0, 0.0, 1.0)], Quantizer("bipolar")),
        ([batch_norm(-1.0, 0.0, 0.0, 1.0)], Quantizer("bipolar")),
        ([], Quantizer("bipolar", scale=0.1)),
    ],
    ids=["ties", "falling", "constant", "tiny", "subnormal", "bipolar_falling", "bipolar_zero"],
)
def test_chains_that_folding_gets_wrong(links: list[Link], quantizer: Quantizer) -> None:
    model, image = every_sum(links, quantizer)
    assert_exact(model, image)


def table_of(links: list[Link], quantizer: Quantizer) -> Array:
    model, _ = every_sum(links, quantizer)
    return quantizing.run(model=model).params["q.thresholds"]


def test_half_even_ties_alternate() -> None:
    """Level k of x / 2 begins at the tie 2k - 1 where k is even, and one later elsewhere."""
    table = table_of([], Quantizer("quant", 3, 2.0))
    assert table[:, 0].tolist() == [2, 3, 6, 7, 10, 11, 14]


def test_zero_is_positive_for_a_bipolar_quantizer() -> None:
    assert table_of([], Quantizer("bipolar")).tolist() == [[0] * CHANNELS]


def test_one_multiply_add_where_it_is_exact() -> None:
    model, image = every_sum([batch_norm(2.0, 3.0, 1.0, 4.0 - 1e-5)], Quantizer("quant", 8, 0.5))
    result = assert_exact(model, image)
    assert "requantize" in operators(result)
    assert "threshold" not in operators(result)


def test_integers_that_move_between_equal_scales() -> None:
    quantizer = Quantizer("quant", 7, 4.0, signed=True)
    model, image = every_sum([Link("multiply", (np.full(CHANNELS, 4, np.float32),))], quantizer)
    result = assert_exact(model, image)
    assert "saturate" in operators(result)
    assert "requantize" not in operators(result)


def test_thresholds_where_a_multiply_add_is_not_exact() -> None:
    """Half-up rounding has no requantization."""
    quantizer = Quantizer("quant", 8, 0.5, rounding="HALF_UP")
    result = assert_exact(*every_sum([], quantizer))
    assert "requantize" not in operators(result)
    assert result.params["q.thresholds"].shape == (255, CHANNELS)


@settings(max_examples=60)
@given(st.lists(LINKS, min_size=1, max_size=3), st.integers(4, 8), SCALES, st.booleans())
def test_eight_bits_are_exact_in_either_form(
    links: list[Link], bits: int, scale: float, signed: bool
) -> None:
    model, image = every_sum(links, Quantizer("quant", bits, scale, signed=signed))
    result = assert_exact(model, image)
    assert len({"requantize", "saturate", "threshold"} & set(operators(result))) == 1


def test_thresholds_of_floats_rise_from_row_to_row() -> None:
    """Kernels take them for a thermometer; a file may hold them in any order."""
    net = SourceNet((1, 2, 6, 7))
    thresholds = np.array([[0.5, -0.25, 0.1], [-1.0, 1.5, 0.0]], np.float32)
    call = qonnx_operators.multi_threshold(
        net.x, net.constant("t", thresholds), out_scale=1.0, out_bias=0.0, channel_axis=1
    )
    model = net.model(net.conv(net.op(call, "q"), "c", CHANNELS))
    result = assert_exact(model)
    assert np.array_equal(result.params["q.thresholds"], np.sort(thresholds).T)


def test_low_bits_are_thresholds() -> None:
    model, image = every_sum([], Quantizer("quant", 3, 4.0))
    assert "threshold" in operators(assert_exact(model, image))
