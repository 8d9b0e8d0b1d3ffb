"""Calls of the operators in the layouts of kernels."""

from __future__ import annotations

import numpy as np

from stages.dialect.padding import Halo, Sides
from stages.kernels import computed_weights, packed_conv2d, packed_depthwise, packed_winograd
from stages.kernels import packed_edges as packed
from stages.kernels.byte_families import Dots
from stages.kernels.packing import pack_weights
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import signature_text
from stages.kernels.terms import digit_plan
from stages.kernels.wide_families import TransformedDots
from stages.kernels.winograd_transforms import BY_ONE
from tests.stages.dialect.example import RNG, Example, integers

POPCOUNT = KernelSignature(
    "neon_aarch64", digit_plan("xor", 2, 1, "bipolar"), None, 1, 8, "window", 15
)
_TRANSFORMED = KernelSignature(
    "avx2", None, TransformedDots(2), 2, 8,
    "none", 0,
)  # fmt: skip
_PAIRS = KernelSignature("avx2", None, Dots(2), 2, 8, "none", 0)
_LEVELS = RNG.integers(0, 256, (1, 10, 6, 4))
_TILES = np.pad(BY_ONE.tiles_of_images(_LEVELS).reshape(36, -1), [(0, 0), (0, 32)])
_BITS = RNG.integers(0, 2, (40, 1, 1, 32)).astype(np.uint8)

PACKED: dict[str, Example] = {
    "packed_depthwise": Example(
        packed_depthwise.packed_depthwise,
        (
            integers(-128, 127, (1, 6, 7, 5), "int8"),
            (
                packed_depthwise.pack_depthwise(RNG.integers(-128, 128, (3, 2, 5)), 2, "int16"),
                "int16",
            ),
            integers(-999, 999, (32,), "int32"),
        ),
        {"window": [3, 2], "strides": [2, 1], "dilation": [1, 2], "offset": 128},
    ),
    "pack_matrices": Example(
        computed_weights.pack_matrices,
        (integers(0, 255, (2, 40, 13), "uint8"),),
        {"signature": signature_text(_PAIRS), "depth": 16},
    ),
    "packed_conv2d": Example(
        packed_conv2d.packed_conv2d,
        (
            (RNG.integers(0, 2**32, (2, 3, 3, 1)).astype(np.uint32), "uint32"),
            (pack_weights(POPCOUNT, _BITS), "uint32"),
            integers(-99, 99, (1, 64), "int32"),
        ),
        {
            "signature": signature_text(POPCOUNT),
            "scale": -1,
            "channels": [32, 40],
            "window": [1, 1],
            "rows": 1,
            "strides": [2, 1],
            "origin": [0, 1],
            "output": [2, 2],
            "border": [0, 0, 0, 0],
            "phases": 1,
            "groups": 1,
        },
    ),
    "packed_winograd": Example(
        packed_winograd.packed_winograd,
        (
            (_TILES, "int16"),
            (pack_weights(_TRANSFORMED, RNG.integers(-9, 9, (40, 3, 3, 4)), BY_ONE), "uint32"),
            integers(-99, 99, (1, 64), "int32"),
        ),
        {
            "signature": signature_text(_TRANSFORMED),
            "scale": -1,
            "channels": [4, 40],
            "window": [3, 3],
            "rows": 3,
            "strides": [1, 1],
            "output": [5, 3],
            "border": [0, 0, 0, 0],
            "phases": 1,
            "tile": 4,
        },
    ),
    "to_tiles": Example(
        packed_winograd.to_tiles,
        (integers(0, 255, (11, 8, 2), "uint8"),),
        {"origin": [1, 2], "output": [6, 3], "strides": [1, 1], "tile": 4},
    ),
    "to_bytes": Example(
        packed.to_bytes,
        (integers(0, 7, (1, 2, 3, 8), "uint3"),),
        {"halo": Halo(Sides(1, 0, 3, 3), 5), "channels": 8, "packed_rows": 2, "phases": 1},
    ),
    "bitpack": Example(
        packed.bitpack,
        (integers(0, 7, (1, 2, 3, 40), "uint3"),),
        {"halo": [1, 0, 2, 3], "bits": 3, "planes": [2, 204, 15], "sums": [[0, 1, 0, -1] * 2]},
    ),
    "to_tables": Example(
        packed.to_tables,
        (integers(0, 7, (1, 2, 3, 40), "uint3"),),
        {"halo": [1, 0, 2, 3], "bits": 3, "balanced": True},
    ),
    "from_bytes": Example(
        packed.from_bytes,
        (integers(0, 7, (5, 6, 4), "uint8"),),
        {"origin": [1, 2], "size": [3, 2], "dtype": "uint3"},
    ),
    "from_planes": Example(
        packed.from_planes,
        (integers(0, 1 << 31, (2, 5, 6, 2), "uint32"),),
        {"origin": [1, 2], "size": [3, 2], "bits": 2, "planes": [10, 12]},
    ),
    "take_channels": Example(
        packed.take_channels, (integers(0, 7, (1, 2, 3, 8), "uint3"),), {"channels": 5}
    ),
    "pad_channels": Example(
        packed.pad_channels, (integers(0, 7, (1, 2, 3, 8), "uint3"),), {"channels": 32}
    ),
}
