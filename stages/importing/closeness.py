"""Networks that are close to their framework, not equal: floats in front of a dynamic quantizer.

A dynamic quantizer takes its scale from the floats it reads. The last bit of a float sum is the
framework's own: it depends on the order of additions. One bit can move a value to the next level,
and a largest value moves all of them a little; no rule of rounding makes that equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call

from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, tensor_types
from stages.graph import interpret
from stages.graph.bindings import bindings_of, output_names, variables_in
from stages.kinds import Model
from stages.numerics import rule_names
from stages.numerics.onnx_islands import ATTRIBUTE, CLOSE, Island, islands_of, written

Array = np.ndarray[Any, Any]
_EXACT = """reshape permute_dims squeeze expand_dims flatten strided_slice take broadcast_to tile
    repeat flip split concat stack where astype add subtract multiply divide negative abs maximum
    minimum clip max min sqrt nn.relu nn.max_pool2d nn.pad
    qnn.quantize_linear qnn.dequantize_linear qnn.dynamic_scale qnn.dynamic_zero_point"""
EXACT = frozenset(f"relax.{name}" for name in _EXACT.split())
"""Operators on floats that everyone rounds alike."""
DYNAMIC_RANGE = "DynamicQuantizeLinear of float sums, whose last bits can move a level"
MOST_PARAMETERS = 4_000_000
"""A model of more is not executed only to say by how much it may differ."""


def inexact_operands(model: Model) -> list[Any]:
    """Variables that dynamic quantizers read, and whose last bits are the framework's own."""
    bindings = bindings_of(model.module["main"])
    calls = {binding.var: binding.value for binding in bindings}
    inexact: set[Any] = set()
    for variable, value in calls.items():
        if _is_inexact(value) or not inexact.isdisjoint(variables_in(value)):
            inexact.add(variable)
    found = []
    for value in calls.values():
        low = calls.get(value.args[0]) if is_op(value, rule_names.QNN_DYNAMIC_SCALE) else None
        if low is not None and is_op(low, names.MIN) and low.args[0] in inexact:
            found.append(low.args[0])
    return found


def note_close_layers(model: Model) -> Model:
    """`model` with what it says of its islands, and of quantizers that are close, not equal."""
    found = [Island(str(each.name), DYNAMIC_RANGE, CLOSE) for each in inexact_operands(model)]
    if not found:
        return model
    text = written((*islands_of(model), *found))
    main = model.module["main"].with_attr(ATTRIBUTE, text)
    return Model(tvm.IRModule({relax.GlobalVar("main"): main}), model.params)


def _is_inexact(value: Any) -> bool:
    is_float = any(dtype_of(kind) == "float32" for kind in tensor_types(value.ty))
    return isinstance(value, Call) and is_float and str(value.op.name) not in EXACT


def output_tolerances(
    model: Model, samples: Sequence[Mapping[str, Array]], seed: int = 0
) -> dict[str, float]:
    """By how much outputs move at most where the last bits of inexact operands do, by name."""
    rng, inexact = np.random.default_rng(seed), set(inexact_operands(model))
    moved = dict.fromkeys(output_names(model), 0.0)

    def nudged(variable: Any, value: Any) -> Any:
        """A loose variable as the next float32 below or above, or the same, by element."""
        if variable not in inexact:
            return value
        side = rng.choice(np.array([-np.inf, 0, np.inf], np.float32), value.shape)
        return np.where(side == 0, value, np.nextafter(value, side)).astype(np.float32)

    for sample in samples:
        exact = interpret.run(model, sample)
        for name, value in interpret.run(model, sample, change=nudged).items():
            gap = np.abs(value.astype(np.float64) - exact[name].astype(np.float64))
            moved[name] = max(moved[name], float(gap.max(initial=0.0)))
    return moved
