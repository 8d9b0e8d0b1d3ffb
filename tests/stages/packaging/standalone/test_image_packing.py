"""Images of few channels become words on their way in, whatever they come as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from hw.profile import Hardware
from stages.dialect import integer
from stages.kinds import Model
from stages.numerics import linear_quantizers
from tests.stages.networks import SourceNet
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.stages.pipeline import algorithm, random_inputs
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512BW,
    SSE2,
    obstacle,
    skip_unless_runnable,
)

op = relax.op
Array = np.ndarray[Any, Any]
TARGETS = pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
CASES = st.fixed_dictionaries(
    {
        "images": st.sampled_from([1, 3]),
        "channels": st.integers(1, 4),
        "size": st.tuples(st.integers(1, 5), st.integers(1, 37)),
        "padding": st.lists(st.integers(0, 2), min_size=4, max_size=4),
        "is_float": st.booleans(),
        "is_planar": st.booleans(),
    }
)


def network(case: dict[str, Any]) -> tuple[Any, dict[str, Array]]:
    """A convolution of what the user hands in: floats or bytes, in planes or pixels."""
    (height, width), channels = case["size"], case["channels"]
    shape = (case["images"], height, width, channels)
    shape = tuple(shape[axis] for axis in (0, 3, 1, 2)) if case["is_planar"] else shape
    net = Net(shape, "float32" if case["is_float"] else "uint8")
    x, inputs = net.x, {}
    if case["is_float"]:
        scale, zero_point = (net.builder.tensor(n, np.array(v)) for n, v in QUANTIZATION)
        x = net.emit(
            linear_quantizers.quantize_linear(x, scale, zero_point, low=0, high=255), "quantized"
        )
        inputs["x"] = net.rng.normal(size=shape).astype(np.float32) * 3
    if case["is_planar"]:
        x = net.emit(op.permute_dims(x, [0, 2, 3, 1]), "turned")
    y = net.conv(x, "stem", 5, window=(1, 1), padding=case["padding"], zero_point=77)
    return net.model(y), inputs or net.inputs()


QUANTIZATION = (("scale", np.float32(0.03)), ("point", np.uint8(77)))
CASE: dict[str, Any] = {
    "images": 1, "channels": 3, "size": (4, 21), "padding": [1, 2, 0, 1], "is_float": True,
    "is_planar": True,
}  # fmt: skip


@TARGETS
def test_quantizing_turning_and_padding_are_one_pass(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    packed, program = assert_exact(*network(CASE), hardware)
    assert [call.layer for call in program.calls] == ["stem.bytes", "stem"]
    assert str(packed.module).count('"composite": "pictures"') == 1


@TARGETS
def test_signed_bytes_are_made_unsigned_where_they_are_quantized(hardware: Hardware) -> None:
    """In the same pass, and so that a layer of another shape reads them as they are."""
    skip_unless_runnable(hardware)
    net = Net((1, 3, 9, 11), "float32")
    scale, zero_point = (
        net.builder.tensor(n, np.array(v)) for n, v in (*QUANTIZATION[:1], ("p", np.int8(-7)))
    )
    x = net.emit(
        linear_quantizers.quantize_linear(net.x, scale, zero_point, low=-128, high=127), "quantized"
    )
    x = net.conv(net.emit(op.permute_dims(x, [0, 2, 3, 1]), "turned"), "stem", 8, zero_point=-7)
    flat = net.emit(op.reshape(x, (1, 9 * 11 * 8)), "flat")
    weight = net.rng.integers(-128, 128, (5, 9 * 11 * 8)).astype("int8")
    zero_points = {"data_zero_point": 2, "weight_zero_point": 0}
    sums = net.emit(integer.dense(flat, net.builder.tensor("w", weight), **zero_points), "dense")
    inputs = {"x": net.rng.normal(size=(1, 3, 9, 11)).astype(np.float32) * 3}
    _, program = assert_exact(net.model(sums), inputs, hardware)
    assert [call.layer for call in program.calls] == ["stem.bytes", "stem", "dense"]


@pytest.mark.slow
@settings(max_examples=12)
@given(case=CASES)
def test_any_image(case: dict[str, Any]) -> None:
    hardware = next(h for h in (AVX512BW, AVX2, SSE2, AARCH64) if not obstacle(h))
    assert_exact(*network(case), hardware)


@pytest.mark.parametrize("hardware", (AMX, AVX512BW), ids=lambda item: item.name)
@pytest.mark.parametrize("kernel", (3, 6, 7))
@pytest.mark.parametrize("padding", ([3, 3, 3, 3], [0, 1, 1, 0], [1, 0, 2, 1]))
@pytest.mark.parametrize("images", (1, 2))
def test_rows_are_stacked_for_matrix_tiles(
    hardware: Hardware, kernel: int, padding: list[int], images: int
) -> None:
    """Of windows that move by two rows; some of both lie in the halo, and some below."""
    skip_unless_runnable(hardware)
    shape = (images, 3, 21, 33)
    net = Net(shape, "float32")
    scale, zero_point = (net.builder.tensor(n, np.array(v)) for n, v in QUANTIZATION)
    x = net.emit(
        linear_quantizers.quantize_linear(net.x, scale, zero_point, low=0, high=255), "quantized"
    )
    x = net.emit(op.permute_dims(x, [0, 2, 3, 1]), "turned")
    window = (kernel, kernel)
    y = net.conv(x, "stem", 40, window=window, strides=[2, 2], padding=padding, zero_point=77)
    inputs = {"x": net.rng.normal(size=shape).astype(np.float32) * 3}
    packed, _ = assert_exact(net.model(y), inputs, hardware)
    if kernel > 3:  # smaller ones may be as quick on vectors
        assert ("packed_rows=2" in str(packed.module)) == (hardware is AMX)


@pytest.mark.parametrize("strides", ([2, 1], [4, 2]))
def test_rows_are_stacked_by_two_whatever_else(strides: list[int]) -> None:
    skip_unless_runnable(AMX)
    net = Net((1, 25, 40, 3), "uint8")
    y = net.conv(net.x, "stem", 40, window=(5, 5), strides=strides, zero_point=5)
    packed, _ = assert_exact(net.model(y), net.inputs(), AMX)
    assert "packed_rows=2" in str(packed.module)


def stem_with_quantizers(size: tuple[int, int]) -> Model:
    """A 7x7 convolution of an image of three colours, in 8 bits."""
    source = SourceNet((1, 3, *size))
    data = source.quant(source.x, "data", 8, 0.5)
    weight = source.weights("w", (40, 3, 7, 7), 8, "signed")
    return source.model(source.op(op.nn.conv2d(data, weight, (2, 2), (3, 3, 3, 3)), "stem"))


@pytest.mark.parametrize("hardware", (AMX, AVX512BW), ids=lambda item: item.name)
def test_rows_of_a_network_with_quantizers_are_stacked(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    model = stem_with_quantizers((24, 26))
    packed, _ = assert_exact(model, random_inputs(model, 1), hardware)
    assert ("packed_rows=2" in str(packed.module)) == (hardware is AMX)


CLOSE = {  # channels and windows whose rows have fewer words without padding
    "rgb": (3, (7, 7), [2, 2]),
    "rgb odd": (3, (2, 5), [1, 1]),
    "grey": (1, (3, 3), [1, 1]),
    "two": (2, (1, 3), [1, 2]),
}
LYING = [("rgb", True), ("rgb", False), ("rgb odd", False), ("grey", False), ("two", True)]


@TARGETS
@pytest.mark.parametrize(("kind", "is_planar"), LYING)
@pytest.mark.parametrize("images", (1, 2))
def test_pixels_lie_close_together(
    kind: str, is_planar: bool, images: int, hardware: Hardware
) -> None:
    """The last words of a row of a window go on into the next pixel, or past the image."""
    skip_unless_runnable(hardware)
    channels, window, strides = CLOSE[kind]
    shape = (images, channels, 12, 19) if is_planar else (images, 12, 19, channels)
    net = Net(shape, "float32")
    scale, zero_point = (net.builder.tensor(n, np.array(v)) for n, v in QUANTIZATION)
    x = net.emit(
        linear_quantizers.quantize_linear(net.x, scale, zero_point, low=0, high=255), "quantized"
    )
    if is_planar:
        x = net.emit(op.permute_dims(x, [0, 2, 3, 1]), "turned")
    more: dict[str, Any] = {"strides": strides, "padding": [1, 0, 2, 1], "zero_point": 77}
    y = net.conv(x, "stem", 40, window=window, **more)
    inputs = {"x": net.rng.normal(size=shape).astype(np.float32) * 3}
    packed, program = assert_exact(net.model(y), inputs, hardware)
    assert f"channels={channels}, fill=77" in str(packed.module)
    assert [call.layer for call in program.calls] == ["stem.bytes", "stem"]


@TARGETS
def test_pixels_of_a_network_with_quantizers_lie_close_together(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    model = stem_with_quantizers((14, 16))
    packed, _ = assert_exact(model, random_inputs(model, 1), hardware, algorithm("mac8"))
    assert "channels=3, fill=" in str(packed.module)


@TARGETS
@pytest.mark.parametrize("reader", ("whole", "padded", "pool"))
def test_what_a_layer_gives_lies_close_together(reader: str, hardware: Hardware) -> None:
    """Three channels of another layer are read as they were written."""
    skip_unless_runnable(hardware)
    net = Net((1, 11, 13, 8), "uint8")
    x = net.conv(net.x, "first", 3, dtype="uint8")
    if reader == "pool":
        attrs = {"kernel": [2, 2], "strides": [1, 1], "padding": [0, 0, 0, 0]}
        x = net.emit(integer.max_pool2d(x, **attrs), "pool")
    padding = [0, 0, 0, 0] if reader == "whole" else [1, 2, 3, 0]
    y = net.conv(x, "second", 40, window=(5, 7), padding=padding, zero_point=9)
    assert_exact(net.model(y), net.inputs(), hardware)


def test_what_others_read_too_is_computed_once() -> None:
    skip_unless_runnable(SSE2)
    net = Net((1, 3, 5, 6), "float32")
    scale, zero_point = (net.builder.tensor(n, np.array(v)) for n, v in QUANTIZATION)
    x = net.emit(
        linear_quantizers.quantize_linear(net.x, scale, zero_point, low=0, high=255), "quantized"
    )
    y = net.conv(net.emit(op.permute_dims(x, [0, 2, 3, 1]), "turned"), "stem", 5, zero_point=77)
    inputs = {"x": net.rng.normal(size=(1, 3, 5, 6)).astype(np.float32)}
    _, program = assert_exact(net.model(y, x), inputs, SSE2)
    assert [call.layer for call in program.calls] == ["quantized", "stem.bytes", "stem"]


@TARGETS
@pytest.mark.parametrize("channels", [1, 3, 4, 7])
def test_images_of_models_with_quantizers(channels: int, hardware: Hardware) -> None:
    """More than four channels keep the kernel that they had."""
    skip_unless_runnable(hardware)
    net = SourceNet((1, channels, 9, 11))
    data = net.quant(net.x, "data", 8, 2.0**-5, signed=True)
    model = net.model(net.conv(data, "stem", 6, 3, 1, 4, "signed"))
    assert_exact(model, random_inputs(model), hardware, algorithm("mac8"))


@TARGETS
def test_a_image_that_is_computed_may_lie_as_it_is_read(hardware: Hardware) -> None:
    """One channel and no halo: what quantizes the image writes what the layer reads."""
    skip_unless_runnable(hardware)
    net = Net((1, 12, 19, 1), "float32")
    scale, zero_point = (net.builder.tensor(n, np.array(v)) for n, v in QUANTIZATION)
    x = net.emit(
        linear_quantizers.quantize_linear(net.x, scale, zero_point, low=0, high=255), "quantized"
    )
    y = net.conv(x, "stem", 16, padding=[0, 0, 0, 0], zero_point=77)
    inputs = {"x": net.rng.normal(size=(1, 12, 19, 1)).astype(np.float32) * 3}
    _, program = assert_exact(net.model(y), inputs, hardware)
    assert [call.layer for call in program.calls] == ["quantized", "stem"]
