"""PyTorch exported programs in PyTorch, eagerly."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pipelines.peers import RefusedError, Run, Shape

# It registers the operators that exported quantized programs call.
importlib.import_module("torch.ao.quantization.fx._decomposed")

Array = np.ndarray[Any, Any]


def load(source: bytes, shape: Shape) -> Run:
    """Return what runs a .pt2 file; inputs and outputs are matched by their order."""
    try:
        module: Any = torch.export.load(io.BytesIO(source)).module()
    except Exception as error:
        # torch raises RuntimeError, its own errors and those of zip files alike.
        raise RefusedError(f"PyTorch: {' '.join(str(error).split())[:200]}") from error

    def run(given: Mapping[str, Array]) -> dict[str, Array]:
        tensors = [torch.from_numpy(np.ascontiguousarray(given[name])) for name in shape.inputs]
        with torch.no_grad():
            found = module(*tensors)
        outputs = found if isinstance(found, tuple | list) else (found,)
        return {n: np.asarray(o.numpy()) for n, o in zip(shape.outputs, outputs, strict=True)}

    return run
