"""PyTorch exported programs in PyTorch, eagerly: its operators, called as our own reader read them.

`torch.export.load` is not asked. It unpickles tensors, looks up targets of nodes in any module, and
evaluates symbolic sizes as Python, all of which a file can choose.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pipelines.reference_runtimes.runtime import RefusedError, Run, Shape
from stages.importing.torch_export.exported_program import DTYPES, Node, Ref, read_program
from stages.importing.torch_export.torch_converters import converter_of, is_in_place
from stages.importing.torch_export.torch_importer import program_nodes

# They register the operators that exported quantized programs call.
importlib.import_module("torch.ao.quantization.fx._decomposed")
_TORCHAO = "torchao.quantization.quant_primitives"

Array = np.ndarray[Any, Any]
Module = Callable[..., tuple[Any, ...]]
"""From input tensors to output tensors, both in the program's order."""
_PLACES = frozenset({"device", "layout", "pin_memory", "memory_format"})
"""Arguments that say where a tensor lies, not what it holds."""


def load(source: bytes, shape: Shape) -> Run:
    """Return what runs a .pt2 file; inputs and outputs are matched by their order."""
    run_module = module(source)

    def run(given: Mapping[str, Array]) -> dict[str, Array]:
        # A program may write into its inputs.
        found = run_module(*(torch.from_numpy(np.array(given[name])) for name in shape.inputs))
        return {n: np.asarray(o.numpy()) for n, o in zip(shape.outputs, found, strict=True)}

    return run


def module(source: bytes) -> Module:
    """Return a .pt2 file as a function of tensors, of the nodes that importing converts.

    Raises StageError for a file that our reader refuses, RefusedError for an operator that we have
    no converter for, or that PyTorch lacks.
    """
    program = read_program(source)
    nodes = program_nodes(program)
    steps = [_step(node) for node in nodes]
    constants = {name: torch.from_numpy(np.array(a)) for name, a in program.constants.items()}
    is_changing = any(is_in_place(node) for node in nodes)

    def run(*tensors: torch.Tensor) -> tuple[Any, ...]:
        values = dict(zip(program.inputs, tensors, strict=True))
        values |= {n: t.clone() for n, t in constants.items()} if is_changing else constants
        with torch.no_grad():
            for step in steps:
                step(values)
        return tuple(values[name] for name in dict.fromkeys(program.outputs))

    return run


def _step(node: Node) -> Callable[[dict[str, object]], None]:
    """Return what computes the outputs of a node from values by name."""
    operator = _operator(node.op)
    arguments = {
        name: _constant(value) for name, value in node.arguments.items() if name not in _PLACES
    }

    def step(values: dict[str, object]) -> None:
        found = operator(**{name: _resolved(value, values) for name, value in arguments.items()})
        several = found if isinstance(found, Sequence) else (found,)
        values.update(zip(node.outputs, several, strict=False))

    return step


def _operator(op: str) -> Any:
    """Return an operator, `aten.relu.default` say, that we have a converter for."""
    if converter_of(op) is None:
        raise RefusedError(f"PyTorch: '{op}' is no operator that bitkiln reads; it is not called")
    namespace, name, overload = op.split(".")
    if namespace == "torchao":
        importlib.import_module(_TORCHAO)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except AttributeError as error:
        raise RefusedError(f"PyTorch: it has no operator '{op}'") from error


def _constant(value: object) -> object:
    """Return an argument with types as PyTorch has them."""
    if isinstance(value, str) and value in DTYPES.values():
        return getattr(torch, value)
    return value


def _resolved(value: object, values: Mapping[str, object]) -> object:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, list):
        return [_resolved(each, values) for each in value]
    return value
