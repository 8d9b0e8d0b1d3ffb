"""Inception v1 (GoogLeNet) and v2 (with batch normalization, folded here).

Szegedy et al., "Going Deeper with Convolutions", 2015, Table 1; Ioffe and Szegedy, "Batch
Normalization", 2015, Figure 5, with the widths of TensorFlow's published model. Pools pad as
TensorFlow does, so that 224 pixels become 7.
"""

from __future__ import annotations

from stages.importing.zoo.network import Network, NetworkBuilder

_V1 = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Widths of 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; pool projection."""

_V2 = {
    "3a": (64, (64, 64), (64, 96), 32),
    "3b": (64, (64, 96), (64, 96), 64),
    "3c": (0, (128, 160), (64, 96), 0),
    "4a": (224, (64, 96), (96, 128), 128),
    "4b": (192, (96, 128), (96, 128), 128),
    "4c": (160, (128, 160), (128, 160), 96),
    "4d": (96, (128, 192), (160, 192), 96),
    "4e": (0, (128, 192), (192, 256), 0),
    "5a": (352, (192, 320), (160, 224), 128),
    "5b": (352, (192, 320), (192, 224), 128),
}
"""Widths of 1x1; 3x3 reduce, 3x3; double 3x3 reduce, both 3x3; pool projection.

Without a 1x1 branch the block halves height and width.
"""


def inception_v1(image_size: int) -> Network:
    """GoogLeNet without its auxiliary classifiers."""
    net, x = _stem(image_size)
    for block, widths in _V1.items():
        if block in ("4a", "5a"):
            x = net.max_pool(f"pool{block[0]}", x)
        ones, reduce3, threes, reduce5, fives, pooled = widths
        branches = [
            net.conv(f"{block}.branch1", x, ones),
            net.conv(f"{block}.branch2", net.conv(f"{block}.reduce2", x, reduce3), threes, 3),
            net.conv(f"{block}.branch3", net.conv(f"{block}.reduce3", x, reduce5), fives, 5),
            net.conv(f"{block}.branch4", net.max_pool(f"{block}.pool", x, stride=1), pooled),
        ]
        x = net.concat(f"{block}.concat", branches)
    return net.finish(x)


def inception_v2(image_size: int) -> Network:
    """BN-Inception."""
    net, x = _stem(image_size)
    for block, (ones, three, double, pooled) in _V2.items():
        stride = 1 if ones else 2
        branches = [net.conv(f"{block}.branch1", x, ones)] if ones else []
        inner = net.conv(f"{block}.reduce2", x, three[0])
        branches.append(net.conv(f"{block}.branch2", inner, three[1], 3, stride))
        inner = net.conv(f"{block}.reduce3", x, double[0])
        inner = net.conv(f"{block}.double3", inner, double[1], 3)
        branches.append(net.conv(f"{block}.branch3", inner, double[1], 3, stride))
        if not ones:
            branches.append(net.max_pool(f"{block}.pool", x))
        elif block == "5b":
            pool = net.max_pool(f"{block}.pool", x, stride=1)
            branches.append(net.conv(f"{block}.branch4", pool, pooled))
        else:
            pool = net.average_pool(f"{block}.pool", x)
            branches.append(net.conv(f"{block}.branch4", pool, pooled))
        x = net.concat(f"{block}.concat", branches)
    return net.finish(x)


def _stem(image_size: int) -> tuple[NetworkBuilder, str]:
    net = NetworkBuilder(image_size)
    x = net.max_pool("pool1", net.conv("conv1", "data", 64, 7, 2))
    x = net.conv("conv2", net.conv("conv2.reduce", x, 64), 192, 3)
    return net, net.max_pool("pool2", x)
