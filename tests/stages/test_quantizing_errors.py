"""What quantizing refuses, and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from stages import quantizing
from stages.errors import StageError
from stages.kinds import Model
from stages.numerics import qonnx_operators
from tests.stages.layers import (
    activation_quant,
    computed_scale,
    max_pool,
    normalized,
    of_input,
    over_data,
    pooled,
    step,
    thresholds,
    weight_quant,
)

EVERY_BYTE = np.arange(256.0).reshape(1, 256)
CASES: dict[str, tuple[Callable[[], Model], str]] = {
    "batch": (
        lambda: of_input(
            lambda net: net.quant(net.op(relax.op.mean(net.x, [0], True), "mean"), "q", 2, 0.5),
            (2, 4),
        ),
        "mean: the 2 samples of a batch meet here, and can only be computed one by one; state a "
        "shape with a batch of 1 under inputs in the recipe",
    ),
    "rank": (
        lambda: of_input(lambda net: net.quant(net.x, "q", 2, 0.5), (1, 4, 6)),
        "q: an activation of rank 3; activations are [1, features] or [1, channels, height, width]",
    ),
    "constant_output": (
        lambda: over_data(lambda net, data: net.constant("c", 1.0)),
        "y0: a constant stands where an activation is expected",
    ),
    "computed_scale": (
        lambda: over_data(computed_scale),
        "q: the scale is computed at run time; it must be constant",
    ),
    "weight_scale_zero": (
        lambda: over_data(weight_quant(scale=0.0)),
        "wq: weights or their scale are not finite, or a scale is 0",
    ),
    "weight_nan": (
        lambda: over_data(weight_quant(value=np.full((3, 4, 3, 3), np.nan))),
        "wq: weights or their scale are not finite, or a scale is 0",
    ),
    "activation_scale": (
        lambda: over_data(activation_quant(scale=-0.5)),
        "q: a quantizer has scale -0.5; scales are positive",
    ),
    "one_level": (
        lambda: over_data(activation_quant(bits=1, narrow=True)),
        "q: a narrow quantizer of 1 bit has one level, 0; use 2 bits, or BipolarQuant",
    ),
    "bipolar_scale": (
        lambda: over_data(
            lambda net, data: net.op(
                qonnx_operators.bipolar_quant(net.conv(data, "conv", 4), net.constant("s", -1.0)),
                "q",
            )
        ),
        "q: BipolarQuant of an activation needs one positive scale",
    ),
    "many_thresholds": (
        lambda: over_data(thresholds(EVERY_BYTE)),
        "mt: MultiThreshold with 256 thresholds and out_scale 1.0; up to 255 thresholds and a "
        "positive out_scale are supported",
    ),
    "threshold_scale": (
        lambda: over_data(thresholds([[0.0]], scale=-1.0)),
        "mt: MultiThreshold with 1 thresholds and out_scale -1.0; up to 255 thresholds and a "
        "positive out_scale are supported",
    ),
    "threshold_bias": (
        lambda: over_data(thresholds([[0.0]], bias=0.3)),
        "mt: zero points [-0.3]; one multiple of 1/2 per tensor is supported",
    ),
    "threshold_axis": (
        lambda: over_data(thresholds(np.zeros((6, 1)), axis=3)),
        "mt: thresholds of shape [6, 1] along axis 3 of [1, 4, 6, 6]; one row for all, or one per "
        "channel of axis 1, is supported",
    ),
    "variance": (
        lambda: over_data(normalized(variance=-1.0)),
        "bn: a normalization whose variance is not positive",
    ),
    "gain": (
        lambda: over_data(normalized(gain=np.inf)),
        "bn: the constant of this multiply is not finite, or 0 where it divides",
    ),
    "division_by_zero": (
        lambda: over_data(step("divide", 0.0)),
        "step: the constant of this divide is not finite, or 0 where it divides",
    ),
    "infinite_step": (
        lambda: over_data(step("add", np.inf)),
        "step: the constant of this add is not finite, or 0 where it divides",
    ),
    "pool_ceil": (
        lambda: over_data(pooled(lambda x: max_pool(x, ceil_mode=True))),
        "pool: pooling with ceil_mode or dilation has no integer form",
    ),
    "pool_padding": (
        lambda: over_data(pooled(lambda x: max_pool(x, padding=2))),
        "pool: pooling with padding [2, 2, 2, 2] for a window of [2, 2]",
    ),
    "wide_rounding": (
        lambda: over_data(activation_quant(bits=9, rounding="HALF_UP")),
        "q: several scales or more than 8 bits, and HALF_UP rounding; such activations are rounded "
        "by ROUND, HALF_EVEN, ROUND_HALF_EVEN, FLOOR, CEIL",
    ),
    "scale_of_a_channel": (
        lambda: over_data(activation_quant(scale=np.array([1.0, 0.5, 0.0, 1.0]).reshape(4, 1, 1))),
        "q: a quantizer's scale is not positive everywhere",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    build, sentence = CASES[name]
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        quantizing.run(model=build())
