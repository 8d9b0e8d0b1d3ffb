"""ONNX models in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from pipelines.reference_runtimes.runtime import RefusedError, Run, Shape
from stages.importing.onnx.runtime_session import is_wrong_pool

Array = np.ndarray[Any, Any]
_NEWEST_IR = 10
_WIDE = {
    **dict.fromkeys(("INT4", "INT2"), onnx.TensorProto.INT8),
    **dict.fromkeys(("UINT4", "UINT2"), onnx.TensorProto.UINT8),
}
"""Elements below a byte, which its Python interface cannot take: a byte each, to be cast."""
_WHOLE_SUMS = "session.x64quantprecision"
"""Without VNNI the runtime adds pairs of u8 x s8 in 16 bits, which saturates; this forbids it."""


_NBITS = "session.qdq_matmulnbits_accuracy_level"
_FLOATS = "1"
"""The level of MatMulNBits at which activations stay what they are; 4 is the default."""


def load(source: bytes, shape: Shape, *, is_default: bool = False) -> Run:
    """Return what runs an ONNX file with the runtime's default optimizations, one thread.

    Two of them are left out unless `is_default`, as packages follow the file there: activations of
    MatMulNBits are not quantized again, and a pool that QLinearAveragePool divides wrongly stays
    float, being an output.
    Outputs that are inner tensors of the file (a softmax at its end is left to the caller) are
    made outputs first.
    """
    model = onnx.load_model_from_string(source)
    _widen(model.graph)
    model.ir_version = min(model.ir_version, _NEWEST_IR)
    known = {output.name for output in model.graph.output}
    apart = [] if is_default else list(_wrong_pools(model.graph))
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name)
        for name in dict.fromkeys((*shape.outputs, *apart))
        if name not in known
    )
    try:
        session = _session(model.SerializeToString(), is_default)
    except Exception as error:
        # ONNX Runtime has an exception of its own for each of its status codes.
        raise RefusedError(f"ONNX Runtime: {' '.join(str(error).split())[:200]}") from error

    def run(given: Mapping[str, Array]) -> dict[str, Array]:
        try:
            found = session.run(list(shape.outputs), dict(given))
        except Exception as error:
            raise RefusedError(f"ONNX Runtime: {' '.join(str(error).split())[:200]}") from error
        return dict(zip(shape.outputs, map(np.asarray, found), strict=True))

    return run


def _wrong_pools(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the outputs of pools that the default session divides wrongly."""
    for node in graph.node:
        if is_wrong_pool(node.op_type, {each.name: each.i for each in node.attribute}):
            yield node.output[0]


def _widen(graph: onnx.GraphProto) -> None:
    """Give inputs and outputs of less than a byte an element one byte, cast inside the graph."""
    kinds = onnx.TensorProto.DataType
    inner = {}
    for item in (*graph.input, *graph.output):
        narrow = item.type.tensor_type.elem_type
        wide = _WIDE.get(kinds.Name(narrow)) if narrow in kinds.values() else None
        if wide is not None and item.name not in {each.name for each in graph.initializer}:
            item.type.tensor_type.elem_type = wide
            inner[item.name] = (f"{item.name}.narrow", narrow, wide)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [inner.get(name, (name,))[0] for name in names]
    given = {item.name for item in graph.input}
    for name, (renamed, narrow, wide) in inner.items():
        if name in given:
            graph.node.insert(0, onnx.helper.make_node("Cast", [name], [renamed], to=narrow))
        else:
            graph.node.append(onnx.helper.make_node("Cast", [renamed], [name], to=wide))


def _session(model: bytes, is_default: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry(_WHOLE_SUMS, "1")
    if not is_default:
        options.add_session_config_entry(_NBITS, _FLOATS)
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:
        # It takes weights for unsigned then, which some operators have no kernel for.
        options.add_session_config_entry(_WHOLE_SUMS, "0")
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
