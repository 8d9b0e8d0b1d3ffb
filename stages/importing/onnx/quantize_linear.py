"""Converters of QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx as onnx_package
from tvm import relax

from stages.dialect.calls import storage_dtype
from stages.dialect.dtypes import limits
from stages.dialect.operators import OPERATORS
from stages.importing.onnx.negative_scales import with_positive_scales
from stages.importing.onnx.onnx_builder import Dequantized, OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.scale_views import Views, views
from stages.importing.unsupported import UnsupportedError
from stages.numerics import linear_quantizers, onnx_elementwise, rule_names

Array = np.ndarray[Any, Any]


def positive(scale: Array, name: str) -> Array:
    """A scale that can be divided by; UnsupportedError for zero, negative, infinite and NaN."""
    if scale.dtype != np.float32:
        raise UnsupportedError(f"has the scale '{name}' of type {scale.dtype}; float32 is accepted")
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise UnsupportedError(f"has the scale '{name}', which is not positive everywhere")
    return scale


def quantize_linear(builder: OnnxBuilder, node: Node) -> Any:
    """QuantizeLinear of floats (int32 is cast first), per tensor, per axis or in blocks."""
    x, scale_name = node.inputs[:2]
    dtype = _quantized_dtype(builder, node)
    seen = views(builder.shape(x), builder.shape(scale_name), node)
    low, high = limits(dtype)
    if x in builder.constants and scale_name in builder.constants:
        return _folded(builder, node, seen, dtype)
    value = builder.read(x)
    if builder.dtype(x) == "int32":
        value = builder.emit(relax.op.astype(value, "float32"), f"{node.layer}.float")
    value = builder.reshaped(value, seen.data, f"{node.layer}.blocks")
    scale, zero_point = _grid(builder, node, seen, dtype)
    call = linear_quantizers.quantize_linear(value, scale, zero_point, low=low, high=high)
    result = builder.emit(call, node.layer)
    return builder.reshaped(result, builder.shape(x), f"{node.layer}.shaped")


def _folded(builder: OnnxBuilder, node: Node, seen: Views, dtype: str) -> Array:
    """Constant weights that the file quantizes: their integers."""
    x, scale_name = node.inputs[:2]
    scale = seen.of_scale(positive(builder.constant(scale_name), scale_name))
    zero_point = np.zeros((), storage_dtype(dtype))
    if node.has(2):
        zero_point = seen.of_scale(builder.constant(node.inputs[2]).astype(storage_dtype(dtype)))
    low, high = limits(dtype)
    meaning = OPERATORS[rule_names.QNN_QUANTIZE_LINEAR].meaning
    data = builder.constant(x).astype(np.float32).reshape(seen.data)
    result = meaning(data, scale, zero_point, low=low, high=high)
    named = onnx_package.helper.tensor_dtype_to_np_dtype(
        onnx_package.TensorProto.DataType.Value(dtype.upper())
    )
    return np.asarray(result.reshape(builder.shape(x)).astype(named))


def dequantize_linear(builder: OnnxBuilder, node: Node) -> Any:
    """DequantizeLinear, per tensor, per axis or in blocks; scales of constants may be negative."""
    node = with_positive_scales(builder, node)
    x, scale_name = node.inputs[:2]
    dtype = builder.dtype(x)
    if dtype not in linear_quantizers.DEQUANTIZED:
        raise UnsupportedError(
            f"reads {dtype}; {', '.join(linear_quantizers.DEQUANTIZED)} are accepted"
        )
    seen = views(builder.shape(x), builder.shape(scale_name), node)
    scale, zero_point = _grid(builder, node, seen, dtype)
    value = builder.read(x, seen.data)
    if x not in builder.constants:
        value = builder.reshaped(value, seen.data, f"{node.layer}.blocks")
    result = builder.emit(linear_quantizers.dequantize_linear(value, scale, zero_point), node.layer)
    if all(name in builder.constants for name in node.inputs if name):
        builder.dequantized[node.outputs[0]] = _dequantized(builder, node, seen)
    return builder.reshaped(result, builder.shape(x), f"{node.layer}.shaped")


def _dequantized(builder: OnnxBuilder, node: Node, seen: Views) -> Dequantized:
    """Constants that the file dequantizes."""
    stored, scale, *stated = (builder.constants[name] for name in node.inputs if name)
    zero_point = seen.of_scale(stated[0]) if stated else np.zeros((), stored.dtype)
    return Dequantized(stored.reshape(seen.data), seen.of_scale(scale), zero_point, stored.shape)


def _quantized_dtype(builder: OnnxBuilder, node: Node) -> str:
    if node.has(2):
        dtype = builder.dtype(node.inputs[2])
    else:
        code = int(node.attributes.get("output_dtype", 0)) or onnx_package.TensorProto.UINT8
        dtype = onnx_package.TensorProto.DataType.Name(code).lower()
    if dtype not in linear_quantizers.QUANTIZED:
        raise UnsupportedError(
            f"gives {dtype}; {', '.join(linear_quantizers.QUANTIZED)} are accepted"
        )
    if builder.dtype(node.inputs[0]) not in ("float32", "int32"):
        raise UnsupportedError(f"reads {builder.dtype(node.inputs[0])}; float32 is accepted")
    return dtype


def _grid(builder: OnnxBuilder, node: Node, seen: Views, dtype: str) -> tuple[Any, Any]:
    """Scale and zero point as operands; a missing zero point is 0."""
    scale_name = node.inputs[1]
    if scale_name in builder.constants:
        values = seen.of_scale(positive(builder.constant(scale_name), scale_name))
        scale = builder.parameter(scale_name, values)
    else:
        scale = _viewed(builder, scale_name, seen)
    if not node.has(2):
        zeros = np.zeros((), storage_dtype(dtype))
        return scale, builder.tensor(f"{node.layer}.zero_point", zeros, dtype)
    name = node.inputs[2]
    shapes = [builder.shape(each) for each in (name, scale_name)]
    if builder.dtype(name) != dtype or (shapes[0] != shapes[1] and set(shapes) != {(), (1,)}):
        raise UnsupportedError(
            f"has the zero point '{name}' of {builder.dtype(name)} {list(builder.shape(name))} "
            f"for {dtype} and scales {list(builder.shape(scale_name))}"
        )
    if name in builder.constants:
        return scale, builder.parameter(name, seen.of_scale(builder.constant(name)))
    return scale, _viewed(builder, name, seen)


def _viewed(builder: OnnxBuilder, tensor: str, seen: Views) -> Any:
    if seen.repeat is not None:
        raise UnsupportedError(f"computes '{tensor}' for blocks that do not divide the data")
    return builder.reshaped(builder.read(tensor), seen.scale, f"{tensor}.view")


def dynamic_quantize_linear(builder: OnnxBuilder, node: Node) -> tuple[Any, Any, Any]:
    """DynamicQuantizeLinear: uint8 values, their scale and zero point, from the data's range."""
    x, layer = builder.read(node.inputs[0]), node.layer
    low = builder.emit(relax.op.min(x), f"{layer}.low")
    high = builder.emit(relax.op.max(x), f"{layer}.high")
    scale = builder.emit(onnx_elementwise.dynamic_scale(low, high), f"{layer}.scale")
    zero_point = builder.emit(
        onnx_elementwise.dynamic_zero_point(low, scale), f"{layer}.zero_point"
    )
    call = linear_quantizers.quantize_linear(x, scale, zero_point, low=0, high=255)
    return builder.emit(call, layer), scale, zero_point
