"""Padding and halos: sides with a numerator, sides with a level, and what is stored for either."""

import pytest
from tvm import relax

from stages.dialect.calls import attributes, stated
from stages.dialect.names import PREFIX
from stages.dialect.padding import NO_PADDING, Halo, Padding, Sides
from stages.dialect.zero_point import BIPOLAR, ZeroPoint
from stages.nodes import Call, Op

SIDES = Sides(1, 0, 2, 3)
ONES = Padding(SIDES, 1)


def test_padding_is_stored_as_its_numerator_from_the_zero_point_on() -> None:
    assert ONES.stored(ZeroPoint.of(-3)) == -2
    with pytest.raises(ValueError, match="a whole one is expected"):
        ONES.stored(BIPOLAR)


def test_a_matrix_product_has_none() -> None:
    assert Padding.of({"data_zero_point": BIPOLAR}) == NO_PADDING


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("padding", ONES, {"padding": [1, 0, 2, 3], "pad_value": 1}),
        ("halo", Halo(SIDES, 5), {"halo": [1, 0, 2, 3], "fill": 5}),
        ("padding", SIDES, {"padding": [1, 0, 2, 3]}),
        ("halo", SIDES, {"halo": [1, 0, 2, 3]}),
    ],
)
def test_calls_store_numbers(name: str, value: object, stored: dict[str, object]) -> None:
    assert stated({name: value}) == stored
    call = Call(Op.get(f"{PREFIX}to_bytes"), [relax.Var("x")], stored)
    assert attributes(call) == {name: value}


@pytest.mark.parametrize(("number", "level"), [(128, 128), (-4, 0), (300, 255), (0.5, 0)])
def test_a_halo_has_the_byte_next_to_the_zero_point(number: float, level: int) -> None:
    point = ZeroPoint.of(number)
    halo = ONES.halo(point)
    assert halo == Halo(SIDES, level)
    assert point.numerator(level) + ONES.difference(halo, point) == 1
