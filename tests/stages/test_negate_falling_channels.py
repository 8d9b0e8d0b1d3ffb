"""Channels whose thresholds fall: their weights are negated where these have negatives."""

from __future__ import annotations

import numpy as np

from stages import quantizing
from stages.dialect.calls import attributes, is_op
from stages.graph.bindings import bindings_of
from stages.kinds import Model
from tests.stages.networks import SourceNet
from tests.stages.test_quantizing_chains import (
    CHANNELS,
    UNSIGNED,
    Link,
    Quantizer,
    apply,
    assert_exact,
    batch_norm,
    every_sum,
    quantize,
)

FALLING = [batch_norm(-1.0, 0.0, 0.0, 1 - 1e-5)]


def test_a_falling_channel_is_negated() -> None:
    model, image = every_sum(FALLING, Quantizer("quant", 2, 8.0))
    result = assert_exact(model, image)
    assert result.params["sums.weight"][0].ravel().tolist() == [-16, 1]
    # -x / 8 rounds to 1 from 5 on, to 2 from 12 on, to 3 from 21 on.
    assert result.params["q.thresholds"][:, 0].tolist() == [5, 12, 21]
    assert is_rising(result)


def test_only_falling_channels_are_negated() -> None:
    gains = np.array([1, -1, 0, -2, 3], np.float32)
    model, image = every_sum([Link("multiply", (gains,))], Quantizer("quant", 2, 8.0))
    result = assert_exact(model, image)
    assert result.params["sums.weight"][:, 0, 0, 0].tolist() == [16, -16, 16, -16, 16]
    assert is_rising(result)


def test_bits_are_negated() -> None:
    """The negative of a bipolar weight, stored as 0 or 1, is the other one."""
    net = SourceNet((1, 3, 4, 5))
    sums = net.conv(net.quant(net.x, "a", 2, 1.0), "sums", CHANNELS)
    gains = np.array([1, -1, -2, 2, -1], np.float32)
    scaled = apply(net, sums, Link("multiply", (gains,)), "scaled")
    model = net.model(quantize(net, scaled, Quantizer("bipolar")))
    result = assert_exact(model)
    assert is_rising(result)
    bits = model.params["sums.weight"].transpose(0, 2, 3, 1) >= 0
    assert np.array_equal(result.params["sums.weight"], bits ^ (gains < 0)[:, None, None, None])


def test_a_channel_whose_weights_have_no_negative_flips() -> None:
    model, image = every_sum(FALLING, Quantizer("quant", 2, 8.0), UNSIGNED)
    result = assert_exact(model, image)
    assert result.params["q.flip"].tolist() == [1] * CHANNELS
    # -x / 8 rounds to 1 from 5 on: x < -4; to 2 from 12 on; to 3 from 21 on.
    assert result.params["q.thresholds"][:, 0].tolist() == [-4, -11, -20]
    assert not is_rising(result)


def test_sums_that_something_else_reads_are_not_negated() -> None:
    net = SourceNet((1, 2, 4, 5))
    sums = net.conv(net.quant(net.x, "data", 4, 1.0), "sums", CHANNELS)
    low = quantize(net, apply(net, sums, FALLING[0], "fall"), Quantizer("quant", 2, 8.0))
    assert not is_rising(assert_exact(net.model(low, sums)))


def test_thresholds_of_rising_channels_say_so() -> None:
    model, _ = every_sum([batch_norm(1.0, 0.0, 0.0, 1 - 1e-5)], Quantizer("quant", 2, 8.0))
    assert is_rising(quantizing.run(model=model))


def is_rising(model: Model) -> bool:
    """Whether the model's thresholds are marked as those that no channel flips."""
    (found,) = (
        attributes(binding.value)["rising"]
        for binding in bindings_of(model.module["main"])
        if is_op(binding.value, "relax.qnn.threshold")
    )
    return bool(found)
