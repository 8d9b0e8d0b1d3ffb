"""Windows as PyTorch's operators have them: as many pads before an axis as behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelines.benchmarks.qdq_pairs import NoTwinError
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import Windows, windows_of


def pool_windows(node: Node, extents: Sequence[int]) -> Windows:
    """Return the windows of a pooling node; NoTwinError for extents that are rounded up."""
    if node.attributes.get("ceil_mode"):
        raise NoTwinError(f"'{node.layer}' rounds its extents up")
    return windows_of(node.attributes, node.attributes["kernel_shape"], extents)


def evened(windows: Windows) -> Windows:
    """Return windows with the larger pad of each axis on both of its sides."""
    top, left, bottom, right = windows.pads
    height, width = max(top, bottom), max(left, right)
    return replace(windows, pads=(height, width, height, width))


def rounded_up(windows: Windows, extents: Sequence[int]) -> tuple[int, ...]:
    """Return what PyTorch's ceil_mode gives, with the first pads on both sides."""
    found = []
    for i in (0, 1):
        reach = windows.dilations[i] * (windows.kernel[i] - 1) + 1
        count = -(-(extents[i] + 2 * windows.pads[i] - reach) // windows.strides[i]) + 1
        # A window that would begin behind the input is left out.
        begins_inside = (count - 1) * windows.strides[i] < extents[i] + windows.pads[i]
        found.append(count if begins_inside else count - 1)
    return tuple(found)
