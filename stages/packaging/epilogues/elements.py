"""What a composite computes at one position: a channel of a pixel, as a TIR expression.

The arithmetic is the same as everywhere (`stages.dialect.relax_te`). What is computed next, and
stored nowhere, may be wider than the dialect has it, or narrower where that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.dialect.dtypes import limits
from stages.dialect.elementwise import ARITHMETIC, WHOLE, WIDENED
from stages.dialect.numbers_fused import LONGEST_WORD, UNSATURATED_TIR, WORD_TIR
from stages.dialect.numbers_tir import TIR
from stages.dialect.processor import clips_integers
from stages.dialect.relax_te import SCALARS, clipped, saturates, scalar, unsaturated
from stages.errors import StageError
from stages.graph.composites import POOL_KINDS
from stages.kernels import operator_names
from stages.nodes import Buffer, Call, Index, Scalar, Var
from stages.packaging.emitting.addressing import border_class
from stages.packaging.emitting.composite import Composite
from stages.packaging.epilogues.outputs import SAME, Position, halo_of, is_moved_only
from stages.packaging.epilogues.threshold_counts import (
    ChannelThresholds,
    comparable,
    count_of,
    counted_in,
)
from stages.packaging.sums.parts import Composition

ROUNDED = (names.QNN_REQUANTIZE, names.QNN_QUANTIZE)
"""Operators that round to integers of 32 bits before these are narrowed."""
IN_WORDS = (names.QNN_ADD, names.QNN_SATURATE)
"""Operators of integers whose arithmetic means the same in 16 bits, if these hold the result."""
ANY = 1 << 31
"""No integer of 32 bits is larger in size."""


@dataclass(frozen=True)
class Computed:
    """What an operator gives at one position."""

    value: Scalar
    wide: Scalar | None = None
    """The value in 32 bits, if it is bytes by a clip."""
    unsaturated: Scalar | None = None
    """The int32 of which saturating makes the value, if there is one."""
    integer: Scalar | None = None
    """The value as an integer in as many bits as it was computed in."""
    reached: Sequence[Scalar] = ()
    """Which thresholds a level has reached, from the first one on."""

    @property
    def longest(self) -> Scalar:
        """The integer before it was narrowed."""
        return self.value if self.integer is None else self.integer


@dataclass
class Precomputed:
    """Buffers of a vector of channels, of what loops of their own have computed."""

    words: dict[Var, Buffer] = field(default_factory=dict)
    """Variable → its integers as the nearest ones of 16 bits."""
    counts: dict[Var, Buffer] = field(default_factory=dict)
    """Variable → the thresholds that are reached."""


class Elements:
    """The values of a composite's variables."""

    def __init__(self, kernel: Composition) -> None:
        self.kernel = kernel
        self.composite: Composite = kernel.composite

    def at(
        self,
        at: Position,
        raw: Scalar,
        precomputed: Precomputed,
        lane: Index,
        until: Var | None = None,
    ) -> dict[Var, Computed]:
        """All variables at a position whose sum is `raw`, or those in front of `until` and that.

        What loops of their own computed stands in `precomputed` at a `lane`.
        """
        values: dict[Var, Computed] = {}
        if self.composite.reads_floats:
            values[self.composite.parameters[0]] = Computed(raw)
        for variable, call in self.composite.calls.items():
            if is_op(call, names.QNN_THRESHOLD):
                values[variable] = self._level(variable, call, values, at, precomputed, lane)
            else:
                values[variable] = self._value(call, values, at, raw)
            if variable.same_as(until):
                break
        return values

    @cached_property
    def thresholds(self) -> Mapping[Var, Call]:
        """Variable → the operator that counts thresholds for it."""
        calls = self.composite.calls.items()
        return {variable: call for variable, call in calls if is_op(call, names.QNN_THRESHOLD)}

    @cached_property
    def reaches(self) -> Mapping[Var, int]:
        """Variable → no integer is larger in size."""
        found: dict[Var, int] = {}
        for variable, call in self.composite.calls.items():
            found[variable] = _reach(call, found)
        return found

    def _value(
        self, call: Call, values: dict[Var, Computed], at: Position, raw: Scalar
    ) -> Computed:
        """What an operator gives at one position.

        What reads bytes next takes them in 32 bits, if there they are, where it would only widen
        them again.
        """
        if call.same_as(self.composite.main_or_none):
            return Computed(self._sum(call, at, raw))
        name = str(call.op.name)
        if is_moved_only(call):
            return values[call.args[0]]
        if is_op(call, operator_names.QNN_FROM_BYTES):
            source = call.args[0]
            place = at.place(shape_of(source.ty)[-1], halo_of(call))
            return Computed(self.kernel.arguments[source.name][place])
        if name in IN_WORDS and _most(call, self.reaches) <= LONGEST_WORD:
            words = [values[a].longest if a in values else self.operand(a, at) for a in call.args]
            # By a name, since TIR takes long to simplify what is clipped again and again.
            word = T.bind(ARITHMETIC[name](WORD_TIR, *words, **attributes(call)))
            return Computed(word.astype(_stored(call)), integer=word)
        if name not in ARITHMETIC and name not in SCALARS:
            raise StageError(f"operator {name} has no epilogue form")
        operands: list[Any] = []  # a scalar, or the buffer of a tensor that is read as a whole
        for position, argument in enumerate(call.args):
            if not isinstance(argument, relax.Var):
                continue
            if argument in values:
                found = values[argument]
                is_wide = position in WIDENED.get(name, ()) and found.wide is not None
                operands.append(found.wide if is_wide else found.value)
            elif position in WHOLE.get(name, ()):
                operands.append(self.kernel.arguments[argument.name])
            else:
                operands.append(self.operand(argument, at))
        bare = unsaturated(call, operands) if saturates(call) else None
        if name not in ROUNDED:
            return Computed(scalar(call, operands), clipped(call, operands), bare)
        integer = _rounded(call, operands)
        return Computed(integer.astype(_stored(call)), clipped(call, operands), bare, integer)

    def _sum(self, call: Call, at: Position, raw: Scalar) -> Scalar:
        """What the main operator gives, from its raw sum."""
        if self.kernel.reads.preloads_bias or str(call.op.name) in POOL_KINDS:
            return raw
        bias = call.args[2]
        row = border_class(call, at.y, at.x) * shape_of(bias.ty)[1]
        scale = int(attributes(call)["scale"])
        scaled = raw * scale if scale != 1 else raw
        return scaled + self.kernel.arguments[bias.name][row + at.channel]

    def operand(self, parameter: Var, at: Position) -> Scalar:
        """A tensor parameter at a position, its axes those of the result from the last one on."""
        index: Any = 0
        shape = shape_of(parameter.ty)
        where = (at.image, at.y, at.x, at.channel)[-len(shape) :] if shape else ()
        for extent, coordinate in zip(shape, where, strict=True):
            index = index * extent + (coordinate if extent > 1 else 0)
        return self.kernel.arguments[parameter.name][index]

    # -- thresholds ----------------------------------------------------------------------------

    def thresholds_of(self, call: Call, channel: Index) -> ChannelThresholds:
        """The thresholds of an operator at a channel."""
        table = call.args[1]
        count, channels = shape_of(table.ty)
        return ChannelThresholds(self.kernel.arguments[table.name], count, channels, channel)

    def compared(
        self,
        call: Call,
        values: Mapping[Var, Computed],
        at: Position,
        precomputed: Precomputed,
        lane: Index,
    ) -> Scalar:
        """What an operator compares with thresholds, in as many bits as these have."""
        source = call.args[0]
        if source in precomputed.words:
            return precomputed.words[source][lane]
        found = values[source].longest if source in values else self.operand(source, at)
        return comparable(found, dtype_of(call.args[1].ty), self.reaches.get(source, ANY))

    def _level(
        self,
        variable: Var,
        call: Call,
        values: Mapping[Var, Computed],
        at: Position,
        precomputed: Precomputed,
        lane: Index,
    ) -> Computed:
        if variable in precomputed.counts:
            count = precomputed.counts[variable][lane]
            return Computed(count.astype("uint8"), integer=count)
        rows = self.thresholds_of(call, at.channel)
        reached = rows.reached(
            call, self.compared(call, values, at, precomputed, lane), self.operand(call.args[2], at)
        )
        count = count_of(reached, counted_in(rows.dtype, self.kernel.isa), self.kernel.isa)
        return Computed(count.astype("uint8"), integer=count, reached=reached)


def _rounded(call: Call, operands: Sequence[Scalar]) -> Scalar:
    """The integer that a call rounds to, within its bounds, in 16 bits or 32."""
    attrs, arithmetic = attributes(call), ARITHMETIC[str(call.op.name)]
    is_short = max(abs(attrs["low"]), abs(attrs["high"])) <= LONGEST_WORD
    if not (attrs.get("fits") and is_short and clips_integers()):
        return arithmetic(TIR, *operands, **attrs)
    word = comparable(arithmetic(UNSATURATED_TIR, *operands, **attrs), "int16", ANY)
    low, high = (tirx.const(attrs[end], "int16") for end in ("low", "high"))
    return tirx.min(tirx.max(word, low), high)


def _most(call: Call, known: Mapping[Var, int]) -> int:
    """No integer on the way to a result is larger in size; `known` says so of variables."""
    operands = [known.get(argument, ANY) for argument in call.args]
    if is_op(call, names.QNN_ADD):
        attrs = attributes(call)
        return sum(operands) + abs(
            sum(attrs[f"{side}_zero_point"].whole for side in ("lhs", "rhs"))
        )
    if is_op(call, names.QNN_SATURATE):
        return operands[0] + abs(attributes(call)["offset"])
    return operands[0]


def _reach(call: Call, known: Mapping[Var, int]) -> int:
    """No integer that a call gives is larger in size."""
    dtype, name = dtype_of(call.ty), str(call.op.name)
    if name in (*SAME, names.QNN_ADD):
        return _most(call, known)
    is_level = dtype.startswith("uint") and dtype != "uint32"
    return max(map(abs, limits(dtype))) if is_level else ANY


def _stored(call: Call) -> str:
    """The type that holds what a call gives."""
    return str(storage_dtype(dtype_of(call.ty)))
