"""Writing a trained digits network: as QONNX, as ONNX of 8 bits (QDQ), or as float ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from recipes.models.digits_net import EPSILON, DigitsNet, Layer
from recipes.models.graphs import QdqNet
from stages.importing.zoo.qonnx_writer import BatchNorm, QonnxWriter, Quantizer

Array = np.ndarray[Any, Any]

INPUT, OUTPUT = "image", "out"


def onnx_file(net: DigitsNet) -> bytes:
    """The network's file, in the format that is usual for its precision."""
    return _folded(net) if net.precision.folds else _qonnx(net)


def _qonnx(net: DigitsNet) -> bytes:
    """Quantizers of few bits; a batch norm behind each convolution."""
    p = net.precision
    assert p.image and p.activation and p.features
    writer = QonnxWriter("digits", INPUT, np.zeros((1, 1, 8, 8), np.float32))
    x = writer.quantize("input_quant", writer.input, p.image)
    for number, layer in enumerate(net.convolutions, 1):
        assert layer.weights
        name = f"conv{number}"
        x = writer.conv(name, x, writer.weights(name, _weight(layer), layer.weights), 1, 1)
        x = writer.batch_norm(f"{name}.bn", x, _norm(layer))
        x = writer.relu(f"{name}.relu", x)
        x = writer.quantize(f"{name}.act_quant", x, p.activation)
        x = writer.max_pool(f"{name}.pool", x, 2, 2, 0) if number == 2 else x
    x = writer.quantize("fc.input_quant", writer.global_average_pool("avgpool", x), p.features)
    assert net.head.weights
    weight = writer.weights("fc", _weight(net.head), net.head.weights)
    x = writer.gemm("fc", writer.flatten("flatten", x), weight, _offset(net.head), OUTPUT)
    return writer.finish(x)


def _norm(layer: Layer) -> BatchNorm:
    """A gain and an offset as a batch norm: its variance and epsilon add up to 1."""
    zeros, gain = np.zeros(len(layer.gain), np.float32), layer.gain.numpy()
    variance = np.full_like(zeros, 1 - EPSILON)
    return BatchNorm(gain, _offset(layer), zeros, variance, EPSILON)


def _folded(net: DigitsNet) -> bytes:
    """Convolutions with biases; each tensor passes a quantizer where the network has one."""
    p = net.precision
    graph = QdqNet((1, 1, 8, 8), input_name=INPUT)
    x = _through(graph, INPUT, p.image)
    for number, layer in enumerate(net.convolutions, 1):
        name = f"conv{number}"
        x = graph.op("Conv", [x, *_parameters(graph, name, layer)], name, pads=[1] * 4)
        x = graph.op("Relu", [x], f"{name}.relu")
        x = _through(graph, x, p.activation)
        if number == 2:
            x = graph.op("MaxPool", [x], f"{name}.pool", kernel_shape=[2, 2], strides=[2, 2])
            x = _through(graph, x, p.activation)
    x = _through(graph, graph.op("GlobalAveragePool", [x], "avgpool"), p.features)
    x = graph.op("Flatten", [x], "flatten", axis=1)
    inputs = [_through(graph, x, p.features), *_parameters(graph, "fc", net.head)]
    graph.op("Gemm", inputs, OUTPUT, transB=1)
    return bytes(graph.model([OUTPUT]).SerializeToString(deterministic=True))


def _through(graph: QdqNet, x: str, quantizer: Quantizer | None) -> str:
    return x if quantizer is None else graph.grid(x, quantizer.scale, 0)


def _parameters(graph: QdqNet, name: str, layer: Layer) -> list[str]:
    """Weights and biases: int8 and int32 where the layer is quantized, else float32."""
    weight, offset = f"{name}.weight", f"{name}.bias"
    if layer.weights is None or layer.reads is None:
        return [graph.constant(weight, _weight(layer)), graph.constant(offset, _offset(layer))]
    scale, unit = layer.weights.scale, layer.weights.scale * layer.reads.scale
    return [
        graph.stored(weight, (_weight(layer) / scale).astype(np.int8), scale),
        graph.stored(offset, (_offset(layer) / unit).astype(np.int32), unit),
    ]


def _weight(layer: Layer) -> Array:
    return np.asarray(layer.stored_weight().detach().numpy())


def _offset(layer: Layer) -> Array:
    return np.asarray(layer.stored_offset().detach().numpy())
