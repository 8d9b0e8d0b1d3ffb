"""Pairs of quantizers around the operators of an ONNX QDQ network in 8 bits, for its twins.

A twin is the same network in an engine's own form. There an operator takes levels and gives levels:
what stands between it and the quantizer behind it, and that quantizer, belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stages.errors import StageError
from stages.importing.onnx.onnx_reader import Node, SourceGraph
from stages.numerics.quantization import Quantization

Array = np.ndarray[Any, Any]
Activation = Literal["none", "relu", "relu6"]

_SHIFTS = {np.dtype(np.uint8): 0, np.dtype(np.int8): 128}


class NoTwinError(StageError):
    """A network has no twin; the message says why."""


@dataclass(frozen=True, eq=False)
class Constant:
    """Stored integers with their scales, one or one a channel."""

    values: Array
    scale: Array


class Pairs:
    """What the quantizers of a graph say of its tensors."""

    def __init__(self, graph: SourceGraph) -> None:
        self._graph = graph
        self._constants: dict[str, Constant] = {}
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)

    def is_of_constant(self, node: Node) -> bool:
        """Whether a DequantizeLinear is of stored integers, which are kept by its output's name."""
        stored = self._graph.tensor(node, 0)
        if stored is None:
            return False
        scale, zero_point = self._graph.tensor(node, 1), self._graph.tensor(node, 2)
        if scale is None or (zero_point is not None and zero_point.any()):
            raise NoTwinError(f"'{node.layer}' has weights with a zero point")
        if scale.size > 1 and stored.ndim > 1 and node.attributes.get("axis", 1) != 0:
            raise NoTwinError(f"'{node.layer}' has scales of another axis than output channels")
        self._constants[node.outputs[0]] = Constant(stored, np.atleast_1d(scale))
        return True

    def quantization(self, node: Node) -> Quantization:
        """Return what a quantizer's levels mean, as of uint8 where it is to int8."""
        scale, zero_point = self._graph.tensor(node, 1), self._graph.tensor(node, 2)
        if (
            scale is None
            or scale.size != 1
            or zero_point is None
            or zero_point.dtype not in _SHIFTS
        ):
            raise NoTwinError(f"'{node.layer}' does not quantize to 8 bits by one scale")
        moved = int(zero_point.item()) + _SHIFTS[zero_point.dtype]
        return Quantization.of_type(scale.item(), moved, "uint8")

    def behind(self, node: Node) -> tuple[Node, Activation]:
        """Return the quantizer behind an operator, and the activation between them."""
        name = node.outputs[0]
        activation: Activation = "none"
        while True:
            readers = self._readers.get(name, [])
            if len(readers) != 1:
                raise NoTwinError(f"'{node.layer}' has no quantizer of its own behind it")
            (reader,) = readers
            name = reader.outputs[0]
            if reader.op == "QuantizeLinear":
                return reader, activation
            if reader.op == "Relu":
                activation = "relu"
            elif reader.op == "Clip" and [self._graph.number(reader, i) for i in (1, 2)] == [0, 6]:
                activation = "relu6"
            elif reader.op not in ("Flatten", "Reshape"):
                raise NoTwinError(f"'{reader.layer}' is {reader.kind} behind '{node.layer}'")

    def joined_by(self, quantizer: Node) -> Node | None:
        """Return the quantizer behind the concatenation that alone reads what one gives, or None.

        Of concatenations one behind the other, that of the last.
        """
        readers = self._readers.get(quantizer.outputs[0], [])
        readers = [each for name in readers for each in self._readers.get(name.outputs[0], [])]
        if len(readers) != 1 or readers[0].op != "Concat":
            return None
        behind, _ = self.behind(readers[0])
        return self.joined_by(behind) or behind

    def weight(self, node: Node) -> Constant:
        """Return the weights of a convolution or dense layer, in int8."""
        found = self.constant(node, 1)
        if found.values.dtype != np.int8:
            raise NoTwinError(f"the weights of '{node.layer}' are {found.values.dtype}")
        return found

    def constant(self, node: Node, position: int) -> Constant:
        """Return an operand that is stored."""
        found = self._constants.get(node.inputs[position])
        if found is None:
            raise NoTwinError(f"'{node.layer}' has an operand {position} that is no constant")
        return found


def ends_below_6(of: Quantization) -> bool:
    """Whether 6 is at or above the last level, so that saturation is all that ReLU6 does there."""
    return bool(of.quantize(np.asarray(6, np.float32)) == of.levels.high)
