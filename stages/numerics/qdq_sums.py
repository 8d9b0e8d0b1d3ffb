"""Convolutions and matrix products of dequantized operands: exact sums of integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.dialect import names
from stages.dialect.calls import is_op, shape_of
from stages.kinds import Array
from stages.nodes import Call, Var
from stages.numerics import linear_quantizers, qlinear
from stages.numerics.qdq_graph import QdqGraph, Quantized
from stages.numerics.quantization import Quantization

CONV, MATMUL = names.CONV2D, names.MATMUL
_NARROW = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 9))


@dataclass(frozen=True)
class Product:
    """A convolution or matrix product of quantized operands, not emitted yet."""

    call: Call
    variable: Var
    data: Var
    source: Quantization
    """What the data mean."""
    weight: Quantized

    @property
    def layer(self) -> str:
        """The name of the layer."""
        return str(self.variable.name)

    @property
    def is_conv(self) -> bool:
        """Whether the sums come out NHWC."""
        return is_op(self.call, CONV)

    @property
    def factor(self) -> Array:
        """What one step of the sums is worth: float32 `xs * ws`, scalar or [O]."""
        scale = self.weight.grid.scale
        shape = (-1,) if scale.size > 1 else ()
        return np.asarray((self.source.scale * scale).reshape(shape), np.float32)

    def sums(self, graph: QdqGraph, bias: Var | None) -> Var:
        """Emit the accumulators, with an int32 bias [O] added."""
        operands = (graph.builder, self.layer, self.data, self.weight.value, bias)
        data, weight = self.source.zero_point.whole, self.weight.grid.common_zero_point or 0
        if not self.is_conv:
            return qlinear.product(*operands, data_zero_point=data, weight_zero_point=weight)
        attrs = self.call.attrs
        return qlinear.convolution(
            *operands,
            data_zero_point=data,
            weight_zero_point=weight,
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=int(attrs.groups),
        )


def product_of(graph: QdqGraph, variable: Var) -> Product | None:
    """The product that computes an old variable, if integers can."""
    call = graph.expressions.get(variable)
    if call is None or not (is_op(call, CONV) or is_op(call, MATMUL)):
        return None
    data, weight = (graph.quantized.get(operand) for operand in call.args[:2])
    source = None if data is None else data.grid.quantization
    if data is None or source is None or weight is None:
        return None
    found = Product(call, variable, data.value, source, weight)
    return found if _fits(found) else None


def _fits(product: Product) -> bool:
    weight = product.weight.grid
    is_narrow = not {product.source.dtype, weight.dtype} - _NARROW
    if not is_narrow or weight.common_zero_point is None:
        return False
    shape = shape_of(product.weight.value.ty)
    if is_op(product.call, CONV):
        attrs = product.call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
        return layouts == ("NCHW", "OIHW") and weight.is_per_axis(0, 4)
    return weight.is_per_tensor or (len(shape) == 2 and weight.is_per_axis(1, 2))


def accumulated(graph: QdqGraph, variable: Var) -> Var | None:
    """The float value of an old product: exact sums, scaled once; None if it is none."""
    product = product_of(graph, variable)
    if product is None:
        return None
    name, sums = product.layer, product.sums(graph, None)
    unit = graph.builder.tensor(f"{name}.unit", product.factor)
    zero_point = graph.builder.tensor(f"{name}.zero", np.zeros((), np.int32))
    result = graph.builder.emit(
        linear_quantizers.dequantize_linear(sums, unit, zero_point), f"{name}.float"
    )
    return qlinear.nchw(graph.builder, result, name) if product.is_conv else result
