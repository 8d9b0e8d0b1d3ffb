"""Kernels of float16: within the bound that follows from its precision, whatever the sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hw.isa import isa_of
from hw.profile import Hardware
from stages import importing, quantizing
from stages.dialect.calls import attributes, is_op
from stages.dialect.float_linear import (
    FLOAT16_ROUNDOFF,
    FLOAT16_TERMS,
    departure,
    departure_of_sums,
)
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import needed_bindings
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.kernels.wide_families import FloatDots
from stages.kinds import Model
from stages.options import ImportOptions, QuantizeOptions
from stages.synthesizing.bodies import body_of
from stages.synthesizing.certificate import ProofError, prove
from stages.synthesizing.float16_body import float16_products
from tests.stages.importing.graphs import graph, node
from tests.stages.packaging.integer_net import Net, op
from tests.stages.packaging.programs import Executor, compile_program, pack
from tests.stages.test_move_channels_last import dense_model, model_of
from tests.stages.test_round_to_half_precision import residual
from tests.targets import FP16, skip_unless_runnable

HALF = QuantizeOptions(floats="float16")
UNIT = 2.0**-24
"""Of float32; and half of the distance of float16's smallest numbers is half of that."""


def deep(channels: int, outputs: int, window: int) -> tuple[Net, Model]:
    """A convolution of so many channels that its sums are emptied on the way, negative ones too."""
    net = Net((1, channels, 5, 9))
    x = net.emit(op.astype(net.x, "float32"), "real")
    weight = net.rng.normal(size=(outputs, channels, window, window)).astype(np.float32)
    padding = window // 2
    x = net.emit(op.nn.conv2d(x, net.builder.tensor("w", weight), padding=padding), "conv")
    return net, net.model(x)


MODELS: dict[str, Any] = {
    **{name: lambda name=name: model_of(name) for name in ("window", "strides", "point", "groups")},
    "odd": lambda: model_of("odd"),
    "dense": lambda: dense_model(False),
    "rows": lambda: dense_model(False, outer=(2, 3)),
    "chunks": lambda: deep(2 * FLOAT16_TERMS + 3, 40, 3),
    "a row": lambda: deep(FLOAT16_TERMS // 3 * 2, 9, 3),
    "long": lambda: deep(10 * FLOAT16_TERMS + 2, 4, 1),
    "short": lambda: deep(1, 33, 1),
    "lanes": lambda: deep(8, 17, 1),
    "lanes, a row": lambda: deep(16, 24, 3),
    "lanes, chunks": lambda: deep(FLOAT16_TERMS + 8, 33, 3),
    "lanes, long": lambda: deep(10 * FLOAT16_TERMS, 4, 1),
}


def sizes_of(model: Model, inputs: dict[str, Any]) -> Any:
    """What is added up, each in its size: sums of products of sizes, and biases."""
    sizes = replace(model, params={name: np.abs(v) for name, v in model.params.items()})
    (found,) = interpret.run(
        sizes, {n: np.abs(v.astype(np.int16)) for n, v in inputs.items()}
    ).values()
    return found


def kernels_of(packed: Model) -> list[KernelSignature]:
    """The kernels of products of a packed model."""
    return [
        parse_signature(attributes(binding.value)["signature"])
        for function in packed.module.functions.values()
        if "composite" in (function.attrs or {})
        for binding in needed_bindings(function)
        if is_op(binding.value, "relax.qnn.packed_conv2d")
    ]


def run(model: Model, inputs: dict[str, Any], hardware: Hardware = FP16) -> tuple[Any, Any, Model]:
    """What kernels give on one task and on three, what is meant, and the packed model."""
    packed = pack(model, hardware)
    executor = Executor(compile_program(packed, hardware), hardware)
    ((name, found),) = executor.run(inputs).items()
    np.testing.assert_array_equal(executor.run(inputs, 3)[name], found)
    return found, interpret.run(packed, inputs)[name], packed


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_keeps_to_the_bound_of_its_roundings(name: str) -> None:
    """Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1: as many roundings as a
    sum in 16 bits has terms, and one of two sums; then a few in 32 bits; nothing is too small."""
    skip_unless_runnable(FP16)
    net, model = MODELS[name]()
    halved, inputs = quantizing.run(model=model, options=HALF), net.inputs()
    found, exact, packed = run(halved, inputs)
    sizes = sizes_of(halved, inputs)
    roundings = FLOAT16_TERMS + 1
    bound = roundings * FLOAT16_ROUNDOFF / (1 - roundings * FLOAT16_ROUNDOFF) * sizes
    terms = max(1, int(np.prod(model.params["w"].shape[1:])))
    bound += terms * UNIT * (sizes + 1)
    assert (np.abs(found - exact) <= bound).all()
    assert not np.array_equal(found, exact)
    (kernel,) = kernels_of(packed)
    assert (kernel.family, kernel.flush_period) == ("macf16", FLOAT16_TERMS)
    assert kernel.multiplies_by_lane == name.startswith("lanes")


@pytest.mark.parametrize("name", ["depthwise", "multiplier", "uneven", "strides"])
def test_channels_on_their_own_keep_to_the_bound_of_their_roundings(name: str) -> None:
    """A product and a sum are rounded for each weight of a window, and the sum is float16."""
    skip_unless_runnable(FP16)
    if name in ("depthwise", "multiplier"):
        net, model = model_of(name)
    else:
        net, model = own(13, stride=1 + (name == "strides"))
    halved, inputs = quantizing.run(model=model, options=HALF), net.inputs()
    found, exact, packed = run(halved, inputs)
    (tensor,) = (v for n, v in halved.params.items() if n.startswith("w"))
    assert tensor.dtype == np.float16 and not kernels_of(packed)
    roundings = int(np.prod(tensor.shape[:2])) + 2
    sizes = sizes_of(halved, inputs)
    assert (np.abs(found - exact) <= roundings * FLOAT16_ROUNDOFF * 1.1 * sizes).all()


def own(channels: int, window: int = 3, stride: int = 1) -> tuple[Net, Model]:
    """A convolution of each channel on its own, and a rectifier."""
    net = Net((2, channels, 9, 11))
    x = net.emit(op.astype(net.x, "float32"), "real")
    weight = net.builder.tensor(
        "w", net.rng.normal(size=(channels, 1, window, window)).astype("f4")
    )
    padding = window // 2
    call = op.nn.conv2d(x, weight, padding=padding, strides=stride, groups=channels)
    return net, net.model(net.emit(op.nn.relu(net.emit(call, "conv")), "relu"))


def test_windows_of_more_weights_than_are_added_up_in_float16_stay_float32() -> None:
    _, model = own(13, window=7)
    with pytest.raises(StageError, match="no layer is left in float to be rounded to float16"):
        quantizing.run(model=model, options=HALF)


def test_sums_are_emptied_within_windows_and_rows_and_behind_them() -> None:
    expected = {"short": "window", "a row": "row", "chunks": "chunk", "lanes": "window"}
    expected |= {"lanes, a row": "row", "lanes, chunks": "chunk"}
    assert {name: kernels_of(pack_of(name))[0].flush for name in expected} == expected


def pack_of(name: str) -> Model:
    """A model of `MODELS` as it is packed."""
    _, model = MODELS[name]()
    return pack(quantizing.run(model=model, options=HALF), FP16)


@pytest.mark.parametrize("way", list(float16_products(isa_of(FP16), 16)), ids=lambda way: way.name)
def test_a_kernel_that_multiplies_or_empties_something_else_is_not_proved(way: FloatDots) -> None:
    isa = isa_of(FP16)
    kernel = KernelSignature(isa.name, None, way, 2, 16, "window", FLOAT16_TERMS)
    body = body_of(kernel, isa)
    assert prove(kernel, isa, body)["flush_period"] == FLOAT16_TERMS
    (one,) = body.passes
    first, *others = one.word.steps
    for operand in (1, 2):
        given = next(s for s in others if s.operands[operand] != first.operands[operand])
        read = list(first.operands)
        read[operand] = given.operands[operand]
        word = replace(one.word, steps=[replace(first, operands=tuple(read)), *others])
        with pytest.raises(ProofError):
            prove(kernel, isa, replace(body, passes=(replace(one, word=word),)))
    outputs = dict(zip(body.flush.outputs, reversed(body.flush.outputs.values()), strict=True))
    with pytest.raises(ProofError):
        prove(kernel, isa, replace(body, flush=replace(body.flush, outputs=outputs)))


def test_whole_numbers_are_added_up_exactly() -> None:
    """Where no sum in 16 bits has more than 11 of them."""
    skip_unless_runnable(FP16)
    net = Net((1, 70, 4, 6))
    x = net.emit(op.astype(net.x, "float32"), "real")
    weight = net.rng.integers(-1, 2, (12, 70, 3, 3)).astype(np.float32)
    x = net.emit(op.nn.conv2d(x, net.builder.tensor("w", weight), padding=1), "conv")
    model = quantizing.run(model=net.model(x), options=HALF)
    inputs = {name: (v % 32).astype(v.dtype) for name, v in net.inputs().items()}
    found, exact, _ = run(model, inputs)
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("shape", [(1, 3, 11, 9), (2, 3, 6, 17)])
def test_layers_behind_one_another_depart_as_little_as_is_stated(shape: tuple[int, ...]) -> None:
    skip_unless_runnable(FP16)
    net, model = residual(shape)
    inputs = {name: values // 16 for name, values in net.inputs().items()}
    found, _, _ = run(quantizing.run(model=model, options=HALF), inputs)
    (whole,) = interpret.run(model, inputs).values()
    assert np.abs(found - whole).max() <= departure(3) * np.abs(whole).max()


def test_sums_may_depart_some_times_as_much_as_factors_and_no_more_than_is_likely() -> None:
    least, most = departure(9), departure_of_sums(departure(9), 9)
    assert departure_of_sums(0.0, 9) == departure_of_sums(least / 10, 9) == least < most
    assert departure_of_sums(np.inf, 9) == most
    assert least < departure_of_sums(least / 2, 9) == most / 2


def test_beside_onnx_runtime() -> None:
    """Of a file of two convolutions and a matrix product, whose float32 it computes."""
    runtime = pytest.importorskip("onnxruntime", reason="the onnxruntime wheel is not installed")
    skip_unless_runnable(FP16)
    rng = np.random.default_rng(5)
    tensors = {
        "a": rng.normal(size=(20, 6, 3, 3)) / 7,
        "b": rng.normal(size=(30, 20, 1, 1)) / 4,
        "c": rng.normal(size=(30, 10)) / 5,
    }
    nodes = [
        node("Conv", ["x", "a"], "u", pads=[1, 1, 1, 1]),
        node("Relu", ["u"], "v"),
        node("Conv", ["v", "b"], "w"),
        node("GlobalAveragePool", ["w"], "p"),
        node("Flatten", ["p"], "f"),
        node("MatMul", ["f", "c"], "y"),
    ]
    constants = {name: values.astype(np.float32) for name, values in tensors.items()}
    file = graph(nodes, constants, [1, 6, 9, 7])
    x = rng.normal(size=(1, 6, 9, 7)).astype(np.float32)
    (wanted,) = runtime.InferenceSession(file).run(None, {"x": x})
    source = importing.run(source=file, options=ImportOptions())
    model = quantizing.run(model=source, options=HALF)
    found, _, _ = run(model, {"x": x})
    assert 0 < np.abs(found - wanted).max() <= departure(3) * np.abs(wanted).max()


def test_a_float_layer_behind_a_quantized_one() -> None:
    """Of a QDQ file, whose last layers nothing quantizes."""
    runtime = pytest.importorskip("onnxruntime", reason="the onnxruntime wheel is not installed")
    skip_unless_runnable(FP16)
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {
        **{"s": np.float32(0.05), "z": np.uint8(128), "t": np.float32(0.1)},
        **{"ws": np.float32(0.02), "wz": np.int8(0)},
        "w": rng.integers(-127, 128, (24, 6, 3, 3)).astype(np.int8),
        "f": (rng.normal(size=(20, 24, 3, 3)) / 10).astype(np.float32),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "d"),
        node("DequantizeLinear", ["w", "ws", "wz"], "k"),
        node("Conv", ["d", "k"], "c", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", ["c", "t", "z"], "p"),
        node("DequantizeLinear", ["p", "t", "z"], "e"),
        node("Conv", ["e", "f"], pads=[1, 1, 1, 1]),
    ]
    file = graph(nodes, constants, [1, 6, 9, 7])
    x = rng.normal(size=(1, 6, 9, 7)).astype(np.float32)
    (wanted,) = runtime.InferenceSession(file).run(None, {"x": x})
    source = importing.run(source=file, options=ImportOptions())
    found, _, packed = run(quantizing.run(model=source, options=HALF), {"x": x})
    assert sorted(kernel.family for kernel in kernels_of(packed)) == ["mac8", "macf16"]
    assert np.abs(found - wanted).max() <= departure(1) * np.abs(wanted).max()


def test_what_float16_cannot_hold_is_infinite() -> None:
    """From 65520 on, as factors and as sums of few products; a product with 0 is then no number."""
    skip_unless_runnable(FP16)
    net = Net((4, 8), "float32")
    weight = np.zeros((8, 3), np.float32)
    weight[0], weight[1, 1], weight[2] = 1, 1, (3, 0, -3)
    model = net.model(net.emit(op.matmul(net.x, net.builder.tensor("w", weight)), "y"))
    x = np.zeros((4, 8), np.float32)
    x[0, 0], x[1, 1], x[2, 2], x[3, 0] = 65519, 65520, 60000, np.nan
    found, exact, _ = run(quantizing.run(model=model, options=HALF), {"x": x})
    inf, nan = np.inf, np.nan
    wanted = np.array([[65504] * 3, [nan, inf, nan], [inf, 0, -inf], [nan] * 3])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(exact[2], [180000, 0, -180000])


def test_a_weight_that_float16_cannot_hold_is_refused() -> None:
    net = Net((4, 8), "float32")
    weight = np.full((8, 3), -65520, np.float32)
    model = net.model(net.emit(op.matmul(net.x, net.builder.tensor("w", weight)), "fc"))
    with pytest.raises(StageError) as caught:
        quantizing.run(model=model, options=HALF)
    assert str(caught.value) == (
        "fc: its weights are up to 65520 in size, and float16 ends at 65504; write floats: "
        "bfloat16, or float32"
    )
