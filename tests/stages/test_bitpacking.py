"""Bit-packing: signatures per chip, layouts of edges, and the same numbers as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from stages import bitpacking
from stages.bitpacking.call_graph import Graph
from stages.bitpacking.edge_layouts import Layout
from stages.bitpacking.edges import solve
from stages.bitpacking.kernel_choice import choose
from stages.dialect.calls import attributes, is_op, shape_of
from stages.graph.bindings import bindings_of
from stages.kernels.candidates import from_table
from stages.kernels.geometry import Geometry
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.packed import parse_signature
from stages.kernels.packing import unpack_weights
from stages.kernels.signature import Flush, KernelSignature, stored_by
from stages.kinds import Model
from stages.layer_options import Algorithm
from stages.numerics import qonnx_operators
from stages.options import LegalizeOptions
from tests.stages.networks import SourceNet, residual_block
from tests.stages.pipeline import (
    algorithm,
    assert_stages_agree,
    board,
    offers_of,
    stages,
)

BOARDS = ("rpi3", "rpi3_armv7", "x86_64")
ALGORITHMS: tuple[Algorithm, ...] = ("bitserial", "mac8")


def layouts(source_model: Model, options: LegalizeOptions | None = None) -> dict[str, Layout]:
    """`edge.form` → its layout."""
    models = stages(source_model, "rpi3", options)
    offers = offers_of(models["quantizing"], board("rpi3"))
    canonical = models["canonicalizing"]
    wishes = options or LegalizeOptions()
    graph = Graph(canonical)
    edges = solve(graph, choose(graph, wishes, offers, {}), board("rpi3"))
    return {
        f"{variable.name}.{layout.form}": layout
        for variable, requests in edges.requests.items()
        for layout in requests.layouts
    }


def calls(model: Model, operator: str) -> list[dict[str, Any]]:
    """Attributes of every call of a packed operator, composite by composite."""
    return [
        attributes(binding.value)
        for call in bindings_of(model.module["main"])
        if hasattr(call.value, "op")
        for binding in bindings_of(model.module[call.value.op])
        if is_op(binding.value, f"relax.qnn.{operator}")
    ]


def signatures(model: Model) -> list[KernelSignature]:
    return [parse_signature(attrs["signature"]) for attrs in calls(model, "packed_conv2d")]


# -- the same numbers ----------------------------------------------------------------------------


def activation(net: SourceNet, x: Any, name: str, bits: int, encoding: str) -> Any:
    """Unipolar 0..2^b-1, bipolar odd levels, or signed and narrow (ternary at two bits)."""
    if encoding == "bipolar" and bits == 1:
        return net.op(qonnx_operators.bipolar_quant(x, net.constant(f"{name}.s", 0.5)), name)
    if encoding == "bipolar":
        return net.quant(x, name, bits, 0.5, zp=((1 << bits) - 1) / 2)
    if encoding == "unipolar":
        return net.quant(x, name, bits, 0.5)
    call = qonnx_operators.quant(
        x,
        net.constant(f"{name}.s", 0.5),
        net.constant(f"{name}.z", 0.0),
        bits=bits,
        signed=True,
        narrow=bits > 1,
        rounding="ROUND",
    )
    return net.op(call, name)


def every_reader(activation_bits: int, weight_bits: int, activations: str, weights: str) -> Model:
    """Padded, strided, pooled and flattened: every way in which an edge is read."""
    net = SourceNet((1, 5, 7, 6), seed=activation_bits * 8 + weight_bits)
    start = activation(net, net.x, "start", activation_bits, activations)
    first = net.conv(start, "first", 7, 3, 1, weight_bits, weights)
    first = activation(net, first, "act1", activation_bits, activations)
    pooled = net.op(relax.op.nn.max_pool2d(first, 2, 2), "pool")
    strided = net.conv(first, "strided", 33, 3, 2, weight_bits, weights)
    second = activation(net, strided, "act2", activation_bits, activations)
    flat = net.matmul(net.flatten(second), "fc", 10, weight_bits, weights)
    return net.model(flat, net.conv(pooled, "tail", 3, 1, 1, weight_bits, weights))


@pytest.mark.parametrize("name", ["bitserial", pytest.param("mac8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("weights", ["unipolar", "bipolar", "signed"])
@pytest.mark.parametrize("activations", ["unipolar", "bipolar", "signed"])
@pytest.mark.parametrize("activation_bits", [1, 2, 3])
@pytest.mark.parametrize("weight_bits", [1, 2, 3])
def test_every_precision_and_encoding(
    activation_bits: int, weight_bits: int, activations: str, weights: str, name: Algorithm
) -> None:
    model = every_reader(activation_bits, weight_bits, activations, weights)
    assert_stages_agree(model, "rpi3", algorithm(name))


@pytest.mark.parametrize("hardware", BOARDS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_board(hardware: str, name: Algorithm) -> None:
    assert_stages_agree(residual_block(2, 1, channels=33, size=6), hardware, algorithm(name))


@settings(max_examples=20)
@given(st.data())
def test_every_geometry(data: st.DataObject) -> None:
    """Two readers with windows of their own, so that the halo fits neither."""
    draw = data.draw
    net = SourceNet((1, draw(st.integers(1, 40)), *draw(st.tuples(*[st.integers(4, 7)] * 2))))
    encoding = draw(st.sampled_from(["unipolar", "bipolar", "signed"]))
    start = activation(net, net.x, "start", draw(st.integers(1, 3)), encoding)
    middle = net.conv(start, "middle", draw(st.integers(1, 40)))
    middle = activation(net, middle, "act", draw(st.integers(1, 3)), encoding)
    outputs = []
    for number in range(2):
        kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
        strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
        padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
        shape = (draw(st.integers(1, 35)), int(middle.ty.shape[1]), *kernel)
        weight = net.weights(f"w{number}", shape, draw(st.integers(1, 3)), encoding)
        call = relax.op.nn.conv2d(middle, weight, strides, padding)
        outputs.append(net.op(call, f"out{number}"))
    assert_stages_agree(net.model(*outputs), "rpi3", algorithm(draw(st.sampled_from(ALGORITHMS))))


NETWORKS = {
    "identity_shortcut": lambda net, data: net.op(
        relax.op.add(data, net.quant(net.conv(data, "conv", 5), "act", 2, 0.5, signed=True)), "add"
    ),
    "added_to_itself": lambda net, data: net.conv(
        net.quant(net.op(relax.op.add(data, data), "add"), "q", 2, 1.0), "conv", 3
    ),
    "constant_minus_sums": lambda net, data: net.op(
        relax.op.subtract(net.constant("one", 1.0), net.conv(data, "conv", 3)), "rest"
    ),
    "channels_minus_sums": lambda net, data: net.op(
        relax.op.subtract(
            net.constant("c", np.arange(3.0).reshape(3, 1, 1)), net.conv(data, "conv", 3)
        ),
        "rest",
    ),
    "one_channel": lambda net, data: net.conv(
        net.quant(net.conv(data, "narrow", 1), "act", 1, 0.5), "conv", 3
    ),
    "one_falling_channel": lambda net, data: net.conv(
        net.quant(
            net.op(
                relax.op.multiply(net.conv(data, "narrow", 1), net.constant("minus", -1.0)), "fall"
            ),
            "act",
            1,
            0.5,
        ),
        "conv",
        3,
    ),
    "pooled_input": lambda net, data: net.conv(
        net.op(relax.op.nn.max_pool2d(data, (3, 3), 2, 1), "pool"), "conv", 3
    ),
    "averaged": lambda net, data: net.conv(
        net.quant(
            net.op(relax.op.nn.avg_pool2d(data, (2, 2), 2), "pool"), "act", 2, 0.5, signed=True
        ),
        "conv",
        3,
    ),
    "flattened_output": lambda net, data: net.flatten(net.conv(data, "conv", 3)),
    "flattened_levels": lambda net, data: net.flatten(data),
    "levels": lambda net, data: data,
    # Padded channels of the first product are 0, which is not below a threshold of 0.
    "mixed_encodings": lambda net, data: net.conv(
        net.quant(
            net.op(
                relax.op.add(
                    net.conv(data, "first", 6, bits=2, encoding="unipolar"), net.constant("c", 9.0)
                ),
                "shifted",
            ),
            "act",
            2,
            0.5,
        ),
        "second",
        3,
        encoding="bipolar",
    ),
    "eight_bits": lambda net, data: net.conv(
        net.quant(
            net.conv(data, "first", 6, bits=8, encoding="signed"), "act", 8, 0.5, signed=True
        ),
        "second",
        3,
        bits=8,
        encoding="signed",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_unusual_edges(name: str) -> None:
    """The input has a zero point and 5 channels: padded channels would not be 0 by themselves."""
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, signed=True)
    assert_stages_agree(net.model(NETWORKS[name](net, data)))


def test_several_outputs() -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, signed=True)
    summed = net.conv(data, "conv", 4)
    levels = net.quant(summed, "act", 2, 0.5)
    assert_stages_agree(net.model(summed, levels, data, net.conv(levels, "last", 3), summed))


def test_two_inputs_and_one_without_reader() -> None:
    net = SourceNet((1, 5, 6, 6))
    other = net.builder.input("other", (1, 5, 6, 6), "float32")
    net.builder.input("ignored", (1, 3), "float32")
    left = net.quant(net.x, "left", 3, 0.5, signed=True)
    right = net.quant(other, "right", 3, 0.5, signed=True)
    total = net.op(relax.op.add(left, right), "add")
    assert_stages_agree(net.model(net.conv(net.quant(total, "q", 2, 1.0), "conv", 3), total))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("bias", [-1000.0, -3.0, 0.0, 1000.0])
def test_zero_points_that_no_byte_holds(bias: float, name: Algorithm) -> None:
    """Padding means 0, which is far outside the levels: the bias per border class makes up."""
    net = SourceNet((1, 4, 5, 5))
    data = net.quant(net.x, "data", 2, 0.5)
    table = np.sort(net.rng.integers(-9, 9, (4, 3)), axis=1)
    call = qonnx_operators.multi_threshold(
        net.conv(data, "first", 4),
        net.constant("t", table),
        out_scale=1.0,
        out_bias=bias,
        channel_axis=1,
    )
    levels = net.op(call, "levels")
    model = net.model(net.conv(levels, "second", 3, bits=2))
    assert_stages_agree(model, options=algorithm(name))


# -- edges ---------------------------------------------------------------------------------------


def test_an_edge_with_two_kinds_of_reader_exists_twice() -> None:
    net = SourceNet((1, 40, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    pooled = net.op(relax.op.nn.max_pool2d(data, 2, 2), "pool")
    model = net.model(net.conv(data, "conv", 3), net.conv(pooled, "tail", 3))
    found = layouts(model, algorithm("bitserial"))
    assert found["x.nhwc.planes"].shape == (2, 8, 8, 2)
    assert found["x.nhwc.planes"].dtype == "uint32"
    assert found["x.nhwc.bytes"].shape == (6, 6, 64)
    assert found["x.nhwc.bytes"].dtype == "uint8"


def test_an_edge_without_products_has_no_planes() -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    pooled = net.op(relax.op.nn.max_pool2d(data, 2, 2), "pool")
    found = layouts(net.model(net.conv(pooled, "conv", 3)))
    assert "x.nhwc.planes" not in found
    assert found["x.nhwc.bytes"].padded_channels == 32


def test_a_halo_is_the_largest_padding_of_its_readers() -> None:
    net = SourceNet((1, 5, 9, 9))
    data = net.quant(net.x, "data", 2, 0.5)
    weights = [net.weights(f"w{n}", (3, 5, 3, 5), 1, "bipolar") for n in (0, 1)]
    first = net.op(relax.op.nn.conv2d(data, weights[0], 1, (0, 1, 2, 0)), "first")
    second = net.op(relax.op.nn.conv2d(data, weights[1], 2, (1, 0, 0, 2)), "second")
    source_model = net.model(first, second)
    found = layouts(source_model, algorithm("bitserial"))["x.nhwc.planes"]
    assert found.halo == (1, 1, 2, 2)
    assert found.shape == (2, 12, 12, 1)
    packed = assert_stages_agree(source_model, options=algorithm("bitserial"))["bitpacking"]
    assert [attrs["origin"] for attrs in calls(packed, "packed_conv2d")] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(("bits", "signed", "fill"), [(8, True, 128), (8, False, 0), (3, True, 4)])
def test_a_halo_of_bytes_holds_the_zero_point(bits: int, signed: bool, fill: int) -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", bits, 0.5, signed=signed)
    model = net.model(net.conv(data, "conv", 3, bits=8, encoding="signed"))
    assert layouts(model)["x.nhwc.bytes"].fill == fill
    packed = assert_stages_agree(model)["bitpacking"]
    assert [attrs["border"] for attrs in calls(packed, "packed_conv2d")] == [[0, 0, 0, 0]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_half_integer_zero_point_needs_border_classes(name: Algorithm) -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, zp=1.5)
    packed = assert_stages_agree(net.model(net.conv(data, "conv", 3)), options=algorithm(name))
    (attrs,) = calls(packed["bitpacking"], "packed_conv2d")
    assert attrs["border"] == [1, 1, 1, 1]
    assert packed["bitpacking"].params["conv.bias"].shape == (9, 32)


def test_unpadded_layers_need_no_border_classes() -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, zp=1.5)
    packed = assert_stages_agree(net.model(net.conv(data, "conv", 3, padding=0)))["bitpacking"]
    assert packed.params["conv.bias"].shape == (1, 32)


@pytest.mark.parametrize(("channels", "padded"), [(3, 4), (30, 32), (33, 64)])
def test_bytes_of_a_picture_are_padded_to_words(channels: int, padded: int) -> None:
    """Unless there is more than a block of them: kernels write whole blocks."""
    net = SourceNet((1, channels, 6, 6))
    data = net.quant(net.x, "data", 8, 0.5)
    found = layouts(net.model(net.conv(data, "conv", 3, bits=8, encoding="signed")))
    assert found["x.nhwc.bytes"].padded_channels == padded


def test_cycles_are_predicted_for_pictures_as_they_lie() -> None:
    """What there is to choose for a layer among bits is what its kernel was picked from."""
    net = SourceNet((1, 3, 16, 16))
    data = net.quant(net.x, "data", 8, 0.5)
    first = net.conv(data, "conv", 64, bits=8, encoding="signed", stride=2)
    last = net.conv(activation(net, first, "a", 2, "unipolar"), "next", 64)
    made = stages(net.model(last), "x86_64")
    found = bitpacking.subjects(
        model=made["canonicalizing"],
        options=LegalizeOptions(),
        offers=offers_of(made["quantizing"], board("x86_64")),
    )
    subject = found["conv"]
    assert subject.workload.geometry.unit == WORD_BYTES
    packed, *_ = signatures(made["bitpacking"])
    assert packed.alone.name == subject.kernel(subject.ranked()[0])


# -- signatures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*BOARDS, "rpi4"])
@pytest.mark.parametrize(
    ("bits", "encoding"),
    [((2, 1), "bipolar"), ((1, 1), "bipolar"), ((3, 2), "unipolar"), ((2, 3), "signed")],
)
def test_the_cheapest_kernel_that_is_offered(
    name: str, bits: tuple[int, int], encoding: str
) -> None:
    hardware = board(name)
    source_model = residual_block(*bits, channels=8, size=6, encoding=encoding)
    models = stages(source_model, hardware, algorithm("bitserial"))
    (table,) = offers_of(models["quantizing"], hardware).values()
    offers = {o.signature: o for o in from_table(table) if o.algorithm == "bitserial"}
    for attrs in calls(models["bitpacking"], "packed_conv2d"):
        signature = parse_signature(attrs["signature"])
        assert signature.isa == hardware.isa
        assert signature.plan is not None
        assert (signature.plan.activation_bits, signature.plan.weight_bits) == bits
        assert signature.plan.weights == encoding
        height, width = attrs["output"]
        strides = tuple(attrs["strides"])
        geometry = Geometry(tuple(attrs["window"]), attrs["channels"][0], width, height, strides)
        flush: Flush = "window" if signature.flush_period else "none"
        offer = offers[signature.reading(stored_by(signature.plan)).flushed(flush)]
        fitting = [o for o in offers.values() if geometry.takes(o.signature)]
        assert offer.cycles(geometry) == min(o.cycles(geometry) for o in fitting)


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("bits", [2, 8])
def test_products_fit_their_lanes(name: str, bits: int) -> None:
    """Narrow lanes take no larger levels and weights; bytes are added up in 32 bits."""
    net = SourceNet((1, 40, 6, 6))
    data = net.quant(net.x, "data", bits, 0.5)
    model = net.model(net.conv(data, "conv", 33, bits=bits, encoding="signed"))
    models = assert_stages_agree(model, name, algorithm("mac8"))
    (signature,) = signatures(models["bitpacking"])
    assert signature.products is not None
    weights = models["legalizing"].params["conv.weight"].astype(int)
    assert signature.products.activation_bits >= bits
    assert signature.products.weight_limit >= np.abs(weights).max()
    if bits == 8:
        wanted = "wide_dot2" if name == "x86_64" else "pairs4"
        assert signature.products.name.startswith(wanted)
        assert signature.flush == "none"


@pytest.mark.parametrize("depth", [32, 512, 1024, 4096])
def test_when_counters_are_emptied(depth: int) -> None:
    """A window, a row of it, or part of a row, whichever fits into a byte."""
    net = SourceNet((1, depth, 3, 3))
    data = net.quant(net.x, "data", 1, 0.5)
    source_model = net.model(net.conv(data, "conv", 2, padding=0))
    packed = assert_stages_agree(source_model, options=algorithm("bitserial"))["bitpacking"]
    (signature,) = signatures(packed)
    row = 3 * depth // 32
    fits = {"window": 3 * row, "row": row, "chunk": 1}
    chosen = next(name for name, words in fits.items() if words <= signature.flush_period)
    assert signature.flush == chosen


def forked(activation_bits: int, first: tuple[int, str], second: tuple[int, str]) -> Model:
    """One activation behind a layer, read by products with weights of two precisions."""
    net = SourceNet((1, 40, 5, 6))
    start = net.quant(net.x, "start", activation_bits, 0.5)
    middle = net.conv(start, "middle", 40, bits=first[0], encoding=first[1])
    levels = net.quant(net.batch_norm(middle, "bn", 8.0), "levels", activation_bits, 0.5)
    one = net.conv(levels, "one", 9, bits=first[0], encoding=first[1])
    other = net.conv(levels, "other", 35, 1, bits=second[0], encoding=second[1])
    return net.model(one, other)


@pytest.mark.parametrize(
    ("activation_bits", "first", "second"),
    [
        (2, (1, "bipolar"), (2, "bipolar")),
        (2, (2, "signed"), (1, "unipolar")),
        (3, (1, "unipolar"), (3, "bipolar")),
        (3, (3, "signed"), (1, "bipolar")),
        (1, (1, "bipolar"), (3, "unipolar")),
    ],
)
@pytest.mark.parametrize("name", ["rpi3", "rpi4", "x86_64"])
def test_readers_of_different_precisions_share_an_edge(
    name: str, activation_bits: int, first: tuple[int, str], second: tuple[int, str]
) -> None:
    """It holds the planes and sums of both, each once, and each reads its own."""
    model = forked(activation_bits, first, second)
    packed = assert_stages_agree(model, name, algorithm("bitserial"))["bitpacking"]
    _, one, other = signatures(packed)
    assert one.stored == other.stored
    assert one.stored is not None and one.plan is not None and other.plan is not None
    wanted = [stored_by(plan) for plan in (one.plan, other.plan)]
    assert set(one.stored.planes) == {*wanted[0].planes, *wanted[1].planes}
    assert set(one.stored.sums) == {*wanted[0].sums, *wanted[1].sums}
    assert one.stored.words == len({*wanted[0].planes, *wanted[1].planes}) + len(one.stored.sums)


def test_planes_of_a_fork_are_joined() -> None:
    """Bipolar weights of one bit want digits, those of two bits want ternary digits and sums."""
    model = forked(2, (1, "bipolar"), (2, "bipolar"))
    packed = assert_stages_agree(model, "rpi4", algorithm("bitserial"))["bitpacking"]
    _, one, other = signatures(packed)
    assert one.plan is not None and one.plan.kind == "xor2"
    assert other.plan is not None and other.plan.kind == "mix3"
    own = {stored_by(plan) for plan in (one.plan, other.plan)}
    assert one.stored == other.stored and one.stored not in own
    stored = [attrs["planes"] for attrs in calls(packed, "bitpack")]
    assert list(one.stored.planes if one.stored else ()) in stored


# -- tensors -------------------------------------------------------------------------------------


def test_weights_are_packed_in_the_order_of_their_signature() -> None:
    net = SourceNet((1, 40, 5, 5))
    data = net.quant(net.x, "data", 2, 0.5)
    source_model = net.model(net.conv(data, "conv", 35, bits=2))
    models = assert_stages_agree(source_model, options=algorithm("bitserial"))
    (signature,) = signatures(models["bitpacking"])
    packed = models["bitpacking"].params["conv.weights"]
    q = models["legalizing"].params["conv.weight"]
    assert np.array_equal(unpack_weights(signature, packed, q.shape), q)


def test_equal_layers_share_a_packed_function() -> None:
    net = SourceNet((1, 8, 6, 6))
    value = net.quant(net.x, "data", 2, 0.5)
    for number in range(3):
        value = net.quant(net.conv(value, f"conv{number}", 8), f"act{number}", 2, 0.5)
    model = net.model(net.conv(value, "last", 8))
    packed = assert_stages_agree(model, options=algorithm("bitserial"))["bitpacking"]
    main = bindings_of(packed.module["main"])
    names = [str(b.value.op.name_hint) for b in main if hasattr(b.value, "op")]
    assert len(names) == 5
    assert len(set(names)) == 3


def test_nothing_but_planes_bytes_and_floats() -> None:
    models = assert_stages_agree(residual_block(2, 1, channels=8, size=6))
    bitpacking.check(models["bitpacking"])
    with pytest.raises(AssertionError):
        bitpacking.check(models["canonicalizing"])
    outputs = models["bitpacking"].module["main"].ret_ty
    assert shape_of(outputs) == (1, 8, 3, 3)
