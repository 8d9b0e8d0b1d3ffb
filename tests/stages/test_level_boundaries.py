"""Float sums in front of a quantizer: summed again, they give the levels that exact ones give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from hw.profile import Hardware
from stages import quantizing
from stages.dialect.calls import is_op
from stages.dialect.convolve import convolve
from stages.dialect.levels import Levels
from stages.dialect.names import QNN_RESUM
from stages.dialect.resummation import resum
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.kinds import Model
from stages.numerics.quantization import Quantization
from stages.quantizing.chain import Steps, evaluate, step
from stages.quantizing.level_boundaries import boundaries_of, bounds_of
from stages.quantizing.source_quantizers import BipolarQuantizer, Quantizer, UniformQuantizer
from tests.stages.networks import SourceNet
from tests.stages.packaging.programs import Executor, compile_program, pack
from tests.stages.pipeline import assert_stages_agree
from tests.targets import AARCH64, AVX512VBMI, SSE2, skip_unless_runnable

Array = np.ndarray[Any, Any]
SHAPE = (1, 12, 12, 5)
LARGE = 2.0**16
"""What products are multiplied by that cancel each other, and take small ones with them."""


def uniform(low: int, high: int, scale: float, rounding: str = "ROUND") -> Quantizer:
    return UniformQuantizer(Quantization(np.float32(scale), Levels(low, high)), rounding)


FEW = 1
QUANTIZERS: dict[str, Quantizer] = {
    "two bits": uniform(0, 3, 0.25),
    "a byte": uniform(-128, 127, 0.03),
    "half up": uniform(0, 15, 0.1, "HALF_UP"),
    "one bit": BipolarQuantizer(np.float32(0.5)),
}


def stepwise(data: Array, weight: Array) -> Array:
    """Sums of float32 products one after the other, each rounded, as no kernel is worse."""
    _, kh, kw, _ = weight.shape
    total = np.zeros((1, SHAPE[1] - kh + 1, SHAPE[2] - kw + 1, len(weight)), np.float32)
    _, height, width, _ = total.shape
    for y in range(kh):
        for x in range(kw):
            for c in range(SHAPE[3]):
                part = data[:, y : y + height, x : x + width, c, None]
                total = (total + (part * weight[:, y, x, c]).astype(np.float32)).astype(np.float32)
    return total


@pytest.mark.parametrize("name", QUANTIZERS)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1, 256, LARGE]),
    digits=st.sampled_from([2, 30]),
)
def test_levels_are_those_of_exact_sums(name: str, seed: int, size: float, digits: int) -> None:
    """Whatever the order of sums, whether large products cancel, or sums lie on boundaries."""
    rng, quantizer = np.random.default_rng(seed), QUANTIZERS[name]

    def drawn(*shape: int) -> Array:
        return np.asarray(np.round(rng.normal(size=shape) * 2**digits) / 2**digits, np.float32)

    data, weight = drawn(*SHAPE), drawn(8, 3, 3, SHAPE[3])
    data[..., :2] = size * data[..., :1]
    weight[..., 1] = -weight[..., 0]
    steps: Steps = (
        step("subtract", drawn(8)),
        step("multiply", drawn(8)),
        step("divide", np.abs(drawn(8)) + 0.5),
        step("add", drawn(8)),
        step("maximum", 0.0),
    )
    halves = boundaries_of(quantizer)
    assert halves is not None
    bounds = bounds_of(weight, steps, halves)
    assert bounds is not None
    exact = convolve(data.astype(np.float64), weight.astype(np.float64), (1, 1), 1, dtype="float32")
    meaning = resummed_of(stepwise(data, weight), data, weight, vars(bounds), *halves.limits)
    wanted = quantizer.level(evaluate(steps, exact))
    np.testing.assert_array_equal(quantizer.level(evaluate(steps, meaning)), wanted)


def resummed_of(
    sums: Array, data: Array, weight: Array, bounds: dict[str, Array], low: int, high: int
) -> Array:
    """`resum`, as its meaning has it."""
    net = SourceNet(sums.shape)
    operands = [net.builder.tensor(n, v) for n, v in {"d": data, "w": weight, **bounds}.items()]
    largest = net.builder.tensor("largest", np.abs(data).max())
    call = resum(net.x, *operands, largest, strides=[1, 1], low=low, high=high)
    return interpret.run(net.model(net.op(call, "resummed")), {"x": sums})["y0"]


def stem(gain: float = 1.0) -> Model:
    """A convolution of floats whose sums lie on boundaries of levels, and its levels."""
    net = SourceNet((1, 3, 20, 20))
    values = np.round(net.rng.normal(size=(40, 3, 5, 5)) * 4) / 4
    values[:, 1] = -values[:, 0]
    weight = net.constant("w", values)
    value = net.op(relax.op.nn.conv2d(net.x, weight, 2, 2), "conv")
    value = net.op(relax.op.multiply(value, net.constant("gain", gain)), "gain")
    return net.model(net.quant(net.op(relax.op.nn.relu(value), "relu"), "q", 4, 0.5))


def pixels(digits: int) -> dict[str, Array]:
    """Pixels of so many binary digits; of many, two channels hold equal large ones."""
    values = np.random.default_rng(1).normal(size=(1, 3, 20, 20))
    if digits > FEW:
        values[:, :2] = LARGE * values[:, :1]
    return {"x": (np.round(values * 2**digits) / 2**digits).astype(np.float32)}


@pytest.mark.parametrize(
    "hardware", [SSE2, AVX512VBMI, pytest.param(AARCH64, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("digits", [FEW, 20])
def test_compiled(digits: int, hardware: Hardware) -> None:
    """Levels are exact where every sum is half of them apart, and where sums round."""
    skip_unless_runnable(hardware)
    model, inputs = stem(), pixels(digits)
    wanted = interpret.run(model, inputs)["y0"]
    executor = Executor(compile_program(pack(model, hardware), hardware), hardware)
    for tasks in (1, 3):
        np.testing.assert_array_equal(executor.run(inputs, tasks)["y0"], wanted)


def test_every_sum_can_be_near() -> None:
    """Steps that round as much as a level is wide leave nothing to float32."""
    assert_stages_agree(stem(1e9), "icelake", inputs=pixels(20))


@pytest.mark.parametrize("rounding", ["FLOOR", "CEIL"])
def test_other_boundaries_take_exact_sums(rounding: str) -> None:
    assert boundaries_of(uniform(0, 3, 0.5, rounding)) is None


def test_what_is_added_to_exact_sums_is_exact() -> None:
    """Two readers, one of which is no quantizer: sums are float64, for both."""
    net = SourceNet((1, 4, 6, 6))
    weight = net.constant("w", net.rng.normal(size=(4, 4, 3, 3)))
    value = net.op(relax.op.nn.conv2d(net.x, weight, padding=1), "conv")
    levels = net.quant(value, "levels", 2, 0.5)
    summed = net.op(relax.op.add(value, net.x), "sum")
    model = net.model(net.quant(net.op(relax.op.add(summed, levels), "all"), "q", 2, 0.5))
    assert_stages_agree(model, "icelake")
    main = quantizing.run(model=model).module["main"]
    calls = [b.value for b in bindings_of(main)]
    assert not any(is_op(call, QNN_RESUM) for call in calls)
    assert any(is_op(call, "relax.qnn.direct_conv2d") for call in calls)
