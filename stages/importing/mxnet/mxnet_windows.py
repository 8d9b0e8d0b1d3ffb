"""Convolutions and pools as MXNet's attributes describe them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.dialect.convolve import pad_spatial
from stages.dialect.convolve import windows as sliding
from stages.dialect.zero_point import AT_ZERO
from stages.importing.mxnet.mxnet_builder import MxnetBuilder
from stages.importing.mxnet.symbol import Attributes
from stages.importing.sliding_windows import MAX_EXTENT, Windows
from stages.importing.unsupported import UnsupportedError


def windows_of(attributes: Attributes) -> Windows:
    """Windows of Convolution; UnsupportedError for others than two-dimensional ones."""
    kernel = attributes.integers("kernel")
    pairs = [
        attributes.integers(name, default)
        for name, default in (("stride", (1, 1)), ("dilate", (1, 1)), ("pad", (0, 0)))
    ]
    if any(len(pair) != 2 for pair in (kernel, *pairs)):
        raise UnsupportedError(f"has a kernel {list(kernel)}; two dimensions are accepted")
    strides, dilation, pad = pairs
    values = (*kernel, *strides, *dilation)
    if min(values) < 1 or min(pad) < 0 or max(*values, *pad) > MAX_EXTENT:
        raise UnsupportedError(
            f"has kernel {list(kernel)}, stride {list(strides)}, dilation {list(dilation)} and pad "
            f"{list(pad)}; 1 to {MAX_EXTENT:,} are accepted, and pads from 0"
        )
    y, x = pad
    return Windows(
        (kernel[0], kernel[1]), (strides[0], strides[1]), (dilation[0], dilation[1]), (y, x, y, x)
    )


def check_kernel(windows: Windows, weight: tuple[int, ...]) -> None:
    """Raise UnsupportedError unless OIHW weights have the kernel that the attributes state."""
    if len(weight) != 4 or weight[2:] != windows.kernel:
        raise UnsupportedError(
            f"has weights of shape {list(weight)} and a kernel {list(windows.kernel)}"
        )


def pool_windows(attributes: Attributes, extents: tuple[int, int]) -> Windows:
    """Windows of Pooling over an image of these extents."""
    if attributes.flag("global_pool"):
        return Windows(extents, (1, 1), (1, 1), (0, 0, 0, 0))
    plain = windows_of(attributes)
    top, left, bottom, right = plain.pads
    if max(top, left) >= min(plain.kernel):
        raise UnsupportedError(f"has pads {list(plain.pads[:2])} as large as its kernel")
    convention = attributes.text("pooling_convention", "valid")
    if convention not in ("valid", "full"):
        raise UnsupportedError(f"has pooling_convention {convention}; valid or full is accepted")
    if convention == "full":
        # The last window may reach over the edge by less than a stride.
        bottom += _missing(extents[0] + 2 * top, plain.kernel[0], plain.strides[0])
        right += _missing(extents[1] + 2 * left, plain.kernel[1], plain.strides[1])
        if bottom >= plain.kernel[0] or right >= plain.kernel[1]:
            raise UnsupportedError("has windows that lie wholly in the padding")
    return Windows(plain.kernel, plain.strides, plain.dilations, (top, left, bottom, right))


def _missing(size: int, kernel: int, stride: int) -> int:
    return -(size - kernel) % stride if size >= kernel else kernel - size


def counts(windows: Windows, extents: tuple[int, int]) -> Any:
    """How many values of an image each window holds, padding excluded: int32 [OH, OW]."""
    inside = pad_spatial(np.ones((1, *extents, 1), np.int32), windows.pads, 0)
    view = sliding(inside, windows.kernel, windows.strides)
    return view.sum(axis=(4, 5), dtype=np.int32)[0, :, :, 0]


def convolve(
    builder: MxnetBuilder,
    data: Any,
    weight: Any,
    windows: Windows,
    groups: int,
    name: str,
    **stated: Any,
) -> Any:
    """Integer convolution of NHWC `data` with OHWI `weight`: int32 NHWC."""
    points = {"data_zero_point": AT_ZERO, "weight_zero_point": AT_ZERO, "pad_value": 0} | stated
    call = integer.conv2d(
        data, weight, strides=list(windows.strides), padding=list(windows.pads), groups=groups,
        dilation=list(windows.dilations), **points,
    )  # fmt: skip
    return builder.emit(call, name)


def float_convolve(
    builder: MxnetBuilder, data: Any, weight: Any, windows: Windows, groups: int, name: str
) -> Any:
    """float32 convolution, NCHW by OIHW."""
    call = relax.op.nn.conv2d(
        data, weight, strides=list(windows.strides), padding=list(windows.pads),
        dilation=list(windows.dilations), groups=groups,
    )  # fmt: skip
    return builder.emit(call, name)
