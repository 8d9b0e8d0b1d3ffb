"""What a zoo network is: named layers over named tensors, whatever their precision.

One description of a network serves every writer. A layer's output is called by the layer's name;
the image is called `data`. Shapes are [C, H, W] of one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from stages.errors import StageError

Op = Literal["conv", "add", "concat", "max_pool", "average_pool", "global_average_pool", "dense"]
Activation = Literal["none", "relu", "relu6"]
Padding = Literal["same", "valid", "centred"]
"""As TensorFlow's "same", none, or half the kernel on every side, as PyTorch's networks."""
Pads = tuple[int, int, int, int]
"""Top, left, bottom, right."""

INPUT = "data"
CLASSES = 1000


@dataclass(frozen=True)
class Layer:
    """One operator, the activation behind it, and the shape [C, H, W] of what it gives."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)
    groups: int = 1
    activation: Activation = "none"

    def widened(self, width: int) -> Layer:
        """The layer with so many times the channels, and groups where it has several."""
        channels, height, columns = self.shape
        groups = self.groups * width if self.groups > 1 else 1
        return replace(self, shape=(channels * width, height, columns), groups=groups)


@dataclass(frozen=True)
class Network:
    """The layers in an order in which they can be computed; the last one is the classifier."""

    image: tuple[int, int, int]
    """Channels, height and width of the input."""
    layers: tuple[Layer, ...]

    def widened(self, width: int) -> Network:
        """The network with so many times the channels of all layers but the last one."""
        *inner, last = self.layers
        return replace(self, layers=(*(layer.widened(width) for layer in inner), last))


@dataclass
class NetworkBuilder:
    """Adds layers one by one; each method returns the name of what it adds."""

    image_size: int
    image: tuple[int, int, int] | None = None
    """The input's own shape, for networks that read no square image of three colours."""
    _layers: list[Layer] = field(default_factory=list)
    _shapes: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.image = self.image or (3, self.image_size, self.image_size)
        self._shapes[INPUT] = self.image

    def conv(
        self,
        name: str,
        x: str,
        channels: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        *,
        padding: Padding = "same",
        groups: int = 1,
        activation: Activation = "relu",
    ) -> str:
        """Convolution with bias."""
        size = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = self._pads(x, size, stride, padding)
        shape = (channels, *self._extents(x, size, stride, pads))
        return self._add(
            Layer(name, "conv", (x,), shape, size, stride, pads, groups, activation=activation)
        )

    def depthwise(self, name: str, x: str, stride: int, activation: Activation) -> str:
        """A 3x3 depthwise convolution."""
        channels = self._shapes[x][0]
        return self.conv(name, x, channels, 3, stride, groups=channels, activation=activation)

    def max_pool(
        self,
        name: str,
        x: str,
        kernel: int = 3,
        stride: int = 2,
        padding: Padding = "same",
    ) -> str:
        """Largest value of each window."""
        return self._pool("max_pool", name, x, kernel, stride, padding)

    def average_pool(self, name: str, x: str) -> str:
        """Mean of each 3x3 window at stride 1, padding not counted."""
        return self._pool("average_pool", name, x, 3, 1, "same")

    def concat(self, name: str, inputs: Sequence[str]) -> str:
        """Channels of several tensors behind one another."""
        _, height, width = self._shapes[inputs[0]]
        channels = sum(self._shapes[item][0] for item in inputs)
        return self._add(Layer(name, "concat", tuple(inputs), (channels, height, width)))

    def add(self, name: str, left: str, right: str, activation: Activation = "none") -> str:
        """Sum of two tensors of one shape."""
        shape = self._shapes[left]
        return self._add(Layer(name, "add", (left, right), shape, activation=activation))

    def finish(self, x: str, classes: int = CLASSES) -> Network:
        """The network, with a global average pool and a classifier over `x`."""
        channels = self._shapes[x][0]
        pooled = self._add(Layer("avgpool", "global_average_pool", (x,), (channels, 1, 1)))
        self._add(Layer("fc", "dense", (pooled,), (classes, 1, 1)))
        return Network(self._shapes[INPUT], tuple(self._layers))

    def channels(self, x: str) -> int:
        """How many channels a tensor has."""
        return self._shapes[x][0]

    def _pool(self, op: Op, name: str, x: str, kernel: int, stride: int, padding: Padding) -> str:
        size = (kernel, kernel)
        pads = self._pads(x, size, stride, padding)
        shape = (self._shapes[x][0], *self._extents(x, size, stride, pads))
        return self._add(Layer(name, op, (x,), shape, size, stride, pads))

    def _add(self, layer: Layer) -> str:
        assert layer.name not in self._shapes, layer.name
        self._layers.append(layer)
        self._shapes[layer.name] = layer.shape
        return layer.name

    def _pads(self, x: str, kernel: tuple[int, int], stride: int, padding: Padding) -> Pads:
        if padding == "valid":
            return (0, 0, 0, 0)
        if padding == "centred":
            return (kernel[0] // 2, kernel[1] // 2, kernel[0] // 2, kernel[1] // 2)
        before, after = [], []
        for extent, window in zip(self._shapes[x][1:], kernel, strict=True):
            total = max((-(-extent // stride) - 1) * stride + window - extent, 0)
            before.append(total // 2)
            after.append(total - total // 2)
        return (before[0], before[1], after[0], after[1])

    def _extents(self, x: str, kernel: tuple[int, int], stride: int, pads: Pads) -> tuple[int, int]:
        _, height, width = self._shapes[x]
        rows = (height + pads[0] + pads[2] - kernel[0]) // stride + 1
        columns = (width + pads[1] + pads[3] - kernel[1]) // stride + 1
        if min(rows, columns) < 1:
            raise StageError(
                f"an image of {self.image_size} x {self.image_size} pixels is too small for this "
                "network",
                hint="state a larger model.image_size",
            )
        return rows, columns
