"""Where an epilogue's pointers stand."""

from __future__ import annotations

import pytest
from tvm import relax

from stages.dialect.calls import tensor_type
from stages.kernels.signature import BLOCK
from stages.packaging.epilogues.channel_blocks import parameter_offset


@pytest.mark.parametrize(
    ("shape", "offset"),
    [((), 0), ((1,), 0), ((2 * BLOCK,), 3 * BLOCK), ((1, 2 * BLOCK), 3 * BLOCK), ((5,), 0)],
)
def test_only_tensors_of_a_channel_each_move_by_blocks(shape: tuple[int, ...], offset: int) -> None:
    data = relax.Var("data", tensor_type((1, 1, 1, 2 * BLOCK), "float32"))
    operand = relax.Var("operand", tensor_type(shape, "float32"))
    calls = [relax.op.multiply(data, operand)]
    assert parameter_offset(operand, calls, 3, 0, 0) == offset
