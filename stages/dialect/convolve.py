"""Windows of NHWC images in NumPy, and the sums of products that convolutions are made of.

Sums are taken in float64, whose 53 bits hold every accumulator that int32 can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.kinds import Array


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int] = (1, 1)
) -> Array:
    """Sliding windows of a padded NHWC tensor: [N, OH, OW, C, KH, KW] (a view)."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(1, 2))
    return view[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]


def pad_spatial(x: Array, padding: Sequence[int], value: float) -> Array:
    """`x` (NHWC) padded by (top, left, bottom, right) with `value`."""
    top, left, bottom, right = padding
    return np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=value)


def convolve(
    data: Array,
    weight: Array,
    strides: Sequence[int],
    groups: int,
    dilation: Sequence[int] = (1, 1),
    dtype: str = "int32",
) -> Array:
    """Integer convolution of padded NHWC numerators with OHWI numerators: [N, OH, OW, O]."""
    oc, kh, kw, group_channels = weight.shape
    view = windows(data.astype(np.float64), (kh, kw), strides, dilation)
    n, oh, ow = view.shape[:3]
    if group_channels == 1:
        taps = weight.reshape(groups, oc // groups, kh, kw).astype(np.float64)
        sums = np.einsum("nhwckl,cmkl->nhwcm", view, taps, optimize=True)
        return sums.reshape(n, oh, ow, oc).astype(dtype)
    parts = []
    for group in range(groups):
        channels = slice(group * group_channels, (group + 1) * group_channels)
        outputs = slice(group * oc // groups, (group + 1) * oc // groups)
        columns = view[:, :, :, channels].transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)
        matrix = weight[outputs].reshape(oc // groups, -1).astype(np.float64)
        parts.append((columns @ matrix.T).reshape(n, oh, ow, -1))
    return np.concatenate(parts, axis=3).astype(dtype)
