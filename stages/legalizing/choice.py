"""Which algorithm a layer gets: what its encodings allow, then what the core does fastest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.profile import Hardware
from stages.errors import StageError
from stages.legalizing.costs import bitserial_cycles, mac8_cycles
from stages.options import Algorithm

MAX_PLANES = 3
"""Bit-serial kernels exist for up to three planes of each operand."""


@dataclass(frozen=True)
class Layer:
    """A convolution or matrix product: name, dtypes, attributes and its stored weights."""

    name: str
    data_dtype: str
    weight_dtype: str
    attrs: dict[str, Any]
    weight: np.ndarray[Any, Any]

    @property
    def activation_bits(self) -> int:
        """Bits of the input levels."""
        return int(self.data_dtype.lstrip("uint"))

    @property
    def weight_bits(self) -> int:
        """Bits of the stored weights."""
        return int(self.weight_dtype.lstrip("uint"))


def bitserial_obstacle(layer: Layer) -> str | None:
    """Why a layer cannot be bit-serial, or None if it can."""
    if max(layer.activation_bits, layer.weight_bits) > MAX_PLANES:
        return f"it has more than {MAX_PLANES} bits"
    if layer.attrs.get("groups", 1) != 1:
        return "it is a grouped convolution"
    point, top = layer.attrs["weight_zero_point_x2"], (1 << layer.weight_bits) - 1
    if point and (point != top or layer.weight_dtype.startswith("int")):
        return f"its weights have the zero point {point / 2}, neither 0 nor the middle of the range"
    return None


def choose(layer: Layer, wanted: Algorithm | None, hardware: Hardware) -> Algorithm:
    """The recipe's wish where there is one, else the cheaper algorithm in modelled cycles."""
    obstacle = bitserial_obstacle(layer)
    if wanted == "bitserial" and obstacle:
        raise StageError(
            f"cannot be bit-serial: {obstacle}", layer=layer.name, hint="use algorithm: mac8"
        )
    if wanted or obstacle:
        return wanted or "mac8"
    bitserial = bitserial_cycles(hardware, layer.activation_bits, layer.weight_bits)
    return "bitserial" if bitserial < mac8_cycles(hardware) else "mac8"
