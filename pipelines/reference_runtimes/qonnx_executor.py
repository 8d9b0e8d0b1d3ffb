"""QONNX and FINN-ONNX models in the executor of the qonnx package.

It imports the Python module that a node's domain names, and evaluates annotations of layouts and
sparsity as Python. So it gets the model as our own reader read it, nodes of known domains alone,
and no annotation but FINN's datatypes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from qonnx.core import onnx_exec
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.infer_shapes import InferShapes

from pipelines.reference_runtimes.runtime import RefusedError, Run, Shape
from stages.importing.onnx import onnx_reader
from stages.importing.onnx.domains import QONNX, graphs_of

Array = np.ndarray[Any, Any]
_READABLE_IR = 8
_DOMAINS = frozenset({"", QONNX})
_DATATYPE = "finn_datatype"


def load(source: bytes, shape: Shape) -> Run:
    """Return what runs a QONNX file; any tensor of the graph may be an output."""
    rewritten = _rewritten(source)
    try:
        with _older_ir():
            model = ModelWrapper(rewritten)
            for name, extents in shape.inputs.items():
                model.set_tensor_shape(name, list(extents))
            model = model.transform(InferShapes())
    except Exception as error:
        # qonnx raises whatever onnx, ONNX Runtime and NumPy do.
        raise RefusedError(f"qonnx: {' '.join(str(error).split())[:200]}") from error

    def run(given: Mapping[str, Array]) -> dict[str, Array]:
        try:
            with _older_ir():
                found = onnx_exec.execute_onnx(model, dict(given), return_full_exec_context=True)
        except Exception as error:
            raise RefusedError(f"qonnx: {' '.join(str(error).split())[:200]}") from error
        return {name: np.asarray(found[name]) for name in shape.outputs}

    return run


def _rewritten(source: bytes) -> onnx.ModelProto:
    """Return what of a model the executor may see; RefusedError if that is not all it computes.

    StageError says why our reader refuses a file.
    """
    read = onnx_reader.read(source).model
    nodes = [node for graph in graphs_of(read.graph) for node in graph.node]
    strange = sorted({node.domain for node in nodes} - _DOMAINS)
    if strange or read.functions:
        what = f"of the domain '{strange[0]}'" if strange else "that the file itself defines"
        raise RefusedError(f"qonnx: there are operators {what}; its executor is not asked for them")
    for graph in graphs_of(read.graph):
        for annotation in graph.quantization_annotation:
            kept = [e for e in annotation.quant_parameter_tensor_names if e.key == _DATATYPE]
            del annotation.quant_parameter_tensor_names[:]
            annotation.quant_parameter_tensor_names.extend(kept)
    return onnx.ModelProto(
        ir_version=read.ir_version, opset_import=read.opset_import, graph=read.graph
    )


@contextmanager
def _older_ir() -> Iterator[None]:
    """Let qonnx write models of an IR version that ONNX Runtime reads, not the newest."""
    make = onnx_exec.qonnx_make_model

    def older(*args: Any, **kwargs: Any) -> Any:
        model = make(*args, **kwargs)
        model.ir_version = _READABLE_IR
        return model

    onnx_exec.qonnx_make_model = older
    try:
        yield
    finally:
        onnx_exec.qonnx_make_model = make
