"""A detector shaped as YOLOv8n."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recipes.models.graphs import Net

SIZE, CLASSES, BINS = 320, 80, 16
STRIDES = (8, 16, 32)


def yolo() -> tuple[Net, list[str]]:
    """The network, and its outputs: boxes [1, 4, N], scores [1, 80, N]."""
    net = Net((1, 3, SIZE, SIZE), seed=8)
    x = _act(net, "x", "stem", 3, 16, 3, 2)
    x = _act(net, x, "down2", 16, 32, 3, 2)
    x = _c2f(net, x, "c2", 32, 32, 1)
    x = _act(net, x, "down3", 32, 64, 3, 2)
    p3 = _c2f(net, x, "c3", 64, 64, 2)
    x = _act(net, p3, "down4", 64, 128, 3, 2)
    p4 = _c2f(net, x, "c4", 128, 128, 2)
    x = _act(net, p4, "down5", 128, 256, 3, 2)
    x = _c2f(net, x, "c5", 256, 256, 1)
    p5 = _sppf(net, x, "sppf", 256)
    up4 = net.op("Concat", [_up(net, p5, "up5"), p4], "cat4", axis=1)
    n4 = _c2f(net, up4, "n4", 384, 128, 1, adds=False)
    up3 = net.op("Concat", [_up(net, n4, "up4"), p3], "cat3", axis=1)
    n3 = _c2f(net, up3, "n3", 192, 64, 1, adds=False)
    x = net.op("Concat", [_act(net, n3, "down6", 64, 64, 3, 2), n4], "cat6", axis=1)
    n4 = _c2f(net, x, "n6", 192, 128, 1, adds=False)
    x = net.op("Concat", [_act(net, n4, "down7", 128, 128, 3, 2), p5], "cat7", axis=1)
    n5 = _c2f(net, x, "n7", 384, 256, 1, adds=False)
    return net, _head(net, (n3, n4, n5), (64, 128, 256))


def _act(
    net: Net, x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1
) -> str:
    """A convolution and SiLU, as exporters write it."""
    x = net.conv(x, name, inputs, outputs, kernel, stride)
    return net.op("Mul", [x, net.op("Sigmoid", [x], f"{name}.sigmoid")], f"{name}.silu")


def _c2f(
    net: Net, x: str, name: str, inputs: int, outputs: int, count: int, adds: bool = True
) -> str:
    """Bottlenecks, every one of which is concatenated."""
    half = outputs // 2
    x = _act(net, x, f"{name}.in", inputs, outputs, 1)
    parts = net.split(x, [half, half], 1, f"{name}.split")
    for number in range(count):
        y = _act(net, parts[-1], f"{name}.{number}a", half, half, 3)
        y = _act(net, y, f"{name}.{number}b", half, half, 3)
        parts.append(net.op("Add", [parts[-1], y], f"{name}.{number}") if adds else y)
    joined = net.op("Concat", parts, f"{name}.cat", axis=1)
    return _act(net, joined, f"{name}.out", half * (2 + count), outputs, 1)


def _sppf(net: Net, x: str, name: str, channels: int) -> str:
    """Three pools of 5x5, one behind another."""
    parts = [_act(net, x, f"{name}.in", channels, channels // 2, 1)]
    for number in range(3):
        attributes = {"kernel_shape": [5, 5], "pads": [2] * 4, "strides": [1, 1]}
        parts.append(net.op("MaxPool", [parts[-1]], f"{name}.pool{number}", **attributes))
    joined = net.op("Concat", parts, f"{name}.cat", axis=1)
    return _act(net, joined, f"{name}.out", 2 * channels, channels, 1)


def _up(net: Net, x: str, name: str) -> str:
    """Twice as high and wide, the nearest pixel."""
    scales = net.constant(f"{name}.scales", [1, 1, 2, 2])
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    return net.op("Resize", [x, "", scales], name, nearest_mode="floor", **attributes)


def _head(net: Net, levels: Sequence[str], channels: Sequence[int]) -> list[str]:
    """Boxes as expected distances to four sides (distribution focal loss), and scores."""
    joined = []
    for level, (x, count) in enumerate(zip(levels, channels, strict=True)):
        found = []
        for kind, width, outputs in (("box", 64, 4 * BINS), ("class", 80, CLASSES)):
            name = f"head{level}.{kind}"
            y = _act(net, x, f"{name}.a", count, width, 3)
            y = _act(net, y, f"{name}.b", width, width, 3)
            found.append(net.conv(y, f"{name}.c", width, outputs, 1))
        both = net.op("Concat", found, f"head{level}.cat", axis=1)
        joined.append(net.reshape(both, (1, 4 * BINS + CLASSES, -1), f"head{level}.rows"))
    rows = net.op("Concat", joined, "head.cat", axis=2)
    boxes, classes = net.split(rows, [4 * BINS, CLASSES], 1, "head.split")
    count = sum((SIZE // stride) ** 2 for stride in STRIDES)
    bins = net.op(
        "Transpose",
        [net.reshape(boxes, (1, 4, BINS, count), "dfl.bins")],
        "dfl.turned",
        perm=[0, 2, 1, 3],
    )
    shares = net.op("Softmax", [bins], "dfl.shares", axis=1)
    mean = net.constant("dfl.w", np.arange(BINS).reshape(1, BINS, 1, 1))
    sides = net.op("Conv", [shares, mean], "dfl.mean")
    distances = net.reshape(sides, (1, 4, count), "dfl.sides")
    return [distances, net.op("Sigmoid", [classes], "scores")]
