"""Exported programs made by hand, without PyTorch: what `torch.export.save` of 2.9 would write."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NUMBERS = {"uint8": 1, "int8": 2, "int32": 4, "int64": 5, "float32": 7, "float64": 8, "bool": 12}


def meta(dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    return {
        "dtype": NUMBERS[dtype],
        "sizes": [{"as_int": extent} for extent in shape],
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
    }


def node(target: str, output: str, **arguments: Any) -> dict[str, Any]:
    """A call; strings that start with `%` are tensors."""
    return {
        "target": f"torch.ops.{target}",
        "inputs": [{"name": name, "arg": _argument(value)} for name, value in arguments.items()],
        "outputs": [{"as_tensor": {"name": output}}],
        "name": output,
    }


def _argument(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        return {"as_tensor": {"name": value[1:]}}
    if isinstance(value, list):
        return {"as_ints": value}
    return {"as_float" if isinstance(value, float) else "as_int": value}


def content(
    nodes: Sequence[Mapping[str, Any]], tensors: Mapping[str, Array], output: str,
    inputs: Mapping[str, tuple[str, tuple[int, ...]]],
) -> dict[str, Any]:  # fmt: skip
    """The JSON of a program whose tensors are parameters of the same names."""
    stored = [{"parameter": {"arg": {"name": name}, "parameter_name": name}} for name in tensors]
    users = [{"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in inputs]
    return {
        "graph_module": {
            "graph": {
                "nodes": list(nodes),
                "tensor_values": {name: meta(*kind) for name, kind in inputs.items()},
            },
            "signature": {
                "input_specs": [*stored, *users],
                "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": output}}}}],
            },
        },
        "torch_version": "2.9.0",
    }


def archive(
    program: Any, tensors: Mapping[str, Array], changes: Mapping[str, bytes | None] | None = None
) -> bytes:
    """The file; `changes` replaces members, or leaves them out where None."""
    config = {
        name: {
            "path_name": f"weight_{i}",
            "is_param": True,
            "use_pickle": False,
            "tensor_meta": meta(str(value.dtype), value.shape),
        }
        for i, (name, value) in enumerate(tensors.items())
    }
    members: dict[str, bytes | None] = {
        "m/data/weights/model_weights_config.json": json.dumps({"config": config}).encode(),
        **{f"m/data/weights/weight_{i}": v.tobytes() for i, v in enumerate(tensors.values())},
        "m/models/model.json": json.dumps(program).encode(),
        "m/byteorder": b"little",
        "m/archive_format": b"pt2",
        **(changes or {}),
    }
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in members.items():
            if data is not None:
                file.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


SHAPE = (1, 3, 6, 5)
_GRID = {"zero_point": 3, "quant_min": -128, "quant_max": 127}
_INT8 = {"as_scalar_type": NUMBERS["int8"]}
TENSORS: dict[str, Array] = {
    "weight": np.random.default_rng(0).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
    "scales": np.array([0.01, 0.02, 0.015, 0.007], np.float32),
    "points": np.zeros(4, np.int64),
    "bias": np.array([0.3, -0.2, 0.0, 1.0], np.float32),
}
NODES = [
    node("quantized_decomposed.quantize_per_tensor.default", "q", input="%x",
         scale=float(np.float32(0.02)), **_GRID, dtype=_INT8),
    node("quantized_decomposed.dequantize_per_tensor.default", "dq", input="%q",
         scale=float(np.float32(0.02)), **_GRID, dtype=_INT8),
    node("quantized_decomposed.dequantize_per_channel.default", "w", input="%weight",
         scales="%scales", zero_points="%points", axis=0, quant_min=-127, quant_max=127,
         dtype=_INT8),
    node("aten.conv2d.default", "conv", input="%dq", weight="%w", bias="%bias", stride=[1, 1],
         padding=[1, 1]),
    node("aten.relu.default", "relu", self="%conv"),
    node("quantized_decomposed.quantize_per_tensor.default", "out", input="%relu",
         scale=float(np.float32(0.05)), **_GRID, dtype=_INT8),
]  # fmt: skip
PROGRAM = content(NODES, TENSORS, "out", {"x": ("float32", SHAPE)})
SOURCE = archive(PROGRAM, TENSORS)
"""A quantized convolution: quantize, dequantize, conv2d, relu, quantize."""
