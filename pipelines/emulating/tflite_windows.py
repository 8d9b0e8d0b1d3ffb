"""How TensorFlow Lite's operators place windows: their strides, and what they pad by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from stages.importing.sliding_windows import Windows
from stages.importing.twins.tflite_operators import SAME, VALID


def strides_of(windows: Windows) -> dict[str, int]:
    """Return the strides as fields of an operator's options."""
    return {"stride_h": windows.strides[0], "stride_w": windows.strides[1]}


def padding_of(shape: Sequence[int], windows: Windows, exact: bool) -> int | None:
    """Return how an operator on an image [1, height, width, channels] pads by itself.

    None where another operator must pad before it. TensorFlow's SAME may put a window one pixel
    off; where that must not be, `exact`, it serves only if it pads as stated.
    """
    extents = (shape[1], shape[2])
    (top, bottom), (left, right) = (_same(extents[axis], windows, axis) for axis in (0, 1))
    height, width = (-(-extents[axis] // windows.strides[axis]) for axis in (0, 1))
    if not any(windows.pads):
        return VALID
    is_same = windows.pads == (top, left, bottom, right)
    is_same_size = windows.output_extents(extents) == (height, width)
    return SAME if is_same or (is_same_size and not exact) else None


def _same(extent: int, windows: Windows, axis: int) -> tuple[int, int]:
    """What TensorFlow's SAME pads before and behind an axis."""
    stride, reach = windows.strides[axis], windows.dilations[axis] * (windows.kernel[axis] - 1)
    total = max((-(-extent // stride) - 1) * stride + reach + 1 - extent, 0)
    return total // 2, total - total // 2
