"""Padding: amounts and a numerator, and what is stored for it."""

import pytest

from stages.dialect.padding import Padding, byte_around
from stages.dialect.zero_point import BIPOLAR, ZeroPoint


def test_padding_is_stored_as_its_numerator_from_the_zero_point_on() -> None:
    ones = Padding.of({"padding": [1, 0, 2, 3], "pad_value": 1})
    assert ones == Padding((1, 0, 2, 3), 1)
    assert ones.stored(ZeroPoint.of(-3)) == -2
    with pytest.raises(ValueError, match="a whole one is expected"):
        ones.stored(BIPOLAR)


def test_a_matrix_product_has_none() -> None:
    assert not any(Padding.of({"data_zero_point": BIPOLAR}).sides)


@pytest.mark.parametrize(("number", "byte"), [(128, 128), (-4, 0), (300, 255), (0.5, 0)])
def test_a_halo_holds_the_byte_next_to_the_zero_point(number: float, byte: int) -> None:
    assert byte_around(ZeroPoint.of(number)) == byte
