"""The geometry of convolutions and pools of one or two dimensions, which are computed as two."""

from __future__ import annotations

from collections.abc import Sequence

from stages.dialect.calls import shape_of
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import Windows, image_windows
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Var


class ImageGeometry:
    """Data and windows of a convolution or pool; a row [N, C, W] is an image one pixel high.

    `shape` is that of the image, [N, C, H, W].
    """

    def __init__(self, node: Node, shape: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(shape) - 2
        if rank not in (1, 2) or len(kernel) != rank:
            raise UnsupportedError(
                f"reads a tensor of rank {len(shape)} with a kernel of {list(kernel)}; "
                "one and two dimensions are accepted"
            )
        self.is_row = rank == 1
        self.shape = self.image_shape(shape)
        try:
            self.windows: Windows = image_windows(node.attributes, kernel, shape[2:])
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def image_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape [.., .., W] of data or weights as [.., .., 1, W]."""
        return (*shape[:2], 1, *shape[2:]) if self.is_row else tuple(shape)

    def to_image(self, builder: OnnxBuilder, value: Var, name: str) -> Var:
        """Data as an image."""
        return builder.reshaped(value, self.shape, f"{name}.image")

    def from_image(self, builder: OnnxBuilder, value: Var, name: str) -> Var:
        """An image in the rank the data had."""
        if not self.is_row:
            return value
        n, c, _, w = shape_of(value.ty)
        return builder.reshaped(value, (n, c, w), f"{name}.line")
