"""Which operators share a composite."""

from __future__ import annotations

import pytest
from tvm import relax

from stages.graph import interpret
from tests.stages.networks import SourceNet
from tests.stages.pipeline import assert_same, random_inputs
from tests.stages.test_canonicalizing import canonical, composites, legalized


@pytest.mark.parametrize(
    ("kernels", "is_read", "tail"),
    [
        ((3, 1), False, "first"),
        ((1, 3), False, "second"),
        ((3, 3), False, "second"),
        ((3, 1), True, "second"),
    ],
)
def test_the_product_with_more_to_multiply_has_what_follows_both(
    kernels: tuple[int, int], is_read: bool, tail: str
) -> None:
    """Unless the other one reads what it gives."""
    net = SourceNet((1, 8, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    first = net.quant(net.conv(data, "first", 8, kernels[0]), "one", 8, 0.5, signed=True)
    levels = net.quant(first, "levels", 2, 0.5) if is_read else data
    second = net.quant(net.conv(levels, "second", 8, kernels[1]), "two", 8, 0.5, signed=True)
    model = net.model(net.op(relax.op.add(first, second), "sum"))
    inputs, result = random_inputs(model, 3), canonical(model)
    assert_same(interpret.run(legalized(model), inputs), interpret.run(result, inputs), "order")
    found = composites(result)
    assert list(found)[-1] == tail and "add" in found[tail]


def test_levels_that_are_stored_may_be_quantized_once_more_in_the_same_pass() -> None:
    """A residual of 8 bits that the next layer reads in 2 bits."""
    net = SourceNet((1, 8, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    wide = net.quant(net.conv(data, "first", 8), "wide", 8, 0.5)
    second = net.quant(net.conv(net.quant(wide, "low", 2, 1.0), "second", 8), "two", 8, 0.5)
    model = net.model(net.op(relax.op.add(wide, second), "sum"))
    found = composites(canonical(model))
    assert len(found["first"]) == 3 and found["first"][2] == "threshold"
    assert set(found) == {"x.nhwc", "first", "second"}
