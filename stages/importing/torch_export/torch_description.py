"""What an exported program contains, for `doit import`."""

from __future__ import annotations

from math import prod

from stages.dialect.dtypes import is_integer, parse
from stages.importing.description import attempted, description, shown_outputs
from stages.importing.importer import Imported
from stages.importing.torch_export.exported_program import Node, Program, Ref
from stages.importing.torch_export.torch_converters import unknown_operators
from stages.importing.torch_export.torch_importer import import_program
from stages.kinds import Table
from stages.options import ImportOptions

_LAYERS = ("conv2d", "convolution", "linear", "addmm", "mm")


def describe_program(source: bytes, program: Program, options: ImportOptions) -> Table:
    """The table of `doit import`; what is unsupported is listed, not raised."""
    problems = unknown_operators(program)
    imported = Imported(None, unsupported=problems)
    if not problems:
        imported = attempted(lambda: import_program(program, options))
    return description(
        form="PyTorch exported program",
        source=source,
        opset=0,
        producer=f"PyTorch {program.version}".strip(),
        inputs=[
            {"name": name, "dtype": meta.dtype, "shape": list(meta.shape),
             "smallest": 0.0, "largest": 1.0}
            for name, meta in program.inputs.items()
        ],
        outputs=shown_outputs(program.outputs, imported),
        operators=(node.op for node in program.nodes),
        parameters=(prod(value.shape) for value in program.constants.values()),
        layers=_layers(program),
        unsupported=imported.unsupported,
    )  # fmt: skip


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
    if not is_integer(dtype):
        return None
    stored = parse(dtype)
    return {"bits": stored.bits, "encoding": "signed" if stored.is_signed else "asymmetric"}


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
