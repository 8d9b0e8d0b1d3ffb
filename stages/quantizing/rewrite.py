"""Walk a source graph once and emit its integer form, NHWC, value by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from stages.errors import StageError
from stages.kinds import Model
from stages.qnn import integer
from stages.qnn.algebra import numerators
from stages.qnn.builder import ModelBuilder, bindings_of
from stages.qnn.interpret import output_names
from stages.qnn.registry import attributes, shape_of
from stages.qnn.standard import STANDARD
from stages.quantizing.chain import Step, step
from stages.quantizing.constants import (
    bipolar_constant,
    integer_constant,
    quant_constant,
)
from stages.quantizing.quantizers import (
    BipolarQuantizer,
    Quantizer,
    ThresholdQuantizer,
    UniformQuantizer,
)
from stages.quantizing.requantizing import emit_steps, quantize_chain
from stages.quantizing.values import Chain, Known, KnownQuantized, Quantized, Value

Array = np.ndarray[Any, Any]
ELEMENTWISE = {
    "relax.add": "add",
    "relax.subtract": "subtract",
    "relax.multiply": "multiply",
    "relax.divide": "divide",
}
WINDOWS = {"relax.nn.max_pool2d", "relax.nn.avg_pool2d"}


class Rewriter:
    """One walk over `main`: every source variable gets a `Value`."""

    def __init__(self, model: Model) -> None:
        self.source = model
        self.builder = ModelBuilder()
        self.values: dict[Any, Value] = {}
        self.layer = ""
        self._lowerings: dict[str, Callable[[Any], Value]] = {
            "relax.qnn.quant": self._quant,
            "relax.qnn.bipolar_quant": self._bipolar_quant,
            "relax.qnn.multi_threshold": self._multi_threshold,
            "relax.qnn.batch_norm": self._batch_norm,
            "relax.nn.conv2d": self._conv2d,
            "relax.matmul": self._matmul,
            "relax.nn.relu": lambda call: self._chain(call.args[0]).then(step("maximum", 0.0)),
            "relax.clip": self._clip,
            "relax.nn.max_pool2d": self._max_pool,
            "relax.nn.avg_pool2d": self._average_pool,
            "relax.mean": self._mean,
            "relax.reshape": self._reshape,
            "relax.squeeze": self._reshape,
            "relax.expand_dims": self._reshape,
            "relax.flatten": self._reshape,
            "relax.permute_dims": self._permute,
            **{name: self._elementwise for name in ELEMENTWISE},
        }

    def run(self) -> Model:
        """The integer form of the whole graph."""
        main = self.source.module["main"]
        inputs = int(main.attrs["num_input"])
        for parameter in main.params[:inputs]:
            variable = self.builder.input(parameter.name, shape_of(parameter.ty), "float32")
            self.values[parameter] = Chain(variable, ())
        for parameter in main.params[inputs:]:
            self.values[parameter] = Known(self.source.params[parameter.name])
        for binding in bindings_of(main):
            self.layer = str(binding.var.name)
            self.values[binding.var] = self._value(binding.value)
        body = main.body.body
        results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
        names = output_names(self.source)
        outputs = [self._output(result, name) for result, name in zip(results, names, strict=True)]
        return self.builder.model(outputs, names)

    def _value(self, expr: Any) -> Value:
        if isinstance(expr, relax.Var):
            return self.values[expr]
        if not isinstance(expr, Call):
            raise StageError(f"cannot quantize a {type(expr).__name__}", layer=self.layer)
        name = str(expr.op.name)
        known = self._fold(name, expr)
        if known is not None:
            return known
        if name not in self._lowerings:
            raise StageError(f"operator {name} has no integer form", layer=self.layer)
        return self._lowerings[name](expr)

    def _fold(self, name: str, call: Any) -> Known | None:
        """The value of a standard operator whose arguments are all constants."""
        arguments = [self.values.get(a) for a in call.args if isinstance(a, relax.Var)]
        if name not in STANDARD or not all(isinstance(a, Known) for a in arguments):
            return None
        tensors = [a.value for a in arguments if isinstance(a, Known)]
        return Known(np.asarray(STANDARD[name](call, *tensors)).reshape(shape_of(call.ty)))

    # -- arguments ---------------------------------------------------------------------------

    def _known(self, argument: Any, what: str) -> Array:
        value = self.values[argument]
        if not isinstance(value, Known):
            raise StageError(
                f"{what} is computed at run time; it must be constant", layer=self.layer
            )
        return value.value

    def _chain(self, argument: Any) -> Chain:
        """An activation as a chain of float steps over integers (or over a float input)."""
        value = self.values[argument]
        if isinstance(value, Chain):
            return value
        if isinstance(value, Quantized):
            channels = int(value.variable.ty.shape[-1])
            steps: tuple[Step, ...] = (step("multiply", value.scale),)
            if value.zero_point_x2:
                steps = (step("subtract", value.zero_point_x2 / 2), *steps)
            return Chain(
                value.variable,
                steps,
                np.zeros(channels, np.int32),
                np.full(channels, value.levels - 1, np.int32),
                quantized=value,
            )
        raise StageError("a constant stands where an activation is expected", layer=self.layer)

    def _activation(self, argument: Any) -> Quantized:
        """An activation that a convolution or matrix product reads."""
        value = self.values[argument]
        if isinstance(value, Quantized):
            return value
        if isinstance(value, Chain):
            absorbed = value.as_quantized()
            if absorbed is not None:
                return absorbed
            if not value.is_integer and not value.steps:
                return self._integer_input(value)
        raise StageError(
            "the input of this layer is not quantized",
            layer=self.layer,
            hint="put a Quant, BipolarQuant or MultiThreshold in front of it",
        )

    def _integer_input(self, chain: Chain) -> Quantized:
        """A float graph input that is annotated to hold integers (FINN-ONNX)."""
        annotations = self.source.module["main"].attrs.get("finn_datatypes", {})
        datatype = str(annotations.get(chain.base.name, ""))
        if datatype not in ("UINT8", "INT8"):
            raise StageError(
                f"the graph input '{chain.base.name}' is not quantized",
                layer=self.layer,
                hint="put a Quant behind it, or annotate it as UINT8 or INT8",
            )
        low = 0 if datatype == "UINT8" else -128
        quantizer = UniformQuantizer(np.float32(1), np.float32(0), low, low + 255, "ROUND")
        return self._quantize(chain, quantizer)

    def _weight(self, argument: Any) -> KnownQuantized:
        value = self.values[argument]
        if isinstance(value, Known):
            found = integer_constant(value.value)
            if found is not None:
                return found
        if not isinstance(value, KnownQuantized):
            raise StageError(
                "the weights are not quantized",
                layer=self.layer,
                hint="put a Quant or BipolarQuant over them",
            )
        return value

    # -- quantizers --------------------------------------------------------------------------

    def _quantize(self, chain: Chain, quantizer: Quantizer) -> Quantized:
        if not chain.is_integer:
            base = chain.base
            if len(base.ty.shape) == 4:
                transposed = relax.op.permute_dims(base, [0, 2, 3, 1])
                base = self.builder.emit(transposed, f"{base.name}.nhwc")
            chain = Chain(base, chain.steps, pools=chain.pools)
        return quantize_chain(self.builder, chain, quantizer, self.layer)

    def _quant(self, call: Any) -> Value:
        attrs = attributes(call)
        scale = self._known(call.args[1], "the scale")
        zero_point = self._known(call.args[2], "the zero point")
        source = self.values[call.args[0]]
        if isinstance(source, Known):
            return quant_constant(source.value, scale, zero_point, attrs, self.layer)
        quantizer = UniformQuantizer.of(scale, zero_point, attrs, self.layer)
        return self._quantize(self._chain(call.args[0]), quantizer)

    def _bipolar_quant(self, call: Any) -> Value:
        scale = self._known(call.args[1], "the scale")
        source = self.values[call.args[0]]
        if isinstance(source, Known):
            return bipolar_constant(source.value, scale, self.layer)
        if np.unique(scale).size != 1 or not np.all(scale > 0):
            raise StageError("BipolarQuant needs one positive scale", layer=self.layer)
        half = np.float32(scale.reshape(-1)[0])
        return self._quantize(self._chain(call.args[0]), BipolarQuantizer(half))

    def _multi_threshold(self, call: Any) -> Value:
        thresholds = self._known(call.args[1], "the threshold table")
        quantizer = ThresholdQuantizer.of(thresholds, attributes(call), self.layer)
        return self._quantize(self._chain(call.args[0]), quantizer)

    # -- linear operators --------------------------------------------------------------------

    def _accumulate(
        self, data: Quantized, weight: KnownQuantized, ohwi: Array, padded: bool, call: Any
    ) -> Chain:
        """Emit a linear operator; the chain starts with the product of both units."""
        accumulator = self.builder.emit(call, self.layer)
        flat = numerators(ohwi, weight.zero_point_x2).reshape(ohwi.shape[0], -1).astype(np.int64)
        smallest, largest = data.numerator_range
        if padded:
            smallest, largest = min(smallest, 0), max(largest, 0)
        positive, negative = np.maximum(flat, 0).sum(1), np.minimum(flat, 0).sum(1)
        low = positive * smallest + negative * largest
        high = positive * largest + negative * smallest
        if max(-low.min(), high.max()) >= 1 << 31:
            raise StageError("the accumulator can exceed 32 bits", layer=self.layer)
        unit = (data.unit * weight.unit).astype(np.float32)
        steps = () if unit.ndim == 0 and unit == 1 else (step("multiply", unit),)
        return Chain(accumulator, steps, low.astype(np.int32), high.astype(np.int32))

    def _conv2d(self, call: Any) -> Value:
        attrs = call.attrs
        if [int(d) for d in attrs.dilation] != [1, 1]:
            raise StageError("dilated convolution has no integer form yet", layer=self.layer)
        data, weight = self._activation(call.args[0]), self._weight(call.args[1])
        padding = [int(p) for p in attrs.padding]
        ohwi = np.ascontiguousarray(weight.q.transpose(0, 2, 3, 1))
        return self._emit_conv2d(
            data, weight, ohwi, [int(s) for s in attrs.strides], padding, int(attrs.groups)
        )

    def _emit_conv2d(
        self,
        data: Quantized,
        weight: KnownQuantized,
        ohwi: Array,
        strides: list[int],
        padding: list[int],
        groups: int,
    ) -> Chain:
        call = integer.conv2d(
            data.variable,
            self._weight_tensor(weight, ohwi),
            strides=strides,
            padding=padding,
            groups=groups,
            data_zero_point_x2=data.zero_point_x2,
            weight_zero_point_x2=weight.zero_point_x2,
            pad_value=0,
        )
        return self._accumulate(data, weight, ohwi, any(padding), call)

    def _weight_tensor(self, weight: KnownQuantized, q: Array) -> Any:
        signed = q.min() < 0
        dtype = f"{'int' if signed else 'uint'}{weight.bits}"
        return self.builder.tensor(
            f"{self.layer}.weight", q.astype(np.int8 if signed else np.uint8), dtype
        )

    def _matmul(self, call: Any) -> Value:
        data, weight = self._activation(call.args[0]), self._weight(call.args[1])
        if weight.q.ndim != 2 or (weight.scale.ndim and weight.scale.size != weight.q.shape[1]):
            raise StageError("a matrix product needs 2-D constant weights", layer=self.layer)
        matrix = np.ascontiguousarray(weight.q.T)
        if data.flattened is not None:
            c, h, w = data.flattened
            ohwi = np.ascontiguousarray(matrix.reshape(-1, c, h, w).transpose(0, 2, 3, 1))
            return self._emit_conv2d(data, weight, ohwi, [1, 1], [0, 0, 0, 0], 1)
        dense = integer.dense(
            data.variable,
            self._weight_tensor(weight, matrix),
            data_zero_point_x2=data.zero_point_x2,
            weight_zero_point_x2=weight.zero_point_x2,
        )
        return self._accumulate(data, weight, matrix, False, dense)

    # -- elementwise -------------------------------------------------------------------------

    def _elementwise(self, call: Any) -> Value:
        op = ELEMENTWISE[call.op.name]
        left, right = (self.values[argument] for argument in call.args)
        if isinstance(right, Known):
            return self._chain(call.args[0]).then(step(op, self._channels(right.value, call)))
        if isinstance(left, Known) and op != "divide":
            reverse = "subtract_from" if op == "subtract" else op
            return self._chain(call.args[1]).then(step(reverse, self._channels(left.value, call)))
        if op == "add":
            return self._residual_add(call)
        raise StageError(f"{op} of two activations has no integer form", layer=self.layer)

    def _channels(self, constant: Array, call: Any) -> Array:
        """A broadcast constant as scalar or [C], channels last."""
        if constant.size == 1:
            return constant.reshape(())
        rank = len(call.ty.shape)
        shape = (1,) * (rank - constant.ndim) + constant.shape
        axis = 1 if rank in (2, 4) else rank - 1
        if constant.size == shape[axis] == int(call.ty.shape[axis]):
            return constant.reshape(-1)
        raise StageError(
            f"a constant of shape {list(constant.shape)} is neither one value nor one per channel",
            layer=self.layer,
        )

    def _batch_norm(self, call: Any) -> Value:
        names = ("gamma", "beta", "mean", "variance")
        gamma, beta, mean, variance = (
            self._known(argument, name) for argument, name in zip(call.args[1:], names, strict=True)
        )
        deviation = np.sqrt(variance + np.float32(attributes(call)["epsilon"]))
        return self._chain(call.args[0]).then(
            step("subtract", mean),
            step("multiply", gamma),
            step("divide", deviation),
            step("add", beta),
        )

    def _clip(self, call: Any) -> Value:
        low, high = (float(bound.value) for bound in call.args[1:])
        return self._chain(call.args[0]).then(step("maximum", low), step("minimum", high))

    def _residual_add(self, call: Any) -> Value:
        left, right = (self._addend(argument) for argument in call.args)
        if left.scale != right.scale:
            raise StageError(
                f"the addends are quantized at different scales, {left.scale} and {right.scale}",
                layer=self.layer,
                hint="quantize both at one shared scale",
            )
        points = left.zero_point_x2 // 2, right.zero_point_x2 // 2
        total = self.builder.emit(
            integer.add(
                left.variable, right.variable, lhs_zero_point=points[0], rhs_zero_point=points[1]
            ),
            self.layer,
        )
        channels = int(total.ty.shape[-1])
        low = -sum(points)
        return Chain(
            total,
            (step("multiply", left.scale),),
            np.full(channels, low, np.int32),
            np.full(channels, low + left.levels + right.levels - 2, np.int32),
        )

    def _addend(self, argument: Any) -> Quantized:
        value = self.values[argument]
        if isinstance(value, Chain):
            value = value.as_quantized() or value
        if not isinstance(value, Quantized) or value.zero_point_x2 % 2:
            raise StageError(
                "an addend is not quantized to integers",
                layer=self.layer,
                hint="put a Quant of 8 bits on both inputs of the addition, at one scale",
            )
        return value

    # -- pooling and shapes ------------------------------------------------------------------

    def _pool_attributes(self, call: Any) -> dict[str, Any]:
        attrs = call.attrs
        if bool(attrs.ceil_mode) or [int(d) for d in attrs.dilation] != [1, 1]:
            raise StageError(
                "pooling with ceil_mode or dilation has no integer form", layer=self.layer
            )
        return {
            "kernel": [int(k) for k in attrs.pool_size],
            "strides": [int(s) for s in attrs.strides],
            "padding": [int(p) for p in attrs.padding],
        }

    def _max_pool(self, call: Any) -> Value:
        pool = self._pool_attributes(call)
        source = self.values[call.args[0]]
        if isinstance(source, Quantized):
            variable = self.builder.emit(integer.max_pool2d(source.variable, **pool), self.layer)
            return Quantized(variable, source.scale, source.zero_point_x2, source.levels)
        chain = self._chain(call.args[0])
        if not chain.is_rising():
            raise StageError("max pooling of a tensor that falls with its input", layer=self.layer)
        return Chain(
            chain.base, chain.steps, chain.low, chain.high, (*chain.pools, pool), chain.quantized
        )

    def _average_pool(self, call: Any) -> Value:
        pool = self._pool_attributes(call)
        if any(pool["padding"]) and not bool(call.attrs.count_include_pad):
            raise StageError("average pooling that leaves out padding", layer=self.layer)
        return self._sum_pool(call, pool)

    def _mean(self, call: Any) -> Value:
        shape = shape_of(call.args[0].ty)
        if len(shape) != 4 or sorted(int(a) % 4 for a in call.attrs.axis) != [2, 3]:
            raise StageError("a mean over other axes than height and width", layer=self.layer)
        kernel = [shape[2], shape[3]]
        return self._sum_pool(call, {"kernel": kernel, "strides": [1, 1], "padding": [0, 0, 0, 0]})

    def _sum_pool(self, call: Any, pool: dict[str, Any]) -> Chain:
        """A mean: the integer sum, then the source's float scale and division by the count."""
        source = self._activation(call.args[0])
        if source.zero_point_x2 % 2:
            raise StageError("a mean of values with a half-integer zero point", layer=self.layer)
        point, count = source.zero_point_x2 // 2, pool["kernel"][0] * pool["kernel"][1]
        total = self.builder.emit(
            integer.sum_pool2d(source.variable, zero_point=point, **pool), self.layer
        )
        channels = int(total.ty.shape[-1])
        low, high = min(0, -point * count), max(0, (source.levels - 1 - point) * count)
        return Chain(
            total,
            (step("multiply", source.scale), step("divide", count)),
            np.full(channels, low, np.int32),
            np.full(channels, high, np.int32),
        )

    def _reshape(self, call: Any) -> Value:
        source, shape = self.values[call.args[0]], shape_of(call.ty)
        before = shape_of(call.args[0].ty)
        if before == shape:
            return source
        if isinstance(source, Chain) and not source.is_integer:
            if any(s.operand.ndim for s in source.steps):
                raise StageError("reshape of per-channel values", layer=self.layer)
            base = self.builder.emit(relax.op.reshape(source.base, shape), self.layer)
            return Chain(base, source.steps, pools=source.pools)
        pixels = int(np.prod(before[2:])) if len(before) == 4 else 1
        if isinstance(source, Quantized) and len(before) == 4 and len(shape) == 2:
            return Quantized(
                source.variable,
                source.scale,
                source.zero_point_x2,
                source.levels,
                (before[1], before[2], before[3]),
            )
        if isinstance(source, (Quantized, Chain)) and pixels == 1 and np.prod(shape) == before[1]:
            return source
        raise StageError(f"reshape from {list(before)} to {list(shape)}", layer=self.layer)

    def _permute(self, call: Any) -> Value:
        source = self.values[call.args[0]]
        if isinstance(source, KnownQuantized):
            axes = [int(a) for a in call.attrs.axes or range(source.q.ndim)[::-1]]
            return KnownQuantized(
                source.q.transpose(axes), source.scale, source.zero_point_x2, source.bits
            )
        raise StageError("transposing an activation has no integer form", layer=self.layer)

    def _output(self, result: Any, name: str) -> Any:
        """A graph output as the source lays it out: float32, NCHW."""
        chain = self._chain(result)
        shape = shape_of(result.ty)
        variable = chain.base
        if chain.is_integer:
            first = chain.steps[0] if chain.steps else None
            scale, rest = np.float32(1), chain.steps
            if first is not None and first.op == "multiply":
                scale, rest = first.operand, chain.steps[1:]
            variable = self.builder.emit(
                integer.dequantize(
                    variable, self.builder.tensor(f"{name}.scale", np.asarray(scale)), zero_point=0
                ),
                f"{name}.float",
            )
            chain = Chain(variable, rest, pools=chain.pools)
            if chain.pools:
                raise StageError("max pooling of a float output", layer=name)
        variable = emit_steps(self.builder, variable, chain, name)
        if len(variable.ty.shape) == 4 and len(shape) == 4 and chain.base is not result:
            variable = self.builder.emit(
                relax.op.permute_dims(variable, [0, 3, 1, 2]), f"{name}.nchw"
            )
        if shape_of(variable.ty) != shape:
            variable = self.builder.emit(relax.op.reshape(variable, shape), f"{name}.shape")
        return variable
