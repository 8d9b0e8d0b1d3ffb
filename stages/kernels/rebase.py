"""Signed bytes as unsigned ones: what the first operand of `vpdpbusd` and `pmaddubsw` must be.

The same shift as Jain et al. (2020), section IV-C: `q + 128`, and the zero point with it.
"""

from __future__ import annotations

from stages.dialect.elementwise import elementwise, of_type
from stages.dialect.numbers import Numbers, Value

SHIFT = 128


@elementwise("rebase", ["data"], of_type("uint8"), accepts={"data": ["int8"]})
def rebase(m: Numbers, data: Value) -> Value:
    """`data + 128` as uint8."""
    return m.cast(data, "int32") + SHIFT


@elementwise("less_shift", ["data"], of_type("uint8"), accepts={"data": ["uint8"]})
def less_shift(m: Numbers, data: Value) -> Value:
    """`data - 128` as the bits of a signed byte, in uint8; twice, it is `data`."""
    return data ^ m.constant(SHIFT, "uint8")
