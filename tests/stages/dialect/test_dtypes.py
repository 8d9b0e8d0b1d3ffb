"""What a text says of an element type."""

from __future__ import annotations

import numpy as np
import pytest

from stages.dialect.dtypes import DType, is_integer, limits, parse

STORED = {
    "uint1": "uint8", "int3": "int8", "uint8": "uint8", "int9": "int16", "uint17": "uint32",
    "int64": "int64", "bfloat16": "uint16", "float16": "float16", "float64": "float64",
    "bool": "bool",
}  # fmt: skip


@pytest.mark.parametrize("text", STORED)
def test_a_text_is_parsed_and_written_again(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(text).storage == np.dtype(STORED[text])
    assert is_integer(text) == text.startswith(("int", "uint"))
    assert parse(text).is_float == text.startswith("float")


@pytest.mark.parametrize("text", ["int8", "uint16", "int32"])
def test_limits_are_numpys(text: str) -> None:
    assert limits(text) == (np.iinfo(text).min, np.iinfo(text).max)


def test_narrow_types_have_limits_too() -> None:
    assert limits("uint2") == (0, 3)
    assert limits("int1") == (-1, 0)


def test_a_vector_in_a_kernel_has_lanes() -> None:
    assert parse("float32x4") == DType("float", 32, 4)
    assert str(parse("boolx8")) == "boolx8"


@pytest.mark.parametrize("text", ["", "int", "uint8x", "complex64", "float32 "])
def test_other_texts_are_no_types(text: str) -> None:
    assert not is_integer(text)
    with pytest.raises(ValueError, match="no element type"):
        parse(text)


def test_floats_have_no_limits() -> None:
    with pytest.raises(ValueError, match="float32 has no smallest"):
        limits("float32")
