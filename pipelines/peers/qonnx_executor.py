"""QONNX and FINN-ONNX models in the executor of the qonnx package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from qonnx.core import onnx_exec
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.infer_shapes import InferShapes

from pipelines.peers import RefusedError, Run, Shape

Array = np.ndarray[Any, Any]
_READABLE_IR = 8


def load(source: bytes, shape: Shape) -> Run:
    """Return what runs a QONNX file; any tensor of the graph may be an output."""
    try:
        with _older_ir():
            model = ModelWrapper(onnx.load_model_from_string(source))
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
