"""Float products as kernels compute them fast: in vectors of output channels.

    conv2d(x, w), NCHW and OIHW -> transpose(float_conv2d(pad(transpose(x)), w'))
    matmul(x, w)                -> float_dense(x, w'), all that lies before its last axis as rows
    max_pool2d(x)               -> transpose(qnn.max_pool2d(transpose(x)))
    avg_pool2d(x)               -> transpose(qnn.window_sum2d(transpose(x)) / counts)

Most transposes cancel when the model is simplified. The image is padded on its own, so that no
sum asks where it is. Convolutions of each channel on its own, or of windows with gaps, become
loops (`direct_conv2d`). So do all where something is quantized later, as a sum in another order
could end on another level: there sums stay float64, rounded once:

    conv2d(x, w) -> transpose(float32(direct_conv2d(float64(pad(transpose(x))), w')))
"""

from __future__ import annotations

from tvm import relax

from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Call, Expr, Var, VarBinding
from stages.quantizing.nhwc_layers import (
    before_integers,
    convolution,
    dense,
    is_convolution,
    is_dense,
    is_pool,
    pool,
)


class MoveChannelsLast(Pass):
    """Has float convolutions and pools read images with their channels last."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.quantized = before_integers(self.main)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A convolution, pool or matrix product between two transposes."""
        call, name = binding.value, str(binding.var.name)
        if is_convolution(call) and call.args[1] in self.constants:
            weight, is_exact = self.constants[call.args[1]], binding.var in self.quantized
            data = self._last(call, name)
            sums = convolution(self.builder, call, data, weight, name, is_exact=is_exact)
            return self._first(sums, name)
        if is_pool(call):
            return self._first(pool(self.builder, call, self._last(call, name), name), name)
        is_free = binding.var not in self.quantized
        if is_dense(call) and call.args[1] in self.constants and is_free:
            weight = self.constants[call.args[1]]
            return dense(self.builder, call, self.read(call.args[0]), weight, name)
        return None

    def _last(self, call: Call, name: str) -> Var:
        """The image that an operator reads, channels last."""
        data = relax.op.permute_dims(self.read(call.args[0]), [0, 2, 3, 1])
        return self.builder.emit(data, f"{name}.nhwc")

    def _first(self, call: Expr, name: str) -> Var:
        """The result of a layer with its channels where the source has them; it keeps its name."""
        inner = self.builder.emit(call, name)
        return self.builder.emit(relax.op.permute_dims(inner, [0, 3, 1, 2]), f"{name}.nchw")
