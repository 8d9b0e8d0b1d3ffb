"""Float convolutions as plain kernels compute them fast: in vectors of output channels.

    conv2d(x, w), NCHW and OIHW -> transpose(float32(direct_conv2d(float64(pad(transpose(x))), w')))

Most transposes cancel when the model is simplified. The picture is padded and widened on its own,
so that no sum asks where it is, and none widens what others have widened before. Sums are float64,
rounded once, as they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.kinds import Model
from stages.qnn import direct
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.registry import dtype_of, is_op, shape_of
from stages.qnn.rewriting import Rewriting


def channels_last(model: Model) -> Model:
    """The model with its float convolutions of constant weights turned."""
    return _Walk(model).run()


class _Walk(Rewriting):
    """One pass over `main`."""

    def run(self) -> Model:
        """Walk, and build the model anew."""
        for binding in bindings_of(self.main):
            value = binding.value
            if isinstance(value, relax.Var):
                self.mapping[binding.var] = self.read(value)
            elif self._is_turned(value):
                self.mapping[binding.var] = self._convolution(value, str(binding.var.name))
            else:
                emitted = self.builder.emit(self.remapped(value), str(binding.var.name))
                self.mapping[binding.var] = emitted
        results = [self.mapping[output] for output in outputs_of(self.main)]
        return self.builder.model_after(self.source, results)

    def _is_turned(self, expr: Any) -> bool:
        """Whether an expression is a float convolution that channels last suit: of all channels,
        or of each on its own."""
        if not is_op(expr, "relax.nn.conv2d") or expr.args[1] not in self.constants:
            return False
        attrs, depth = expr.attrs, shape_of(expr.args[1].ty)[1]
        is_plain = str(attrs.data_layout) == "NCHW" and str(attrs.kernel_layout) == "OIHW"
        is_float = dtype_of(expr.args[0].ty) == dtype_of(expr.ty) == "float32"
        return is_plain and is_float and (int(attrs.groups) == 1 or depth == 1)

    def _convolution(self, call: Any, name: str) -> Any:
        attrs, weight = call.attrs, self.constants[call.args[1]]
        data = relax.op.permute_dims(self.read(call.args[0]), [0, 2, 3, 1])
        data = self.builder.emit(data, f"{name}.nhwc")
        top, left, bottom, right = (int(count) for count in attrs.padding)
        if any((top, left, bottom, right)):
            width = [0, 0, top, bottom, left, right, 0, 0]
            data = self.builder.emit(relax.op.nn.pad(data, width, pad_value=0.0), f"{name}.padded")
        data = self.builder.emit(relax.op.astype(data, "float64"), f"{name}.wide")
        turned = np.ascontiguousarray(weight.transpose(2, 3, 1, 0))
        sums = direct.direct_conv2d(
            data,
            self.builder.tensor(f"{call.args[1].name}.hwio", turned),
            strides=[int(count) for count in attrs.strides],
            dilation=[int(count) for count in attrs.dilation],
            groups=int(attrs.groups),
            data_zero_point=0,
            weight_zero_point=0,
            dtype="float64",
        )
        result = relax.op.astype(self.builder.emit(sums, f"{name}.sums"), "float32")
        inner = self.builder.emit(result, f"{name}.inner")
        return self.builder.emit(relax.op.permute_dims(inner, [0, 3, 1, 2]), name)
