"""Random networks, some of whose layers are quantized, after every stage and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.graph import interpret
from stages.kinds import Model
from stages.numerics import float_elementwise, qonnx_operators
from tests.stages.networks import SourceNet
from tests.stages.packaging.programs import Executor, compile_program
from tests.stages.pipeline import random_inputs, stages
from tests.targets import AARCH64, AVX512VBMI, SSE2, skip_unless_runnable

Array = np.ndarray[Any, Any]
CHANNELS, SIZES = (4, 32, 33, 64), (5, 8)
NEAR = 1e-4
"""Relative to the largest value: what sums of floats in another order may differ by."""


class RandomFloats(SourceNet):
    """A network of random layers, each of which reads one of the last four results."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.channels, size = (int(self.random.choice(each)) for each in (CHANNELS, SIZES))
        super().__init__((1, int(self.random.choice([3, self.channels])), size, size), seed)
        self.results = [self.x]

    def build(self) -> Model:
        kinds = sorted(LAYERS)
        for number in range(int(self.random.integers(4, 12))):
            kind = str(self.random.choice(kinds))
            self.results.append(LAYERS[kind](self, self.pick(), f"{kind}{number}"))
        return self.model(self.results[-1])

    def pick(self) -> Any:
        return self.results[
            int(self.random.integers(max(0, len(self.results) - 4), len(self.results)))
        ]

    def real(self, name: str, *shape: int) -> Any:
        return self.constant(name, self.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])))


def _depth(x: Any) -> int:
    return int(x.ty.shape[1])


def _quant(net: RandomFloats, x: Any, name: str) -> Any:
    bits, scale = int(net.random.integers(2, 5)), float(net.random.choice([0.25, 0.5, 0.3]))
    return net.quant(x, name, bits, scale, signed=bool(net.random.integers(2)))


def _signs(net: RandomFloats, x: Any, name: str) -> Any:
    return net.op(qonnx_operators.bipolar_quant(x, net.constant(f"{name}.s", 0.5)), name)


def _float_conv(net: RandomFloats, x: Any, name: str) -> Any:
    weight = net.real(f"{name}.w", net.channels, _depth(x), 3, 3)
    return net.op(relax.op.nn.conv2d(x, weight, padding=1), name)


def _conv(net: RandomFloats, x: Any, name: str) -> Any:
    bits, encoding = int(net.random.integers(1, 4)), str(net.random.choice(["bipolar", "signed"]))
    kernel = int(net.random.choice([1, 3]))
    return net.conv(x, name, net.channels, kernel, bits=bits, encoding=encoding)


def _depthwise(net: RandomFloats, x: Any, name: str) -> Any:
    shape = (_depth(x), 1, 3, 3)
    is_real = bool(net.random.integers(2))
    weight = net.real(f"{name}.w", *shape) if is_real else net.weights(name, shape, 3, "signed")
    return net.op(relax.op.nn.conv2d(x, weight, padding=1, groups=_depth(x)), name)


def _add(net: RandomFloats, x: Any, name: str) -> Any:
    shape = [int(extent) for extent in x.ty.shape]
    alike = [y for y in net.results if [int(extent) for extent in y.ty.shape] == shape]
    return net.op(relax.op.add(x, alike[int(net.random.integers(len(alike)))]), name)


def _biased(net: RandomFloats, x: Any, name: str) -> Any:
    return net.op(relax.op.add(x, net.real(f"{name}.b", _depth(x), 1, 1)), name)


def _scaled(net: RandomFloats, x: Any, name: str) -> Any:
    factor = net.constant(f"{name}.c", float(net.random.choice([-1.0, 0.5, 2.0])))
    return net.op(relax.op.multiply(x, factor), name)


def _joined(net: RandomFloats, x: Any, name: str) -> Any:
    other = net.pick()
    return net.op(relax.op.concat([x, other], 1), name) if _depth(x) + _depth(other) < 130 else x


def _pooled(pool: Callable[..., Any]) -> Callable[[RandomFloats, Any, str], Any]:
    return lambda net, x, name: net.op(pool(x, (2, 2), (1, 1), (0, 0, 1, 1)), name)


LAYERS: dict[str, Callable[[RandomFloats, Any, str], Any]] = {
    "quant": _quant,
    "signs": _signs,
    "float_conv": _float_conv,
    "conv": _conv,
    "depthwise": _depthwise,
    "add": _add,
    "biased": _biased,
    "scaled": _scaled,
    "joined": _joined,
    "norm": lambda net, x, name: net.batch_norm(x, name, 0.5),
    "relu": lambda net, x, name: net.op(relax.op.nn.relu(x), name),
    "sigmoid": lambda net, x, name: net.op(float_elementwise.sigmoid(x), name),
    "turned": lambda net, x, name: net.op(relax.op.permute_dims(x, [0, 1, 3, 2]), name),
    "maximum": _pooled(relax.op.nn.max_pool2d),
    "average": _pooled(lambda *a: relax.op.nn.avg_pool2d(*a, count_include_pad=True)),
}


def assert_near(found: dict[str, Array], wanted: dict[str, Array], where: str) -> None:
    for name, value in wanted.items():
        most = NEAR * float(np.abs(value).max(initial=0)) + 1e-6
        np.testing.assert_allclose(found[name], value, rtol=0, atol=most, err_msg=where)


RUNS = [(seed, (SSE2, AVX512VBMI)[seed % 2]) for seed in range(160)]
RUNS += [(seed, AARCH64) for seed in range(160, 200)]


@pytest.mark.parametrize(
    ("seed", "hardware"),
    [*RUNS[:16], *(pytest.param(*run, marks=pytest.mark.slow) for run in RUNS[16:])],
)
def test_random_network(seed: int, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    model = RandomFloats(seed).build()
    inputs = random_inputs(model)
    wanted, models = interpret.run(model, inputs), stages(model, hardware)
    for stage, made in models.items():
        assert_near(interpret.run(made, inputs), wanted, stage)
    executor = Executor(compile_program(models["bitpacking"], hardware), hardware)
    for tasks in (1, 2):
        assert_near(executor.run(inputs, tasks), wanted, f"{tasks} tasks")
