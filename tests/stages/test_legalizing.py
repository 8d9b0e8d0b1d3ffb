"""Legalizing: which algorithm a layer gets on which chip, and operands in the form it takes."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages import legalizing, quantizing
from stages.dialect import integer
from stages.dialect.calls import attributes, dtype_of, shape_of
from stages.dialect.padding import Padding, Sides
from stages.dialect.zero_point import AT_ZERO
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.graph.builder import ModelBuilder
from stages.kinds import Model
from stages.layer_options import Algorithm, LayerAlgorithm
from stages.options import LegalizeOptions
from tests.stages.networks import SourceNet, residual_block
from tests.stages.pipeline import algorithm, assert_same, board, candidates_of, random_inputs

BOARDS = ("rpi3", "rpi3_armv7", "rpi4", "x86_64")
WINDOW: dict[str, Any] = {
    "strides": [1, 1],
    "padding": Padding(Sides(1, 1, 1, 1)),
    "groups": 1,
    "data_zero_point": 0,
    "weight_zero_point": 0,
}
AVX512 = ("+avx2", "+avx512bw", "+avx512f", "+fma")


def server(core: str, *features: str) -> Hardware:
    """An AVX-512 machine, with or without the dot product and the population count."""
    isa = "avx512vpopcntdq" if "+avx512vpopcntdq" in features else "avx512bw"
    facts = board("x86_64").model_dump(mode="json")
    facts |= {"name": core, "core": core, "isa": isa, "features": [*AVX512, *features]}
    return Hardware.model_validate_json(json.dumps(facts))


def legalize(
    source: Model, hardware: Hardware | None = None, options: LegalizeOptions | None = None
) -> Model:
    quantized = quantizing.run(model=source)
    profile = hardware or board("rpi3")
    return legalizing.run(
        model=quantized,
        options=options or LegalizeOptions(),
        candidates=candidates_of(quantized, profile),
        choices={},
        hardware=profile,
    )


def products(model: Model) -> dict[str, str]:
    """Layer name → operator, for convolutions and matrix products."""
    names = ("conv2d", "dense")
    found = {}
    for binding in bindings_of(model.module["main"]):
        if hasattr(binding.value, "op"):
            op = str(binding.value.op.name).removeprefix("relax.qnn.")
            if op.endswith(names):
                found[str(binding.var.name)] = op
    return found


# -- overrides -----------------------------------------------------------------------------------


def options(*wanted: tuple[str, Algorithm]) -> LegalizeOptions:
    return LegalizeOptions(
        layers=tuple(LayerAlgorithm(match=match, algorithm=name) for match, name in wanted)
    )


def test_overrides_by_layer() -> None:
    source = residual_block(2, 1, channels=8, size=6)
    wanted = options(("*", "bitserial"), ("conv2", "mac8"))
    assert products(legalize(source, options=wanted)) == {
        "conv1": "bitserial_conv2d",
        "conv2": "conv2d",
        "down": "bitserial_conv2d",
        "conv3": "bitserial_conv2d",
    }


def test_later_overrides_win() -> None:
    source = residual_block(2, 1, channels=8, size=6)
    found = products(legalize(source, options=options(("*", "mac8"), ("conv?", "bitserial"))))
    assert found["down"] == "conv2d"
    assert {found[f"conv{n}"] for n in (1, 2, 3)} == {"bitserial_conv2d"}


def test_a_pattern_must_match_a_layer() -> None:
    source = residual_block(2, 1, channels=8, size=6)
    sentence = "the pattern 'layer9.*' matches no layer; the layers are conv1, conv2, down, conv3"
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        legalize(source, options=options(("conv1", "mac8"), ("layer9.*", "mac8")))


def integers(dtype: str, **changes: Any) -> Model:
    """A convolution that comes with integers: 2 bits by 2, but for what is changed."""
    builder, attrs = ModelBuilder(), {**WINDOW, **changes}
    data = builder.input("x", (2 if attrs.pop("is_batched", False) else 1, 6, 6, 8), dtype)
    depth, kind = 8 // attrs["groups"], attrs.pop("weights", "uint2")
    weight = builder.tensor("w", np.ones((8, 3, 3, depth), "int8"), kind)
    sums = builder.emit(integer.conv2d(data, weight, **attrs), "conv")
    return builder.model([sums], ["y"], attrs={"numerics": "tflite"})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dtype": "uint8", "weights": "int8"}, "cannot be bit-serial: it has more than 3 bits"),
        ({"dtype": "int2"}, "cannot be bit-serial: its activations are signed"),
        ({"groups": 2}, "cannot be bit-serial: it is a grouped convolution"),
        ({"groups": 8}, "cannot choose bitserial: it is a depthwise convolution"),
        ({"dilation": [2, 2]}, "cannot be bit-serial: its windows have gaps, or its sums 64 bits"),
        ({"is_batched": True}, "cannot be bit-serial: it computes several images at once"),
    ],
)
def test_layers_that_come_with_integers_say_why_they_cannot_be_bit_serial(
    changes: dict[str, Any], why: str
) -> None:
    model = integers(**{"dtype": "uint2", **changes})
    with pytest.raises(StageError, match=f"^{re.escape(f'conv: {why}; use algorithm: mac8')}$"):
        legalizing.run(
            model=model,
            options=algorithm("bitserial"),
            candidates={},
            choices={},
            hardware=board("rpi3"),
        )


# -- operands ------------------------------------------------------------------------------------


def grouped(groups: int, channels: int, outputs: int, encoding: str = "bipolar") -> Model:
    net = SourceNet((1, channels, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, signed=True)
    weight = net.weights("conv", (outputs, channels // groups, 3, 3), 2, encoding)
    return net.model(net.op(relax.op.nn.conv2d(data, weight, 1, 1, groups=groups), "conv"))


@pytest.mark.parametrize("encoding", ["unipolar", "bipolar", "signed"])
@pytest.mark.parametrize(("groups", "channels", "outputs"), [(2, 6, 4), (3, 6, 9)])
def test_a_grouped_convolution_stays_one(
    groups: int, channels: int, outputs: int, encoding: str
) -> None:
    source = grouped(groups, channels, outputs, encoding)
    model = legalize(source)
    weight = next(v for v in model.params.values() if v.ndim == 4)
    assert weight.shape == (outputs, 3, 3, channels // groups) and weight.dtype == np.int8
    inputs = random_inputs(source)
    assert_same(interpret.run(source, inputs), interpret.run(model, inputs), "legalizing")


@pytest.mark.parametrize("encoding", ["unipolar", "bipolar", "signed"])
def test_several_outputs_of_single_channels_become_a_dense_convolution(encoding: str) -> None:
    source = grouped(6, 6, 12, encoding)
    model = legalize(source)
    weight = next(v for v in model.params.values() if v.ndim == 4)
    assert weight.shape == (12, 3, 3, 6) and weight.dtype == np.int8
    for output in range(12):
        assert not np.delete(weight[output], output // 2, axis=2).any()
    inputs = random_inputs(source)
    assert_same(interpret.run(source, inputs), interpret.run(model, inputs), "legalizing")


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("encoding", ["unipolar", "bipolar", "signed"])
@pytest.mark.parametrize("name", ["bitserial", "mac8"])
def test_either_algorithm_computes_the_same(bits: int, encoding: str, name: Algorithm) -> None:
    source = residual_block(2, bits, channels=6, size=6, encoding=encoding)
    model = legalize(source, options=algorithm(name))
    assert all(
        op.startswith("bitserial") == (name == "bitserial") for op in products(model).values()
    )
    inputs = random_inputs(source)
    assert_same(interpret.run(source, inputs), interpret.run(model, inputs), "legalizing")


def test_eight_bit_products_have_signed_weights_without_zero_point() -> None:
    model = legalize(residual_block(2, 2, channels=6, size=6), options=algorithm("mac8"))
    for binding in bindings_of(model.module["main"]):
        if str(binding.var.name) in products(model):
            data, weight = binding.value.args
            assert dtype_of(data.ty) == "uint2"
            assert dtype_of(weight.ty) == "int8"
            assert attributes(binding.value)["weight_zero_point"] == AT_ZERO
            assert np.all(model.params[weight.name] % 2)  # bipolar numerators are odd


def test_bit_serial_weights_stay_as_they_are() -> None:
    source = residual_block(2, 1, channels=6, size=6)
    before = quantizing.run(model=source)
    after = legalize(source, options=algorithm("bitserial"))
    for name, value in before.params.items():
        assert np.array_equal(after.params[name], value)
        assert after.params[name].dtype == value.dtype


def test_a_shared_weight_may_serve_two_algorithms() -> None:
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.weights("shared", (4, 4, 3, 3), 2, "bipolar")
    first = net.quant(net.op(relax.op.nn.conv2d(data, weight), "first"), "act", 2, 0.5)
    source = net.model(net.op(relax.op.nn.conv2d(first, weight), "second"))
    model = legalize(source, options=options(("first", "bitserial"), ("second", "mac8")))
    assert products(model) == {"first": "bitserial_conv2d", "second": "conv2d"}
    inputs = random_inputs(source)
    assert_same(interpret.run(source, inputs), interpret.run(model, inputs), "legalizing")


def test_weights_that_do_not_fit() -> None:
    """256 levels around a half-integer have the numerators -255 to 255."""
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.constant("w", np.array([-100.0, 100.0] * 6).reshape(3, 4, 1, 1))
    quantized = net.quant(weight, "wq", 8, 1.0, zero_point=127.5)
    source = net.model(net.op(relax.op.nn.conv2d(data, quantized), "conv"))
    sentence = "conv: the weights do not fit 8 bits with their zero point"
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        legalize(source)


def test_inputs_and_outputs_stay() -> None:
    source = residual_block(2, 1, channels=8, size=6)
    before, after = quantizing.run(model=source).module["main"], legalize(source).module["main"]
    assert [str(p.name) for p in after.params[:1]] == ["x"]
    assert after.attrs["num_input"] == before.attrs["num_input"]
    assert list(after.attrs["output_names"]) == ["y0"]
    assert shape_of(after.ret_ty) == shape_of(before.ret_ty)


def test_check_finds_weights_that_are_not_signed_bytes() -> None:
    quantized = quantizing.run(model=residual_block(2, 1, channels=8, size=6))
    with pytest.raises(AssertionError, match="conv1"):
        legalizing.check(quantized)
