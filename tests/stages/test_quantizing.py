"""Quantizing is exact: the integer form computes what the unfolded float32 graph computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

from stages import quantizing
from stages.kinds import Model
from stages.qnn import integer, interpret, source
from stages.qnn.builder import ModelBuilder, bindings_of, outputs_of, remap
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.source import ROUNDING
from tests.stages.networks import SourceNet
from tests.stages.pipeline import assert_same, random_inputs

Array = np.ndarray[Any, Any]
CHANNELS = 5
SIDE = 24
"""A picture of 24 x 24 holds every sum of two 4-bit inputs at weights 16 and 1, and more."""


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


# -- chains between an accumulator and a quantizer ---------------------------------------------


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
        return net.op(source.batch_norm(x, *operands, epsilon=1e-5), name)
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
        lambda rows, count, scale, point: Quantizer(
            "thresholds",
            bits=count,
            scale=scale,
            zero_point=point,
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
        return net.op(source.bipolar_quant(x, scale), "q")
    if quantizer.kind == "thresholds":
        call = source.multi_threshold(
            x,
            net.constant("q.thresholds", quantizer.thresholds),
            out_scale=quantizer.scale,
            out_bias=-quantizer.zero_point * quantizer.scale,
            channel_axis=1,
        )
        return net.op(call, "q")
    call = source.quant(
        x,
        scale,
        net.constant("q.zp", quantizer.zero_point),
        bits=quantizer.bits,
        signed=quantizer.signed,
        narrow=quantizer.narrow,
        rounding=quantizer.rounding,
    )
    return net.op(call, "q")


def every_sum(links: list[Link], quantizer: Quantizer) -> tuple[Model, dict[str, Array]]:
    """A 1x1 convolution whose sums are all integers in -136..119, a chain, a quantizer."""
    net = SourceNet((1, 2, SIDE, SIDE))
    data = net.quant(net.x, "data", 4, 1.0, signed=True)
    weight = net.constant("w", np.tile([16.0, 1.0], (CHANNELS, 1)).reshape(CHANNELS, 2, 1, 1))
    value = net.op(relax.op.nn.conv2d(data, weight), "sums")
    for number, link in enumerate(links):
        value = apply(net, value, link, f"link{number}")
    pairs = [(a, b) for a in range(-8, 8) for b in range(-8, 8)]
    pairs += [(0, 0)] * (SIDE * SIDE - len(pairs))
    picture = np.array(pairs, np.float32).T.reshape(1, 2, SIDE, SIDE)
    return net.model(quantize(net, value, quantizer)), {"x": picture}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINKS, max_size=4), QUANTIZERS)
def test_every_reachable_sum_gets_its_level(links: list[Link], quantizer: Quantizer) -> None:
    model, picture = every_sum(links, quantizer)
    assert_exact(model, picture)


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
    model, picture = every_sum(links, quantizer)
    assert_exact(model, picture)


def table_of(links: list[Link], quantizer: Quantizer) -> Array:
    model, _ = every_sum(links, quantizer)
    return quantizing.run(model=model).params["q.thresholds"]


def test_half_even_ties_alternate() -> None:
    """Level k of x / 2 begins at the tie 2k - 1 where k is even, and one later elsewhere."""
    table = table_of([], Quantizer("quant", 3, 2.0))
    assert table[:, 0].tolist() == [2, 3, 6, 7, 10, 11, 14]


def test_zero_is_positive_for_a_bipolar_quantizer() -> None:
    assert table_of([], Quantizer("bipolar")).tolist() == [[0] * CHANNELS]


def test_a_falling_channel_flips() -> None:
    model, _ = every_sum([batch_norm(-1.0, 0.0, 0.0, 1 - 1e-5)], Quantizer("quant", 2, 8.0))
    result = quantizing.run(model=model)
    assert result.params["q.flip"].tolist() == [1] * CHANNELS
    # -x / 8 rounds to 1 from 5 on: x < -4; to 2 from 12 on; to 3 from 21 on.
    assert result.params["q.thresholds"][:, 0].tolist() == [-4, -11, -20]


def test_one_multiply_add_where_it_is_exact() -> None:
    model, picture = every_sum([batch_norm(2.0, 3.0, 1.0, 4.0 - 1e-5)], Quantizer("quant", 8, 0.5))
    result = assert_exact(model, picture)
    assert "requantize" in operators(result)
    assert "threshold" not in operators(result)


def test_thresholds_where_a_multiply_add_is_not_exact() -> None:
    """Half-up rounding has no requantization."""
    quantizer = Quantizer("quant", 8, 0.5, rounding="HALF_UP")
    result = assert_exact(*every_sum([], quantizer))
    assert "requantize" not in operators(result)
    assert result.params["q.thresholds"].shape == (255, CHANNELS)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINKS, min_size=1, max_size=3), st.integers(4, 8), SCALES, st.booleans())
def test_eight_bits_are_exact_in_either_form(
    links: list[Link], bits: int, scale: float, signed: bool
) -> None:
    model, picture = every_sum(links, Quantizer("quant", bits, scale, signed=signed))
    result = assert_exact(model, picture)
    assert len({"requantize", "threshold"} & set(operators(result))) == 1


def test_low_bits_are_thresholds() -> None:
    model, picture = every_sum([], Quantizer("quant", 3, 4.0))
    assert "threshold" in operators(assert_exact(model, picture))


# -- whole layers --------------------------------------------------------------------------------


def residual(scale: float = 0.5, zero_point: float = 0.0) -> SourceNet:
    net = SourceNet((1, 6, 7, 5))
    start = net.quant(net.x, "start", 2, 0.5)
    left = net.quant(net.conv(start, "a", 8), "left", 8, scale, signed=True)
    right = net.quant(net.conv(start, "b", 8), "right", 8, scale, zp=zero_point)
    net.total = net.op(relax.op.add(left, right), "total")  # type: ignore[attr-defined]
    return net


@pytest.mark.parametrize("zero_point", [0.0, 100.0])
def test_a_residual_sum_stays_integer(zero_point: float) -> None:
    net = residual(zero_point=zero_point)
    total = net.total  # type: ignore[attr-defined]
    low = net.quant(total, "low", 2, 1.0)
    wide = net.quant(total, "wide", 8, 0.5, signed=True)
    result = assert_exact(net.model(low, wide, total))
    assert operators(result).count("add") == 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_residual_sum_at_its_ends(sign: float) -> None:
    """Thresholds are searched for up to the last sum that two levels can have."""
    net = SourceNet((1, 4, 3, 3))
    left = net.quant(net.x, "left", 3, 1.0, signed=True)
    right = net.quant(net.x, "right", 4, 1.0, signed=True)
    total = net.op(relax.op.add(left, right), "total")
    outputs = net.quant(total, "wide", 8, 1.0, signed=True), net.quant(total, "low", 3, 2.0)
    ends = np.full((1, 4, 3, 3), sign * 99, np.float32)
    assert_exact(net.model(*outputs), {"x": ends})


@pytest.mark.parametrize("bias", [-40.0, 40.0])
def test_padding_outside_the_levels(bias: float) -> None:
    """At the border a sum may lie outside what the levels alone can give: 0 is none of them."""
    net = SourceNet((1, 2, 4, 4))
    data = net.op(
        source.multi_threshold(
            net.x,
            net.constant("t", [[-1.0, 0.0, 1.0]]),
            out_scale=1.0,
            out_bias=bias,
            channel_axis=1,
        ),
        "data",
    )
    value = net.conv(data, "conv", 3, bits=2, encoding="unipolar")
    assert_exact(net.model(net.quant(value, "q", 8, 2.0, signed=True)))


def pooled(links: list[Link], padding: int = 0) -> Model:
    net = SourceNet((1, 2, 8, 8))
    data = net.quant(net.x, "data", 4, 1.0, signed=True)
    value = net.conv(data, "conv", CHANNELS, 1, bits=3, encoding="signed")
    for number, link in enumerate(links[:1]):
        value = apply(net, value, link, f"before{number}")
    pad = (padding,) * 4
    value = net.op(relax.op.nn.max_pool2d(value, (3, 3), (2, 2), pad), "pool")
    for number, link in enumerate(links[1:]):
        value = apply(net, value, link, f"after{number}")
    return net.model(net.quant(value, "q", 3, 1.5, signed=True))


@pytest.mark.parametrize("padding", [0, 1])
def test_max_pooling_moves_behind_the_quantizer(padding: int) -> None:
    result = assert_exact(pooled([batch_norm(0.7, 1, 2, 3), batch_norm(1.3, 0, 1, 2)], padding))
    names = operators(result)
    assert names.index("max_pool2d") == names.index("threshold") + 1


def test_a_constant_channel_may_be_pooled() -> None:
    gains = np.array([1, 0, 2, 0.5, 0], np.float32)
    assert_exact(pooled([Link("multiply", (gains,))]))


def test_pooling_a_quantized_tensor_and_what_follows_it() -> None:
    net = SourceNet((1, 3, 9, 9))
    data = net.quant(net.x, "data", 3, 0.5, signed=True)
    doubled = net.op(relax.op.multiply(data, net.constant("two", 2.0)), "doubled")
    value = net.op(relax.op.nn.max_pool2d(doubled, (3, 3), 2, 1), "pool")
    assert_exact(net.model(net.conv(value, "conv", 4), value))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_average_pooling(signed: bool, padding: int) -> None:
    net = SourceNet((1, 3, 8, 8))
    data = net.quant(net.x, "data", 3, 0.5, signed=signed)
    pad = (padding,) * 4
    value = net.op(
        relax.op.nn.avg_pool2d(data, (4, 2), (2, 2), pad, count_include_pad=True), "pool"
    )
    result = assert_exact(net.model(net.quant(value, "q", 3, 0.25, signed=signed), value))
    assert operators(result).count("sum_pool2d") == 1


@pytest.mark.parametrize("keepdims", [False, True])
def test_a_mean_before_a_matrix_product(keepdims: bool) -> None:
    net = SourceNet((1, 8, 4, 4))
    data = net.quant(net.x, "data", 3, 0.5)
    value = net.op(relax.op.mean(data, [2, 3], keepdims), "mean")
    value = net.quant(value, "q", 4, 0.125)
    value = net.flatten(value) if keepdims else value
    assert_exact(net.model(net.matmul(value, "fc", 7)))


# -- shapes --------------------------------------------------------------------------------------


def flattened(order: str) -> Model:
    net = SourceNet((1, 5, 3, 2))
    value = net.quant(net.x, "data", 3, 0.5, signed=True)
    for step in order.split():
        if step == "flatten":
            value = net.flatten(value)
        elif step == "relu":
            value = net.op(relax.op.nn.relu(value), "relu")
        elif step == "double":
            value = net.op(relax.op.multiply(value, net.constant("two", 2.0)), "double")
        elif step == "unflatten":
            value = net.op(relax.op.reshape(value, (1, 5, 3, 2)), "unflat")
        elif step == "quant":
            value = net.quant(value, "q", 2, 1.0)
        elif step == "matmul":
            value = net.matmul(value, "fc", 6)
        elif step == "conv":
            value = net.conv(value, "conv", 5)
    return net.model(value)


@pytest.mark.parametrize(
    "order",
    [
        "flatten matmul",
        "flatten matmul quant matmul",
        "flatten quant matmul",
        "flatten relu quant matmul",
        "flatten double matmul",
        "conv flatten quant matmul",
        "quant flatten",
        "flatten",
        "conv flatten",
        "flatten quant",
        "flatten unflatten conv",
    ],
)
def test_flattening_counts_in_nchw_order(order: str) -> None:
    """The map stays NHWC; the weights of what reads it are permuted instead."""
    assert_exact(flattened(order))


@pytest.mark.parametrize("shape", [(), (1,), (10,), (1, 10)])
@pytest.mark.parametrize("features", [24, 10])
def test_scales_of_matrix_weights(shape: tuple[int, ...], features: int) -> None:
    """A square matrix must not hide along which axis its scales run."""
    net = SourceNet((1, features))
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.constant("w", net.rng.normal(size=(features, 10)))
    scale = net.constant("s", 2.0 ** net.rng.integers(-3, 2, shape))
    quantized = net.op(
        source.quant(
            weight, scale, net.constant("z", 0), bits=3, signed=True, narrow=True, rounding="ROUND"
        ),
        "wq",
    )
    assert_exact(net.model(net.op(relax.op.matmul(data, quantized), "fc")))


def test_transposed_weights_keep_their_scales() -> None:
    """Brevitas exports Linear as Quant [O, K], Transpose, MatMul."""
    net = SourceNet((1, 10))
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.constant("w", net.rng.normal(size=(10, 10)))
    scale = net.constant("s", 2.0 ** net.rng.integers(-3, 2, (10, 1)))
    quantized = net.op(
        source.quant(
            weight, scale, net.constant("z", 0), bits=3, signed=True, narrow=True, rounding="ROUND"
        ),
        "wq",
    )
    transposed = net.op(relax.op.permute_dims(quantized), "wt")
    assert_exact(net.model(net.op(relax.op.matmul(data, transposed), "fc")))


def test_an_affine_view_of_levels_is_absorbed() -> None:
    """FINN writes a bipolar tensor as 2 * threshold - 1; two layers may see two views."""
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 1.0)
    doubled = net.op(relax.op.multiply(data, net.constant("two", 2.0)), "doubled")
    odd = net.op(relax.op.subtract(doubled, net.constant("three", 3.0)), "odd")
    negative = net.op(relax.op.multiply(odd, net.constant("minus", -0.5)), "negative")
    outputs = [net.conv(x, f"conv{i}", 3) for i, x in enumerate((data, odd, negative))]
    result = assert_exact(net.model(*outputs))
    points = [
        attributes(b.value)["data_zero_point_x2"]
        for b in bindings_of(result.module["main"])
        if is_op(b.value, "relax.qnn.conv2d")
    ]
    assert points == [0, 3, 3]


# -- FINN ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("datatype", ["UINT8", "INT8"])
def test_finn_graphs(datatype: str) -> None:
    """Integer weights without a quantizer, and an input annotated as integers."""
    net = SourceNet((1, 12))
    first = net.constant("w1", net.rng.choice([-1.0, 1.0], (12, 9)))
    hidden = net.op(relax.op.matmul(net.x, first), "fc1")
    thresholds = np.sort(net.rng.integers(-400, 400, (9, 3)), axis=1)
    hidden = net.op(
        source.multi_threshold(
            hidden, net.constant("t", thresholds), out_scale=1.0, out_bias=-1.0, channel_axis=1
        ),
        "act",
    )
    second = net.constant("w2", net.rng.integers(-1, 2, (9, 4)))
    output = net.op(relax.op.matmul(hidden, second), "fc2")
    model = net.model(output)
    main = model.module["main"].with_attr("finn_datatypes", {"x": datatype})
    module = type(model.module)({relax.GlobalVar("main"): main})
    low = 0 if datatype == "UINT8" else -128
    x = np.random.default_rng(0).integers(low, low + 256, (1, 12)).astype(np.float32)
    result = assert_exact(replace(model, module=module), {"x": x})
    dtypes = {str(p.name): dtype_of(p.ty) for p in result.module["main"].params}
    assert dtypes["fc1.weight"] == "uint1"
    assert dtypes["fc2.weight"] == "int2"


def test_a_quantizer_over_a_float_input_keeps_its_arithmetic() -> None:
    """Steps before the first quantizer run in float32, per channel, and are not folded."""
    net = SourceNet((1, 3, 6, 6))
    value = net.batch_norm(net.x, "norm", 1.7)
    value = net.op(relax.op.nn.max_pool2d(net.op(relax.op.nn.relu(value), "relu"), 2, 2), "pool")
    # A falling channel forbids pooling; this network has none.
    model = net.model(net.quant(value, "q", 8, 0.1))
    model.params["norm.gamma"][:] = np.abs(model.params["norm.gamma"])
    assert_exact(model)


@pytest.mark.parametrize("kind", ["bipolar", "thresholds"])
def test_other_quantizers_over_a_float_input(kind: str) -> None:
    net = SourceNet((1, CHANNELS, 6, 6))
    thresholds = np.sort(net.rng.normal(size=(CHANNELS, 3)))
    value = quantize(net, net.x, Quantizer(kind, 3, 1.0, thresholds=thresholds))
    assert_exact(net.model(net.conv(value, "conv", 4), value))


# -- housekeeping --------------------------------------------------------------------------------


def test_dead_layers_are_dropped() -> None:
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    net.op(relax.op.sign(net.conv(data, "dead", 4)), "unsupported")
    result = assert_exact(net.model(net.conv(data, "alive", 3)))
    assert operators(result).count("conv2d") == 1


def test_layers_keep_their_names() -> None:
    net = SourceNet((1, 4, 6, 6))
    value = net.quant(net.conv(net.quant(net.x, "data", 2, 0.5), "layer1.conv", 3), "act", 2, 0.5)
    names = {b.var.name for b in bindings_of(quantizing.run(model=net.model(value)).module["main"])}
    assert {"data", "layer1.conv", "act"} <= names


def test_check_finds_a_float_between_layers() -> None:
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    value = net.quant(net.conv(data, "conv", 3), "act", 2, 0.5)
    good = quantizing.run(model=net.model(value))
    quantizing.check(good)
    with pytest.raises(AssertionError):
        quantizing.check(float_island(good))


def float_island(model: Model) -> Model:
    """The model with its output quantized once more: a float tensor between integer layers."""
    builder = ModelBuilder()
    mapping: dict[Any, Any] = {}
    main = model.module["main"]
    for number, p in enumerate(main.params):
        shape = shape_of(p.ty)
        if number < int(main.attrs["num_input"]):
            mapping[p] = builder.input(str(p.name), shape, dtype_of(p.ty))
        else:
            mapping[p] = builder.tensor(str(p.name), model.params[p.name], dtype_of(p.ty))
    for b in bindings_of(main):
        mapping[b.var] = builder.emit(remap(b.value, mapping), str(b.var.name))
    last = mapping[outputs_of(main)[0]]
    one = builder.tensor("one", np.ones(1, np.float32))
    again = builder.emit(
        integer.quantize(last, one, one, low=0, high=1, shift=0, rounding="ROUND", dtype="uint1"),
        "again",
    )
    real = builder.emit(integer.dequantize(again, one, zero_point=0), "real")
    return builder.model([real], ["y"])
