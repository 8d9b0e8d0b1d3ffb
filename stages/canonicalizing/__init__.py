"""Canonicalizing: the graph becomes calls of composites, one main operator with its epilogue each.

Afterwards `main` only calls private functions marked `composite` and picks among their outputs.
A composite is one kernel, one unit of tuning and of caching: its tensors are parameters, and two
layers of equal form call the same function.
"""

from __future__ import annotations

from stages.canonicalizing.copy_shared_outputs import CopySharedOutputs
from stages.canonicalizing.outline_composites import OutlineComposites
from stages.graph.bindings import bindings_of
from stages.graph.collecting import is_collect
from stages.graph.composites import is_reshape
from stages.graph.pass_table import Observer, Passes, PassRow, run_passes
from stages.kinds import Model
from stages.nodes import Call, GlobalVar, TupleGetItem, Var

__all__ = ["PASSES", "check", "run"]

PASSES: Passes = (
    PassRow(
        CopySharedOutputs,
        "copies outputs that are an input, or an earlier output",
        "a composite must compute what it writes to the caller's memory: before there are any",
    ),
    PassRow(
        OutlineComposites,
        "makes a function of each main operator and its epilogue; equal ones are one",
        "all operators are in the form that kernels take, and none is added any more",
    ),
)


def run(*, model: Model, observe: Observer | None = None) -> Model:
    """Outline every main operator with its epilogue; equal composites are one function."""
    result = run_passes(PASSES, model, observe)
    check(result)
    return result


def check(model: Model) -> None:
    """Raise AssertionError unless `main` holds calls of composites, and what only names memory."""
    main = model.module["main"]
    for binding in bindings_of(main):
        value = binding.value
        if isinstance(value, (TupleGetItem, Var)):
            continue
        if is_reshape(value) or is_collect(value):
            continue
        assert isinstance(value, Call) and isinstance(value.op, GlobalVar), binding.var.name
        assert "composite" in model.module[value.op].attrs, value.op.name_hint
