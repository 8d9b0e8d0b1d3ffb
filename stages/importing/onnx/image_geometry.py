"""The geometry of convolutions and pools of one or two dimensions, which are computed as two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.importing.onnx.onnx_builder import RelaxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import Windows, picture_windows
from stages.importing.unsupported import UnsupportedError


class Picture:
    """The geometry of a convolution or pool of one or two dimensions, seen as two."""

    def __init__(self, node: Node, shape: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(shape) - 2
        if rank not in (1, 2) or len(kernel) != rank:
            raise UnsupportedError(
                f"reads a tensor of rank {len(shape)} with a kernel of {list(kernel)}; "
                "one and two dimensions are accepted"
            )
        self.is_line = rank == 1
        self.shape = self.flat(shape)
        try:
            self.windows: Windows = picture_windows(node.attributes, kernel, shape[2:])
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def flat(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape [.., .., W] as [.., .., 1, W]."""
        return (*shape[:2], 1, *shape[2:]) if self.is_line else tuple(shape)

    def opened(self, builder: RelaxBuilder, value: Any, name: str) -> Any:
        """Data as a picture."""
        return builder.reshaped(value, self.shape, f"{name}.picture")

    def closed(self, builder: RelaxBuilder, value: Any, name: str) -> Any:
        """A picture in the rank the data had."""
        if not self.is_line:
            return value
        n, c, _, w = (int(extent) for extent in value.ty.shape)
        return builder.reshaped(value, (n, c, w), f"{name}.line")
