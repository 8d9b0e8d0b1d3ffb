"""How edges between composites lie: layouts, halos and what fills them up."""

from __future__ import annotations

import pytest
from tvm import relax

from stages import bitpacking
from stages.kernels.operand_storage import WORD_BYTES
from stages.layer_options import Algorithm
from stages.options import LegalizeOptions
from tests.stages.networks import SourceNet
from tests.stages.pipeline import (
    algorithm,
    assert_stages_agree,
    board,
    candidates_of,
    stages,
)
from tests.stages.test_bitpacking import ALGORITHMS, activation, calls, layouts, signatures


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
    assert found.halo.sides == (1, 1, 2, 2)
    assert found.shape == (2, 12, 12, 1)
    packed = assert_stages_agree(source_model, options=algorithm("bitserial"))["bitpacking"]
    assert [attrs["origin"] for attrs in calls(packed, "packed_conv2d")] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(("bits", "signed", "level"), [(8, True, 128), (8, False, 0), (3, True, 4)])
def test_a_halo_of_bytes_holds_the_zero_point(bits: int, signed: bool, level: int) -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", bits, 0.5, signed=signed)
    model = net.model(net.conv(data, "conv", 3, bits=8, encoding="signed"))
    assert layouts(model)["x.nhwc.bytes"].halo.level == level
    packed = assert_stages_agree(model)["bitpacking"]
    assert [attrs["border"] for attrs in calls(packed, "packed_conv2d")] == [[0, 0, 0, 0]]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_half_integer_zero_point_needs_border_classes(name: Algorithm) -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, zero_point=1.5)
    packed = assert_stages_agree(net.model(net.conv(data, "conv", 3)), options=algorithm(name))
    (attrs,) = calls(packed["bitpacking"], "packed_conv2d")
    assert attrs["border"] == [1, 1, 1, 1]
    assert packed["bitpacking"].params["conv.bias"].shape == (9, 32)


def test_unpadded_layers_need_no_border_classes() -> None:
    net = SourceNet((1, 5, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5, zero_point=1.5)
    packed = assert_stages_agree(net.model(net.conv(data, "conv", 3, padding=0)))["bitpacking"]
    assert packed.params["conv.bias"].shape == (1, 32)


@pytest.mark.parametrize(("channels", "padded"), [(3, 4), (30, 32), (33, 64)])
def test_bytes_of_an_image_are_padded_to_words(channels: int, padded: int) -> None:
    """Unless there is more than a block of them: kernels write whole blocks."""
    net = SourceNet((1, channels, 6, 6))
    data = net.quant(net.x, "data", 8, 0.5)
    found = layouts(net.model(net.conv(data, "conv", 3, bits=8, encoding="signed")))
    assert found["x.nhwc.bytes"].padded_channels == padded


def test_cycles_are_predicted_for_images_as_they_lie() -> None:
    """What there is to choose for a layer among bits is what its kernel was picked from."""
    net = SourceNet((1, 3, 16, 16))
    data = net.quant(net.x, "data", 8, 0.5)
    first = net.conv(data, "conv", 64, bits=8, encoding="signed", stride=2)
    last = net.conv(activation(net, first, "a", 2, "unipolar"), "next", 64)
    made = stages(net.model(last), "x86_64")
    found = bitpacking.kernels_by_layer(
        model=made["canonicalizing"],
        options=LegalizeOptions(),
        candidates=candidates_of(made["quantizing"], board("x86_64")),
    )
    layer_kernels = found["conv"]
    assert layer_kernels.workload.geometry.channel_unit == WORD_BYTES
    packed, *_ = signatures(made["bitpacking"])
    assert packed.alone.name == layer_kernels.kernel(layer_kernels.ranked()[0])
