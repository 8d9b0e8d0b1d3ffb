"""Fixed point becomes float32 where that gives the same bytes, and nowhere else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.dialect import integer
from stages.dialect.calls import attributes
from stages.dialect.padding import NO_PADDING
from stages.graph import interpret
from stages.graph.bindings import needed_bindings
from stages.kinds import Model
from stages.numerics import rescale, tflite
from stages.quantizing.rescale_in_float32 import RescaleInFloat32
from stages.quantizing.rescalings import GROUP
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import EVERY, skip_unless_runnable

Array = np.ndarray[Any, Any]
BYTES = {"int8": (-128, 127), "uint8": (0, 255)}


class Lite(Net):
    """A network with TensorFlow Lite's arithmetic behind its layers."""

    def requantize(self, sums: Any, name: str, largest: float = 1e-3, dtype: str = "int8") -> Any:
        """By factors of their own, which give both signs, to 8 bits."""
        return self.rescaled(sums, name, largest, dtype, sum(BYTES[dtype]) // 2 + 11)

    def rescaled(self, sums: Any, name: str, largest: float, dtype: str, zero_point: int) -> Any:
        """Sums rescaled in fixed point about a zero point."""
        real = self.rng.uniform(largest / 10, largest, int(sums.ty.shape[-1]))
        factors = [tflite.quantize_multiplier(float(each)) for each in real]
        operands = [
            self.builder.tensor(f"{name}.{part}", np.array(values, np.int32))
            for part, values in zip(("m", "s"), zip(*factors, strict=True), strict=True)
        ]
        low, high = BYTES[dtype]
        bounds = {"zero_point": zero_point, "low": low, "high": high, "dtype": dtype}
        return self.emit(tflite.requantize(sums, *operands, **bounds), f"{name}.q")

    def sum(self, lhs: Any, rhs: Any, name: str, scales: tuple[float, float, float]) -> Any:
        """An addition, as TensorFlow Lite prepares it from three scales."""
        twice = 2 * max(scales[:2])
        reals = (scales[0] / twice, scales[1] / twice, twice / (2.0**20 * scales[2]))
        attrs = {"left_shift": 20, "zero_point": 5, "lhs_zero_point": -9, "rhs_zero_point": 3}
        for side, real in zip(("lhs_", "rhs_", ""), reals, strict=True):
            multiplier, shift = tflite.quantize_multiplier(real)
            attrs |= {f"{side}multiplier": multiplier, f"{side}shift": shift}
        call = tflite.add(lhs, rhs, **attrs, low=-128, high=127, dtype="int8")
        return self.emit(call, name)


def operators(model: Model) -> Counter[str]:
    calls = [binding.value for binding in needed_bindings(model.module["main"])]
    return Counter(
        str(call.op.name).removeprefix("relax.qnn.") for call in calls if hasattr(call, "op")
    )


def residual(dtype: str = "int8") -> tuple[Lite, Model]:
    """Convolutions of both kinds, results with and without a sign, and a sum."""
    net = Lite((1, 9, 8, 20))
    x = net.conv(net.x, "first", 24, dtype=dtype)
    y = net.conv(x, "depthwise", 24, groups=24, dtype=dtype, zero_point=2)
    y = net.conv(y, "point", 24, 1, dtype=dtype)
    z = net.sum(x, y, "sum", (0.031, 0.0123, 0.0401)) if dtype == "int8" else y
    return net, net.model(z)


def equal(net: Lite, before: Model, after: Model) -> None:
    for _ in range(8):
        inputs = net.inputs()
        wanted, found = interpret.run(before, inputs), interpret.run(after, inputs)
        for name, values in wanted.items():
            assert np.array_equal(found[name], values)


@pytest.mark.parametrize("dtype", sorted(BYTES))
def test_layers_and_sums_are_in_float_and_give_the_same_bytes(dtype: str) -> None:
    net, model = residual(dtype)
    found = RescaleInFloat32(model).run()
    left = operators(found)
    assert not any(name.startswith("tflite") for name in left)
    assert sum(count for name, count in left.items() if name.startswith("line")) == 3
    assert left["qlinear_add"] == (dtype == "int8")
    equal(net, model, found)


def test_results_without_a_sign_move_to_where_float32_is_most_precise() -> None:
    net = Lite((1, 5, 5, 64))
    sums = net.emit(_sums_of(net, net.x, "conv", 300), "sums")
    model = net.model(net.rescaled(sums, "conv", 1e-3, "int8", -128))
    found = RescaleInFloat32(model).run()
    line = needed_bindings(found.module["main"])[-2].value
    attrs = attributes(line)
    assert attrs["zero_point"].number == 0 and not attrs["is_odd"]
    equal(net, model, found)


def _sums_of(net: Lite, x: Any, name: str, outputs: int) -> Any:
    weight = net.rng.integers(-128, 128, (outputs, 1, 1, int(x.ty.shape[-1]))).astype(np.int8)
    return integer.conv2d(
        x, net.builder.tensor(f"{name}.weight", weight), strides=[1, 1], padding=NO_PADDING,
        groups=1, data_zero_point=3, weight_zero_point=0,
    )  # fmt: skip


def _biased(bias: list[int], factors: list[float], outputs: int = 4) -> tuple[Lite, Model]:
    """Sums about a bias, rescaled without a sign."""
    net = Lite((1, 3, 5, 24))
    tensors = (np.resize(np.array(bias, np.int32), outputs), np.resize(factors, outputs))
    sums = net.emit(_sums_of(net, net.x, "conv", outputs), "sums")
    sums = net.emit(relax.op.add(sums, net.builder.tensor("bias", tensors[0])), "biased")
    found = [tflite.quantize_multiplier(float(each)) for each in tensors[1]]
    operands = [
        net.builder.tensor(name, np.array(part, np.int32))
        for name, part in zip("ms", zip(*found, strict=True), strict=True)
    ]
    bounds = {"zero_point": -128, "low": -128, "high": 127, "dtype": "int8"}
    return net, net.model(net.emit(tflite.requantize(sums, *operands, **bounds), "q"))


def test_channels_that_are_dead_have_their_sums_far_from_zero() -> None:
    """As converters write them: a bias of 2^30, times what makes nearly nothing of it."""
    net, model = _biased([1 << 30, 77, -(1 << 30), 5], [1e-7, 1e-3, 1e-9, 2e-3])
    found = RescaleInFloat32(model).run()
    assert not any(name.startswith("tflite") for name in operators(found))
    equal(net, model, found)


def test_many_channels_are_looked_at_some_after_others() -> None:
    net, model = _biased([0, 9, -99], [1e-3, 2e-3, 5e-3], GROUP + 76)
    found = RescaleInFloat32(model).run()
    assert not any(name.startswith("tflite") for name in operators(found))
    equal(net, model, found)


def test_sums_that_may_overflow_stay_in_fixed_point() -> None:
    _, model = _biased([(1 << 31) - 9, 0], [1e-9, 1e-3])
    assert operators(RescaleInFloat32(model).run())["tflite_requantize"] == 1


def test_sums_that_are_not_known_stay_in_fixed_point() -> None:
    """A graph input is not a product of constants: any int32 may come."""
    net = Lite((1, 4, 4, 8), "int32")
    model = net.model(net.requantize(net.x, "free"))
    assert operators(RescaleInFloat32(model).run()) == {"tflite_requantize": 1}


def test_factors_that_overflow_stay_in_fixed_point() -> None:
    net = Lite((1, 4, 4, 512))
    sums = net.emit(_sums_of(net, net.x, "conv", 8), "sums")
    model = net.model(net.rescaled(sums, "conv", 9000.0, "int8", 0))
    assert operators(RescaleInFloat32(model).run())["tflite_requantize"] == 1


def test_sums_whose_halves_go_both_ways_stay_in_fixed_point() -> None:
    """Equal scales, a result of twice them: every second sum is a half, rounded away from zero."""
    net = Lite((1, 4, 4, 8))
    model = net.model(net.sum(net.x, net.x, "sum", (0.5, 0.5, 1.0)))
    found = RescaleInFloat32(model).run()
    assert operators(found) == {"tflite_add": 1}


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")])
def test_a_table_that_moves_all_bytes_alike_is_an_addition(kinds: tuple[str, str]) -> None:
    source, target = kinds
    net = Lite((1, 3, 5, 2), source)
    values = np.arange(256) + np.iinfo(target).min
    table = net.builder.tensor("table", values.astype(target))
    model = net.model(net.emit(rescale.table(net.x, table), "moved"))
    found = RescaleInFloat32(model).run()
    assert "table" not in operators(found)
    equal(net, model, found)


def test_other_tables_stay() -> None:
    net = Lite((1, 3, 5, 2), "uint8")
    table = net.builder.tensor("table", np.minimum(np.arange(256), 200).astype(np.uint8))
    model = net.model(net.emit(rescale.table(net.x, table), "bounded"))
    assert operators(RescaleInFloat32(model).run()) == {"table": 1}


@EVERY
def test_lines_are_compiled(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net, model = residual()
    assert_exact(RescaleInFloat32(model).run(), net.inputs(), hardware)
