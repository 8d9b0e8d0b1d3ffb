"""Inception v3 (Szegedy et al., 2016) and v4 (Szegedy et al., 2017), without auxiliary classifiers.

"Rethinking the Inception Architecture", Table 1 with the widths of TensorFlow's published model;
"Inception-v4, Inception-ResNet", Figures 3 to 9. Both take 299 x 299 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.importing.zoo.network import Network, NetworkBuilder

Step = tuple[int, int | tuple[int, int]]
"""Channels and kernel of one convolution."""


def inception_v3(image_size: int) -> Network:
    """Inception v3."""
    net = NetworkBuilder(image_size)
    x = _first(net)
    x = net.max_pool("stem.pool1", x, padding="valid")
    x = net.conv("stem.conv4", x, 80)
    x = net.conv("stem.conv5", x, 192, 3, padding="valid")
    x = net.max_pool("stem.pool2", x, padding="valid")
    for block, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        branches = [
            net.conv(f"{block}.branch1", x, 64),
            _row(net, f"{block}.branch2", x, [(48, 1), (64, 5)]),
            _row(net, f"{block}.branch3", x, [(64, 1), (96, 3), (96, 3)]),
            _pooled(net, block, x, pooled),
        ]
        x = net.concat(f"{block}.concat", branches)
    x = _reduction(net, "6a", x, [[(384, 3)], [(64, 1), (96, 3), (96, 3)]])
    for block, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        across, down = (width, (1, 7)), (width, (7, 1))
        branches = [
            net.conv(f"{block}.branch1", x, 192),
            _row(net, f"{block}.branch2", x, [(width, 1), across, (192, (7, 1))]),
            _row(net, f"{block}.branch3", x, [(width, 1), down, across, down, (192, (1, 7))]),
            _pooled(net, block, x, 192),
        ]
        x = net.concat(f"{block}.concat", branches)
    longer: list[Step] = [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)]
    x = _reduction(net, "7a", x, [[(192, 1), (320, 3)], longer])
    for block in ("7b", "7c"):
        branches = [
            net.conv(f"{block}.branch1", x, 320),
            *_fork(net, f"{block}.branch2", x, [(384, 1)], 384),
            *_fork(net, f"{block}.branch3", x, [(448, 1), (384, 3)], 384),
            _pooled(net, block, x, 192),
        ]
        x = net.concat(f"{block}.concat", branches)
    return net.finish(x)


def inception_v4(image_size: int) -> Network:
    """Inception v4."""
    net = NetworkBuilder(image_size)
    x = _stem_of_v4(net)
    for index in range(1, 5):
        block = f"a{index}"
        branches = [
            net.conv(f"{block}.branch1", x, 96),
            _row(net, f"{block}.branch2", x, [(64, 1), (96, 3)]),
            _row(net, f"{block}.branch3", x, [(64, 1), (96, 3), (96, 3)]),
            _pooled(net, block, x, 96),
        ]
        x = net.concat(f"{block}.concat", branches)
    x = _reduction(net, "reduce_a", x, [[(384, 3)], [(192, 1), (224, 3), (256, 3)]])
    sevens: list[Step] = [(192, 1), (192, (1, 7)), (224, (7, 1)), (224, (1, 7)), (256, (7, 1))]
    for index in range(1, 8):
        block = f"b{index}"
        branches = [
            net.conv(f"{block}.branch1", x, 384),
            _row(net, f"{block}.branch2", x, [(192, 1), (224, (1, 7)), (256, (7, 1))]),
            _row(net, f"{block}.branch3", x, sevens),
            _pooled(net, block, x, 128),
        ]
        x = net.concat(f"{block}.concat", branches)
    longer: list[Step] = [(256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3)]
    x = _reduction(net, "reduce_b", x, [[(192, 1), (192, 3)], longer])
    for index in range(1, 4):
        block = f"c{index}"
        wide: list[Step] = [(384, 1), (448, (1, 3)), (512, (3, 1))]
        branches = [
            net.conv(f"{block}.branch1", x, 256),
            *_fork(net, f"{block}.branch2", x, [(384, 1)], 256),
            *_fork(net, f"{block}.branch3", x, wide, 256),
            _pooled(net, block, x, 256),
        ]
        x = net.concat(f"{block}.concat", branches)
    return net.finish(x)


def _first(net: NetworkBuilder) -> str:
    x = net.conv("stem.conv1", "data", 32, 3, 2, padding="valid")
    x = net.conv("stem.conv2", x, 32, 3, padding="valid")
    return net.conv("stem.conv3", x, 64, 3)


def _stem_of_v4(net: NetworkBuilder) -> str:
    x = _first(net)
    pool = net.max_pool("stem.pool1", x, padding="valid")
    x = net.conv("stem.conv4", x, 96, 3, 2, padding="valid")
    x = net.concat("stem.concat1", [pool, x])
    left = net.conv("stem.left1", x, 64)
    left = net.conv("stem.left2", left, 96, 3, padding="valid")
    right = _row(net, "stem.right", x, [(64, 1), (64, (7, 1)), (64, (1, 7))])
    right = net.conv("stem.right_last", right, 96, 3, padding="valid")
    x = net.concat("stem.concat2", [left, right])
    branches = [
        net.conv("stem.conv5", x, 192, 3, 2, padding="valid"),
        net.max_pool("stem.pool2", x, padding="valid"),
    ]
    return net.concat("stem.concat3", branches)


def _row(net: NetworkBuilder, name: str, x: str, steps: Sequence[Step]) -> str:
    """Convolutions one after the other."""
    for index, (channels, kernel) in enumerate(steps, start=1):
        x = net.conv(f"{name}.conv{index}", x, channels, kernel)
    return x


def _fork(
    net: NetworkBuilder, name: str, x: str, steps: Sequence[Step], width: int
) -> tuple[str, str]:
    """Convolutions, and behind them a 1x3 and a 3x1 one side by side."""
    x = _row(net, name, x, steps)
    across = net.conv(f"{name}.across", x, width, (1, 3))
    return across, net.conv(f"{name}.down", x, width, (3, 1))


def _pooled(net: NetworkBuilder, block: str, x: str, width: int) -> str:
    return net.conv(f"{block}.branch4", net.average_pool(f"{block}.pool", x), width)


def _reduction(net: NetworkBuilder, block: str, x: str, rows: Sequence[Sequence[Step]]) -> str:
    """Rows whose last convolution has stride 2 and no padding, beside a max pool."""
    branches = []
    for index, row in enumerate(rows, start=1):
        channels, kernel = row[-1]
        inner = _row(net, f"{block}.branch{index}", x, row[:-1])
        branches.append(
            net.conv(f"{block}.branch{index}.last", inner, channels, kernel, 2, padding="valid")
        )
    branches.append(net.max_pool(f"{block}.pool", x, padding="valid"))
    return net.concat(f"{block}.concat", branches)
