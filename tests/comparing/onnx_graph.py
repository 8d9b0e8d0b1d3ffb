"""An ONNX graph under construction that knows the shape and the spread of every tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
OPSET = 13
IR_VERSION = 8
QONNX = "qonnx.custom_op.general"


@dataclass(frozen=True)
class Value:
    """A tensor: its name, its shape, and about how far its values lie from 0."""

    name: str
    shape: tuple[int, ...]
    spread: float = 1.0

    @property
    def channels(self) -> int:
        """The extent of its second axis."""
        return self.shape[1]


class Graph:
    """Nodes and constants; equal calls give equal bytes."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.x = Value("x", tuple(shape))
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, value: Any) -> Value:
        """A constant tensor."""
        array = np.asarray(value)
        name = f"k{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return Value(name, array.shape)

    def scalar(self, value: float) -> Value:
        """A float32 constant of no axes."""
        return self.constant(np.float32(value))

    def node(
        self,
        op: str,
        operands: Sequence[Value],
        shape: Sequence[int],
        spread: float,
        **attributes: Any,
    ) -> Value:
        """A node with one output; `domain` may be among the attributes."""
        name = f"{op.lower()}{len(self._nodes)}"
        result = Value(f"{name}_out", tuple(shape), spread)
        names = [operand.name for operand in operands]
        self._nodes.append(helper.make_node(op, names, [result.name], name=name, **attributes))
        return result

    def conv(
        self, x: Value, kernel: Sequence[Value], window: tuple[int, int, int], groups: int = 1
    ) -> Value:
        """A convolution; `window` is its size, its step and its padding on every side."""
        size, step, pad = window
        outputs, depth = kernel[0].shape[:2]
        extents = [(extent + 2 * pad - size) // step + 1 for extent in x.shape[2:]]
        spread = x.spread * kernel[0].spread * (depth * size * size) ** 0.5
        attributes = {"kernel_shape": [size] * 2, "strides": [step] * 2, "pads": [pad] * 4}
        shape = (x.shape[0], outputs, *extents)
        return self.node("Conv", [x, *kernel], shape, spread, group=groups, **attributes)

    def max_pool(self, x: Value) -> Value:
        """The largest of 2x2."""
        shape = (*x.shape[:2], *(extent // 2 for extent in x.shape[2:]))
        return self.node("MaxPool", [x], shape, x.spread, kernel_shape=[2, 2], strides=[2, 2])

    def average(self, x: Value) -> Value:
        """The average of each channel, without the axes that go."""
        size = float(np.prod(x.shape[2:]))
        pooled = self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1), x.spread / size**0.5)
        return self.node("Flatten", [pooled], x.shape[:2], pooled.spread, axis=1)

    def finish(self, *outputs: Value) -> bytes:
        """The bytes of the file."""
        graph = helper.make_graph(
            self._nodes,
            "random",
            [_info(self.x)],
            [_info(output) for output in outputs],
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(QONNX, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return bytes(model.SerializeToString(deterministic=True))


def _info(value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, TensorProto.FLOAT, list(value.shape))
