"""Small .tflite files of one operator, and TensorFlow Lite's own reference kernels to run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stages.importing.twins.tflite_writer import Operation as Operation
from stages.importing.twins.tflite_writer import Tensor as Tensor
from stages.importing.twins.tflite_writer import build as build
from stages.importing.twins.tflite_writer import constant as constant

Array = np.ndarray[Any, Any]


def single(
    op: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    table: str | None = None,
    version: int = 1,
    custom_options: bytes = b"",
    metadata: bytes | None = None,
    **options: Any,
) -> bytes:
    """A file of one operator; inputs without data are the graph's."""
    operation = Operation(op, inputs, outputs, table, options, custom_options, version)
    fed = [tensor for tensor in inputs if tensor is not None and tensor.data is None]
    return build([operation], list(dict.fromkeys(fed)), outputs, metadata)


def run_reference(source: bytes, *inputs: Array, kernels: str = "BUILTIN_REF") -> list[Array]:
    """Outputs of a file on LiteRT's reference kernels, inputs in graph order.

    `kernels` names another resolver for an operator that has no reference kernel.
    """
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is the reference")
    interpreter = litert.Interpreter(
        model_content=source,
        experimental_op_resolver_type=getattr(litert.OpResolverType, kernels),
    )
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [
        np.array(interpreter.get_tensor(detail["index"]))
        for detail in interpreter.get_output_details()
    ]
