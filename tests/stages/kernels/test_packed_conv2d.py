"""Physical operators against logical ones: a packed convolution is the convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.bitpacking.bias_folding import border, fold_bias, padded_to
from stages.bitpacking.edge_layouts import Layout
from stages.dialect.padding import NO_HALO, NO_SIDES, Halo, Sides
from stages.dialect.zero_point import ZeroPoint
from stages.kernels.packed_conv2d import border_classes, class_count, stored_row
from stages.kernels.packing import pack_weights, round_up, unpack_planes
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.signature_text import parse_signature, signature_text
from stages.kernels.terms import TermPlan
from stages.packaging.emitting.halo import StoredHalo
from tests.stages.kernels.convolutions import (
    SEEDS,
    Geometry,
    around,
    bitpacked,
    geometries,
    in_bytes,
    logical_convolution,
    packed_convolution,
    run,
    weight_zero_point,
    zero_points,
)
from tests.stages.kernels.signatures import SIGNATURES, joined, levels, mac8, popcount, stored
from tests.stages.synthesizing.plans import PLANS, plan_named


@settings(max_examples=120)
@given(
    geometries(),
    st.integers(1, 4),
    st.sampled_from([2, 4]),
    st.sampled_from([{"packed_rows": 2}, {"phases": 2}, {"channel_unit": 1}]),
    st.integers(0, 255),
    SEEDS,
)
def test_a_convolution_over_rows_that_lie_otherwise_is_the_convolution(
    geometry: Geometry, channels: int, down: int, rows: dict[str, Any], point: int, seed: int
) -> None:
    """Whatever of a stack, or of a phase, is in the halo or behind the window; and where pixels lie
    close together."""
    geometry = replace(geometry, channels=channels, strides=(down, geometry.strides[1]))
    rng, window, signature = np.random.default_rng(seed), geometry.window, mac8(4)
    x = rng.integers(0, 256, (1, *geometry.size, channels)).astype(np.uint8)
    q = rng.integers(-128, 128, (geometry.outputs, *geometry.kernel, channels)).astype(np.int8)
    packed_rows, phases = rows.get("packed_rows", 1), rows.get("phases", 1)
    halo = window.halo(packed_rows, phases, ZeroPoint(2 * point))
    lying: dict[str, Any] = {"channel_unit": 4} | rows
    layout = Layout("bytes", *geometry.size, channels, 8, None, halo, **lying)
    padded = layout.padded_channels
    data = in_bytes(x, halo, padded, packed_rows=packed_rows, phases=phases)
    assert data.shape == layout.shape
    _, bias, counts = fold_bias(signature, q, padded, zero_points(2 * point, 0), halo, window)
    result = run(
        "packed_conv2d",
        data,
        pack_weights(signature, padded_to(q, layout)),
        bias,
        signature=signature_text(signature),
        scale=1,
        channels=[channels, geometry.outputs],
        origin=[0, 0],
        border=counts,
        groups=1,
        **window.attributes(packed_rows, phases),
    )
    expected = logical_convolution(geometry, x, q, (2 * point, 0), 0)
    assert np.array_equal(result[..., : geometry.outputs], expected)


@settings(max_examples=150)
@given(SIGNATURES, geometries(), st.integers(-20, 520), st.integers(-3, 3), SEEDS)
def test_a_packed_convolution_is_the_convolution(
    signature: KernelSignature, geometry: Geometry, data_zero_point: int, numerator: int, seed: int
) -> None:
    """Whatever the encodings, the geometry, the halo and what padding means."""
    rng = np.random.default_rng(seed)
    x = levels(rng, signature, (1, *geometry.size, geometry.channels))
    q = stored(rng, signature, (geometry.outputs, *geometry.kernel, geometry.channels))
    points = data_zero_point, weight_zero_point(signature)
    level = 0 if signature.family == "popcount" else min(max(0, data_zero_point // 2), 255)
    found = packed_convolution(signature, geometry, x, q, points, numerator, level)
    expected = logical_convolution(geometry, x, q, points, numerator)
    assert found.shape[3] == round_up(geometry.outputs, BLOCK)
    assert np.array_equal(found[..., : geometry.outputs], expected)


@pytest.mark.parametrize("kind", ["xor1", "xor2", "xor3", "choose_a2"])
def test_bipolar_activations_with_zero_padding(kind: str) -> None:
    """No bit means 0, so padded taps hold the lowest level and the border's bias undoes that."""
    geometry = Geometry((3, 3), (1, 1), (1, 1, 1, 1), (5, 6), (0, 1, 2, 0), 20, 7)
    bits = 3 if kind == "choose_a2" else int(kind[-1])
    signature = popcount(plan_named(kind, bits, 1, "bipolar"))
    rng = np.random.default_rng(bits)
    x = levels(rng, signature, (1, 5, 6, 20))
    q = stored(rng, signature, (7, 3, 3, 20))
    points = (1 << bits) - 1, 1
    _, bias, counts = fold_bias(signature, q, 32, zero_points(*points), NO_HALO, geometry.window)
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
    points = zero_points(2 * 128, 0)
    _, bias, counts = fold_bias(mac8(4), q, 4, points, window.halo(1, 1, points[0]), window)
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
            first = position * window.strides[axis] - window.padding.sides[axis]
            taps = range(first, first + window.kernel[axis])
            outside = tuple(not 0 <= tap < window.size[axis] for tap in taps)
            assert seen.setdefault(int(found), outside) == outside


@given(geometries(), st.integers(0, 255), SEEDS)
def test_bytes_come_back(geometry: Geometry, level: int, seed: int) -> None:
    shape = (1, *geometry.size, geometry.channels)
    x = np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)
    channels, sides = round_up(geometry.channels, 32), around(geometry)
    stored_bytes = in_bytes(x, Halo(sides, level), channels)
    size = list(geometry.size)
    back = run("from_bytes", stored_bytes, origin=sides[:2], size=size, dtype="uint8")
    assert np.array_equal(back[..., : geometry.channels], x)
    assert not back[..., geometry.channels :].any()
    inside = np.zeros(stored_bytes.shape[:2], bool)
    inside[sides.top : sides.top + size[0], sides.left : sides.left + size[1]] = True
    assert np.all(stored_bytes[~inside] == level)


@given(geometries(), st.sampled_from(PLANS), st.data(), SEEDS)
def test_a_halo_of_planes_and_sums_is_level_0(
    geometry: Geometry, plan: TermPlan, data: st.DataObject, seed: int
) -> None:
    """Which is ones in a plane that holds the level's complement."""
    kept = data.draw(joined(plan))
    shape = (1, *geometry.size, geometry.channels)
    x = np.random.default_rng(seed).integers(0, 1 << kept.bits, shape).astype(np.uint8)
    top, left, bottom, right = sides = around(geometry)
    found = bitpacked(x, sides, kept)
    attrs = {"halo": sides, "bits": kept.bits, "planes": kept.planes, "sums": kept.sums}
    words = StoredHalo.of(attrs).elements
    assert len(words) == len(found) == kept.words
    inside = np.zeros(found.shape[1:3], bool)
    inside[top : top + shape[1], left : left + shape[2]] = True
    for plane, word in zip(found, words, strict=True):
        assert np.all(plane[~inside] == np.uint32(word % (1 << 32)))
    planes = found[: len(kept.planes)]
    back = unpack_planes(planes, kept.planes, kept.bits)[..., : geometry.channels]
    assert np.array_equal(back, np.pad(x[0], [(top, bottom), (left, right), (0, 0)]))
    place = {"origin": sides[:2], "size": list(geometry.size)}
    levels = run("from_planes", planes, **place, bits=kept.bits, planes=list(kept.planes))
    assert np.array_equal(levels[..., : geometry.channels], x)
    assert not levels[..., geometry.channels :].any()


@pytest.mark.parametrize(
    ("planes", "sums", "words"),
    [
        # Levels 0, 1, 2, 3, and 28 channels of level 0.
        ([0b1010, 0b1100], [], [0b1010, 0b1100]),
        ([0b0101, 0b0011], [], [0xFFFFFFF5, 0xFFFFFFF3]),
        # Ternary digits: one channel is above, those at level 0 are below.
        ([0b1000, 0b0001], [], [0b1000, 0xFFFFFFF1]),
        ([0b1010, 0b1100], [[0, 1, 2, 3], [0, -5, 0, 1]], [0b1010, 0b1100, 6, 0xFFFFFFFC]),
        ([0b1010, 0b1100], [[2, 0, 0, 0]], [0b1010, 0b1100, 58]),
    ],
)
def test_a_packed_pixel(planes: list[int], sums: list[list[int]], words: list[int]) -> None:
    x = np.arange(4, dtype=np.uint8).reshape(1, 1, 1, 4)
    found = run("bitpack", x, halo=NO_SIDES, bits=2, planes=planes, sums=sums)
    assert found.ravel().tolist() == words


def test_bytes_may_be_narrower_than_their_levels() -> None:
    """A producer works on blocks of channels; an edge may keep words of them only."""
    x = np.arange(32, dtype=np.uint8).reshape(1, 1, 1, 32)
    assert in_bytes(x, NO_HALO, 4).tolist() == [[[0, 1, 2, 3]]]


def test_rows_of_a_phase_lie_together() -> None:
    x = np.arange(1, 5, dtype=np.uint8).reshape(1, 4, 1, 1)
    stored = in_bytes(x, Halo(Sides(1, 0, 1, 0)), 1, phases=2)
    assert stored.ravel().tolist() == [0, 2, 4, 1, 3, 0]
    places = [stored_row(y, 6, 2) for y in range(6)]
    assert [stored_row(place, 6, 6 // 2) for place in places] == list(range(6))


@given(SIGNATURES)
def test_signatures_are_text(signature: KernelSignature) -> None:
    text = signature_text(signature)
    assert parse_signature(text) == signature
    assert signature_text(parse_signature(text)) == text
