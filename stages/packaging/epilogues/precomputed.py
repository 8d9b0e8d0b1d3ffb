"""What an epilogue computes in loops of its own, in front of a vector of channels that needs it.

Sums are saturated to 16 bits by a function in LLVM IR where an instruction does that for a whole
block, and thresholds are gone through in a loop where they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import dtype_of, shape_of
from stages.dialect.let_bindings import shared
from stages.dialect.numbers_fused import LONGEST_WORD
from stages.kernels.signature import BLOCK
from stages.packaging.emitting.addressing import call_on
from stages.packaging.epilogues.elements import ANY, Apart, Elements
from stages.packaging.epilogues.outputs import Position
from stages.packaging.epilogues.saturation import WORDS, packs
from stages.packaging.epilogues.threshold_counts import FEW, counted_in, number_of

Each = Callable[[Callable[[Any, Position, Any], None]], None]
"""Emits a loop over the lanes of a vector, each with its position and its raw sum."""


def saturates_words(elements: Elements, width: int) -> bool:
    """Whether an epilogue needs the function WORDS, for vectors of so many channels."""
    return any(_in_words(elements, call, width) for call in elements.thresholds.values())


def computed_apart(elements: Elements, each: Each, width: int) -> Apart:
    """Emit the loops for a vector of so many channels; where they leave what they computed."""
    apart = Apart()
    for variable, call in elements.thresholds.items():
        if _in_words(elements, call, width):
            apart.words[call.args[0]] = _words(elements, call.args[0], each, apart, width)
        if shape_of(call.args[1].ty)[0] > FEW:
            apart.counts[variable] = _count(elements, call, each, apart, width)
    return apart


def _in_words(elements: Elements, call: Any, width: int) -> bool:
    """Whether an instruction saturates what a vector compares to 16 bits."""
    is_long = elements.reaches.get(call.args[0], ANY) > LONGEST_WORD
    is_short = dtype_of(call.args[1].ty) == "int16"
    return is_short and is_long and width == BLOCK and packs(elements.of.isa)


def _words(elements: Elements, variable: Any, each: Each, apart: Apart, width: int) -> Any:
    """A buffer of a variable's integers as the nearest ones of 16 bits."""
    wide, words = (T.alloc_buffer((width,), kind) for kind in ("int32", "int16"))

    def store(lane: Any, at: Position, raw: Any) -> None:
        values = elements.at(at, raw, apart, lane, until=variable)
        T.buffer_store(wide, shared(values[variable].longest), [lane])

    each(store)
    call_on(WORDS, wide[0], words[0])
    return words


def _count(elements: Elements, call: Any, each: Each, apart: Apart, width: int) -> Any:
    """A buffer of how many thresholds are reached."""
    source, table, flip = call.args
    kind = counted_in(dtype_of(table.ty), elements.of.isa)
    compared = T.alloc_buffer((width,), dtype_of(table.ty))
    counts = T.alloc_buffer((width,), kind)

    def begin(lane: Any, at: Position, raw: Any) -> None:
        values = elements.at(at, raw, apart, lane, until=source)
        value = elements.compared(call, values, at, apart, lane)
        T.buffer_store(compared, shared(value), [lane])
        T.buffer_store(counts, tirx.const(0, kind), [lane])

    each(begin)
    with T.serial(0, shape_of(table.ty)[0]) as row:

        def count(lane: Any, at: Position, raw: Any) -> None:
            del raw
            limits = replace(elements.limits_of(call, at.channel), rows=[row])
            (hit,) = limits.reached(call, compared[lane], elements.operand(flip, at))
            T.buffer_store(counts, counts[lane] + number_of(hit, kind), [lane])

        each(count)
    return counts
