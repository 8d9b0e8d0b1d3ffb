"""Reading an untrusted ONNX file: every check that can be made before its tensors are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as numbers

from stages.errors import StageError
from stages.importing.graph_inputs import GraphInput
from stages.importing.limits import MAX_ELEMENTS, MAX_FILE_BYTES, MAX_NODES
from stages.importing.onnx.channels_last_operators import write_channels_first
from stages.importing.onnx.domains import NEWEST_OPSET as NEWEST_OPSET
from stages.importing.onnx.domains import QONNX as QONNX
from stages.importing.onnx.domains import domains, graphs_of, name_domains, sort_nodes
from stages.importing.onnx.name_checks import check_texts
from stages.importing.unsupported import without_outputs

Array = np.ndarray[Any, Any]

OLDEST_OPSET = 7

_SIGNATURES = (
    (4, b"TFL3", "a TensorFlow Lite file"),
    (0, b"PK\x03\x04", "a ZIP archive, such as PyTorch writes"),
    (0, b"\x89HDF", "an HDF5 file, such as Keras writes"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself (run `git lfs pull`)"),
    (0, b"{", "a JSON file"),
)
_PAYLOADS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.STRING: "string_data",
}


@dataclass(frozen=True)
class Node:
    """One node of the source graph; `layer` is unique and what recipes and errors call it."""

    op: str
    domain: str
    layer: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    @property
    def kind(self) -> str:
        """The operator with its domain unless that is ONNX's own, such as `Conv`."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    def has(self, position: int) -> bool:
        """Whether an operand is there; optional ones may be left out."""
        return len(self.inputs) > position and bool(self.inputs[position])


@dataclass(frozen=True)
class SourceGraph:
    """An ONNX graph that passed the checks, with its tensors decoded."""

    model: ModelProto
    opset: int
    nodes: tuple[Node, ...]
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Array]
    datatypes: dict[str, str] = field(default_factory=dict)
    """FINN's datatype annotations, tensor name to a name such as `UINT8`."""

    def tensor(self, node: Node, position: int) -> Array | None:
        """The constant that is an input of a node, None where there is none."""
        return self.constants.get(node.inputs[position]) if len(node.inputs) > position else None

    def number(self, node: Node, position: int) -> float | None:
        """The constant number that is an input of a node, None where there is none."""
        value = self.tensor(node, position)
        is_number = value is not None and value.size == 1 and value.dtype.kind in "fiu"
        return float(value.item()) if value is not None and is_number else None


def read(source: bytes) -> SourceGraph:
    """Decode and check the bytes of an ONNX file; StageError says what is wrong with it."""
    model = _parse(source)
    check_texts(model, graphs_of(model.graph))
    for graph in graphs_of(model.graph):
        _check_tensors(graph)
    as_it_came = domains(model)
    name_domains(model)
    is_moved = sort_nodes(model)
    opset = _default_opset(model)
    try:
        # The checker copies a model, but takes bytes as they are.
        is_as_it_came = domains(model) == as_it_came and not is_moved
        onnx.checker.check_model(source if is_as_it_came else model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StageError(
            f"the file is not valid ONNX: {reason}",
            hint="export it again, or see what `onnx.checker` says about it",
        ) from error
    write_channels_first(model)
    return SourceGraph(
        model=model,
        opset=opset,
        nodes=_nodes(model.graph),
        inputs=_inputs(model.graph),
        outputs=tuple(output.name for output in model.graph.output),
        constants={item.name: _decoded(item) for item in model.graph.initializer},
        datatypes=_datatypes(model.graph),
    )


def _parse(source: bytes) -> ModelProto:
    if len(source) > MAX_FILE_BYTES:
        raise StageError(
            f"the file holds {len(source):,} bytes; at most {MAX_FILE_BYTES:,} are accepted"
        )
    for offset, magic, description in _SIGNATURES:
        if source[offset : offset + len(magic)] == magic:
            raise StageError(f"this is {description}; an ONNX file is accepted")
    model = ModelProto()
    try:
        model.ParseFromString(source)
    except DecodeError as error:
        raise StageError(
            "the file cannot be read as ONNX (it is damaged or of another kind)",
            hint="check that it was downloaded whole",
        ) from error
    if not model.graph.node:
        raise StageError("the file holds no ONNX graph, or a graph without nodes")
    if not model.graph.output:
        raise without_outputs()
    if len(model.graph.node) > MAX_NODES:
        raise StageError(
            f"the graph has {len(model.graph.node):,} nodes; at most {MAX_NODES:,} are accepted"
        )
    if model.functions:
        raise StageError(
            f"the file defines functions of its own ({model.functions[0].name}, ...)",
            hint="inline them with `onnx.inliner.inline_local_functions` and save it again",
        )
    return model


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors


def _check_tensors(graph: GraphProto) -> None:
    if graph.sparse_initializer:
        raise StageError("the file holds sparse tensors; only dense ones are accepted")
    for tensor in _tensors(graph):
        name = tensor.name or "(unnamed tensor)"
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            raise StageError(
                f"tensor '{name}' lies in another file; only tensors inside the ONNX file are read",
                hint="save the model as one file: `onnx.save(onnx.load(path), one_file)`",
            )
        dims = tuple(tensor.dims)
        if any(extent < 0 for extent in dims) or prod(dims) > MAX_ELEMENTS:
            raise StageError(
                f"tensor '{name}' claims the shape {list(dims)}; "
                f"at most {MAX_ELEMENTS:,} elements are accepted"
            )
        _check_payload(tensor, name, prod(dims))


def _check_payload(tensor: TensorProto, name: str, elements: int) -> None:
    try:
        itemsize = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, ValueError) as error:
        raise StageError(
            f"tensor '{name}' has the unknown element type {tensor.data_type}"
        ) from error
    if tensor.data_type not in _PAYLOADS and not tensor.HasField("raw_data"):
        return  # the checker knows how the rarer types pack their values into int32_data
    if tensor.HasField("raw_data"):
        found, wanted = len(tensor.raw_data), elements * itemsize
        if helper.tensor_dtype_to_string(tensor.data_type).endswith(("INT4", "INT2", "E2M1")):
            wanted = found  # several elements share a byte; the checker counts them
    else:
        found, wanted = len(getattr(tensor, _PAYLOADS[tensor.data_type])), elements
    if found != wanted:
        raise StageError(
            f"tensor '{name}' of shape {list(tensor.dims)} should hold {wanted:,} "
            f"{'bytes' if tensor.HasField('raw_data') else 'values'}, but holds {found:,}"
        )


def _decoded(tensor: TensorProto) -> Array:
    try:
        return numbers.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise StageError(
            f"tensor '{tensor.name}' of shape {list(tensor.dims)} holds another number of values"
        ) from error


def _default_opset(model: ModelProto) -> int:
    versions = [item.version for item in model.opset_import if item.domain == ""]
    if not versions:
        raise StageError("the file does not say which ONNX opset it uses", hint="export it again")
    if not OLDEST_OPSET <= versions[0] <= NEWEST_OPSET:
        raise StageError(
            f"the file uses ONNX opset {versions[0]}; "
            f"{OLDEST_OPSET} to {NEWEST_OPSET} are accepted",
            hint="convert it with `onnx.version_converter` or export it again",
        )
    return int(versions[0])


def _nodes(graph: GraphProto) -> tuple[Node, ...]:
    taken: set[str] = set()
    nodes = []
    for proto in graph.node:
        layer = _unique(proto.name or f"{proto.op_type}:{next(iter(proto.output), '')}", taken)
        nodes.append(
            Node(
                op=proto.op_type,
                domain=proto.domain,
                layer=layer,
                inputs=tuple(proto.input),
                outputs=tuple(proto.output),
                attributes=_attributes(proto),
            )
        )
    return tuple(nodes)


def _unique(name: str, taken: set[str]) -> str:
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}#{count}"
    taken.add(candidate)
    return candidate


def _attributes(node: NodeProto) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            values[attribute.name] = _decoded(attribute.t)
        elif attribute.type == AttributeProto.STRING:
            values[attribute.name] = attribute.s.decode("utf-8", "replace")
        else:
            values[attribute.name] = helper.get_attribute_value(attribute)
    return values


def _inputs(graph: GraphProto) -> tuple[GraphInput, ...]:
    constants = {item.name for item in graph.initializer}
    inputs = []
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        if value.type.WhichOneof("value") != "tensor_type":
            raise StageError(f"input '{value.name}' is not a tensor")
        extents = [extent.dim_value for extent in tensor.shape.dim]
        shape = tuple(extent if extent > 0 else None for extent in extents)
        if tensor.elem_type not in TensorProto.DataType.values():
            raise StageError(
                f"input '{value.name}' has the unknown element type {tensor.elem_type}"
            )
        dtype = TensorProto.DataType.Name(tensor.elem_type).lower()
        dtype = "float32" if dtype == "float" else dtype
        inputs.append(GraphInput(value.name, dtype, shape))
    return tuple(inputs)


def _datatypes(graph: GraphProto) -> dict[str, str]:
    return {
        note.tensor_name: entry.value
        for note in graph.quantization_annotation
        for entry in note.quant_parameter_tensor_names
        if entry.key == "finn_datatype"
    }
