"""The walk over a graph: every operator converted or noted as unsupported, constants folded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stages.dialect.calls import dtype_of
from stages.errors import StageError
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.tflite.constant_operators import Folder
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_converters import converted, converter_of
from stages.importing.tflite.tflite_graph import ABSENT, Graph, Operator, Tensor
from stages.importing.unsupported import NO_INPUT, Problems, Unsupported, UnsupportedError
from stages.kinds import Model
from stages.numerics.bipolar import BIT
from stages.options import ImportOptions


@dataclass(frozen=True)
class Walked:
    """A graph walked to its end: the model, unless something was unsupported."""

    model: Model | None
    shapes: dict[int, tuple[int, ...]]
    unsupported: tuple[Unsupported, ...]


def walk(graph: Graph, options: ImportOptions) -> Walked:
    """Convert what can be converted, and collect what cannot."""
    builder, problems, folder = TfliteBuilder(graph), Problems(), Folder()
    for index, shape in input_shapes(graph, options).items():
        try:
            builder.add_input(index, shape)
        except UnsupportedError as error:
            problems.add("input", str(error), graph.tensors[index].name)
    needed = needed_tensors(graph)
    for operator in graph.operators:
        if not needed.isdisjoint(operator.outputs):
            try:
                _convert(builder, folder, operator)
            except UnsupportedError as error:
                problems.add(operator.kind, str(error), operator.layer)
    for index in graph.outputs:
        # A damaged file may compute a tensor that has a buffer of its own too.
        is_constant = index in builder.constants or index not in builder.variables
        if not problems.listed() and is_constant:
            why = "is a constant; no input reaches it"
            problems.add("output", why, graph.tensors[index].name)
        elif not problems.listed() and dtype_of(builder.variables[index].ty) == BIT:
            problems.add("output", "is packed bits; dequantize it", graph.tensors[index].name)
    known = (*builder.variables, *builder.constants)
    shapes = {index: builder.shape(index) for index in known}
    unsupported = problems.listed()
    model = None if unsupported else builder.finish(graph.outputs, attributes_of(graph))
    return Walked(model, shapes, unsupported)


def _convert(builder: TfliteBuilder, folder: Folder, operator: Operator) -> None:
    converter_of(builder, operator)  # tells first that there is none
    operands = [index for index in operator.inputs if index != ABSENT]
    for index in (*operands, *operator.outputs):
        builder.tensor(index)
    if not all(builder.knows(index) for index in operands):
        return  # something before it is unsupported, and has been reported
    if folder.folds(builder, operator):
        builder.constants.update(folder.fold(builder, operator))
        return
    values = converted(builder, operator)
    for position, (index, value) in enumerate(zip(operator.outputs, values, strict=True)):
        builder.check_result(operator, position, builder.typed(value)[1])
        (builder.constants if isinstance(value, np.ndarray) else builder.variables)[index] = value


def needed_tensors(graph: Graph) -> set[int]:
    """Tensors the outputs depend on."""
    needed = set(graph.outputs)
    for operator in reversed(graph.operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs)
    return needed


def input_shapes(graph: Graph, options: ImportOptions) -> dict[int, tuple[int, ...]]:
    """The static shape of every graph input: as recorded, unless the recipe states another."""
    inputs = [graph.tensors[index] for index in graph.inputs]
    names = [tensor.name for tensor in inputs]
    if not names:
        raise StageError(NO_INPUT)
    strange = sorted(set(options.inputs) - set(names))
    if strange:
        raise StageError(f"the model has no input '{strange[0]}'; its inputs are {names}")
    return {
        tensor.index: _input_shape(tensor, options.inputs.get(tensor.name)) for tensor in inputs
    }


def _input_shape(tensor: Tensor, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    recorded = [None if o else e for e, o in zip(tensor.shape, tensor.is_open, strict=True)]
    if wanted is not None and not (
        len(wanted) == len(recorded)
        and all(given in (None, w) for given, w in zip(recorded, wanted, strict=True))
    ):
        shown = ", ".join("?" if extent is None else str(extent) for extent in recorded)
        raise StageError(
            f"input '{tensor.name}' is given the shape {list(wanted)}, but the file says [{shown}]"
        )
    shape = tensor.shape if wanted is None else wanted
    if not all(extent > 0 for extent in shape) or prod(shape) > MAX_ELEMENTS:
        raise StageError(
            f"input '{tensor.name}' has the shape {list(shape)}; every extent must be at least 1 "
            f"and the whole at most {MAX_ELEMENTS:,} elements",
            hint="state another in the recipe's inputs if the file leaves it open",
        )
    return shape


def attributes_of(graph: Graph) -> dict[str, Any]:
    """Attributes of `main`: the numerics, and what quantized inputs and outputs mean."""
    meaning = {}
    for index in (*graph.inputs, *graph.outputs):
        tensor = graph.tensors[index]
        found = tensor.quantization
        if found is not None and found.is_per_tensor:
            scale, zero_point = float(found.scale[0]), int(found.zero_point[0])
            meaning[tensor.name] = {"scale": scale, "zero_point": zero_point}
    return {"numerics": "tflite", "quantization": json.dumps(meaning, sort_keys=True)}
