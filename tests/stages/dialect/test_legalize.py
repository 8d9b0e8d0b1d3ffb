"""Plain Relax computes exactly what the NumPy meanings say."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from stages import canonicalizing, quantizing
from stages.dialect import integer, numbers_tir
from stages.dialect.calls import dtype_of
from stages.dialect.padding import Padding, Sides
from stages.dialect.zero_point import ZeroPoint
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.kinds import Array, Model
from stages.numerics.qonnx_operators import ROUNDING
from tests.stages.dialect.examples import INTEGER, Example, floats, integers
from tests.stages.dialect.widen_storage import widen
from tests.stages.networks import residual_block


def in_relax(
    model: Model, inputs: Mapping[str, Array], target: str | dict[str, Any] = "llvm"
) -> Array:
    """The single output of a model compiled by relax.build."""
    executable = relax.build(widen(model.module), tvm.target.Target(target))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    main = model.module["main"]
    names = [str(parameter.name) for parameter in main.params]
    values = [inputs[name] if name in inputs else model.params[name] for name in names]
    result: Array = machine["main"](*[tvm.runtime.tensor(value) for value in values]).numpy()
    return result


def compare(example: Example, target: str | dict[str, Any] = "llvm") -> None:
    model, inputs = example.model(), {"a0": example.operands[0][0]}
    expected = interpret.run(model, inputs)["y"]
    found = in_relax(model, inputs, target)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", INTEGER)
def test_every_integer_operator(name: str) -> None:
    compare(INTEGER[name])


@pytest.mark.parametrize("rounding", ROUNDING)
def test_every_rounding_mode(rounding: str) -> None:
    """Ties, values just beside them, zeros of both signs and values far outside."""
    near = np.arange(-9, 10, dtype=np.float32) / 2
    beside = [np.nextafter(near, np.float32(bound)) for bound in (-np.inf, np.inf)]
    x = np.concatenate([near, *beside, np.array([-0.0, 1e30, -1e30], np.float32)])
    example = Example(
        integer.quantize,
        ((x.reshape(1, -1).astype(np.float32), "float32"), floats(1.0), floats(0.0)),
        {"low": -3, "high": 4, "shift": 3, "rounding": rounding, "dtype": "uint3"},
    )
    compare(example)


def test_requantize_rounds_ties_to_even() -> None:
    example = Example(
        integer.requantize,
        (
            (np.arange(-9, 10, dtype=np.int32).reshape(-1, 1), "int32"),
            floats(0.5),
            floats(0.0),
        ),
        {"low": -4, "high": 4, "dtype": "int4"},
    )
    compare(example)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int16"])
def test_a_threshold_that_is_just_reached(dtype: str) -> None:
    """It counts, or where flipped does not."""
    kind = "float32" if dtype == "float32" else "int32"
    data = np.repeat(np.array([[-4], [-3], [0], [2]], kind), 2, axis=1)
    example = Example(
        integer.threshold,
        (
            (data, kind),
            (np.array([[-3, -3], [0, 0]], dtype), dtype),
            (np.array([0, 1], np.uint8), "uint8"),
        ),
        {"dtype": "uint2"},
    )
    compare(example)
    found = interpret.run(example.model(), {"a0": data})["y"]
    assert found.tolist() == [[0, 2], [1, 1], [2, 0], [2, 0]]


@settings(max_examples=12)
@given(data=st.data())
def test_convolutions_of_any_geometry(data: st.DataObject) -> None:
    draw = data.draw
    groups = draw(st.sampled_from([1, 2, 3]))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    size = draw(st.tuples(st.integers(3, 5), st.integers(3, 5)))
    bits = draw(st.integers(1, 3))
    zero_point = draw(st.integers(0, (1 << bits) - 1))
    example = Example(
        integer.conv2d,
        (
            integers(0, (1 << bits) - 1, (1, *size, 2 * groups), f"uint{bits}"),
            integers(-128, 127, (2 * groups, *kernel, 2), "int8"),
        ),
        {
            "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
            "padding": Padding(
                Sides(*(draw(st.integers(0, 2)) for _ in range(4))), draw(st.integers(-1, 1))
            ),
            "groups": groups,
            "data_zero_point": ZeroPoint(zero_point),
            "weight_zero_point": ZeroPoint(draw(st.integers(-3, 3))),
        },
    )
    compare(example)


@settings(max_examples=12)
@given(data=st.data())
def test_maximums_of_any_geometry(data: st.DataObject) -> None:
    """Windows over edges and corners, of levels all below zero."""
    draw = data.draw
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    example = Example(
        integer.max_pool2d,
        (integers(-128, -1, (2, *draw(st.tuples(*[st.integers(4, 6)] * 2)), 3), "int8"),),
        {
            "kernel": kernel,
            "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
            "padding": [draw(st.integers(0, kernel[side % 2] - 1)) for side in range(4)],
        },
    )
    compare(example)


def has_fma() -> bool:
    if platform.machine() != "x86_64":
        return platform.machine() == "aarch64"
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and " fma " in cpuinfo.read_text(encoding="utf-8")


def fma_would_differ() -> Example:
    """Accumulators and multipliers whose rounded results change if the product is not rounded."""
    rng = np.random.default_rng(0)
    acc = rng.integers(-(1 << 20), 1 << 20, (1, 4096)).astype(np.int32)
    multiplier = rng.uniform(1e-5, 1e-4, 4096).astype(np.float32)
    product = acc.astype(np.float64) * multiplier
    # Products next to a tie that the offset moves onto it, or not, depending on the rounding.
    offset = (np.rint(product[0]) + 0.5 - product[0]).astype(np.float32)
    twice = np.rint(acc.astype(np.float32) * multiplier + offset)
    once = np.rint((product + offset).astype(np.float32))
    differs = np.flatnonzero((twice != once)[0])
    assert differs.size > 20
    return Example(
        integer.requantize,
        (
            (np.ascontiguousarray(acc[:1, differs]), "int32"),
            (multiplier[differs], "float32"),
            (offset[differs], "float32"),
        ),
        {"low": -128, "high": 127, "dtype": "int8"},
    )


FMA_TARGET = {"kind": "llvm", "opt-level": 3} | (
    {"mattr": ["+fma", "+avx2"]} if platform.machine() == "x86_64" else {}
)


@pytest.mark.skipif(not has_fma(), reason="this processor has no fused multiply-add")
def test_requantize_rounds_the_product() -> None:
    compare(fma_would_differ(), FMA_TARGET)


@pytest.mark.skipif(not has_fma(), reason="this processor has no fused multiply-add")
def test_without_the_fence_llvm_would_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing."""
    monkeypatch.setattr(numbers_tir, "fence", lambda value: value)
    example = fma_would_differ()
    model, inputs = example.model(), {"a0": example.operands[0][0]}
    found = in_relax(model, inputs, FMA_TARGET)
    assert not np.array_equal(found, interpret.run(model, inputs)["y"])


@pytest.mark.parametrize("bits", [1, 2])
def test_a_quantized_network(bits: int) -> None:
    model = quantizing.run(model=residual_block(bits, bits, channels=8, size=8))
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 8)).astype(np.float32) * 2
    expected = interpret.run(model, {"x": x})["y0"]
    assert np.unique(expected).size > 10
    assert np.array_equal(in_relax(model, {"x": x}), expected)


def test_a_canonicalized_network() -> None:
    """Composites widen too, and their calls."""
    quantized = quantizing.run(model=residual_block(2, 1, channels=8, size=8))
    model = canonicalizing.run(model=quantized)
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 8)).astype(np.float32) * 2
    assert np.array_equal(in_relax(model, {"x": x}), interpret.run(quantized, {"x": x})["y0"])


def test_widening_leaves_no_narrow_tensor() -> None:
    module = widen(quantizing.run(model=residual_block(2, 1, channels=8, size=8)).module)
    main = module["main"]
    variables = [*main.params, *[binding.var for binding in bindings_of(main)]]
    assert {dtype_of(v.ty) for v in variables} <= {"float32", "int32", "uint8", "int8"}
