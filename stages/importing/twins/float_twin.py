"""The float32 twin of a quantized network: the same graph without its quantizers, plain ONNX."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto

from stages.errors import StageError
from stages.importing.onnx.onnx_importer import package_outputs
from stages.importing.onnx.onnx_reader import QONNX, read

QUANTIZERS = frozenset({"Quant", "IntQuant", "BipolarQuant", "MultiThreshold", "FloatQuant"})
MIN_IR_VERSION, MAX_IR_VERSION = 4, 10
"""Before 4 every constant had to be an input too; after 10 runtimes of some age refuse the file."""


def build(source: bytes) -> bytes:
    """Return the float32 twin of a source graph as an ONNX file.

    Every quantizer is an identity, so that weights are the floats they are in the file. It
    computes what a package computes: a ranking or softmax at the very end is left out.
    """
    graph = read(source)
    model = ModelProto()
    model.CopyFrom(graph.model)
    outputs, _ = package_outputs(graph)
    kept = _without_quantizers(model.graph.node, outputs)
    foreign = sorted({f"{n.domain}.{n.op_type}" for n in kept if n.domain not in ("", "ai.onnx")})
    if foreign:
        raise StageError(f"there is no float32 twin: {', '.join(foreign)} is no ONNX operator")
    del model.graph.node[:]
    model.graph.node.extend(kept)
    # Types of tensors inside were stated for the quantized graph; they can be inferred again.
    del model.graph.value_info[:]
    del model.graph.quantization_annotation[:]
    _state_outputs(model, outputs)
    _drop_unread(model)
    _state_versions(model)
    return bytes(onnx.shape_inference.infer_shapes(model, data_prop=True).SerializeToString())


def _without_quantizers(nodes: Iterable[NodeProto], outputs: tuple[str, ...]) -> list[NodeProto]:
    """Return copies of the nodes the outputs need, each reading what stood before quantizers."""
    before: dict[str, str] = {}
    kept: list[NodeProto] = []
    for node in nodes:
        if node.domain == QONNX and node.op_type in QUANTIZERS:
            before[node.output[0]] = before.get(node.input[0], node.input[0])
            continue
        copy = NodeProto()
        copy.CopyFrom(node)
        for index, name in enumerate(copy.input):
            copy.input[index] = before.get(name, name)
        kept.append(copy)
    for name in outputs:
        if name in before:
            kept.append(onnx.helper.make_node("Identity", [before[name]], [name]))
    return _needed(kept, outputs)


def _needed(nodes: list[NodeProto], outputs: tuple[str, ...]) -> list[NodeProto]:
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
            kept.append(node)
    return kept[::-1]


def _state_outputs(model: ModelProto, outputs: tuple[str, ...]) -> None:
    """State the outputs as the file does; shape inference fills in where a last node was left."""
    stated = {value.name: value for value in model.graph.output}
    new = [
        stated.get(name) or onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in outputs
    ]
    copies = [ValueInfoProto.FromString(value.SerializeToString()) for value in new]
    del model.graph.output[:]
    model.graph.output.extend(copies)


def _drop_unread(model: ModelProto) -> None:
    """Drop what only quantizers read, and keep constants from being inputs with a default.

    A default could be replaced when the graph is run, so that nothing computed from it is
    computed beforehand: the twin would be slower than it need be.
    """
    read_names = {name for node in model.graph.node for name in node.input}
    constants = [item for item in model.graph.initializer if item.name in read_names]
    names = {item.name for item in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in names]
    del model.graph.initializer[:]
    model.graph.initializer.extend(constants)
    del model.graph.input[:]
    model.graph.input.extend(inputs)


def _state_versions(model: ModelProto) -> None:
    versions = [item for item in model.opset_import if item.domain in ("", "ai.onnx")]
    del model.opset_import[:]
    model.opset_import.extend(versions[:1])
    model.ir_version = min(max(model.ir_version, MIN_IR_VERSION), MAX_IR_VERSION)
