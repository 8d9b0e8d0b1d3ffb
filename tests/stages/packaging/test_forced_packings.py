"""Bit-packing axes that a recipe forces, from a source model to compiled kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hw.profile import Hardware
from stages import importing
from stages.errors import StageError
from stages.graph.bindings import bindings_of
from stages.graph.composites import is_linear
from stages.importing.twins.tflite_writer import flexible
from stages.kernels.packing_choices import bit_axis, reduction_axis
from stages.kernels.signature import KernelSignature
from stages.kinds import Model
from stages.layer_options import Encoding, LayerAlgorithm, Packing
from stages.options import ImportOptions, LegalizeOptions
from tests.stages.importing.tflite.larq_program import packed
from tests.stages.importing.tflite_models import Operation, Tensor, build, constant
from tests.stages.networks import SourceNet
from tests.stages.packaging.programs import assert_exact
from tests.stages.pipeline import random_inputs, stages
from tests.stages.test_bitpacking import activation, signatures
from tests.targets import AARCH64, ARMV7, AVX2, skip_unless_runnable

ALL = [
    *(Packing(word=bits, bit_axis="outermost") for bits in (8, 16, 32, 64, 128)),
    *(Packing(word=bits, bit_axis="inner") for bits in (32, 64, 128)),
    Packing(reduction_axis="lanes"),
]
PROBLEMS: list[tuple[int, int, Encoding]] = [(2, 1, "bipolar"), (3, 3, "signed")]


def forced(*packings: tuple[str, Packing]) -> LegalizeOptions:
    """Bits packed so, by patterns of layers."""
    return LegalizeOptions(
        layers=tuple(
            LayerAlgorithm(match=match, algorithm="bitserial", packing=packing)
            for match, packing in packings
        )
    )


def chain(activation_bits: int, weight_bits: int, encoding: Encoding, channels: int = 256) -> Model:
    """Windows with and without padding, one that moves by two, and two readers of one tensor."""
    net = SourceNet((1, channels, 7, 6))
    data = net.quant(net.x, "data", activation_bits, 0.5)
    first = net.conv(data, "one", 256, 3, 1, weight_bits, encoding)
    one = activation(net, first, "a", activation_bits, "unipolar")
    two = net.conv(one, "two", 32, 3, 2, weight_bits, encoding)
    three = net.conv(one, "three", 65, 1, 1, weight_bits, encoding, padding=0)
    return net.model(two, three)


def found(model: Model, hardware: Hardware, options: LegalizeOptions) -> list[KernelSignature]:
    return list(signatures(stages(model, hardware, options)["bitpacking"]))


@pytest.mark.parametrize("hardware", [AARCH64, pytest.param(ARMV7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_forced_packings(problem: tuple[int, int, Encoding], hardware: Hardware) -> None:
    """Of level 0, in the halo, planes are ones and zeros where activations have three bits."""
    skip_unless_runnable(hardware)
    model = chain(*problem)
    for packing in ALL if problem == PROBLEMS[0] else ALL[4:]:
        options = forced(("*", packing))
        for signature in found(model, hardware, options):
            assert packing.word in (None, signature.word_bits)
            assert packing.bit_axis in (None, bit_axis(signature))
            assert packing.reduction_axis in (None, reduction_axis(signature))
        assert_exact(model, random_inputs(model), hardware, options)


def test_layers_may_differ() -> None:
    """One reader's planes inside its pixels, and the other's words of another width."""
    model = chain(2, 1, "bipolar")
    options = forced(
        ("one", Packing(word=64, bit_axis="inner")),
        ("two", Packing(word=8)),
        ("three", Packing(reduction_axis="lanes")),
    )
    one, two, three = found(model, AARCH64, options)
    assert (one.word_bits, one.inner) == (64, 2)
    assert (two.word_bits, three.word_bits) == (8, 128)
    assert two.inner == three.inner == 0


@pytest.mark.parametrize(
    ("hardware", "packings", "sentence"),
    [
        (
            AVX2,
            [("*", Packing(word=64))],
            r"cannot pack bits so: there are kernels for word 32, bit_axis outermost, "
            r"reduction_axis words",
        ),
        (
            AARCH64,
            [("*", Packing(word=8, reduction_axis="lanes"))],
            r"cannot pack bits so: there are kernels for word 128, bit_axis inner, "
            r"reduction_axis lanes; word 128, .*; word 8, bit_axis outermost, reduction_axis words",
        ),
        (
            AARCH64,
            [("*", Packing(word=32)), ("two", Packing(word=32, bit_axis="inner"))],
            "planes cannot lie inside pixels: another layer that reads the same activations has "
            "them elsewhere",
        ),
    ],
)
def test_packings_that_there_are_not(
    hardware: Hardware, packings: list[tuple[str, Packing]], sentence: str
) -> None:
    with pytest.raises(StageError, match=sentence) as error:
        found(chain(2, 1, "bipolar"), hardware, forced(*packings))
    assert re.search("packing", str(error.value.hint))


def test_wide_words_need_channels() -> None:
    """Of 64 channels a row of a window of one pixel is half a word of 128 bits."""
    net = SourceNet((1, 64, 4, 4))
    data = net.quant(net.x, "data", 1, 0.5)
    model = net.model(net.conv(data, "conv", 8, 1, padding=0))
    with pytest.raises(StageError, match="conv: cannot pack bits so"):
        found(model, AARCH64, forced(("*", Packing(word=128))))


def signs() -> Model:
    """Larq's file of two binary convolutions, each with a packed result."""
    rng, words = np.random.default_rng(0), Tensor((1, 6, 6, 2), "int32")
    data, result = Tensor((1, 6, 6, 64), "float32"), Tensor((1, 6, 6, 64), "float32")
    attrs = dict.fromkeys(("stride_height", "stride_width"), 1)
    attrs |= dict.fromkeys(("dilation_height_factor", "dilation_width_factor", "pad_values"), 1)
    options = flexible(channels_in=64, padding=0, fused_activation_function=0, **attrs)
    operations = [Operation("LceQuantize", [data], [words])]
    for _ in range(2):
        weight = constant(packed(rng.integers(0, 2, (64, 3, 3, 64))))
        limits = constant(rng.integers(270, 306, 64).astype(np.int32))
        before, words = words, Tensor((1, 6, 6, 2), "int32")
        operands = [before, weight, None, None, limits]
        operations.append(Operation("LceBconv2d", operands, [words], custom_options=options))
    operations.append(Operation("LceDequantize", [words], [result]))
    return importing.run(source=build(operations, [data], [result]), options=ImportOptions())


def test_a_model_that_comes_with_integers_has_the_same_overrides() -> None:
    model = signs()
    names = [str(b.var.name) for b in bindings_of(model.module["main"]) if is_linear(b.value)]
    wanted = forced((names[0], Packing(word=32))).layers
    wanted += (LayerAlgorithm(match=names[1], algorithm="mac8"),)
    packed_model, _ = assert_exact(
        model, random_inputs(model), AVX2, LegalizeOptions(layers=wanted)
    )
    first, second = signatures(packed_model)
    assert first.plan is not None and first.word_bits == 32
    assert second.products is not None
    assert all(one.lut is not None for one in found(model, AVX2, LegalizeOptions()))
