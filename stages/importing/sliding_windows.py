"""Arithmetic of sliding windows: where ONNX's padding attributes put them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.dialect.infer import output_size
from stages.dialect.padding import Sides

MAX_EXTENT = 1 << 20


@dataclass(frozen=True)
class Windows:
    """Two-dimensional windows; `pads` is (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    def output_extents(self, extents: Sequence[int]) -> tuple[int, int]:
        """Height and width of the result over an input of these extents, rounded down."""
        padded = Sides(*self.pads).around(*extents)
        return output_size(padded, self.kernel, self.strides, self.dilations)


def windows_of(
    attributes: Mapping[str, Any], kernel: Sequence[int], extents: Sequence[int]
) -> Windows:
    """The windows of a Conv or pooling node over an input of height and width `extents`.

    Raises ValueError with a sentence for what ONNX does not define or two dimensions cannot hold.
    """
    if len(kernel) != 2:
        raise ValueError(f"has a {len(kernel)}-dimensional kernel; 2 dimensions are accepted")
    strides = _pair(attributes, "strides")
    dilations = _pair(attributes, "dilations")
    if min(kernel) < 1 or min(strides) < 1 or min(dilations) < 1:
        raise ValueError("has a kernel, stride or dilation below 1")
    auto_pad = attributes.get("auto_pad") or "NOTSET"
    if auto_pad == "NOTSET":
        pads = tuple(attributes.get("pads") or (0, 0, 0, 0))
        if len(pads) != 4 or min(pads) < 0:
            raise ValueError(f"has pads {list(pads)}; four values of at least 0 are accepted")
    elif auto_pad == "VALID":
        pads = (0, 0, 0, 0)
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(auto_pad, kernel, strides, dilations, extents)
    else:
        raise ValueError(f"has auto_pad {auto_pad}, which ONNX does not define")
    if max(*kernel, *strides, *dilations, *pads) > MAX_EXTENT:
        raise ValueError(f"has a kernel, stride, dilation or pad above {MAX_EXTENT:,}")
    windows = Windows((kernel[0], kernel[1]), strides, dilations, (pads[0], pads[1], *pads[2:4]))
    if min(windows.output_extents(extents)) < 1:
        raise ValueError(f"has a {kernel[0]}x{kernel[1]} kernel larger than its padded input")
    return windows


def image_windows(
    attributes: Mapping[str, Any], kernel: Sequence[int], extents: Sequence[int]
) -> Windows:
    """The windows of a node of one or two dimensions; a row is an image one pixel high."""
    if len(kernel) != 1:
        return windows_of(attributes, kernel, extents)
    flat = dict(attributes)
    for name in ("strides", "dilations"):
        flat[name] = [1, *(attributes.get(name) or [1])]
    if attributes.get("pads"):
        if len(attributes["pads"]) != 2:
            pads = list(attributes["pads"])
            raise ValueError(f"has pads {pads}; two values of at least 0 are accepted")
        begin, end = attributes["pads"]
        flat["pads"] = [0, begin, 0, end]
    return windows_of(flat, (1, *kernel), (1, *extents))


def _pair(attributes: Mapping[str, Any], name: str) -> tuple[int, int]:
    values = attributes.get(name) or (1, 1)
    if len(values) != 2:
        raise ValueError(f"has {len(values)} {name}; 2 are accepted")
    return values[0], values[1]


def _same_pads(
    auto_pad: str,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extents: Sequence[int],
) -> tuple[int, int, int, int]:
    """Pads that make the output ceil(input / stride); the odd one goes below or above."""
    begins, ends = [], []
    for i in (0, 1):
        outputs = -(-extents[i] // strides[i])
        reach = (outputs - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1
        total = max(0, reach - extents[i])
        less, more = total // 2, total - total // 2
        begins.append(less if auto_pad == "SAME_UPPER" else more)
        ends.append(more if auto_pad == "SAME_UPPER" else less)
    return begins[0], begins[1], ends[0], ends[1]
