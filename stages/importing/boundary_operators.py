"""What an imported model does first with its inputs and last for its outputs, for starter recipes.

Inputs are followed through rearrangements and arithmetic with constants to the quantizer that reads
them, outputs back through quantizers and biases to what made them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, Op

from stages.dialect.calls import attributes
from stages.graph.bindings import bindings_of, output_names, outputs_of, variables_in
from stages.importing.onnx.source_arithmetic import quant_limits
from stages.kinds import Model, Table

Constants = Mapping[str, np.ndarray[Any, Any]]

_MOVING = ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "astype", "pad")
_ARITHMETIC = {"add", "subtract", "multiply", "divide"}
_QUANTIZERS = {"quantize", "quantize_linear", "tflite_quantize", "quant"}
_KEEPING = ("quantize", "rescale", "table", "quant", "clip")
"""What may stand between scores and an output: parts of operators' names."""


def boundary_operators(model: Model) -> Table:
    """`inputs` and `outputs` by name: what is known of each.

    Of an input `factor` and `offset`, which the graph multiplies it by and then adds before all
    else (of several channels the means), `is_scaled` whether it does so at all, and `range`, the
    real values [low, high] that the first quantizer can tell apart, if there is one. Of an output
    `made_by`, the operator whose values it has.
    """
    main = model.module["main"]
    count = int(main.attrs["num_input"])
    bindings = bindings_of(main)
    readers: dict[Any, list[Any]] = {}
    makers = {}
    for binding in bindings:
        makers[binding.var] = binding.value
        for variable in variables_in(binding.value):
            readers.setdefault(variable, []).append(binding)
    return {
        "inputs": {item.name: _first(item, readers, model.params) for item in main.params[:count]},
        "outputs": {
            name: {"made_by": _maker(output, makers, model.params)}
            for name, output in zip(output_names(model), outputs_of(main), strict=True)
        },
    }


def _first(variable: Any, readers: Mapping[Any, list[Any]], constants: Constants) -> Table:
    factor, offset, is_scaled = 1.0, 0.0, False
    found: Table = {}
    while len(readers.get(variable, ())) == 1:
        (binding,) = readers[variable]
        name, call = _name(binding.value), binding.value
        if name in _QUANTIZERS:
            found = _grid(call, name, constants, factor, offset)
            break
        if name in _ARITHMETIC and (step := _step(name, call, variable, constants)) is not None:
            factor, offset = factor * step[0], offset * step[0] + step[1]
            is_scaled = True
        elif name not in _MOVING and name != "":
            break
        variable = binding.var
    numbers = (factor, offset, *found.get("range", ()))
    if not all(map(math.isfinite, numbers)) or not factor:
        return {"factor": 1.0, "offset": 0.0, "is_scaled": False}
    return {"factor": factor, "offset": offset, "is_scaled": is_scaled, **found}


def _step(name: str, call: Any, variable: Any, constants: Constants) -> tuple[float, float] | None:
    """What an operator with a constant multiplies by and adds; None where there is no constant."""
    first, second = call.args
    is_first = first.same_as(variable)
    value = constants.get(getattr(second if is_first else first, "name", ""))
    if value is None or value.dtype.kind not in "iuf" or not value.size:
        return None
    number = float(np.mean(value.astype(np.float64)))
    if not is_first and name in ("subtract", "divide"):
        return (-1.0, number) if name == "subtract" else None
    if name == "divide":
        return (1 / number, 0.0) if number else None
    return {"add": (1.0, number), "subtract": (1.0, -number), "multiply": (number, 0.0)}[name]


def _grid(call: Any, name: str, constants: Constants, factor: float, offset: float) -> Table:
    """The range of a quantizer, as values of the input before it was scaled."""
    stated = attributes(call)
    scale, zero_point = (_number(call, stated, key, at, constants) for at, key in _OPERANDS)
    if scale is None or scale <= 0 or not factor:
        return {}
    if name == "quant":
        low, high = quant_limits(
            int(stated["bits"]), bool(stated["signed"]), bool(stated["narrow"])
        )
    elif {"low", "high"} <= stated.keys():
        low, high = int(stated["low"]), int(stated["high"])
    else:
        return {}
    ends_of = (scale * (q - (zero_point or 0.0)) for q in (low, high))
    return {"range": sorted((value - offset) / factor for value in ends_of)}


_OPERANDS = ((1, "scale"), (2, "zero_point"))


def _number(
    call: Any, stated: Mapping[str, Any], key: str, at: int, constants: Constants
) -> float | None:
    """A single number that an operator is given as attribute or as constant."""
    if key in stated:
        return float(stated[key])
    value = constants.get(getattr(call.args[at], "name", "")) if at < len(call.args) else None
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _maker(variable: Any, makers: Mapping[Any, Any], constants: Constants) -> str:
    """The operator an output comes from; `input` where it is one."""
    for _ in range(len(makers) + 1):
        if variable not in makers:
            return "input"
        name, value = _name(makers[variable]), makers[variable]
        data = [item for item in variables_in(value) if item.name not in constants]
        is_kept = name in ("", *_MOVING, *_ARITHMETIC) or any(part in name for part in _KEEPING)
        if not is_kept or len(data) != 1:
            return name
        (variable,) = data
    return ""


def _name(value: Any) -> str:
    """An operator's own name, without its dialect; empty for a mere renaming."""
    if isinstance(value, Call) and isinstance(value.op, Op):
        return str(value.op.name).rpartition(".")[2]
    return "" if isinstance(value, relax.Var) else "other"
