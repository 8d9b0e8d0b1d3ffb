"""Which calls are so small that one thread makes them.

Threads wait for each other behind every call that they share. One thread finishes a call that takes
little longer than that wait sooner, together with other such calls before and behind it.
"""

from __future__ import annotations

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import dtype_of
from stages.graph.composites import calls_in
from stages.kernels.operation_counts import macs_of, values_of
from stages.nodes import Call, Function

LEAST_SHARED_CYCLES = 3000
"""Cycles of a call that threads share. To wait takes 0.3 to 0.5 us, as timed on two cores of a
Zen 4; halved, so does a call of this length."""
INSTRUCTIONS_PER_OPERATOR = 4
"""Instructions of an operator for a register of values, about."""
BYTE_PRODUCTS_PER_FLOAT_PRODUCT = 4
"""Products of bytes for one of floats."""


def is_small(function: Function, hardware: Hardware) -> bool:
    """Whether a composite takes one thread about as long as to wait for others."""
    instructions = sum(map(_instructions, calls_in(function)))
    return instructions < LEAST_SHARED_CYCLES * isa_of(hardware).lanes


def _instructions(call: Call) -> float:
    """About as many as there would be with one value in a register."""
    macs = macs_of(call)
    if not macs:
        return values_of(call) * INSTRUCTIONS_PER_OPERATOR
    return macs if dtype_of(call.ty).startswith("float") else macs / BYTE_PRODUCTS_PER_FLOAT_PRODUCT
