"""How much an operator computes, whatever kernel computes it."""

from __future__ import annotations

from math import prod

from tvm import relax

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of, tensor_types
from stages.dialect.names import PREFIX
from stages.kernels import operator_names
from stages.kernels.packed_conv2d import is_convolution
from stages.nodes import Call

_OUTPUT_AXIS = {
    operator_names.QNN_DIRECT_CONV2D: -1,
    operator_names.QNN_DIRECT_DENSE: -1,
    names.MATMUL: -1,
    names.CONV2D: 0,
    names.QNN_CONV2D: 0,
}
"""Products in plain kernels → where the output channels are in their weights."""


def macs_of(call: Call) -> int:
    """Multiplications with an addition behind them; 0 of what is no product."""
    if is_convolution(call):
        attrs = attributes(call)
        channels, outputs = attrs["channels"]
        taps = attrs["rows"] * attrs["window"][1] * channels // attrs.get("groups", 1)
        return int(taps * outputs * prod(shape_of(call.ty)[:3]))
    if is_op(call, operator_names.QNN_PACKED_DEPTHWISE):
        pixels, channels = prod(shape_of(call.ty)[:3]), shape_of(call.args[0].ty)[-1]
        return int(prod(attributes(call)["window"]) * channels * pixels)
    axis = next((axis for name, axis in _OUTPUT_AXIS.items() if is_op(call, name)), None)
    if axis is None:
        return 0
    weight = shape_of(call.args[1].ty)
    if is_op(call, names.MATMUL):
        weight = weight[-2:]  # what stands before are batches
    return prod(shape_of(call.ty)) * prod(weight) // weight[axis]


def values_of(call: Call) -> int:
    """Values of the largest tensor that an operator reads or gives; of windows, those in all."""
    kinds = [kind for value in (call, *call.args) for kind in tensor_types(value.ty)]
    most = max(prod(shape_of(kind)) for kind in kinds if isinstance(kind, relax.TensorType))
    is_own = str(call.op.name).startswith(PREFIX)
    window = attributes(call).get("kernel") if is_own else None
    return most if window is None else max(most, prod(shape_of(call.ty)) * prod(window))
