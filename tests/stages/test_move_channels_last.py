"""Products of floats by micro-kernels, or, before something is quantized, with the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages import quantizing
from stages.graph import interpret
from stages.graph.bindings import needed_bindings
from stages.graph.simplify_graph import simplify
from stages.kinds import Model
from stages.quantizing.move_channels_last import MoveChannelsLast
from tests.stages.packaging.integer_net import Net, op
from tests.stages.packaging.programs import Executor, assert_exact, compile_program, pack
from tests.stages.pipeline import algorithm
from tests.targets import AARCH64, AVX2, AVX512BW, EVERY, skip_unless_runnable

Array = np.ndarray[Any, Any]

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "window": ((1, 5, 9, 7), (20, 5, 3, 3), {"padding": (1, 0, 2, 1)}),
    "strides": ((2, 5, 9, 7), (33, 5, 3, 2), {"strides": (2, 1), "padding": 1}),
    "dilation": ((1, 3, 12, 12), (16, 3, 3, 3), {"dilation": (2, 3)}),
    "point": ((1, 17, 4, 7), (64, 17, 1, 1), {}),
    "depthwise": ((1, 24, 7, 14), (24, 1, 3, 3), {"groups": 24, "padding": 1}),
    "multiplier": ((1, 6, 7, 8), (12, 1, 3, 3), {"groups": 6, "strides": 2}),
    "groups": ((1, 6, 7, 8), (12, 3, 3, 3), {"groups": 2}),
    "odd": ((1, 3, 6, 20), (12, 3, 3, 3), {"padding": 1}),
}


def model_of(name: str, *, is_whole: bool = False, is_quantized: bool = False) -> tuple[Net, Model]:
    """Floats of a graph input, a convolution, a bias per channel and ReLU.

    Whole weights give sums without rounding.
    """
    shape, filters, attrs = CASES[name]
    net = Net(shape)
    x = net.emit(op.astype(net.x, "float32"), "real")
    weight = net.builder.tensor("w", _floats(net, filters, is_whole))
    x = net.emit(op.nn.conv2d(x, weight, **attrs), "conv")
    bias = _floats(net, (1, filters[0], 1, 1), is_whole)
    x = net.emit(op.add(x, net.builder.tensor("b", bias)), "moved")
    x = net.emit(op.nn.relu(x), "relu")
    if is_quantized:
        x = net.emit(op.astype(net.emit(op.floor(x), "whole"), "int32"), "levels")
    return net, net.model(x)


def dense_model(is_whole: bool, outer: tuple[int, ...] = (3,)) -> tuple[Net, Model]:
    """Rows of floats times a matrix, and a bias."""
    net = Net((*outer, 45))
    x = net.emit(op.astype(net.x, "float32"), "real")
    weight = net.builder.tensor("w", _floats(net, (45, 37), is_whole))
    x = net.emit(op.matmul(x, weight), "product")
    bias = net.builder.tensor("b", _floats(net, (37,), is_whole))
    return net, net.model(net.emit(op.add(x, bias), "moved"))


def pooled_model(kind: str = "max", outputs: int = 40, **more: bool) -> tuple[Net, Model]:
    """Two convolutions with a pool behind each, of windows of four: no transpose is left between.

    The averages of whole numbers by whole weights need no rounding.
    """
    net = Net((1, 3, 17, 15))
    pool = {"max": op.nn.max_pool2d, "average": op.nn.avg_pool2d}[kind]
    x = net.emit(op.astype(net.x, "float32"), "real")
    for number, channels in enumerate((3, outputs)):
        weight = net.builder.tensor(f"w{number}", _floats(net, (outputs, channels, 3, 3), True))
        x = net.emit(op.nn.conv2d(x, weight, padding=1), f"c{number}")
        call = pool(x, pool_size=(4, 1), strides=(2, 1), padding=(1, 0, 1, 0), **more)
        x = net.emit(call, f"p{number}")
    return net, net.model(x)


def _floats(net: Net, shape: tuple[int, ...], is_whole: bool) -> Array:
    found = net.rng.integers(-9, 10, shape) if is_whole else net.rng.normal(size=shape)
    return found.astype(np.float32)


def operators(model: Model) -> Counter[str]:
    calls = [binding.value for binding in needed_bindings(model.module["main"])]
    return Counter(str(call.op.name) for call in calls if hasattr(call, "op"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("hardware", (AVX2, AVX512BW, AARCH64), ids=lambda item: item.name)
def test_what_is_quantized_later_keeps_its_bits(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net, model = model_of(name, is_quantized=True)
    assert_exact(model, net.inputs(), hardware)


POOLED: dict[str, Callable[[], tuple[Net, Model]]] = {
    "max": pooled_model,
    "max of 10": lambda: pooled_model(outputs=10),
    "average": lambda: pooled_model("average", count_include_pad=True),
    "average of 12": lambda: pooled_model("average", 12, count_include_pad=True),
}
DENSE = {"dense": (3,), "dense of pixels": (1, 2, 3)}


@pytest.mark.parametrize("name", [*CASES, *DENSE, *POOLED])
@EVERY
def test_sums_without_rounding_are_exact(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    if name in DENSE:
        net, model = dense_model(True, DENSE[name])
    else:
        net, model = POOLED[name]() if name in POOLED else model_of(name, is_whole=True)
    # What is transformed (Winograd) is divided by 9.
    options = algorithm("mac8", "c*") if name in POOLED else None
    assert_exact(model, net.inputs(), hardware, options)


@pytest.mark.parametrize("name", ["window", "strides", "point", *DENSE])
@EVERY
def test_sums_of_floats_are_close(name: str, hardware: Hardware) -> None:
    """A sum of n products that is rounded n times is wrong by n half units at most."""
    skip_unless_runnable(hardware)
    net, model = dense_model(False, DENSE[name]) if name in DENSE else model_of(name)
    inputs = net.inputs()
    (expected,) = interpret.run(model, inputs).values()
    packed = pack(model, hardware)
    (found,) = Executor(compile_program(packed, hardware), hardware).run(inputs).values()
    largest = 128 * 45 * 4  # of the sums of sizes: of bytes, and weights rarely above 4
    np.testing.assert_allclose(found, expected, rtol=0, atol=45 * 2.0**-24 * largest)
    assert not np.array_equal(found, expected)


@pytest.mark.parametrize("name", DENSE)
def test_products_of_one_matrix_have_kernels(name: str) -> None:
    found = operators(MoveChannelsLast(dense_model(False, DENSE[name])[1]).run())
    assert found["relax.qnn.float_dense"] == 1 and not found["relax.matmul"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_quantized", [False, True])
def test_convolutions_are_turned_where_that_makes_vectors(name: str, is_quantized: bool) -> None:
    net, model = model_of(name, is_quantized=is_quantized)
    turned = operators(MoveChannelsLast(model).run())
    is_direct = is_quantized or name in ("dilation", "depthwise", "multiplier")
    assert turned["relax.nn.conv2d"] == 0
    assert turned["relax.qnn.direct_conv2d"] == is_direct
    assert turned["relax.qnn.float_conv2d"] == (not is_direct)
    inputs = net.inputs()
    (expected,) = interpret.run(model, inputs).values()
    (found,) = interpret.run(MoveChannelsLast(model).run(), inputs).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("kind", "name"), [("max", "relax.qnn.max_pool2d"), ("average", "relax.qnn.window_sum2d")]
)
def test_pools_of_floats_are_turned(kind: str, name: str, include: bool) -> None:
    net, model = pooled_model(kind, count_include_pad=include)
    turned = quantizing.run(model=model)
    found = operators(turned)
    assert found["relax.permute_dims"] == 2
    assert found[name] == 2
    inputs = net.inputs()
    (expected,), (result,) = (interpret.run(m, inputs).values() for m in (model, turned))
    np.testing.assert_allclose(result, expected, rtol=2.0**-22)


def test_transposes_between_convolutions_cancel() -> None:
    """Also behind a bias and an activation: one is left at either end."""
    net = Net((1, 4, 6, 6))
    x: Any = net.emit(op.astype(net.x, "float32"), "real")
    for number in range(3):
        weight = net.rng.normal(size=(4, 4, 3, 3)).astype(np.float32)
        x = net.emit(
            op.nn.conv2d(x, net.builder.tensor(f"w{number}", weight), padding=1), f"c{number}"
        )
        bias = net.rng.normal(size=(1, 4, 1, 1)).astype(np.float32)
        x = net.emit(op.add(x, net.builder.tensor(f"b{number}", bias)), f"m{number}")
        x = net.emit(op.nn.relu(x), f"r{number}")
    found = operators(quantizing.run(model=net.model(x)))
    assert found["relax.permute_dims"] == 2
    assert found["relax.qnn.float_conv2d"] == 3


def test_transposes_sink_through_slices_splits_and_choices() -> None:
    """Also through a slice that leaves everything, which is idle."""
    net = Net((1, 6, 4, 5))
    x = net.emit(op.permute_dims(net.x, [0, 2, 3, 1]), "turned")
    x = net.emit(op.strided_slice(x, [3], [0], [6]), "all")
    cut = net.emit(op.strided_slice(x, [1, 3], [1, 0], [4, 4], [1, 2]), "cut")
    parts = net.emit(op.split(cut, 3, 1), "parts")
    part = net.emit(relax.TupleGetItem(parts, 2), "part")
    places = net.builder.tensor("places", np.array([3, 0, 0], np.int64))
    taken = net.emit(op.take(part, places, 2), "taken")
    model = net.model(net.emit(op.permute_dims(taken, [0, 3, 1, 2]), "back"))
    simple = simplify(model)
    assert operators(simple)["relax.permute_dims"] == 0
    assert operators(simple)["relax.strided_slice"] == 2
    inputs = net.inputs()
    (expected,), (found,) = (interpret.run(m, inputs).values() for m in (model, simple))
    np.testing.assert_array_equal(found, expected)
