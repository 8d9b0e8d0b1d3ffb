"""TE kernels: an integer model's kernels, compiled, give its very bits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.dialect import integer
from stages.dialect.calls import attributes, is_op
from stages.dialect.padding import Padding, Sides
from stages.dialect.zero_point import BIPOLAR
from stages.graph.bindings import bindings_of, calls_of
from stages.graph.composites import TE
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model
from stages.numerics import rescale
from tests.stages.packaging.integer_net import Array, Net, mobile, op
from tests.stages.packaging.programs import assert_exact, pack
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2, skip_unless_runnable


def batch() -> tuple[Model, dict[str, Array]]:
    """Three images at once: halos and border classes of each, operands of one or of all."""
    net = Net((3, 9, 8, 3), "uint8")
    x = net.conv(net.x, "stem", 12, strides=[2, 1], zero_point=128)
    y = net.conv(x, "again", 36, padded_with=2)
    y = net.conv(y, "dw", 36, groups=36)
    y = net.conv(y, "pw", 12, kernel=1)
    total = net.emit(
        op.add(
            net.emit(op.astype(x, "int32"), "wide_x"), net.emit(op.astype(y, "int32"), "wide_y")
        ),
        "total",
    )
    image = net.rng.integers(-99, 99, (1, 5, 8, 12)).astype("int32")
    total = net.emit(op.add(total, net.builder.tensor("image", image)), "moved")
    x = net.requantize(total, "sum")
    flat = net.emit(op.reshape(x, (3, 5 * 8 * 12)), "flat")
    weight = net.rng.integers(-128, 128, (40, 5 * 8 * 12)).astype("int8")
    sums = net.emit(
        integer.dense(
            flat, net.builder.tensor("w", weight), data_zero_point=1, weight_zero_point=0
        ),
        "dense",
    )
    each = net.rng.integers(-99, 99, (3, 1)).astype("int32")
    sums = net.emit(op.add(sums, net.builder.tensor("each", each)), "of_each")
    return net.model(net.requantize(sums, "scores")), net.inputs()


def channels_first() -> tuple[Model, dict[str, Array]]:
    """As an NCHW framework writes it: a transpose before and after every convolution."""
    net = Net((1, 3, 9, 10))
    x = net.x
    for number in range(3):
        x = net.emit(op.permute_dims(x, [0, 2, 3, 1]), f"to{number}")
        x = net.conv(x, f"c{number}", 8)
        x = net.emit(op.permute_dims(x, [0, 3, 1, 2]), f"back{number}")
        table = net.builder.tensor(f"t{number}", net.rng.integers(-128, 128, 256).astype("int8"))
        x = net.emit(rescale.table(x, table), f"act{number}")
        per_channel = net.rng.integers(-9, 9, (8, 1, 1)).astype("int8")
        x = net.emit(op.maximum(x, net.builder.tensor(f"m{number}", per_channel)), f"max{number}")
    twice = net.emit(op.concat([x, x], 1), "twice")
    x = net.emit(op.max(twice, [2, 3], keepdims=True), "largest")
    return net.model(net.emit(op.reshape(x, (1, 16)), "flat"), twice), net.inputs()


def moves() -> tuple[Model, dict[str, Array]]:
    """Values moved about: concatenation, splits, slices, padding, transposes, gathers."""
    net = Net((1, 6, 8, 12))
    parts = net.emit(op.split(net.x, [4, 7], 3), "parts")
    a, b, c = (net.emit(relax.TupleGetItem(parts, i), f"part{i}") for i in range(3))
    x = net.emit(op.concat([c, a, b], 3), "joined")
    x = net.emit(op.strided_slice(x, [1, 2], [1, 7], [6, -9], [2, -1]), "sliced")
    x = net.emit(op.nn.pad(x, [0, 0, 1, 0, 2, 1, 0, 0], pad_value=-7), "padded")
    index = net.builder.tensor("index", np.array([3, 0, -1, 2, 9], np.int32))
    x = net.emit(op.take(x, index, 1), "taken")
    x = net.emit(op.permute_dims(x, [0, 3, 1, 2]), "turned")
    best = net.emit(op.argmax(x, 1), "best")
    return net.model(x, best), net.inputs()


def floats() -> tuple[Model, dict[str, Array]]:
    """A float island: NCHW convolution, products before sums, pooling, softmax's parts.

    The convolution's sums need no rounding, as its kernel adds up in an order of its own.
    """
    net = Net((1, 4, 6, 6))
    scale = net.builder.tensor("s", np.array(2.0**-6, np.float32))
    x = net.emit(op.multiply(net.emit(op.astype(net.x, "float32"), "f"), scale), "real")
    w = net.rng.integers(-99, 100, (5, 4, 3, 3)).astype(np.float32)
    x = net.emit(op.nn.conv2d(x, net.builder.tensor("w", w), 1, 1), "conv")
    gain = net.rng.normal(size=(5, 1, 1)).astype(np.float32)
    x = net.emit(op.multiply(x, net.builder.tensor("g", gain)), "scaled")
    x = net.emit(op.add(x, net.builder.tensor("o", gain * 3)), "moved")
    x = net.emit(op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 0, 0)), "pooled")
    y = net.emit(op.mean(x, [2, 3]), "mean")
    z = net.emit(op.divide(y, net.emit(op.sum(y, [1], keepdims=True), "all")), "share")
    return net.model(z, x), net.inputs()


def binary() -> tuple[Model, dict[str, Array]]:
    """Bipolar layers as Larq's: bits of activations and weights, padded with 0, 1 and -1."""
    net = Net((1, 7, 8, 12))
    zero = net.builder.tensor("zero", np.array(0, np.int8))
    x = net.x
    for number, numerator in enumerate((0, 1, -1)):
        level = net.emit(op.greater_equal(x, zero), f"sign{number}")
        bits = net.emit(op.astype(level, "uint1"), f"bits{number}")
        weight = net.rng.integers(0, 2, (20, 3, 3, int(x.ty.shape[-1]))).astype("uint8")
        call = integer.conv2d(
            bits,
            net.builder.tensor(f"w{number}", weight, "uint1"),
            strides=[1, 1 + number % 2],
            padding=Padding(Sides(1, 1, 1, 1), numerator),
            groups=1,
            data_zero_point=BIPOLAR,
            weight_zero_point=BIPOLAR,
        )
        x = net.requantize(net.emit(call, f"c{number}"), f"c{number}", largest=1.0)
        low = net.builder.tensor(f"low{number}", np.array(-40, np.int8))
        x = net.emit(op.maximum(x, low), f"bounded{number}")
    return net.model(x), net.inputs()


def shared_sums() -> tuple[Model, dict[str, Array]]:
    """Sums of a grouped convolution that a bias and a concatenation read."""
    net = Net((1, 4, 5, 6))
    weight = net.rng.integers(-128, 128, (6, 3, 3, 1)).astype("int8")
    call = integer.conv2d(
        net.x,
        net.builder.tensor("w", weight),
        strides=[1, 1],
        padding=Padding(Sides(1, 1, 1, 1)),
        groups=6,
        data_zero_point=-7,
        weight_zero_point=0,
    )
    sums = net.emit(call, "sums")
    bias = net.builder.tensor("bias", net.rng.integers(-999, 999, 6).astype("int32"))
    moved = net.emit(op.add(sums, bias), "moved")
    return net.model(net.emit(op.concat([sums, moved], 3), "both")), net.inputs()


def scalars() -> tuple[Model, dict[str, Array]]:
    """Reductions to a single value, with and without axes left."""
    net = Net((1, 5, 6, 7))
    wide = net.emit(op.astype(net.x, "int32"), "wide")
    results = [
        net.emit(op.max(net.x), "largest"),
        net.emit(op.min(net.x, keepdims=True), "smallest"),
        net.emit(op.sum(wide), "sum"),
        net.emit(op.sum(wide, [1, 2, 3]), "sums"),
        net.emit(op.argmax(net.emit(op.reshape(net.x, (210,)), "flat"), 0), "best"),
    ]
    return net.model(*results), net.inputs()


NETS = {
    net.__name__: net
    for net in (mobile, batch, channels_first, moves, floats, binary, shared_sums, scalars)
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda profile: profile.name
)
def test_compiled_kernels_give_the_models_bits(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    model, inputs = NETS[name]()
    assert_exact(model, inputs, hardware)


def test_products_of_bytes_and_of_bits_are_by_micro_kernels() -> None:
    """Dilated convolutions are not."""
    for net, count in ((mobile, 4), (batch, 4), (binary, 3)):
        packed, _ = assert_exact(*net(), AARCH64, tasks=(1,))
        assert len(re.findall(r"R\.qnn\.packed_(conv2d|winograd)\(", str(packed.module))) == count


@pytest.mark.parametrize("hardware", (AVX2, AARCH64), ids=lambda profile: profile.name)
def test_bits_are_not_multiplied_as_bytes(hardware: Hardware) -> None:
    """Where counting bits or looking them up is cheaper; planes or tables are made of bytes."""
    packed = pack(binary()[0], hardware)
    calls = [
        binding.value
        for function in packed.module.functions.values()
        for binding in bindings_of(function)
        if is_op(binding.value, "relax.qnn.packed_conv2d")
    ]
    families = {parse_signature(attributes(call)["signature"]).family for call in calls}
    assert calls and families <= {"popcount", "lookup"}


def test_neighbouring_transposes_cancel() -> None:
    model, inputs = channels_first()
    packed, _ = assert_exact(model, inputs, AARCH64, tasks=(1,))
    assert str(packed.module).count("permute_dims") == 2


@pytest.mark.parametrize("groups", [1, 16], ids=["product", "depthwise"])
def test_a_bias_is_a_part_of_the_sums_correction(groups: int) -> None:
    """Of one constant a channel; it stays an addition of its own where it is any other."""
    skip_unless_runnable(AVX2)
    net = Net((1, 5, 6, 16))
    packed, _ = assert_exact(net.model(net.conv(net.x, "b", 16, groups=groups)), net.inputs(), AVX2)
    assert additions(packed) == 0

    net = Net((1, 5, 16, 16))
    sums = net.emit(integer.conv2d(net.x, *weights(net, groups), **ATTRS, groups=groups), "sums")
    rows = net.rng.integers(-999, 999, (1, 1, 16, 1)).astype("int32")
    total = net.emit(op.add(sums, net.builder.tensor("rows", rows)), "total")
    packed, _ = assert_exact(net.model(net.requantize(total, "y")), net.inputs(), AVX2)
    assert additions(packed) >= 1


ATTRS = {
    "strides": [1, 1],
    "padding": Padding(Sides(1, 1, 1, 1)),
    "data_zero_point": -5,
    "weight_zero_point": 0,
}


def weights(net: Net, groups: int) -> list[Any]:
    values = net.rng.integers(-128, 128, (16, 3, 3, 16 // groups)).astype("int8")
    return [net.builder.tensor("w", values)]


def additions(packed: Model) -> int:
    """Of composites around products, those that add something to the sums."""
    return sum(
        is_op(binding.value, "relax.add")
        for _, function in calls_of(packed)
        if str(function.attrs["composite"]) != TE
        for binding in bindings_of(function)
    )
