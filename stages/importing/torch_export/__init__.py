"""Importing PyTorch's exported programs, quantized by PT2E or torchao.

The numerics `torch` is that of the exported graph: float32 `dequantize -> operator -> quantize`,
halves to even. Convolutions and matrix products of quantized operands add exact integers here,
where PyTorch adds float32 products in an order of its own: results can differ by one step.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from stages.errors import StageError
from stages.importing.torch_export.exported_program import Node, Program, Ref, read_program
from stages.importing.torch_export.torch_importer import unknown_operators, walk
from stages.importing.unsupported import Unsupported, refusal
from stages.kinds import Model, Table
from stages.options import ImportOptions

__all__ = ["convert_file", "describe_file"]

_LAYERS = ("conv2d", "convolution", "linear", "addmm", "mm")


def convert_file(source: bytes, options: ImportOptions) -> Model:
    """The Relax model of a `.pt2` file; see `stages.importing.formats`."""
    result = walk(read_program(source), options)
    if result.model is None:
        raise refusal(result.unsupported)
    return result.model


def describe_file(source: bytes, options: ImportOptions) -> Table:
    """What `doit import` shows of a `.pt2` file."""
    program = read_program(source)
    problems: tuple[Unsupported, ...] = unknown_operators(program)
    shapes: dict[str, tuple[int, ...]] = {}
    if not problems:
        try:
            result = walk(program, options)
            problems, shapes = result.unsupported, result.shapes
        except StageError as error:
            problems = (Unsupported("input", str(error), ()),)
    return {
        "format": "PyTorch exported program",
        "bytes": len(source),
        "opset": 0,
        "producer": f"PyTorch {program.version}".strip(),
        "inputs": [
            {"name": name, "dtype": meta.dtype, "shape": list(meta.shape),
             "smallest": 0.0, "largest": 1.0}
            for name, meta in program.inputs.items()
        ],
        "outputs": [
            {"name": name, "shape": list(shapes[name]) if name in shapes else None}
            for name in program.outputs
        ],
        "left_to_caller": [],
        "operators": dict(sorted(Counter(node.op for node in program.nodes).items())),
        "parameters": sum(prod(value.shape) for value in program.constants.values()),
        "layers": _layers(program),
        "unsupported": [
            {"op": item.op, "why": item.why, "layers": list(item.layers)} for item in problems
        ],
    }  # fmt: skip


def _layers(program: Program) -> list[Table]:
    producers = {name: node for node in program.nodes for name in node.outputs}
    found = []
    for node in program.nodes:
        name = node.op.split(".")[1] if node.op.startswith("aten.") else ""
        if name not in _LAYERS:
            continue
        data, weight = (
            node.arguments.get(first, node.arguments.get(second))
            for first, second in (("input", "mat1"), ("weight", "mat2"))
        )
        stored = _source(program, producers, weight)
        found.append(
            {
                "layer": node.name,
                "op": name,
                "weight_shape": None if stored is None else list(program.constants[stored].shape),
                "activations": _width(producers, data),
                "weights": _width(producers, weight),
            }
        )
    return found


def _width(producers: dict[str, Node], argument: object) -> Table | None:
    """Bits and encoding of a dequantized tensor."""
    node = producers.get(argument.name) if isinstance(argument, Ref) else None
    if node is None or "dequantize" not in node.op:
        return None
    dtype = str(node.arguments.get("dtype", node.arguments.get("input_dtype", "")))
    if not dtype.startswith(("int", "uint")):
        return None
    encoding = "signed" if dtype.startswith("int") else "asymmetric"
    return {"bits": int(dtype.lstrip("uint")), "encoding": encoding}


def _source(program: Program, producers: dict[str, Node], argument: object) -> str | None:
    """The stored tensor that an argument comes from."""
    for _ in range(8):
        if not isinstance(argument, Ref):
            return None
        if argument.name in program.constants:
            return argument.name
        node = producers.get(argument.name)
        if node is None:
            return None
        argument = node.arguments.get("input", node.arguments.get("self"))
    return None
