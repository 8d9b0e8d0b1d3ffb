"""Activations that are rebased: stored less 128, as the signed bytes that kernels multiply.
Instructions such as SDOT and SMULL take signed bytes, and levels of 8 bits are unsigned. What gives
an image can write them less 128 (Jain et al. 2020, section IV-C, has the shift) for one
instruction a register, where each tile that reads it would need one a register again. It does so
where nothing reads the levels as they are, so that no image is written twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from stages.bitpacking.plans import LinearPlan, Plan, Plans
from stages.dialect.calls import dtype_of, is_op
from stages.graph.bindings import bindings_of
from stages.nodes import Var
from stages.numerics import rule_names


def rebased(plans: Plans, data: Collection[Var]) -> Plans:
    """Plans in which layers that read one of `data` read it rebased; others stay as they are."""
    found = dict(plans)
    for variable, plan in plans.items():
        if isinstance(plan, LinearPlan) and plan.layer.data in data:
            layout = replace(plan.layout, is_rebased=True)
            found[variable] = replace(plan, kernel=plan.kernel.as_rebased, layout=layout)
    return found


def can_be_rebased(plans: Plans) -> set[Var]:
    """The images that can be rebased: convolutions give them, and all kernels that read them take
    128 off what they read."""
    readers: dict[Var, list[LinearPlan]] = defaultdict(list)
    for plan in plans.values():
        if isinstance(plan, LinearPlan) and not plan.layer.is_of_levels:
            readers[plan.layer.data].append(plan)
    return {
        data
        for data, found in readers.items()
        if data in plans and not _is_looked_up(plans[data]) and all(map(_subtracts_shift, found))
    }


def _subtracts_shift(plan: LinearPlan) -> bool:
    """Whether a layer's kernel takes 128 off what it reads, and that is an image as it lies."""
    layout = plan.layout
    is_whole = layout.form == "bytes" and not layout.is_narrow and layout.packed_rows == 1
    is_shifted = bool(plan.signature.offset) and dtype_of(plan.layer.data.ty) == "uint8"
    return is_whole and is_shifted and not plan.is_computed


def _is_looked_up(producer: Plan) -> bool:
    """Whether a composite stores what it looks up in a table, a vector at a time."""
    bindings = bindings_of(producer.layer.function)
    return any(is_op(binding.value, rule_names.QNN_TABLE) for binding in bindings)
