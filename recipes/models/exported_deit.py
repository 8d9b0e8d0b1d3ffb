"""A vision transformer shaped as DeiT-tiny."""

from __future__ import annotations

import numpy as np

from recipes.models.graphs import Net

SIZE, PATCH, WIDTH, HEADS, BLOCKS, CLASSES = 224, 16, 192, 3, 12, 1000
TOKENS = (SIZE // PATCH) ** 2 + 1


def deit() -> tuple[Net, list[str]]:
    """The network, and its output: scores [1, 1000]."""
    net = Net((1, 3, SIZE, SIZE), seed=7)
    weight = net.weights("patch.w", (WIDTH, 3, PATCH, PATCH), 3 * PATCH * PATCH)
    bias = net.constant("patch.b", net.rng.normal(size=WIDTH) / 4)
    x = net.op("Conv", ["x", weight, bias], "patch", strides=[PATCH] * 2)
    x = net.op("Transpose", [net.reshape(x, (1, WIDTH, -1), "rows")], "tokens", perm=[0, 2, 1])
    first = net.constant("class_token", net.rng.normal(size=(1, 1, WIDTH)))
    x = net.op("Concat", [first, x], "with_class", axis=1)
    places = net.constant("places", net.rng.normal(size=(1, TOKENS, WIDTH)) / 4)
    x = net.op("Add", [x, places], "placed")
    for number in range(BLOCKS):
        x = _block(net, x, f"block{number}")
    x = _norm(net, x, "norm")
    x = net.op("Gather", [x, net.constant("first", 0, np.int64)], "class", axis=1)
    return net, [net.linear(x, "head", WIDTH, CLASSES)]


def _block(net: Net, x: str, name: str) -> str:
    """Attention, then two layers, each added to what it reads."""
    y = _attention(net, _norm(net, x, f"{name}.norm1"), f"{name}.attention")
    x = net.op("Add", [x, y], f"{name}.add1")
    y = net.linear(_norm(net, x, f"{name}.norm2"), f"{name}.fc1", WIDTH, 4 * WIDTH)
    y = net.linear(_gelu(net, y, f"{name}.gelu"), f"{name}.fc2", 4 * WIDTH, WIDTH)
    return net.op("Add", [x, y], f"{name}.add2")


def _attention(net: Net, x: str, name: str) -> str:
    each = WIDTH // HEADS
    wide = net.linear(x, f"{name}.qkv", WIDTH, 3 * WIDTH)
    heads = net.reshape(wide, (1, TOKENS, 3, HEADS, each), f"{name}.heads")
    turned = net.op("Transpose", [heads], f"{name}.turned", perm=[2, 0, 3, 1, 4])
    q, k, v = (
        net.op("Squeeze", [part, net.constant(f"{part}.axis", [0], np.int64)], f"{part}.one")
        for part in net.split(turned, [1, 1, 1], 0, f"{name}.split")
    )
    scaled = net.op("Mul", [q, net.constant(f"{name}.scale", each**-0.5)], f"{name}.scaled")
    columns = net.op("Transpose", [k], f"{name}.columns", perm=[0, 1, 3, 2])
    scores = net.op("MatMul", [scaled, columns], f"{name}.scores")
    shares = net.op("Softmax", [scores], f"{name}.shares", axis=-1)
    mixed = net.op("MatMul", [shares, v], f"{name}.mixed")
    back = net.op("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
    joined = net.reshape(back, (1, TOKENS, WIDTH), f"{name}.joined")
    return net.linear(joined, f"{name}.out", WIDTH, WIDTH)


def _norm(net: Net, x: str, name: str) -> str:
    """LayerNormalization, as one operator."""
    scale = net.constant(f"{name}.scale", 1 + net.rng.normal(size=WIDTH) / 8)
    bias = net.constant(f"{name}.bias", net.rng.normal(size=WIDTH) / 8)
    return net.op("LayerNormalization", [x, scale, bias], name, axis=-1, epsilon=1e-6)


def _gelu(net: Net, x: str, name: str) -> str:
    """`x / 2 * (1 + erf(x / sqrt(2)))`, as exporters write it."""
    inner = net.op("Div", [x, net.constant(f"{name}.root", np.sqrt(2))], f"{name}.inner")
    erf = net.op("Erf", [inner], f"{name}.erf")
    one = net.op("Add", [erf, net.constant(f"{name}.one", 1)], f"{name}.more")
    product = net.op("Mul", [x, one], f"{name}.product")
    return net.op("Mul", [product, net.constant(f"{name}.half", 0.5)], name)
