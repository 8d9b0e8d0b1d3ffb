"""TensorFlow Lite models in LiteRT, on its reference kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from pipelines.reference_runtimes.runtime import RefusedError, Run, Shape

Array = np.ndarray[Any, Any]


def load(source: bytes, shape: Shape) -> Run:
    """Return what runs a .tflite file; inputs and outputs are matched by their order.

    Its optimized kernels round otherwise, so the reference kernels run; a custom operator is
    refused.
    """
    try:
        interpreter = Interpreter(
            model_content=source,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            num_threads=1,
        )
        inputs = interpreter.get_input_details()
        for item, extents in zip(inputs, shape.inputs.values(), strict=True):
            if tuple(item["shape"]) != extents:
                interpreter.resize_tensor_input(item["index"], list(extents))
        interpreter.allocate_tensors()
        outputs = interpreter.get_output_details()
    except (RuntimeError, ValueError) as error:
        raise RefusedError(f"LiteRT: {' '.join(str(error).split())[:200]}") from error

    def run(given: Mapping[str, Array]) -> dict[str, Array]:
        try:
            for item, name in zip(inputs, shape.inputs, strict=True):
                interpreter.set_tensor(item["index"], np.ascontiguousarray(given[name]))
            interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise RefusedError(f"LiteRT: {' '.join(str(error).split())[:200]}") from error
        found = [np.array(interpreter.get_tensor(item["index"])) for item in outputs]
        return dict(zip(shape.outputs, found, strict=True))

    return run
