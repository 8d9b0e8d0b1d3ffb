"""Convolutions, matrix products, pools and normalizations of exported programs (ATen)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.mean_variance import normalized
from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import Walk
from stages.importing.unsupported import UnsupportedError

MAX_EXTENT = 1 << 20


def _pair(walk: Walk, node: Node, name: str, default: Sequence[int], least: int) -> list[int]:
    values = walk.integers(node, name, list(default)) or list(default)
    values = values * 2 if len(values) == 1 else values
    if len(values) != 2 or not all(least <= value <= MAX_EXTENT for value in values):
        raise UnsupportedError(
            f"has {name} {values}; two of {least} to {MAX_EXTENT:,} are accepted"
        )
    return values


def _image(walk: Walk, node: Node, name: str) -> tuple[int, ...]:
    shape = walk.shape(walk.value(node, name))
    if len(shape) != 4:
        raise UnsupportedError(f"reads a tensor of rank {len(shape)}; [N, C, H, W] is accepted")
    return shape


def convolution(walk: Walk, node: Node) -> list[Any]:
    """conv2d and convolution: NCHW data, OIHW weights, a bias added after."""
    if walk.argument(node, "transposed", False):
        raise UnsupportedError("is transposed; plain convolutions are accepted")
    shape, kernel = _image(walk, node, "input"), _image(walk, node, "weight")
    groups = walk.whole(node, "groups", 1)
    if groups < 1 or kernel[1] * groups != shape[1] or kernel[0] % groups:
        raise UnsupportedError(
            f"has weights {list(kernel)} and {groups} groups for {shape[1]} channels"
        )
    dilation = _pair(walk, node, "dilation", (1, 1), 1)
    strides = _pair(walk, node, "stride", (1, 1), 1)
    call = relax.op.nn.conv2d(
        walk.read(node, "input"), walk.read(node, "weight"), strides=strides,
        padding=_padding(walk, node, kernel[2:], strides, dilation), dilation=dilation,
        groups=groups,
    )  # fmt: skip
    result = walk.emit(call, node.name)
    if not walk.has(node, "bias"):
        return [result]
    bias = walk.channels(node, "bias", (1, kernel[0], 1, 1))
    return [walk.emit(relax.op.add(result, bias), f"{node.name}.bias")]


def _padding(
    walk: Walk, node: Node, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Top, left, bottom, right; `same` puts the odd one below and to the right."""
    wanted = walk.argument(node, "padding", [0, 0])
    if not isinstance(wanted, str):
        return _pair(walk, node, "padding", (0, 0), 0) * 2
    if wanted == "valid":
        return [0, 0, 0, 0]
    if wanted != "same" or any(stride != 1 for stride in strides):
        raise UnsupportedError(f"has padding '{wanted}' and strides {list(strides)}")
    totals = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    before = [total // 2 for total in totals]
    return before + [total - half for total, half in zip(totals, before, strict=True)]


def linear(walk: Walk, node: Node) -> list[Any]:
    """`x @ weight.T + bias`."""
    if len(walk.shape(walk.value(node, "weight"))) != 2:
        raise UnsupportedError("has weights that are not [O, K]")
    turned = walk.emit(
        relax.op.permute_dims(walk.read(node, "weight"), [1, 0]), f"{node.name}.turned"
    )
    result = walk.emit(relax.op.matmul(walk.read(node, "input"), turned), node.name)
    if not walk.has(node, "bias"):
        return [result]
    return [walk.emit(relax.op.add(result, walk.read(node, "bias")), f"{node.name}.bias")]


def addmm(walk: Walk, node: Node) -> list[Any]:
    """`input + mat1 @ mat2`."""
    if walk.number(node, "beta", 1) != 1 or walk.number(node, "alpha", 1) != 1:
        raise UnsupportedError("has alpha or beta other than 1")
    call = relax.op.matmul(walk.read(node, "mat1"), walk.read(node, "mat2"))
    result = walk.emit(call, node.name)
    return [walk.emit(relax.op.add(result, walk.read(node, "self")), f"{node.name}.bias")]


def matmul(walk: Walk, node: Node) -> list[Any]:
    """mm, bmm and matmul."""
    other = "mat2" if "mat2" in node.arguments else "other"
    call = relax.op.matmul(walk.read(node, "self"), walk.read(node, other))
    return [walk.emit(call, node.name)]


def _windows(walk: Walk, node: Node) -> dict[str, Any]:
    shape = _image(walk, node, "self")
    kernel = _pair(walk, node, "kernel_size", (), 1)
    strides = _pair(walk, node, "stride", kernel, 1)
    padding = _pair(walk, node, "padding", (0, 0), 0)
    if any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
        raise UnsupportedError(f"has pads {padding} above half its kernel {kernel}")
    dilation = _pair(walk, node, "dilation", (1, 1), 1)
    if walk.argument(node, "ceil_mode", False):
        sizes = zip(shape[2:], kernel, strides, padding, dilation, strict=True)
        if any((n + 2 * p - d * (k - 1) - 1) % s for n, k, s, p, d in sizes):
            raise UnsupportedError("rounds its output size up (ceil_mode); pad it explicitly")
    if dilation != [1, 1]:
        raise UnsupportedError("has dilation; plain windows are accepted")
    return {"pool_size": kernel, "strides": strides, "padding": padding * 2}


def max_pool(walk: Walk, node: Node) -> list[Any]:
    """max_pool2d, also with indices that nobody reads."""
    call = relax.op.nn.max_pool2d(walk.read(node, "self"), **_windows(walk, node))
    return [walk.emit(call, node.name)]


def average_pool(walk: Walk, node: Node) -> list[Any]:
    """avg_pool2d."""
    if walk.has(node, "divisor_override"):
        raise UnsupportedError("has divisor_override; averages are accepted")
    include = bool(walk.argument(node, "count_include_pad", True))
    call = relax.op.nn.avg_pool2d(
        walk.read(node, "self"), **_windows(walk, node), count_include_pad=include
    )
    return [walk.emit(call, node.name)]


def adaptive_average_pool(walk: Walk, node: Node) -> list[Any]:
    """adaptive_avg_pool2d to sizes that divide the image's."""
    shape, wanted = _image(walk, node, "self"), walk.integers(node, "output_size")
    if wanted == [1, 1]:
        call = relax.op.mean(walk.read(node, "self"), axis=[2, 3], keepdims=True)
        return [walk.emit(call, node.name)]
    if len(wanted) != 2 or min(wanted) < 1 or shape[2] % wanted[0] or shape[3] % wanted[1]:
        raise UnsupportedError(f"averages {list(shape[2:])} to {wanted}, which does not divide it")
    kernel = [shape[2] // wanted[0], shape[3] // wanted[1]]
    call = relax.op.nn.avg_pool2d(walk.read(node, "self"), pool_size=kernel, strides=kernel)
    return [walk.emit(call, node.name)]


def batch_norm(walk: Walk, node: Node) -> list[Any]:
    """Batch normalization at inference: one product and one sum a channel."""
    if walk.argument(node, "training", False):
        raise UnsupportedError("is in training mode; export the model in eval mode")
    shape = walk.shape(walk.value(node, "input"))
    if len(shape) < 2:
        raise UnsupportedError(f"normalizes a tensor of rank {len(shape)}")
    mean, variance = (
        walk.constant(node, name).astype(np.float32) for name in ("running_mean", "running_var")
    )
    gamma, beta = (
        walk.constant(node, name).astype(np.float32) if walk.has(node, name) else default
        for name, default in (("weight", np.ones_like(mean)), ("bias", np.zeros_like(mean)))
    )
    if any(each.shape != (shape[1],) for each in (mean, variance, gamma, beta)):
        raise UnsupportedError(f"has parameters that are not [{shape[1]}]")
    widened = variance + np.float32(walk.number(node, "eps", 1e-5))
    if not (widened > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    scale = gamma / np.sqrt(widened)
    view = (1, -1) + (1,) * (len(shape) - 2)
    factor = walk.tensor(scale.reshape(view), f"{node.name}.scale")
    offset = walk.tensor((beta - mean * scale).reshape(view), f"{node.name}.offset")
    product = walk.emit(relax.op.multiply(walk.read(node, "input"), factor), f"{node.name}.scaled")
    return [walk.emit(relax.op.add(product, offset), node.name)]


def layer_norm(walk: Walk, node: Node) -> list[Any]:
    """Layer normalization over the last axes."""
    shape = walk.shape(walk.value(node, "input"))
    extents = walk.integers(node, "normalized_shape")
    if not extents or tuple(extents) != shape[-len(extents) :]:
        raise UnsupportedError(f"normalizes {extents} of {list(shape)}")
    axes, data = list(range(len(shape) - len(extents), len(shape))), walk.read(node, "input")
    name = node.name
    epsilon = walk.tensor(np.asarray(walk.number(node, "eps", 1e-5), np.float32), f"{name}.eps")
    result = normalized(walk.emit, data, axes, epsilon, name).values
    if walk.has(node, "weight"):
        result = walk.emit(relax.op.multiply(result, walk.read(node, "weight")), f"{name}.scaled")
    if walk.has(node, "bias"):
        result = walk.emit(relax.op.add(result, walk.read(node, "bias")), f"{name}.shifted")
    return [result]


def embedding(walk: Walk, node: Node) -> list[Any]:
    """Rows of a table."""
    if len(walk.shape(walk.value(node, "weight"))) != 2:
        raise UnsupportedError("has a table that is not [entries, width]")
    indices = walk.read(node, "indices")
    shape = walk.shape(indices)
    flat = walk.reshape(indices, (prod(shape),), f"{node.name}.indices")
    rows = walk.emit(relax.op.take(walk.read(node, "weight"), flat, axis=0), f"{node.name}.rows")
    width = walk.shape(rows)[1]
    return [walk.reshape(rows, (*shape, width), node.name)]
