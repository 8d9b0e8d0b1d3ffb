"""Writes two small networks whose layers have, between them, every kind of kernel that a board has.

    python -m recipes.models.every_kernel

One has quantizers of 1 to 8 bits (QONNX), the other is of 8 bits as quantization tools write it
(QDQ). Both also have layers left in float. Recipes in `recipes/ci` say which algorithm a layer
gets. Channels are no multiple of a vector, so every kernel has a last block that is not full.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recipes.models.graphs import Net, QdqNet
from stages.importing.zoo.precision import (
    activation_quantizer,
    draw_weights,
    fit_batch_norm,
    weight_quantizer,
)
from stages.importing.zoo.qonnx_writer import QonnxWriter, Quantizer, Tensor
from stages.layer_options import Encoding, TensorQuantization

FOLDER = Path(__file__).parent
SIZE, CHANNELS, OUTPUTS, CLASSES = 16, 40, 36, 10
ON_BITS: tuple[tuple[int, int, Encoding], ...] = (
    (1, 1, "bipolar"), (1, 2, "signed"), (1, 3, "signed"),
    (2, 1, "bipolar"), (2, 2, "bipolar"), (2, 3, "signed"),
    (3, 1, "unipolar"), (3, 2, "signed"), (3, 3, "bipolar"),
)  # fmt: skip
"""Bits of activations and weights, and what weights mean, of the layers `bits.a1w1` and so on."""
ALSO = {"lookup": ((1, 1), (2, 2), (3, 3)), "mac8": ((1, 1), (2, 2), (3, 3)), "winograd": ((2, 2),)}
"""Algorithm → which of those precisions have a layer for it as well, `lookup.a1w1` and so on."""
BYTE = TensorQuantization(bits=8, encoding="signed")
PICTURE = Quantizer(2.0**-8, 8)
ADDEND = Quantizer(2.0**-5, 8, signed=True)


class _Levels:
    """The network of levels under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        pixels = self.rng.integers(0, 256, (8, 3, SIZE, SIZE)) * PICTURE.scale
        self.writer = QonnxWriter("levels", "x", pixels.astype(np.float32))
        self.sum: Tensor | None = None

    def layer(
        self, name: str, x: Tensor, read: Quantizer, weights: TensorQuantization,
        outputs: int = OUTPUTS, kernel: int = 3, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        """A convolution of what a quantizer gave, and a batch norm after which nothing rounds."""
        shape = (outputs, x.value.shape[1] // groups, kernel, kernel)
        quantizer = weight_quantizer(weights, int(np.prod(shape[1:])))
        values = draw_weights(self.rng, shape, quantizer, read.largest)
        weight = self.writer.weights(name, values, quantizer)
        sums = self.writer.conv(name, x, weight, 1, kernel // 2, groups)
        reach = np.abs(values / np.float32(quantizer.unit)).reshape(outputs, -1).sum(axis=1).max()
        most = int(reach) * read.largest
        norm = fit_batch_norm(self.rng, name, sums.value, quantizer.unit * read.unit, most, 0.0)
        return self.writer.batch_norm(f"{name}.bn", sums, norm)

    def add(self, name: str, x: Tensor) -> None:
        """A branch's result to those before it, all on one grid of 8 bits."""
        addend = self.writer.quantize(f"{name}.addend", x, ADDEND)
        if self.sum is not None:
            total = self.writer.add(f"{name}.add", self.sum, addend)
            addend = self.writer.quantize(f"{name}.sum", total, ADDEND)
        self.sum = addend


def levels() -> bytes:
    """The network with quantizers: `x` float32 [1, 3, 16, 16] to `out` [1, 10], and to what a layer
    in float gives."""
    net = _Levels()
    writer = net.writer
    picture = writer.quantize("picture", writer.input, PICTURE)
    sums = net.layer("stem", picture, PICTURE, BYTE, CHANNELS)
    stem = writer.max_pool("pool", writer.relu("relu", sums), 3, 2, 1)
    readers = {bits: _read(writer, stem, bits) for bits in (1, 2, 3, 8)}
    wanted = {"bits": tuple((a, w) for a, w, _ in ON_BITS)} | ALSO
    for algorithm, precisions in wanted.items():
        for a, w, encoding in ON_BITS:
            if (a, w) in precisions:
                name = f"{algorithm}.a{a}w{w}"
                weights = TensorQuantization(bits=w, encoding=encoding)
                is_large = algorithm == "winograd" or (algorithm == "bits" and a == w)
                net.add(name, net.layer(name, *readers[a], weights, kernel=3 if is_large else 1))
    net.add("mac8.a8w8", net.layer("mac8.a8w8", *readers[8], BYTE, kernel=1))
    net.add("winograd.a8w8", net.layer("winograd.a8w8", *readers[8], BYTE))
    own = net.layer("own.a8w8", *readers[8], BYTE, CHANNELS, groups=CHANNELS)
    own = writer.quantize("own.read", writer.relu("own.relu", own), PICTURE)
    net.add("point.a8w8", net.layer("point.a8w8", own, PICTURE, BYTE, kernel=1))
    assert net.sum is not None
    features = writer.relu("relu.last", net.sum)
    features = writer.global_average_pool("average", features)
    levels, quantizer = _read(writer, features, 2, "head")
    flat = writer.flatten("flat", levels)
    head = weight_quantizer(TensorQuantization(bits=2, encoding="bipolar"), OUTPUTS)
    values = draw_weights(net.rng, (CLASSES, OUTPUTS), head, quantizer.largest)
    bias = np.zeros(CLASSES, np.float32)
    out = writer.gemm("head", flat, writer.weights("head", values, head), bias, "out")
    weights = net.rng.normal(size=(OUTPUTS, CHANNELS, 1, 1)) / CHANNELS**0.5
    read = writer.relu("relu.float", sums)  # of its own, as it is rounded where others would be
    floats = writer.conv("float", read, writer.constant("float", weights), 2, 0)
    return writer.finish(out, also=(floats,))


def _read(
    writer: QonnxWriter, x: Tensor, bits: int, name: str = "read"
) -> tuple[Tensor, Quantizer]:
    """What readers of so many bits share, and its quantizer."""
    quantizer = activation_quantizer(TensorQuantization(bits=bits, encoding="unipolar"), 1.0)
    return writer.quantize(f"{name}.a{bits}", x, quantizer), quantizer


class _Bytes(QdqNet):
    """The network of bytes under construction."""

    def layer(
        self, x: str, name: str, shape: tuple[int, int, int, int], *,
        relu: bool = False, groups: int = 1, limit: int = 127, zero_point: int | None = None,
    ) -> str:  # fmt: skip
        """A convolution with weights up to a limit, or with unsigned ones around a zero point."""
        depth, outputs = int(np.prod(shape[1:])), shape[0]
        if zero_point is None:
            values = self.rng.integers(-limit, limit + 1, shape).astype(np.int8)
        else:
            values = self.rng.integers(0, 256, shape).astype(np.uint8)
        scale = 1.5 / (limit * depth**0.5)
        weight = self.stored(f"{name}.w", values, scale, zero_point or 0)
        whole = self.rng.integers(-3000, 3000, outputs).astype(np.int32)
        bias = self.stored(f"{name}.b", whole, float(np.float32(SCALE) * np.float32(scale)))
        pads = [shape[2] // 2] * 4
        y = self.op("Conv", [x, weight, bias], name, pads=pads, group=groups)
        if relu:
            return self.grid(self.op("Relu", [y], f"{name}.relu"), SCALE, 0)
        return self.grid(y, SCALE)


SCALE = 2.0**-5


def bytes_() -> bytes:
    """The network of bytes: `x` float32 [1, 3, 16, 16] to `out`, and to `floats`, in which nothing
    is quantized behind a layer in float."""
    net = _Bytes((1, 3, SIZE, SIZE), 0)
    square = (OUTPUTS, OUTPUTS, 3, 3)
    x = net.layer(net.grid("x", SCALE), "stem", (CHANNELS, 3, 3, 3), relu=True)
    x = net.op("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = net.layer(x, "own", (CHANNELS, 1, 3, 3), groups=CHANNELS, relu=True)
    x = net.layer(x, "own5", (CHANNELS, 1, 5, 5), groups=CHANNELS, limit=60)
    x = net.layer(x, "point", (OUTPUTS, CHANNELS, 1, 1))
    left = net.layer(x, "winograd", square)
    right = net.layer(x, "direct", square)
    x = net.grid(net.op("Add", [left, right], "residual"), 2 * SCALE)
    small = net.layer(x, "small", square, limit=40)
    wide = net.layer(x, "wide", (OUTPUTS, OUTPUTS, 1, 1), zero_point=37)
    grouped = net.layer(x, "grouped", (OUTPUTS, OUTPUTS // 4, 3, 3), groups=4)
    smooth = net.grid(net.op("Sigmoid", [small], "sigmoid"), 2.0**-8, 0)
    average = net.op("AveragePool", [wide], "average", kernel_shape=[3, 3], pads=[1] * 4)
    product = net.grid(net.op("Mul", [smooth, net.grid(average, SCALE)], "product"), SCALE)
    x = net.grid(net.op("Concat", [product, grouped], "concat", axis=1), SCALE)
    x = net.layer(x, "joined", (OUTPUTS, 2 * OUTPUTS, 1, 1))
    pixels = (SIZE // 2) ** 2
    rows = net.reshape(x, (1, OUTPUTS, pixels), "rows")
    columns = net.op("Transpose", [rows], "columns", perm=[0, 2, 1])
    scores = net.grid(net.op("MatMul", [columns, rows], "scores"), 2.0**-2)
    weights = net.grid(net.op("Softmax", [scores], "softmax", axis=-1), 2.0**-8, 0)
    mixed = net.grid(net.op("MatMul", [weights, columns], "mixed"), SCALE)
    mean = net.op("ReduceMean", [mixed], "mean", axes=[1], keepdims=0)
    mean = net.grid(mean, SCALE)
    values = net.rng.integers(-127, 128, (CLASSES, OUTPUTS)).astype(np.int8)
    head = net.op("Transpose", [net.stored("head.w", values, 2.0**-9)], "head.t", perm=[1, 0])
    net.grid(net.op("MatMul", [mean, head], "out"), SCALE)
    _floats(net, x)
    return bytes(net.model(["out.dq", "floats"]).SerializeToString(deterministic=True))


def _floats(net: Net, x: str) -> None:
    """Layers left in float: convolutions, one of each channel, a dilated one, and a product of two
    computed tensors."""
    y = net.conv(x, "float.direct", OUTPUTS, OUTPUTS, 3)
    y = net.conv(net.op("Relu", [y], "float.relu"), "float.winograd", OUTPUTS, OUTPUTS, 3)
    own = net.weights("float.own.w", (OUTPUTS, 1, 3, 3), 9)
    y = net.op("Conv", [y, own], "float.own", pads=[1] * 4, group=OUTPUTS)
    apart = net.weights("float.apart.w", (OUTPUTS, OUTPUTS, 3, 3), 9 * OUTPUTS)
    y = net.op("Conv", [y, apart], "float.apart", pads=[2] * 4, dilations=[2, 2])
    rows = net.reshape(y, (1, OUTPUTS, (SIZE // 2) ** 2), "float.rows")
    columns = net.op("Transpose", [rows], "float.columns", perm=[0, 2, 1])
    net.op("MatMul", [rows, columns], "floats")


NETWORKS = {"every_kernel_levels.onnx": levels, "every_kernel_bytes.onnx": bytes_}


def main() -> None:
    """Write both files."""
    for name, build in NETWORKS.items():
        (FOLDER / name).write_bytes(build())


if __name__ == "__main__":
    main()
