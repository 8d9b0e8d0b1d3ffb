"""Zero points: one value, and one attribute of every operator."""

import pytest
from tvm import relax

from stages.dialect import integer
from stages.dialect.calls import attributes
from stages.dialect.levels import Levels
from stages.dialect.zero_point import BIPOLAR, ZeroPoint


@pytest.mark.parametrize("number", [-3, 0, 128, 0.5, -1.5])
def test_a_call_states_the_number_and_is_read_as_the_value(number: float) -> None:
    x = relax.Var("x", relax.TensorType((1, 4), "uint8"))
    w = relax.Var("w", relax.TensorType((2, 4), "int8"))
    call = integer.dense(x, w, data_zero_point=number, weight_zero_point=0)
    assert call.attrs["data_zero_point"] == number
    assert attributes(call)["data_zero_point"] == ZeroPoint.of(number)


def test_only_multiples_of_a_half_are_zero_points() -> None:
    with pytest.raises(ValueError, match=r"a zero point of 0\.3; a multiple of 1/2 is expected"):
        ZeroPoint.of(0.3)
    with pytest.raises(ValueError, match=r"a zero point of 0\.5; a whole one is expected"):
        _ = BIPOLAR.whole


def test_bipolar_bits_have_the_numerators_minus_one_and_one() -> None:
    bits = Levels.of_type("uint1", BIPOLAR)
    assert bits.numerators == (-1, 1)
    assert bits.is_balanced and not bits.has_zero


@pytest.mark.parametrize("dtype", ["uint1", "int2", "uint3", "int4", "uint8", "int8", "int16"])
def test_levels_say_their_type(dtype: str) -> None:
    """And mean the same, counted from 0."""
    levels = Levels.of_type(dtype, ZeroPoint.of(0.5))
    assert levels.dtype == dtype
    assert levels.from_zero.numerators == levels.numerators
    assert levels.from_zero.low == 0
