"""Canonicalizing: composites of one main operator and its epilogue, and nothing beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from stages import canonicalizing, legalizing, quantizing
from stages.dialect import integer
from stages.dialect.calls import dtype_of
from stages.graph import interpret
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.builder import ModelBuilder
from stages.kinds import Model
from stages.options import FloatPrecision, LegalizeOptions, QuantizeOptions
from tests.stages.networks import SourceNet, residual_block
from tests.stages.pipeline import algorithm, assert_same, board, candidates_of, random_inputs


def legalized(
    source: Model, options: LegalizeOptions | None = None, floats: FloatPrecision = "float32"
) -> Model:
    quantized = quantizing.run(model=source, options=QuantizeOptions(floats=floats))
    candidates = candidates_of(quantized, board("rpi3"))
    return legalizing.run(
        model=quantized,
        options=options or LegalizeOptions(),
        candidates=candidates,
        choices={},
        hardware=board("rpi3"),
    )


def canonical(source: Model, options: LegalizeOptions | None = None) -> Model:
    return canonicalizing.run(model=legalized(source, options))


def operators(function: Any) -> list[str]:
    return [
        str(b.value.op.name).removeprefix("relax.").removeprefix("qnn.")
        for b in bindings_of(function)
        if hasattr(b.value, "op")
    ]


def composites(model: Model) -> dict[str, list[str]]:
    """Layer → operators of the composite it calls, in order of execution."""
    return {
        str(b.var.name): operators(model.module[b.value.op])
        for b in bindings_of(model.module["main"])
        if hasattr(b.value, "op")
    }


def callees(model: Model) -> dict[str, str]:
    return {
        str(b.var.name): str(b.value.op.name_hint)
        for b in bindings_of(model.module["main"])
        if hasattr(b.value, "op")
    }


BEFORE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 4, 8), dtype="uint2"), w: R.Tensor((8, 1, 1, 8), dtype="uint1"),
             t: R.Tensor((3, 8), dtype="int32"), f: R.Tensor((8,), dtype="uint8"),
             s: R.Tensor((1,), dtype="float32")):
        R.func_attr({"num_input": 1, "output_names": ["y"]})
        with R.dataflow():
            conv = R.qnn.bitserial_conv2d(x, w, strides=[1, 1], padding=[0, 0, 0, 0], groups=1,
                data_zero_point=0, weight_zero_point=0.5, pad_value=0, of_levels=True)
            act = R.qnn.threshold(conv, t, f, dtype="uint2")
            pool = R.qnn.max_pool2d(act, kernel=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])
            real = R.qnn.dequantize(pool, s, zero_point=0)
            y = real
            R.output(y)
        return y
"""

EXPECTED = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 4, 8), dtype="uint2"), w: R.Tensor((8, 1, 1, 8), dtype="uint1"),
             t: R.Tensor((3, 8), dtype="int32"), f: R.Tensor((8,), dtype="uint8"),
             s: R.Tensor((1,), dtype="float32")):
        R.func_attr({"num_input": 1, "output_names": ["y"]})
        cls = Module
        with R.dataflow():
            conv: R.Tensor((1, 4, 4, 8), dtype="uint2") = cls.qnn_bitserial_conv2d(x, w, t, f)
            pool: R.Tensor((1, 2, 2, 8), dtype="float32") = cls.qnn_max_pool2d(conv, s)
            y: R.Tensor((1, 2, 2, 8), dtype="float32") = pool
            R.output(y)
        return y

    @R.function(private=True)
    def qnn_bitserial_conv2d(
        p0: R.Tensor((1, 4, 4, 8), dtype="uint2"), p1: R.Tensor((8, 1, 1, 8), dtype="uint1"),
        p2: R.Tensor((3, 8), dtype="int32"), p3: R.Tensor((8,), dtype="uint8")
    ) -> R.Tensor((1, 4, 4, 8), dtype="uint2"):
        R.func_attr({"composite": "qnn_bitserial_conv2d"})
        with R.dataflow():
            v0 = R.qnn.bitserial_conv2d(p0, p1, strides=[1, 1], padding=[0, 0, 0, 0], groups=1,
                data_zero_point=0, weight_zero_point=0.5, pad_value=0, of_levels=True)
            v1 = R.qnn.threshold(v0, p2, p3, dtype="uint2")
            gv = v1
            R.output(gv)
        return gv

    @R.function(private=True)
    def qnn_max_pool2d(
        p0: R.Tensor((1, 4, 4, 8), dtype="uint2"), p1: R.Tensor((1,), dtype="float32")
    ) -> R.Tensor((1, 2, 2, 8), dtype="float32"):
        R.func_attr({"composite": "qnn_max_pool2d"})
        with R.dataflow():
            v0 = R.qnn.max_pool2d(p0, kernel=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])
            v1 = R.qnn.dequantize(v0, p1, zero_point=0)
            gv = v1
            R.output(gv)
        return gv
"""


def test_before_and_after() -> None:
    before = tvm.script.from_source(BEFORE)
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "w": np.ones((8, 1, 1, 8), np.uint8),
        "t": np.ones((3, 8), np.int32),
        "f": np.zeros(8, np.uint8),
        "s": np.ones(1, np.float32),
    }
    found = canonicalizing.run(model=Model(before, tensors))
    expected = tvm.script.from_source(EXPECTED)
    for name in ("qnn_bitserial_conv2d", "qnn_max_pool2d"):
        composite = found.module[name].without_attr("global_symbol")
        tvm.ir.assert_structural_equal(composite, expected[name])
    assert calls_of(found.module["main"]) == calls_of(expected["main"])


def without(module: Any, attr: str) -> Any:
    return tvm.IRModule(
        {variable: module[variable].without_attr(attr) for variable in module.get_global_vars()}
    )


def calls_of(function: Any) -> list[tuple[str, list[str], str]]:
    """Callee, arguments and result type of every binding."""
    return [
        (str(b.value.op.name_hint), [str(a.name) for a in b.value.args], str(b.var.ty))
        for b in bindings_of(function)
        if hasattr(b.value, "op")
    ]


def test_a_residual_block() -> None:
    """The start is packed twice, the sum leaves in two widths, nothing is left over."""
    model = canonical(residual_block(2, 1, channels=8, size=6), algorithm("bitserial"))
    assert composites(model) == {
        "x.nhwc": ["permute_dims", "quantize"],
        "conv1": ["bitserial_conv2d", "threshold"],
        "down": ["bitserial_conv2d", "requantize"],
        "conv2": ["bitserial_conv2d", "requantize", "add", "threshold", "saturate"],
        "conv3": ["bitserial_conv2d", "requantize", "add", "dequantize", "permute_dims"],
    }
    last = model.module[
        next(b.value.op for b in bindings_of(model.module["main"]) if b.var.name == "conv2")
    ]
    assert [dtype_of(output.ty) for output in outputs_of(last)] == ["uint2", "uint8"]


def test_every_tensor_is_a_parameter() -> None:
    model = canonical(residual_block(2, 1, channels=8, size=6))
    main = model.module["main"]
    for binding in bindings_of(main):
        if hasattr(binding.value, "op"):
            assert all(isinstance(a, relax.Var) for a in binding.value.args)
    for function in model.module.functions.values():
        names = [str(p.name) for p in function.params]
        assert function.same_as(main) or names == [f"p{n}" for n in range(len(names))]


def test_equal_layers_share_a_function() -> None:
    net = SourceNet((1, 8, 6, 6))
    value = net.quant(net.x, "data", 2, 0.5)
    for number in range(3):
        value = net.quant(net.conv(value, f"conv{number}", 8), f"act{number}", 2, 0.5)
    model = canonical(net.model(net.conv(value, "last", 8)))
    found = callees(model)
    assert found["conv0"] == found["conv1"] == found["conv2"] != found["last"]
    calls = [b.value for b in bindings_of(model.module["main"]) if hasattr(b.value, "op")]
    weights = [str(call.args[1].name) for call in calls[1:]]
    assert weights == ["conv0.weight", "conv1.weight", "conv2.weight", "last.weight"]


@pytest.mark.parametrize(("outputs", "bits"), [((8, 9), (2, 2)), ((8, 8), (2, 3))])
def test_different_layers_do_not(outputs: tuple[int, int], bits: tuple[int, int]) -> None:
    net = SourceNet((1, 8, 6, 6))
    value = net.quant(net.x, "data", 2, 0.5)
    for number in (0, 1):
        value = net.conv(value, f"conv{number}", outputs[number])
        value = net.quant(value, f"act{number}", bits[number], 0.5)
    found = callees(canonical(net.model(net.conv(value, "last", 3))))
    assert found["conv0"] != found["conv1"]


def test_a_layer_read_twice_in_one_composite_is_one_parameter() -> None:
    """An identity shortcut: the input of the convolution is the addend of its epilogue."""
    net = SourceNet((1, 6, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    branch = net.quant(net.conv(data, "conv", 6), "act", 2, 0.5)
    total = net.quant(net.op(relax.op.add(data, branch), "add"), "q", 2, 1.0)
    model = canonical(net.model(net.conv(total, "last", 3)), algorithm("bitserial"))
    assert composites(model)["conv"] == ["bitserial_conv2d", "threshold", "add", "threshold"]
    call = next(b.value for b in bindings_of(model.module["main"]) if b.var.name == "conv")
    assert len({str(a.name) for a in call.args}) == len(call.args)


def test_several_outputs_of_one_composite() -> None:
    net = SourceNet((1, 6, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    summed = net.conv(data, "conv", 6)
    low, wide = net.quant(summed, "low", 2, 0.5), net.quant(summed, "wide", 8, 0.5)
    model = canonical(net.model(net.conv(low, "a", 3), net.conv(wide, "b", 3, bits=8), summed))
    function = model.module[callees(model)["conv"]]
    assert [dtype_of(o.ty) for o in outputs_of(function)] == ["uint2", "uint8", "float32"]


@pytest.mark.parametrize("name", ["bitserial", "mac8"])
def test_composites_compute_the_same(name: Any) -> None:
    source = residual_block(2, 2, channels=6, size=6)
    model = canonical(source, algorithm(name))
    inputs = random_inputs(source)
    assert_same(interpret.run(source, inputs), interpret.run(model, inputs), "canonicalizing")


def test_no_accumulator_leaves_a_composite() -> None:
    """Sums of sums would need an int32 tensor in memory: a fault of the stage before."""
    builder = ModelBuilder()
    scale = builder.tensor("scale", np.ones(1, np.float32))
    zero = builder.tensor("zero", np.zeros(1, np.float32))
    sizes = {"low": 0, "high": 255, "shift": 0, "rounding": "ROUND", "dtype": "uint8"}
    pixels = builder.input("pixels", (1, 4, 4, 2), "float32")
    x = builder.emit(integer.quantize(pixels, scale, zero, **sizes), "x")
    pool = {"kernel": [2, 2], "strides": [1, 1], "padding": [0, 0, 0, 0], "zero_point": 0}
    first = builder.emit(integer.sum_pool2d(x, **pool), "first")
    second = builder.emit(integer.sum_pool2d(first, **pool), "second")
    real = builder.emit(integer.dequantize(second, scale, zero_point=0), "real")
    with pytest.raises(AssertionError, match="the accumulator first leaves composite first"):
        canonicalizing.run(model=builder.model([real], ["y"]))


def test_check_finds_operators_outside_composites() -> None:
    model = legalized(residual_block(2, 1, channels=8, size=6))
    with pytest.raises(AssertionError):
        canonicalizing.check(model)


def test_check_finds_functions_that_are_no_composites() -> None:
    model = canonical(residual_block(2, 1, channels=8, size=6))
    module = without(model.module, "composite")
    with pytest.raises((AssertionError, TypeError)):
        canonicalizing.check(Model(module, model.params))


def test_a_widened_tensor_that_a_quantizer_reads_as_well() -> None:
    """Composites around a quantizer widen nothing: a composite of its own does it before them."""
    net = SourceNet((1, 8, 6, 6))
    read = net.batch_norm(net.conv(net.quant(net.x, "a", 2, 0.5), "c", 8), "bn", 4.0)
    positive = net.builder.emit(relax.op.nn.relu(read), "positive")
    both = net.builder.emit(relax.op.nn.max_pool2d(positive, [2, 2]), "both")
    weights = net.constant("w", net.rng.normal(size=(8, 8, 1, 1)))
    outputs = (
        net.conv(net.quant(both, "b", 2, 0.5), "d", 8),
        net.builder.emit(relax.op.nn.conv2d(both, weights), "floats"),
    )
    before = legalized(net.model(*outputs), floats="bfloat16")
    after = canonicalizing.run(model=before)
    assert ["from_bfloat16"] in composites(after).values()
    inputs = random_inputs(before)
    assert_same(interpret.run(before, inputs), interpret.run(after, inputs), "canonicalizing")
