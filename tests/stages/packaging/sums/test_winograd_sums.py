"""Convolutions by Winograd's transforms, from a model to the bits of its kernels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from hw.profile import Hardware
from stages import bitpacking, synthesizing
from stages.dialect.calls import attributes, is_op
from stages.errors import StageError
from stages.graph.bindings import bindings_of, calls_of
from stages.graph.composites import TILES
from stages.kernels import operator_names
from stages.kernels.geometry import tile_count
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.kernels.winograd_transforms import BY_ONE, WINOGRAD_TILES_A_RUN, calls_a_run
from stages.kinds import Model
from stages.numerics import onnx_elementwise
from stages.options import LegalizeOptions
from stages.packaging.emitting.composite import Composite
from stages.packaging.program.kernel_program import Program
from stages.packaging.sums.winograd_sums import WinogradTiles
from tests.kept import kept
from tests.stages.networks import SourceNet, residual_block
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact, compose, pack
from tests.stages.pipeline import algorithm, candidates_of, random_inputs, stages
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)

WANTED = algorithm("winograd", "w*")
"""For layers whose names begin so."""
TARGETS = pytest.mark.parametrize(
    "hardware",
    (SSE2, AVX2, VNNI_256, AVX512BW, AVX512VNNI, AARCH64, ARMV7),
    ids=lambda item: item.name,
)


def kernels(packed: Model) -> list[KernelSignature]:
    """The signatures of what is computed so, composite by composite."""
    return [
        parse_signature(attributes(binding.value)["signature"])
        for function in packed.module.functions.values()
        for binding in bindings_of(function)
        if is_op(binding.value, operator_names.QNN_PACKED_WINOGRAD)
    ]


def layers(program: Program) -> list[str]:
    return [call.layer for call in program.calls]


@TARGETS
@pytest.mark.parametrize("size", [(4, 4), (7, 9), (14, 6), (3, 21)])
@pytest.mark.parametrize(("channels", "outputs"), [(12, 8), (32, 33), (40, 64)])
@pytest.mark.parametrize("stride", (1, 2))
def test_images_of_any_size(
    hardware: Hardware, stride: int, size: tuple[int, int], channels: int, outputs: int
) -> None:
    skip_unless_runnable(hardware)
    net = Net((1, *size, channels))
    model = net.model(net.conv(net.x, "w", outputs, strides=[stride, stride]))
    packed, program = assert_exact(model, net.inputs(), hardware, WANTED)
    assert layers(program)[-2:] == ["w.tiles", "w"]
    assert [kernel.is_transformed for kernel in kernels(packed)] == [True]


@settings(max_examples=20)
@given(
    st.integers(1, 3),
    st.sampled_from((1, 2)),
    st.tuples(st.integers(3, 11), st.integers(3, 11)),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.integers(-128, 127),
    st.sampled_from([0, -5, 9]),
)
def test_any_padding_and_zero_point(
    images: int,
    stride: int,
    size: tuple[int, int],
    padding: tuple[int, ...],
    zero_point: int,
    value: int,
) -> None:
    """Batches too."""
    net = Net((images, *size, 8))
    attrs: dict[str, Any] = {
        "zero_point": zero_point,
        "padded_with": value,
        "strides": [stride, stride],
    }
    model = net.model(net.conv(net.x, "w", 40, padding=list(padding), **attrs))
    packed, _ = assert_exact(model, net.inputs(), AVX2, WANTED, tasks=(1, 3))
    assert kernels(packed)


@pytest.mark.parametrize("rows", range(1, 17))
@pytest.mark.parametrize("tiles", (1, 2, 9, 16, 17, 49, 196))
def test_tiles_of_the_kernel_in_a_run(rows: int, tiles: int) -> None:
    """As many as there are tiles for, and little more work than one by one."""
    rows = min(rows, tiles)
    calls = calls_a_run(tiles, rows)
    assert rows <= calls * rows <= min(tiles, WINOGRAD_TILES_A_RUN)
    assert tile_count(tiles, calls * rows) * calls <= 9 / 8 * tile_count(tiles, rows)
    if tiles % rows == 0 and tiles <= WINOGRAD_TILES_A_RUN:
        assert calls * rows == tiles


def test_all_weights_of_the_next_product_are_fetched() -> None:
    """By the calls for one product, if there are several and a block's weights are read once."""
    cases = (AVX2, 14, 64, True), (AVX2, 28, 64, False), (AVX512BW, 8, 32, False)
    for hardware, size, channels, is_fetched in cases:
        net = Net((1, size, size, channels))
        packed = pack(net.model(net.conv(net.x, "w", 64)), hardware, WANTED)
        bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
        (function,) = [f for _, f in calls_of(packed) if Composite(f).is_convolution]
        schedule = {"order": "rows_inner", "spread": 0.0, "interleaved": False}
        made = compose(function, schedule, hardware)
        made.sums.include(bodies)
        reads = made.reads
        assert isinstance(reads, WinogradTiles)
        (helper,) = made.helpers
        *_, share, _, _ = helper.problem["strides"]
        weights = reads.words * reads.signature.channels * WORD_BYTES
        assert share * reads.words * reads.calls_a_run == (weights if is_fetched else 0)


@TARGETS
def test_pixels_and_weights_at_their_extremes(hardware: Hardware) -> None:
    """As large as sums by one pixel may be; one more channel is refused."""
    skip_unless_runnable(hardware)
    for stride, channels, weight in ((1, 114, -128), (1, 115, 127), (2, 116, -128)):
        net = Net((1, 6, 6, channels), "uint8")
        model = net.model(net.conv(net.x, "w", 8, zero_point=0, strides=[stride, stride]))
        model.params["w.weight"][...] = weight
        for pixel in (0, 255):
            x = np.full(net.shape, pixel, np.uint8)
            assert_exact(model, {"x": x}, hardware, WANTED, tasks=(1,))


def test_sums_that_might_not_fit_are_left_to_others() -> None:
    net = Net((1, 16, 16, 128), "uint8")
    model = net.model(net.conv(net.x, "w", 32))
    model.params["w.weight"][...] = 127
    assert not BY_ONE.fits(model.params["w.weight"])
    assert not kernels(pack(model, AVX2))


@TARGETS
def test_a_image_is_added_and_others_read_the_same(hardware: Hardware) -> None:
    """Tiles are made once, of bytes that a window of 5x5 reads with a wider halo."""
    skip_unless_runnable(hardware)
    net = Net((1, 9, 9, 32), "uint8")
    x = net.conv(net.x, "point", 32, kernel=1, dtype="uint8")
    first, second = (net.conv(x, name, 32, dtype="uint8") for name in ("w1", "w2"))
    ratios = [net.builder.tensor(n, np.array(0.5, np.float32)) for n in ("a", "b", "c")]
    total = net.emit(onnx_elementwise.qlinear_add(first, x, *ratios, low=0, high=255), "sum")
    model = net.model(total, second, net.conv(x, "five", 8, kernel=5))
    packed, program = assert_exact(model, net.inputs(), hardware, WANTED)
    assert len(kernels(packed)) == 2
    assert sum(layer.endswith(".tiles") for layer in layers(program)) == 1


@TARGETS
def test_a_block_that_halves_its_image(hardware: Hardware) -> None:
    """What others read is transformed for windows that move by one pixel, and by two."""
    skip_unless_runnable(hardware)
    net = Net((1, 11, 8, 32), "uint8")
    x = net.conv(net.x, "point", 32, kernel=1, dtype="uint8")
    down = net.conv(x, "w2", 40, strides=[2, 2], dtype="uint8")
    short = net.conv(x, "short", 40, kernel=1, strides=[2, 2], dtype="uint8")
    ratios = [net.builder.tensor(n, np.array(0.5, np.float32)) for n in ("a", "b", "c")]
    total = net.emit(onnx_elementwise.qlinear_add(down, short, *ratios, low=0, high=255), "sum")
    model = net.model(total, net.conv(x, "w1", 32, dtype="uint8"))
    packed, program = assert_exact(model, net.inputs(), hardware, WANTED)
    assert len(kernels(packed)) == 2
    assert [layer for layer in layers(program) if layer.endswith(".tiles")] == [
        "w2.tiles",
        "w1.tiles",
    ]


def eight_bits(weight_bits: int = 8) -> Model:
    """A network with quantizers, whose layers are on bytes; others read what one of 3x3 does."""
    net = SourceNet((1, 24, 10, 6))
    x = net.quant(net.x, "x8", 8, 2.0**-5)
    y = net.op(relax.op.nn.relu(net.conv(x, "w1", 40, 3, 1, weight_bits, "signed")), "r")
    y = net.quant(y, "y8", 8, 2.0**-2)
    addends = [
        net.quant(net.conv(y, name, 40, kernel, 1, weight_bits, "signed"), f"{name}.8", 8, 0.5)
        for name, kernel in (("w2", 3), ("five", 5))
    ]
    return net.model(net.op(relax.op.add(*addends), "sum"))


@TARGETS
@pytest.mark.parametrize("weight_bits", (4, 8))
def test_networks_with_quantizers(hardware: Hardware, weight_bits: int) -> None:
    skip_unless_runnable(hardware)
    model = eight_bits(weight_bits)
    packed, program = assert_exact(model, random_inputs(model), hardware, WANTED)
    assert len(kernels(packed)) == 2
    assert [layer for layer in layers(program) if layer.endswith(".tiles")] == [
        "w1.tiles",
        "w2.tiles",
    ]


def test_layers_of_few_bits_may_want_it() -> None:
    model = residual_block(2, 2, channels=32, size=8, encoding="signed")
    packed, _ = assert_exact(model, random_inputs(model), AVX2, algorithm("winograd", "conv2"))
    assert len(kernels(packed)) == 1


# -- choice ----------------------------------------------------------------------------------------


def layer(channels: int = 64, size: int = 28, **more: Any) -> Model:
    net = Net((1, size, size, channels))
    return net.model(net.conv(net.x, "c", 64, **more))


@pytest.mark.parametrize("hardware", (AVX2, AVX512BW, AVX512VNNI, AARCH64), ids=lambda x: x.name)
def test_it_is_chosen_where_it_is_predicted_to_be_faster(hardware: Hardware) -> None:
    assert kernels(pack(layer(), hardware))
    assert bool(kernels(pack(layer(strides=[2, 2]), hardware))) == (hardware != AVX512VNNI)
    assert not kernels(pack(layer(strides=[2, 1]), hardware))
    assert not kernels(pack(layer(kernel=5), hardware))
    assert not kernels(pack(layer(channels=4), hardware))


def test_matrix_tiles_are_faster() -> None:
    assert not kernels(pack(layer(), AMX))


def test_a_recipe_may_say_otherwise() -> None:
    assert not kernels(pack(layer(), AVX2, algorithm("mac8")))
    assert not kernels(pack(eight_bits(), AVX2, algorithm("mac8")))
    assert kernels(pack(layer(), AMX, algorithm("winograd")))


@pytest.mark.parametrize(
    "model",
    (layer(strides=[1, 2]), layer(kernel=1), layer(channels=4)),
    ids=("strided", "1x1", "four channels"),
)
def test_what_it_cannot_do_is_an_error(model: Model) -> None:
    sentence = (
        "c: cannot choose winograd: it transforms windows of 3x3 pixels, of at least 8 channels, "
        "that move by two, or by one if their sums have 26 bits at most; leave algorithm out, or "
        "write mac8"
    )
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        pack(model, AVX2, algorithm("winograd"))


def test_a_measurement_counts_beside_what_is_predicted_best() -> None:
    """A kernel that was compared with one that is no longer the default is not taken."""
    models = stages(layer(), AVX2)
    candidates = candidates_of(models["quantizing"], AVX2)
    arguments: dict[str, Any] = {
        "model": models["canonicalizing"],
        "options": LegalizeOptions(),
        "candidates": candidates,
        "hardware": AVX2,
    }
    (layer_kernels,) = bitpacking.kernels_by_layer(
        model=models["canonicalizing"], options=LegalizeOptions(), candidates=candidates
    ).values()
    predicted, second, *_ = map(layer_kernels.kernel, layer_kernels.ranked())
    for against, expected in ((None, second), (predicted, second), (second, predicted)):
        choice = {"kernel": second, "order": None, "against": against}
        packed = bitpacking.run(choices={layer_kernels.workload.name: choice}, **arguments)
        assert [kernel.name for kernel in kernels(packed)] == [expected]


def test_tiles_are_a_composite_of_their_own() -> None:
    packed = pack(layer(), AVX2)
    kinds = [str(function.attrs["composite"]) for _, function in calls_of(packed)]
    assert kinds.count(TILES) == 1
