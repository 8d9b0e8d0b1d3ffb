"""Convolutions, matrix products, pools and normalizations of exported programs (ATen)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.mean_variance import normalized
from stages.importing.relax_builder import value_shape
from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import TorchBuilder
from stages.importing.unsupported import UnsupportedError

MAX_EXTENT = 1 << 20


def _pair(
    builder: TorchBuilder, node: Node, name: str, default: Sequence[int], least: int
) -> list[int]:
    values = builder.integers(node, name, list(default)) or list(default)
    values = values * 2 if len(values) == 1 else values
    if len(values) != 2 or not all(least <= value <= MAX_EXTENT for value in values):
        raise UnsupportedError(
            f"has {name} {values}; two of {least} to {MAX_EXTENT:,} are accepted"
        )
    return values


def _image(builder: TorchBuilder, node: Node, name: str) -> tuple[int, ...]:
    shape = value_shape(builder.value_at(node, name))
    if len(shape) != 4:
        raise UnsupportedError(f"reads a tensor of rank {len(shape)}; [N, C, H, W] is accepted")
    return shape


def convolution(builder: TorchBuilder, node: Node) -> list[Any]:
    """conv2d and convolution: NCHW data, OIHW weights, a bias added after."""
    if builder.argument(node, "transposed", False):
        raise UnsupportedError("is transposed; plain convolutions are accepted")
    shape, kernel = _image(builder, node, "input"), _image(builder, node, "weight")
    groups = builder.whole(node, "groups", 1)
    if groups < 1 or kernel[1] * groups != shape[1] or kernel[0] % groups:
        raise UnsupportedError(
            f"has weights {list(kernel)} and {groups} groups for {shape[1]} channels"
        )
    dilation = _pair(builder, node, "dilation", (1, 1), 1)
    strides = _pair(builder, node, "stride", (1, 1), 1)
    call = relax.op.nn.conv2d(
        builder.read_at(node, "input"), builder.read_at(node, "weight"), strides=strides,
        padding=_padding(builder, node, kernel[2:], strides, dilation), dilation=dilation,
        groups=groups,
    )  # fmt: skip
    result = builder.emit(call, node.name)
    if not builder.has(node, "bias"):
        return [result]
    bias = builder.channels(node, "bias", (1, kernel[0], 1, 1))
    return [builder.emit(relax.op.add(result, bias), f"{node.name}.bias")]


def _padding(
    builder: TorchBuilder,
    node: Node,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Top, left, bottom, right; `same` puts the odd one below and to the right."""
    wanted = builder.argument(node, "padding", [0, 0])
    if not isinstance(wanted, str):
        return _pair(builder, node, "padding", (0, 0), 0) * 2
    if wanted == "valid":
        return [0, 0, 0, 0]
    if wanted != "same" or any(stride != 1 for stride in strides):
        raise UnsupportedError(f"has padding '{wanted}' and strides {list(strides)}")
    totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    before = [total // 2 for total in totals]
    return before + [total - half for total, half in zip(totals, before, strict=True)]


def linear(builder: TorchBuilder, node: Node) -> list[Any]:
    """`x @ weight.T + bias`."""
    if len(value_shape(builder.value_at(node, "weight"))) != 2:
        raise UnsupportedError("has weights that are not [O, K]")
    transposed = builder.emit(
        relax.op.permute_dims(builder.read_at(node, "weight"), [1, 0]), f"{node.name}.transposed"
    )
    result = builder.emit(relax.op.matmul(builder.read_at(node, "input"), transposed), node.name)
    if not builder.has(node, "bias"):
        return [result]
    return [builder.emit(relax.op.add(result, builder.read_at(node, "bias")), f"{node.name}.bias")]


def addmm(builder: TorchBuilder, node: Node) -> list[Any]:
    """`input + mat1 @ mat2`."""
    if builder.number(node, "beta", 1) != 1 or builder.number(node, "alpha", 1) != 1:
        raise UnsupportedError("has alpha or beta other than 1")
    call = relax.op.matmul(builder.read_at(node, "mat1"), builder.read_at(node, "mat2"))
    result = builder.emit(call, node.name)
    return [builder.emit(relax.op.add(result, builder.read_at(node, "self")), f"{node.name}.bias")]


def matmul(builder: TorchBuilder, node: Node) -> list[Any]:
    """mm, bmm and matmul."""
    other = "mat2" if "mat2" in node.arguments else "other"
    call = relax.op.matmul(builder.read_at(node, "self"), builder.read_at(node, other))
    return [builder.emit(call, node.name)]


def _windows(builder: TorchBuilder, node: Node) -> dict[str, Any]:
    shape = _image(builder, node, "self")
    kernel = _pair(builder, node, "kernel_size", (), 1)
    strides = _pair(builder, node, "stride", kernel, 1)
    padding = _pair(builder, node, "padding", (0, 0), 0)
    if any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
        raise UnsupportedError(f"has pads {padding} above half its kernel {kernel}")
    dilation = _pair(builder, node, "dilation", (1, 1), 1)
    if builder.argument(node, "ceil_mode", False):
        sizes = zip(shape[2:], kernel, strides, padding, dilation, strict=True)
        if any((n + 2 * p - d * (k - 1) - 1) % s for n, k, s, p, d in sizes):
            raise UnsupportedError("rounds its output size up (ceil_mode); pad it explicitly")
    if dilation != [1, 1]:
        raise UnsupportedError("has dilation; plain windows are accepted")
    return {"pool_size": kernel, "strides": strides, "padding": padding * 2}


def max_pool(builder: TorchBuilder, node: Node) -> list[Any]:
    """max_pool2d, also with indices that nobody reads."""
    call = relax.op.nn.max_pool2d(builder.read_at(node, "self"), **_windows(builder, node))
    return [builder.emit(call, node.name)]


def average_pool(builder: TorchBuilder, node: Node) -> list[Any]:
    """avg_pool2d."""
    if builder.has(node, "divisor_override"):
        raise UnsupportedError("has divisor_override; averages are accepted")
    include = bool(builder.argument(node, "count_include_pad", True))
    call = relax.op.nn.avg_pool2d(
        builder.read_at(node, "self"), **_windows(builder, node), count_include_pad=include
    )
    return [builder.emit(call, node.name)]


def adaptive_average_pool(builder: TorchBuilder, node: Node) -> list[Any]:
    """adaptive_avg_pool2d to sizes that divide the image's."""
    shape, wanted = _image(builder, node, "self"), builder.integers(node, "output_size")
    if wanted == [1, 1]:
        call = relax.op.mean(builder.read_at(node, "self"), axis=[2, 3], keepdims=True)
        return [builder.emit(call, node.name)]
    if len(wanted) != 2 or min(wanted) < 1 or shape[2] % wanted[0] or shape[3] % wanted[1]:
        raise UnsupportedError(f"averages {list(shape[2:])} to {wanted}, which does not divide it")
    kernel = [shape[2] // wanted[0], shape[3] // wanted[1]]
    call = relax.op.nn.avg_pool2d(builder.read_at(node, "self"), pool_size=kernel, strides=kernel)
    return [builder.emit(call, node.name)]


def batch_norm(builder: TorchBuilder, node: Node) -> list[Any]:
    """Batch normalization at inference: one product and one sum a channel."""
    if builder.argument(node, "training", False):
        raise UnsupportedError("is in training mode; export the model in eval mode")
    shape = value_shape(builder.value_at(node, "input"))
    if len(shape) < 2:
        raise UnsupportedError(f"normalizes a tensor of rank {len(shape)}")
    mean, variance = (
        builder.constant_at(node, name).astype(np.float32)
        for name in ("running_mean", "running_var")
    )
    gamma, beta = (
        builder.constant_at(node, name).astype(np.float32) if builder.has(node, name) else default
        for name, default in (("weight", np.ones_like(mean)), ("bias", np.zeros_like(mean)))
    )
    if any(each.shape != (shape[1],) for each in (mean, variance, gamma, beta)):
        raise UnsupportedError(f"has parameters that are not [{shape[1]}]")
    widened = variance + np.float32(builder.number(node, "eps", 1e-5))
    if not (widened > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    scale = gamma / np.sqrt(widened)
    view = (1, -1) + (1,) * (len(shape) - 2)
    factor = builder.held(scale.reshape(view), f"{node.name}.scale")
    offset = builder.held((beta - mean * scale).reshape(view), f"{node.name}.offset")
    product = builder.emit(
        relax.op.multiply(builder.read_at(node, "input"), factor), f"{node.name}.scaled"
    )
    return [builder.emit(relax.op.add(product, offset), node.name)]


def layer_norm(builder: TorchBuilder, node: Node) -> list[Any]:
    """Layer normalization over the last axes."""
    shape = value_shape(builder.value_at(node, "input"))
    extents = builder.integers(node, "normalized_shape")
    if not extents or tuple(extents) != shape[-len(extents) :]:
        raise UnsupportedError(f"normalizes {extents} of {list(shape)}")
    axes, data = list(range(len(shape) - len(extents), len(shape))), builder.read_at(node, "input")
    name = node.name
    epsilon = builder.held(np.asarray(builder.number(node, "eps", 1e-5), np.float32), f"{name}.eps")
    result = normalized(builder.emit, data, axes, epsilon, name).values
    if builder.has(node, "weight"):
        result = builder.emit(
            relax.op.multiply(result, builder.read_at(node, "weight")), f"{name}.scaled"
        )
    if builder.has(node, "bias"):
        result = builder.emit(
            relax.op.add(result, builder.read_at(node, "bias")), f"{name}.shifted"
        )
    return [result]


def embedding(builder: TorchBuilder, node: Node) -> list[Any]:
    """Rows of a table."""
    if len(value_shape(builder.value_at(node, "weight"))) != 2:
        raise UnsupportedError("has a table that is not [entries, width]")
    indices = builder.read_at(node, "indices")
    shape = value_shape(indices)
    flat = builder.in_shape(indices, (prod(shape),), f"{node.name}.indices")
    rows = builder.emit(
        relax.op.take(builder.read_at(node, "weight"), flat, axis=0), f"{node.name}.rows"
    )
    width = value_shape(rows)[1]
    return [builder.in_shape(rows, (*shape, width), node.name)]
