"""MobileNet v1 (Howard et al., 2017, Table 1) and v2 (Sandler et al., 2018, Table 2), width 1."""

from __future__ import annotations

from stages.importing.zoo.network import Network, NetworkBuilder

_V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2),
       (1024, 1))  # fmt: skip
"""Output channels and stride of each depthwise separable convolution."""

_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
       (6, 320, 1, 1))  # fmt: skip
"""Expansion, output channels, blocks, and stride of the first block."""


def mobilenet_v1(image_size: int) -> Network:
    """Depthwise separable convolutions, ReLU6."""
    net = NetworkBuilder(image_size)
    x = net.conv("conv1", "data", 32, 3, 2, activation="relu6")
    for index, (channels, stride) in enumerate(_V1, start=1):
        x = net.depthwise(f"block{index}.depthwise", x, stride, "relu6")
        x = net.conv(f"block{index}.pointwise", x, channels, activation="relu6")
    return net.finish(x)


def mobilenet_v2(image_size: int) -> Network:
    """Inverted residuals with linear bottlenecks, ReLU6."""
    net = NetworkBuilder(image_size)
    x = net.conv("conv1", "data", 32, 3, 2, activation="relu6")
    index = 0
    for expansion, channels, blocks, first_stride in _V2:
        for position in range(blocks):
            index += 1
            stride = 1 if position else first_stride
            x = _inverted_residual(net, f"block{index}", x, expansion, channels, stride)
    return net.finish(net.conv("conv_last", x, 1280, activation="relu6"))


def _inverted_residual(
    net: NetworkBuilder, block: str, entry: str, expansion: int, channels: int, stride: int
) -> str:
    x = entry
    if expansion > 1:
        wide = expansion * net.channels(entry)
        x = net.conv(f"{block}.expand", x, wide, activation="relu6")
    x = net.depthwise(f"{block}.depthwise", x, stride, "relu6")
    x = net.conv(f"{block}.project", x, channels, activation="none")
    if stride == 1 and net.channels(entry) == channels:
        return net.add(f"{block}.add", entry, x)
    return x
