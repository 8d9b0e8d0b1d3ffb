"""Weights that a package computes, packed while it runs as `packing.py` packs others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.dialect.batch_matmul import BYTE_ZERO_POINT
from stages.dialect.calls import dtype_of, shape_of, tensor_type
from stages.dialect.registry import register
from stages.kernels.packing import pack_weights, round_up
from stages.kernels.signature import BLOCK
from stages.kernels.signature_text import parse_signature
from stages.nodes import TensorType

Array = np.ndarray[Any, Any]


def _type(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> Any:
    count, outputs, _ = shape_of(types[0])
    kernel = parse_signature(attrs["signature"])
    blocks = round_up(outputs, BLOCK) // kernel.channels
    words = attrs["depth"] // kernel.channels_per_word
    dtype = "float32" if dtype_of(types[0]) == "float32" else "uint32"
    return tensor_type((count, blocks, 1, words, kernel.channels), dtype)


@register("pack_matrices", ["weight"], _type)
def pack_matrices(weight: Array, *, signature: str, depth: int) -> Array:
    """Weights [N, O, K] in the layout that a kernel reads: [N, blocks, 1, words, channels].

    They are float32, int8, or uint8, which are less 128 then. Behind the last one of K are zeros,
    `depth` in all.
    """
    kernel = parse_signature(signature)
    signed = weight.astype(np.int32) - BYTE_ZERO_POINT.whole if weight.dtype == np.uint8 else weight
    padded = np.pad(signed, [(0, 0), (0, 0), (0, depth - weight.shape[2])])
    return np.stack([pack_weights(kernel, each[:, None, None]) for each in padded])
