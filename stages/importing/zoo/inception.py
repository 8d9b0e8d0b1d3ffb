"""Inception v1 (GoogLeNet), v2 and Inception-BN (both with batch normalization, folded here).

Szegedy et al., "Going Deeper with Convolutions", 2015, Table 1; Ioffe and Szegedy, "Batch
Normalization", 2015, Figure 5: v2 with the widths of TensorFlow's published model, Inception-BN
with those of MXNet's (`example/image-classification/symbols/inception-bn.py`). Published networks
depart from these in three points:

- The `googlenet` of PyTorch and GluonCV, and TensorFlow's `inception_v1`, are v1 with 3x3
  convolutions for the paper's 5x5 ones: 6.6 instead of 7.0 million parameters.
- TensorFlow's `inception_v2` begins with a separable 7x7 convolution, here with a plain one.
- The average pools of MXNet's Inception-BN count padding as zeros, here it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.importing.zoo.network import Network, NetworkBuilder, Padding

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

_Modules = Mapping[str, tuple[int, tuple[int, int], tuple[int, int], int]]

_V2: _Modules = {
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

_BN: _Modules = {
    **_V2,
    "4c": (160, (128, 160), (128, 160), 128),
    "4d": (96, (128, 192), (160, 192), 128),
}
"""MXNet's 4c and 4d project their pools to 128 channels; the paper and TensorFlow, to 96."""


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
    """Inception with batch normalization, TensorFlow's: maps of 112, 56, 28, 14 and 7 pixels."""
    net, x = _stem(image_size)
    return _modules(net, x, _V2, "same")


def inception_bn(image_size: int) -> Network:
    """Inception with batch normalization, MXNet's: maps of 112, 55, 27, 14 and 7 pixels."""
    net, x = _stem(image_size, conv="centred", pool="valid")
    return _modules(net, x, _BN, "centred")


def _modules(net: NetworkBuilder, x: str, modules: _Modules, halving: Padding) -> Network:
    """Inception modules with two 3x3 convolutions for a 5x5 one; `halving` pads at stride 2."""
    for block, (ones, three, double, pooled) in modules.items():
        stride = 1 if ones else 2
        padding: Padding = "same" if ones else halving
        branches = [net.conv(f"{block}.branch1", x, ones)] if ones else []
        inner = net.conv(f"{block}.reduce2", x, three[0])
        branches.append(net.conv(f"{block}.branch2", inner, three[1], 3, stride, padding=padding))
        inner = net.conv(f"{block}.reduce3", x, double[0])
        inner = net.conv(f"{block}.double3", inner, double[1], 3)
        inner = net.conv(f"{block}.branch3", inner, double[1], 3, stride, padding=padding)
        branches.append(inner)
        if not ones:
            branches.append(net.max_pool(f"{block}.pool", x, padding=padding))
        elif block == "5b":
            pool = net.max_pool(f"{block}.pool", x, stride=1)
            branches.append(net.conv(f"{block}.branch4", pool, pooled))
        else:
            pool = net.average_pool(f"{block}.pool", x)
            branches.append(net.conv(f"{block}.branch4", pool, pooled))
        x = net.concat(f"{block}.concat", branches)
    return net.finish(x)


def _stem(
    image_size: int, conv: Padding = "same", pool: Padding = "same"
) -> tuple[NetworkBuilder, str]:
    """Three convolutions and two pools; `conv` and `pool` pad those of stride 2."""
    net = NetworkBuilder(image_size)
    x = net.conv("conv1", "data", 64, 7, 2, padding=conv)
    x = net.max_pool("pool1", x, padding=pool)
    x = net.conv("conv2", net.conv("conv2.reduce", x, 64), 192, 3)
    return net, net.max_pool("pool2", x, padding=pool)
