"""What an epilogue computes in loops of its own, in front of a vector of channels that needs it.

Where an instruction saturates a whole block of sums to 16 bits, a function in LLVM IR uses it.
Where thresholds are many, a loop goes through them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import dtype_of, shape_of
from stages.dialect.let_bindings import shared
from stages.dialect.numbers_fused import LONGEST_WORD
from stages.kernels.signature import BLOCK
from stages.nodes import Buffer, Call, Index, Scalar, Var
from stages.packaging.emitting.addressing import call_on
from stages.packaging.epilogues.elements import ANY, Elements, Precomputed
from stages.packaging.epilogues.outputs import Position
from stages.packaging.epilogues.saturation import WORDS, has_saturating_pack
from stages.packaging.epilogues.threshold_counts import FEW, counted_in, number_of

Each = Callable[[Callable[[Index, Position, Scalar], None]], None]
"""Emits a loop over the lanes of a vector, each with its position and its raw sum."""


def has_saturated_words(elements: Elements, width: int) -> bool:
    """Whether an epilogue needs the function WORDS, for vectors of so many channels."""
    return any(_in_words(elements, call, width) for call in elements.thresholds.values())


def precompute(elements: Elements, each: Each, width: int) -> Precomputed:
    """Emit the loops for a vector of so many channels; where they leave what they computed."""
    precomputed = Precomputed()
    for variable, call in elements.thresholds.items():
        if _in_words(elements, call, width):
            precomputed.words[call.args[0]] = _words(
                elements, call.args[0], each, precomputed, width
            )
        if shape_of(call.args[1].ty)[0] > FEW:
            precomputed.counts[variable] = _count(elements, call, each, precomputed, width)
    return precomputed


def _in_words(elements: Elements, call: Call, width: int) -> bool:
    """Whether an instruction saturates what a vector compares to 16 bits."""
    is_long = elements.reaches.get(call.args[0], ANY) > LONGEST_WORD
    is_short = dtype_of(call.args[1].ty) == "int16"
    return is_short and is_long and width == BLOCK and has_saturating_pack(elements.kernel.isa)


def _words(
    elements: Elements, variable: Var, each: Each, precomputed: Precomputed, width: int
) -> Buffer:
    """A buffer of a variable's integers as the nearest ones of 16 bits."""
    wide, words = (T.alloc_buffer((width,), kind) for kind in ("int32", "int16"))

    def store(lane: Index, at: Position, raw: Scalar) -> None:
        values = elements.at(at, raw, precomputed, lane, until=variable)
        T.buffer_store(wide, shared(values[variable].longest), [lane])

    each(store)
    call_on(WORDS, wide[0], words[0])
    return words


def _count(
    elements: Elements, call: Call, each: Each, precomputed: Precomputed, width: int
) -> Buffer:
    """A buffer of how many thresholds are reached."""
    source, table, falling = call.args
    kind = counted_in(dtype_of(table.ty), elements.kernel.isa)
    compared = T.alloc_buffer((width,), dtype_of(table.ty))
    counts = T.alloc_buffer((width,), kind)

    def begin(lane: Index, at: Position, raw: Scalar) -> None:
        values = elements.at(at, raw, precomputed, lane, until=source)
        value = elements.compared(call, values, at, precomputed, lane)
        T.buffer_store(compared, shared(value), [lane])
        T.buffer_store(counts, tirx.const(0, kind), [lane])

    each(begin)
    with T.serial(0, shape_of(table.ty)[0]) as row:

        def count(lane: Index, at: Position, raw: Scalar) -> None:
            del raw
            limits = replace(elements.thresholds_of(call, at.channel), rows=[row])
            (hit,) = limits.reached(call, compared[lane], elements.operand(falling, at))
            T.buffer_store(counts, counts[lane] + number_of(hit, kind), [lane])

        each(count)
    return counts
