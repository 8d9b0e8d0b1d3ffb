"""By which instructions code multiplies: words of machine code as LLVM 19 assembles them."""

from __future__ import annotations

import pytest

from pipelines.emulating.multiply_instructions import multiplying, named
from pipelines.modelling.code_blocks import Block

CODE = {
    "SMMLA": (
        0x4E9FA7C1,  # smmla v1.4s, v30.16b, v31.16b
    ),
    "UMMLA": (
        0x6E82A420,  # ummla v0.4s, v1.16b, v2.16b
    ),
    "USMMLA": (
        0x4E90AD3F,  # usmmla v31.4s, v9.16b, v16.16b
    ),
    "SDOT": (
        0x4E829623,  # sdot v3.4s, v17.16b, v2.16b
        0x4FB6EA23,  # sdot v3.4s, v17.16b, v22.4b[3]
    ),
    "UDOT": (
        0x6E829623,  # udot v3.4s, v17.16b, v2.16b
        0x6FA2E223,  # udot v3.4s, v17.16b, v2.4b[1]
    ),
    "USDOT": (
        0x4E829E23,  # usdot v3.4s, v17.16b, v2.16b
        0x4F82FA23,  # usdot v3.4s, v17.16b, v2.4b[2]
    ),
    "SUDOT": (
        0x4F02FA23,  # sudot v3.4s, v17.16b, v2.4b[2]
    ),
    "SMLAL": (
        0x0E228223,  # smlal v3.8h, v17.8b, v2.8b
        0x4F722A23,  # smlal2 v3.4s, v17.8h, v2.h[7]
        0x0E638041,  # smlal v1.4s, v2.4h, v3.4h
    ),
    "UMLAL": (
        0x6E228223,  # umlal2 v3.8h, v17.16b, v2.16b
        0x2F432041,  # umlal v1.4s, v2.4h, v3.h[0]
    ),
    "SMULL": (
        0x0E22C223,  # smull v3.8h, v17.8b, v2.8b
        0x4E63C041,  # smull2 v1.4s, v2.8h, v3.8h
    ),
    "FMLA": (
        0x4E22CE23,  # fmla v3.4s, v17.4s, v2.4s
        0x4FA21A23,  # fmla v3.4s, v17.4s, v2.s[3]
    ),
    "FMLA of float16": (
        0x4E420E23,  # fmla v3.8h, v17.8h, v2.8h
        0x4F221A23,  # fmla v3.8h, v17.8h, v2.h[6]
    ),
    "": (
        0x4EA29E23,  # mul v3.4s, v17.4s, v2.4s
        0x4EA38441,  # add v1.4s, v2.4s, v3.4s
        0x4E606841,  # sadalp v1.4s, v2.8h
        0x4E22D420,  # fadd v0.4s, v1.4s, v2.4s
        0x4EA3CC41,  # fmls v1.4s, v2.4s, v3.4s
        0x3DC00041,  # ldr q1, [x2]
        0x54000041,  # b.ne #8
        0x0E22A223,  # smlsl v3.8h, v17.8b, v2.8b
    ),
}


@pytest.mark.parametrize("name", CODE)
def test_machine_code_of_every_instruction(name: str) -> None:
    code = b"".join(word.to_bytes(4, "little") for word in CODE[name])
    found = multiplying([Block(0, len(CODE[name]), 7, code)])
    assert found == ({name: 7 * len(CODE[name])} if name else {})


def test_small_parts_are_not_named() -> None:
    assert named({"SDOT": 90, "UMMLA": 10}) == "SDOT, UMMLA"
    assert named({"SDOT": 910, "UMMLA": 90}) == "SDOT"
    assert named({}) == ""
