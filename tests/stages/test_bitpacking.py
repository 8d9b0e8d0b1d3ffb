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
from stages.kernels.packing import unpack_weights
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model
from stages.layer_options import Algorithm
from stages.numerics import qonnx_operators
from stages.options import LegalizeOptions
from tests.stages.networks import SourceNet, residual_block
from tests.stages.pipeline import algorithm, assert_stages_agree, board, candidates_of, stages

BOARDS = ("rpi3", "rpi3_armv7", "x86_64")
ALGORITHMS: tuple[Algorithm, ...] = ("bitserial", "mac8")


def layouts(source_model: Model, options: LegalizeOptions | None = None) -> dict[str, Layout]:
    """`edge.form` → its layout."""
    models = stages(source_model, "rpi3", options)
    candidates = candidates_of(models["quantizing"], board("rpi3"))
    canonical = models["canonicalizing"]
    wishes = options or LegalizeOptions()
    graph = Graph(canonical)
    edges = solve(graph, choose(graph, wishes, candidates, {}), board("rpi3"))
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
        return net.quant(x, name, bits, 0.5, zero_point=((1 << bits) - 1) / 2)
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
