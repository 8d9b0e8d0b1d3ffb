"""The shift by 128 between signed and unsigned bytes, in both directions.

The first operand of `vpdpbusd` and `pmaddubsw` must be unsigned bytes: `as_unsigned` makes these.
The operands of SDOT and SMULL are signed: `less_shift` writes what they read, which is called
rebased. Jain et al. (2020), section IV-C, have the same shift, of zero points as well.
"""

from __future__ import annotations

from stages.dialect.elementwise import elementwise, of_type
from stages.dialect.numbers import Numbers, Value

SHIFT = 128


@elementwise("rebase", ["data"], of_type("uint8"), accepts={"data": ["int8"]})
def as_unsigned(m: Numbers, data: Value) -> Value:
    """`data + 128` as uint8; the operator is called `rebase`."""
    return m.cast(data, "int32") + SHIFT


@elementwise("less_shift", ["data"], of_type("uint8"), accepts={"data": ["uint8"]})
def less_shift(m: Numbers, data: Value) -> Value:
    """`data - 128` as the bits of a signed byte, in uint8; twice, it is `data`."""
    return data ^ m.constant(SHIFT, "uint8")
