"""The float32 twin of a quantized network: the same graph without its quantizers, plain ONNX."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import ModelProto, NodeProto

from stages.errors import StageError
from stages.importing.converters import importable_outputs
from stages.importing.onnx_reader import QONNX, read

QUANTIZERS = frozenset({"Quant", "IntQuant", "BipolarQuant", "MultiThreshold", "FloatQuant"})
MAX_IR_VERSION = 10


def build(source: bytes) -> bytes:
    """Return the float32 twin of a source graph as an ONNX file.

    Every quantizer is an identity, so that weights are the floats they are in the file. It
    computes what a package computes: a ranking or softmax at the very end is left out.
    """
    graph = read(source)
    model = ModelProto()
    model.CopyFrom(graph.model)
    outputs, _ = importable_outputs(graph)
    kept = _without_quantizers(model.graph.node, outputs)
    strange = sorted({f"{n.domain}.{n.op_type}" for n in kept if n.domain not in ("", "ai.onnx")})
    if strange:
        raise StageError(f"there is no float32 twin: {', '.join(strange)} is no ONNX operator")
    del model.graph.node[:]
    model.graph.node.extend(kept)
    # Types of tensors inside were stated for the quantized graph; they can be inferred again.
    del model.graph.value_info[:]
    del model.graph.quantization_annotation[:]
    _state_outputs(model, outputs)
    _drop_unread(model)
    _state_versions(model)
    return model.SerializeToString()


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
    del model.graph.output[:]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs
    )


def _drop_unread(model: ModelProto) -> None:
    """Drop the quantizers' scales and all else that nothing reads now."""
    read_names = {name for node in model.graph.node for name in node.input}
    constants = [item for item in model.graph.initializer if item.name in read_names]
    names = {item.name for item in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in names or v.name in read_names]
    del model.graph.initializer[:]
    model.graph.initializer.extend(constants)
    del model.graph.input[:]
    model.graph.input.extend(inputs)


def _state_versions(model: ModelProto) -> None:
    versions = [item for item in model.opset_import if item.domain in ("", "ai.onnx")]
    del model.opset_import[:]
    model.opset_import.extend(versions[:1])
    model.ir_version = min(model.ir_version, MAX_IR_VERSION)
