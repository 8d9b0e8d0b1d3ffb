"""A TensorFlow Lite graph as plain data: what the reader gives and the converters read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stages.importing.unsupported import UnsupportedError
from stages.numerics.quantization import Quantization

Array = np.ndarray[Any, Any]

ABSENT = -1
"""The tensor index of an optional operand that is left out."""


@dataclass(frozen=True)
class AxisQuantization:
    """`scale * (q - zero_point)` as a file states it, per tensor or along `axis`.

    `scale` is float32 [1] or [C], `zero_point` int64 of the same length; `axis` counts only where
    there are several.
    """

    scale: Array
    zero_point: Array
    axis: int

    @property
    def is_per_tensor(self) -> bool:
        """Whether one scale holds for the whole tensor."""
        return self.scale.size == 1


@dataclass(frozen=True)
class Tensor:
    """A tensor: `data` is a view of the file where it is constant, else None.

    `shape` is as recorded; `is_open` tells for each extent whether it may change at run time.
    """

    index: int
    name: str
    """Unique in the graph."""
    dtype: str
    """A NumPy dtype's name, or the schema's own name in lower case (`string`, `int4`)."""
    shape: tuple[int, ...]
    is_open: tuple[bool, ...]
    quantization: AxisQuantization | None
    data: Array | None
    trouble: str = ""
    """Why no converter can read it, where that is so; it continues "reads 'x', which"."""

    @property
    def whole(self) -> Quantization | None:
        """What its integers mean, where one scale holds for all; None where none does."""
        found = self.quantization
        if found is None or not found.is_per_tensor:
            return None
        return Quantization.of_type(found.scale[0], int(found.zero_point[0]), self.dtype)


@dataclass(frozen=True)
class Operator:
    """An operator: tensor indices (`ABSENT` for an operand left out) and its options.

    `kind` is the builtin's name in the schema (`CONV_2D`) or a custom operator's own name.
    `options` are named as in the schema, enumerations as their numbers.
    """

    kind: str
    layer: str
    """The name of its first output tensor."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom_options: bytes = b""

    @property
    def operands(self) -> tuple[int, ...]:
        """The tensors that it reads, those left out excluded."""
        return tuple(index for index in self.inputs if index != ABSENT)

    def input(self, position: int) -> int:
        """The tensor index of a required operand."""
        if not self.has(position):
            raise UnsupportedError(f"has no operand {position}")
        return self.inputs[position]

    def has(self, position: int) -> bool:
        """Whether an operand is there."""
        return position < len(self.inputs) and self.inputs[position] != ABSENT

    def option(self, name: str, default: Any = None) -> Any:
        """An option; UnsupportedError where it is missing and has no default."""
        value = self.options.get(name, default)
        if value is None:
            raise UnsupportedError(f"states no option '{name}'")
        return value


@dataclass(frozen=True)
class Graph:
    """The first subgraph of a file; its operators are in an order in which they can run."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    schema_version: int
    description: str
    subgraphs: int
    """How many the file has; those after the first are reached through control flow alone."""
