"""Residual networks (He et al., 2016, Table 1) as layers.

`resnet50` and deeper halve the map in a block's 3x3 convolution. PyTorch's networks do so, and
those that GluonCV calls v1b; `resnet50_v1b` is `resnet50` by that name. `resnet50_v1` halves it
in the first 1x1 convolution, as the paper, MXNet and GluonCV's v1 do: the same parameters, and
3.86 instead of 4.09 billion multiply-accumulates. ResNet-18 has the shortcut projections of
`resnet.ARCHITECTURES`.
"""

from __future__ import annotations

from typing import Literal

from stages.importing.zoo.network import Network, NetworkBuilder
from stages.importing.zoo.resnet import Architecture

BOTTLENECKS = {
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
"""Blocks of each of the four stages."""


def basic(architecture: Architecture, image_size: int) -> Network:
    """Blocks of two 3x3 convolutions; each stage's first block projects its shortcut."""
    net = NetworkBuilder(image_size)
    x = _stem(net, architecture.stem_kernel, architecture.stem_stride)
    for index, channels in enumerate(architecture.channels):
        for position in range(architecture.blocks):
            block = f"layer{index + 1}.{position}"
            stride = 2 if index and not position else 1
            main = net.conv(f"{block}.conv1", x, channels, 3, stride, padding="centred")
            main = net.conv(
                f"{block}.conv2", main, channels, 3, padding="centred", activation="none"
            )
            x = _join(net, block, x, main, stride, projects=not position)
    return net.finish(x, architecture.classes)


def bottleneck(
    blocks: tuple[int, ...], image_size: int, *, halving: Literal["conv1", "conv2"] = "conv2"
) -> Network:
    """Blocks of a 1x1, a 3x3 and a 1x1 convolution that widens four times.

    `halving` is the convolution that has a stage's stride: the first 1x1 one or the 3x3 one.
    """
    net = NetworkBuilder(image_size)
    x = _stem(net, 7, 2)
    for index, count in enumerate(blocks):
        width = 64 << index
        for position in range(count):
            block = f"layer{index + 1}.{position}"
            stride = 2 if index and not position else 1
            strides = (stride, 1) if halving == "conv1" else (1, stride)
            main = net.conv(f"{block}.conv1", x, width, stride=strides[0])
            main = net.conv(f"{block}.conv2", main, width, 3, strides[1], padding="centred")
            main = net.conv(f"{block}.conv3", main, 4 * width, activation="none")
            x = _join(net, block, x, main, stride, projects=not position)
    return net.finish(x)


def _stem(net: NetworkBuilder, kernel: int, stride: int) -> str:
    x = net.conv("conv1", "data", 64, kernel, stride, padding="centred")
    return net.max_pool("maxpool", x, padding="centred")


def _join(
    net: NetworkBuilder, block: str, entry: str, main: str, stride: int, *, projects: bool
) -> str:
    shortcut = entry
    if projects:
        name = f"{block}.downsample"
        shortcut = net.conv(name, entry, net.channels(main), 1, stride, activation="none")
    return net.add(f"{block}.add", main, shortcut, "relu")
