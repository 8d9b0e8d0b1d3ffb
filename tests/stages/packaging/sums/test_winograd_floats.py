"""Convolutions of floats by Winograd's transforms."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from hw.profile import Hardware
from stages.errors import StageError
from stages.graph import interpret
from stages.kernels.winograd_transforms import TRANSFORMS
from stages.kinds import Model
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import Executor, assert_exact, compile_program, pack
from tests.stages.packaging.sums.test_winograd_sums import kernels
from tests.stages.pipeline import algorithm
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    SSE2,
    obstacle,
    skip_unless_runnable,
)

Array = np.ndarray[Any, Any]
op = relax.op
WANTED, DIRECT = algorithm("winograd", "c*"), algorithm("mac8", "c*")
TARGETS = pytest.mark.parametrize(
    "hardware",
    (SSE2, AVX2, AVX512BW, AVX512VNNI, AMX, AARCH64, ARMV7),
    ids=lambda item: item.name,
)


def network(
    shape: tuple[int, ...], outputs: int, *, is_whole: bool = True, **attrs: Any
) -> tuple[Net, Model]:
    """A convolution of 3x3 of small integers, channels first, a bias and ReLU.

    Whole weights are multiples of 9: then whatever is computed of them is whole, and exact.
    """
    net = Net(shape)
    x = net.emit(op.astype(net.x, "float32"), "real")
    size = (outputs, shape[1], 3, 3)
    weight = 9 * net.rng.integers(-2, 3, size) if is_whole else net.rng.normal(size=size)
    attrs = {"padding": 1} | attrs
    x = net.emit(op.nn.conv2d(x, net.builder.tensor("w", weight.astype(np.float32)), **attrs), "c")
    bias = net.rng.integers(-9, 10, (1, outputs, 1, 1)).astype(np.float32)
    x = net.emit(op.add(x, net.builder.tensor("b", bias)), "moved")
    return net, net.model(net.emit(op.nn.relu(x), "relu"))


def pixels(net: Net) -> dict[str, Array]:
    return {"x": net.rng.integers(-3, 4, net.shape).astype(np.int8)}


@TARGETS
@pytest.mark.parametrize("size", [(4, 4), (7, 9), (14, 6), (3, 21)])
@pytest.mark.parametrize(("channels", "outputs"), [(8, 8), (13, 33), (40, 64)])
@pytest.mark.parametrize("stride", (1, 2))
def test_images_of_any_size(
    hardware: Hardware, stride: int, size: tuple[int, int], channels: int, outputs: int
) -> None:
    skip_unless_runnable(hardware)
    net, model = network((1, channels, *size), outputs, strides=stride)
    packed, _ = assert_exact(model, pixels(net), hardware, WANTED)
    assert [kernel.is_transformed for kernel in kernels(packed)] == [True]


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from((1, 2)),
    st.tuples(st.integers(3, 11), st.integers(3, 11)),
    st.tuples(*[st.integers(0, 3)] * 4),
)
def test_any_padding(
    images: int, stride: int, size: tuple[int, int], padding: tuple[int, ...]
) -> None:
    """Batches too."""
    if obstacle(AVX2):
        pytest.skip(str(obstacle(AVX2)))
    net, model = network((images, 8, *size), 40, strides=stride, padding=padding)
    packed, _ = assert_exact(model, pixels(net), AVX2, WANTED, tasks=(1, 3))
    assert kernels(packed)


@TARGETS
@pytest.mark.parametrize("stride", (1, 2))
def test_what_rounding_takes_is_little(hardware: Hardware, stride: int) -> None:
    """Of the largest sum, a few times what it takes from sums of as many products."""
    skip_unless_runnable(hardware)
    net, model = network((1, 64, 28, 28), 64, strides=stride, is_whole=False)
    inputs = net.inputs()
    (expected,) = interpret.run(model, inputs).values()
    for options, most in ((DIRECT, 2.0**-20), (WANTED, 2.0**-17)):
        packed = pack(model, hardware, options)
        assert bool(kernels(packed)) == (options is WANTED)
        (meant,) = interpret.run(packed, inputs).values()
        program = compile_program(packed, hardware)
        (found,) = Executor(program, hardware).run(inputs).values()
        for values in (meant, found):
            assert np.abs(values - expected).max() < most * np.abs(expected).max()


@pytest.mark.parametrize(
    ("size", "stride", "channels", "tile"),
    [
        (28, 1, 64, 4),
        (28, 2, 128, 2),
        (7, 1, 512, 2),
        (14, 2, 512, None),
    ],
)
def test_is_chosen_where_it_is_predicted_to_be_faster(
    size: int, stride: int, channels: int, tile: int | None
) -> None:
    """Of few tiles many weights would take longer to read than sums to compute: smaller tiles have
    fewer, or none are made."""
    _, model = network((1, channels, size, size), channels, strides=stride)
    found = set(re.findall(r"tile=(\d)", str(pack(model, AVX512VNNI).module)))
    assert found == (set() if tile is None else {str(tile)})
    assert bool(kernels(pack(model, AVX512VNNI, WANTED)))
    assert not kernels(pack(model, AVX512VNNI, DIRECT))


@pytest.mark.parametrize("shape", [(1, 4, 28, 28), (1, 8, 28, 28)], ids=("channels", "strides"))
def test_what_it_cannot_do_is_an_error(shape: tuple[int, ...]) -> None:
    _, model = network(shape, 8, strides=(1, 2) if shape[1] == 8 else 1)
    sentence = (
        "c: cannot choose winograd: it transforms windows of 3x3 pixels, of at least 8 channels, "
        "that move by one or two; leave algorithm out, or write mac8"
    )
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        pack(model, AVX512VNNI, WANTED)


@pytest.mark.parametrize("one", TRANSFORMS, ids=("by one", "small by one", "by two"))
def test_transforms_of_floats_are_those_of_integers(one: Any) -> None:
    """But for a factor that weights are divided by."""
    rng = np.random.default_rng(0)
    q = 9 * rng.integers(-2, 3, (5, 3, 3, 4)).astype(np.int8)
    found = one.of_weights(q.astype(np.float32))
    np.testing.assert_array_equal(found * one.odd, one.of_weights(q))
    shape = (2, one.reach(3 * one.outputs), one.reach(2 * one.outputs), 4)
    levels = rng.integers(0, 4, shape)
    tiles = one.tiles_of_images(levels.astype(np.uint8))
    np.testing.assert_array_equal(one.tiles_of_images(levels.astype(np.float32)), tiles)
    output = (3 * one.outputs, 2 * one.outputs)
    sums = one.sums_of(tiles.astype(np.float32), found, output)
    np.testing.assert_array_equal(sums, one.sums_of(tiles, one.of_weights(q), output))


def test_a_wish_for_a_layer_that_is_not_there_names_those_of_floats_too() -> None:
    _, model = network((1, 8, 16, 16), 8)
    with pytest.raises(StageError, match=r"the layers are c$"):
        pack(model, AVX2, algorithm("winograd", "d*"))
