"""Physical operators against logical ones: a packed convolution is the convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.bitpacking.folding import Window, border, fold_bias
from stages.qnn.algebra import factor
from stages.qnn.packed import border_classes, class_count, parse_signature, signature_text
from stages.qnn.packing import pack_planes, pack_weights, round_up, unpack_planes
from stages.qnn.registry import OPERATORS
from stages.qnn.signature import BLOCK, KernelSignature
from tests.stages.qnn.signatures import SIGNATURES, levels, mac8, popcount, stored

Array = np.ndarray[Any, Any]
SEEDS = st.integers(0, 2**32 - 1)


def run(name: str, *arguments: Array, **attrs: Any) -> Array:
    result: Array = OPERATORS[f"relax.qnn.{name}"].meaning(*arguments, **attrs)
    return result


@dataclass(frozen=True)
class Geometry:
    """A convolution and how much wider than its padding the edge's halo is."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    size: tuple[int, int]
    extra: tuple[int, int, int, int]
    channels: int
    outputs: int

    @property
    def window(self) -> Window:
        extents = []
        for axis in (0, 1):
            whole = self.size[axis] + self.padding[axis] + self.padding[axis + 2]
            extents.append((whole - self.kernel[axis]) // self.strides[axis] + 1)
        output = (extents[0], extents[1])
        return Window(self.kernel, self.strides, self.padding, self.size, output)


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
    smallest = [max(1, kernel[axis] - padding[axis] - padding[axis + 2]) for axis in (0, 1)]
    size = draw(st.tuples(*[st.integers(least, 7) for least in smallest]))
    return Geometry(
        kernel,
        draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding,
        size,
        draw(st.tuples(*[st.integers(0, 2)] * 4)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 40)),
    )


def halo(geometry: Geometry) -> list[int]:
    return [p + e for p, e in zip(geometry.padding, geometry.extra, strict=True)]


def edge(signature: KernelSignature, x: Array, geometry: Geometry, fill: int) -> Array:
    """Levels [1, H, W, C] as they are stored for a signature."""
    if signature.family == "popcount":
        return run("bitpack", x, halo=halo(geometry), planes=signature.activation_planes)
    channels = round_up(x.shape[3], 4)
    return run("to_bytes", x, halo=halo(geometry), channels=channels, fill=fill)


def packed_convolution(
    signature: KernelSignature,
    geometry: Geometry,
    x: Array,
    q: Array,
    points: tuple[int, int],
    pad_value: int,
    fill: int,
) -> Array:
    """int32 [1, OH, OW, OCp] as bit-packing would have it computed."""
    window = geometry.window
    data = edge(signature, x, geometry, fill)
    per_word = signature.channels_per_word
    widened = np.pad(q, [(0, 0)] * 3 + [(0, round_up(q.shape[3], per_word) - q.shape[3])])
    scale = signature.correction.scale * factor(points[0])
    bias, counts = fold_bias(signature, scale, q, *points, pad_value, fill, window)
    return run(
        "packed_conv2d",
        data,
        pack_weights(signature, widened),
        bias,
        signature=signature_text(signature),
        scale=scale,
        channels=[geometry.channels, geometry.outputs],
        window=list(geometry.kernel),
        strides=list(geometry.strides),
        origin=list(geometry.extra[:2]),
        output=list(window.output),
        border=counts,
    )


def logical_convolution(
    geometry: Geometry, x: Array, q: Array, points: tuple[int, int], pad_value: int
) -> Array:
    return run(
        "conv2d",
        x,
        q,
        strides=list(geometry.strides),
        padding=list(geometry.padding),
        groups=1,
        data_zero_point_x2=points[0],
        weight_zero_point_x2=points[1],
        pad_value=pad_value,
    )


def weight_point(signature: KernelSignature) -> int:
    bipolar = signature.family == "popcount" and signature.weights == "bipolar"
    return (1 << signature.weight_planes) - 1 if bipolar else 0


@settings(max_examples=150, deadline=None)
@given(SIGNATURES, geometries(), st.integers(-20, 520), st.integers(-3, 3), SEEDS)
def test_a_packed_convolution_is_the_convolution(
    signature: KernelSignature, geometry: Geometry, data_point: int, pad_value: int, seed: int
) -> None:
    """Whatever the encodings, the geometry, the halo and what padding means."""
    rng = np.random.default_rng(seed)
    x = levels(rng, signature, (1, *geometry.size, geometry.channels))
    q = stored(rng, signature, (geometry.outputs, *geometry.kernel, geometry.channels))
    points = data_point, weight_point(signature)
    fill = 0 if signature.family == "popcount" else min(max(0, data_point // 2), 255)
    found = packed_convolution(signature, geometry, x, q, points, pad_value, fill)
    expected = logical_convolution(geometry, x, q, points, pad_value)
    assert found.shape[3] == round_up(geometry.outputs, BLOCK)
    assert np.array_equal(found[..., : geometry.outputs], expected)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_bipolar_activations_with_zero_padding(bits: int) -> None:
    """No bit means 0, so padded taps hold the lowest level and the border's bias undoes that."""
    geometry = Geometry((3, 3), (1, 1), (1, 1, 1, 1), (5, 6), (0, 1, 2, 0), 20, 7)
    signature = popcount(bits, 1, "bipolar")
    rng = np.random.default_rng(bits)
    x = levels(rng, signature, (1, 5, 6, 20))
    q = stored(rng, signature, (7, 3, 3, 20))
    points = (1 << bits) - 1, 1
    bias, counts = fold_bias(signature, -2, q, *points, 0, 0, geometry.window)
    assert counts == [1, 1, 1, 1]
    assert bias.shape == (9, 32)
    assert len(np.unique(bias[:, :7], axis=0)) == 9
    found = packed_convolution(signature, geometry, x, q, points, 0, 0)
    expected = logical_convolution(geometry, x, q, points, 0)
    assert np.array_equal(found[..., :7], expected)


def test_an_integer_zero_point_needs_no_border_classes() -> None:
    """The halo's bytes hold the zero point, which is what padding means."""
    window = Geometry((3, 3), (2, 2), (1, 1, 1, 1), (8, 8), (0, 0, 0, 0), 4, 4).window
    q = stored(np.random.default_rng(0), mac8(4), (4, 3, 3, 4))
    bias, counts = fold_bias(mac8(4), 1, q, 2 * 128, 0, 0, 128, window)
    assert counts == [0, 0, 0, 0]
    assert bias.shape == (1, 32)


@given(geometries())
def test_positions_of_a_class_see_the_same_padding(geometry: Geometry) -> None:
    window = geometry.window
    counts = border(window)
    for axis in (0, 1):
        before, after, size = counts[axis], counts[axis + 2], window.output[axis]
        classes = border_classes(size, before, after)
        assert set(classes) == set(range(class_count(size, before, after)))
        seen: dict[int, tuple[bool, ...]] = {}
        for position, found in enumerate(classes):
            first = position * window.strides[axis] - window.padding[axis]
            taps = range(first, first + window.kernel[axis])
            outside = tuple(not 0 <= tap < window.size[axis] for tap in taps)
            assert seen.setdefault(int(found), outside) == outside


@given(geometries(), st.integers(0, 255), SEEDS)
def test_bytes_come_back(geometry: Geometry, fill: int, seed: int) -> None:
    shape = (1, *geometry.size, geometry.channels)
    x = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    channels, around = round_up(geometry.channels, 32), halo(geometry)
    stored_bytes = run("to_bytes", x, halo=around, channels=channels, fill=fill)
    size = list(geometry.size)
    back = run("from_bytes", stored_bytes, origin=around[:2], size=size, dtype="uint8")
    assert np.array_equal(back[..., : geometry.channels], x)
    assert not back[..., geometry.channels :].any()
    inside = np.zeros(stored_bytes.shape[:2], bool)
    inside[around[0] : around[0] + size[0], around[1] : around[1] + size[1]] = True
    assert np.all(stored_bytes[~inside] == fill)


@given(geometries(), st.integers(1, 3), SEEDS)
def test_a_halo_of_planes_is_zero(geometry: Geometry, planes: int, seed: int) -> None:
    shape = (1, *geometry.size, geometry.channels)
    x = np.random.default_rng(seed).integers(0, 1 << planes, shape).astype(np.uint8)
    top, left, bottom, right = halo(geometry)
    found = unpack_planes(
        run("bitpack", x, halo=[top, left, bottom, right], planes=planes), geometry.channels
    )
    wide = np.pad(x[0], [(top, bottom), (left, right), (0, 0)])
    assert np.array_equal(found, wide)


def test_bytes_may_be_narrower_than_their_levels() -> None:
    """A producer works on blocks of channels; an edge may keep words of them only."""
    x = np.arange(32, dtype=np.uint8).reshape(1, 1, 1, 32)
    assert run("to_bytes", x, halo=[0] * 4, channels=4, fill=0).tolist() == [[[0, 1, 2, 3]]]


def test_kept_channels() -> None:
    x = np.full((1, 1, 1, 4), 3, np.uint8)
    kept = run("keep_channels", x, np.array([1, 1, 0, 0], np.uint8))
    assert kept.ravel().tolist() == [3, 3, 0, 0]
    assert np.array_equal(unpack_planes(pack_planes(kept, 2), 4), kept)


@given(SIGNATURES)
def test_signatures_are_text(signature: KernelSignature) -> None:
    text = signature_text(signature)
    assert parse_signature(text) == signature
    assert signature_text(parse_signature(text)) == text
