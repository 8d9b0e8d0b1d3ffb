"""The Relax function of an ONNX graph under construction, as converters see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.dialect.calls import storage_dtype
from stages.dialect.operators import OPERATORS
from stages.importing.importer import Results
from stages.importing.onnx.onnx_reader import Node
from stages.importing.relax_builder import PACKED, RelaxBuilder
from stages.numerics import rule_names

Array = np.ndarray[Any, Any]

FLOAT_ONLY = ("float32",)
STORED = ("float32", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool")
WHOLE = (*STORED, "uint32", "uint64")
ANY = (*WHOLE, *PACKED)


@dataclass(frozen=True)
class Dequantized:
    """Constants that a graph dequantizes: integers, scale and zero point, which broadcast.

    The integers are seen in a shape of their own where they have one scale a block.
    """

    stored: Array
    scale: Array
    zero_point: Array
    shape: tuple[int, ...]

    @property
    def values(self) -> Array:
        """The float32 values."""
        kind = storage_dtype(str(self.stored.dtype))
        meaning = OPERATORS[rule_names.QNN_DEQUANTIZE_LINEAR].meaning
        found = meaning(self.stored.astype(kind), self.scale, self.zero_point.astype(kind))
        return np.asarray(found).reshape(self.shape)


class OnnxBuilder(RelaxBuilder[str]):
    """A function whose tensors are known by their names in the file.

    `opset` is the version of ONNX's operators. What the graph dequantizes of constants is a
    variable, as its integers are what layers read, and constant for operators that need the floats.
    Infinities are accepted, as masks hold them; `operand_checks` refuses them where they do harm.
    """

    def __init__(self, accepts: Sequence[str] = FLOAT_ONLY, opset: int = 0) -> None:
        super().__init__(accepts, is_finite=False)
        self.opset = opset
        self.dequantized: dict[str, Dequantized] = {}
        """Variables that constants are dequantized to."""

    def known(self, key: str) -> Array | None:
        """The value of a tensor that is constant or dequantized from constants, or None."""
        if key in self.dequantized:
            return self.dequantized[key].values
        return super().known(key)


Converter = Callable[[OnnxBuilder, Node], Results]
"""Makes a node Relax; see `onnx_converters`."""
