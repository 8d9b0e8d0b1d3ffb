"""Transcendental functions are accurate, and the same bits compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stages.dialect.numbers_numpy import NUMPY
from stages.kinds import Array
from stages.numerics import float_elementwise
from stages.numerics import transcendental as t
from tests.stages.dialect.examples import Example
from tests.stages.dialect.test_legalize import FMA_TARGET, compare

ERF = np.vectorize(math.erf)
REFERENCES: dict[str, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    "exp": (t.exp, np.exp),
    "log": (t.log_, np.log),
    "sigmoid": (t.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "tanh": (t.tanh, np.tanh),
    "expm1": (t.expm1, np.expm1),
    "sin": (t.sin, np.sin),
    "cos": (t.cos, np.cos),
    "erf": (t.erf, ERF),
    "gelu": (t.gelu, lambda x: x / 2 * (1 + ERF(x * math.sqrt(0.5)))),
}


def arguments(name: str, count: int) -> Array:
    """Of every size, and the ends of the range."""
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=count) * size for size in (1e-6, 1e-3, 0.1, 1, 10, 50)]
    ends = [0.0, 88.0, 88.5, -87.0, -100.0, -103.9, -104.0, -200.0, 1e-30, 5.0, -5.0]
    x = np.concatenate([*parts, ends]).astype(np.float32)
    if name == "log":
        return np.append(np.exp(rng.uniform(-100, 88, count)), np.abs(x[x != 0])).astype(np.float32)
    return np.minimum(x, np.float32(88.6)) if name in ("exp", "expm1") else x


@pytest.mark.parametrize("name", REFERENCES)
def test_results_are_rounded_almost_correctly(name: str) -> None:
    """Within 0.51 units in the last place; GELU, which cancels below 0, 2^-26 of its operand."""
    function, reference = REFERENCES[name]
    x = arguments(name, 4000 if name in ("erf", "gelu") else 40000)
    found = function(NUMPY, x)
    with np.errstate(under="ignore", over="ignore"):
        exact = reference(x.astype(np.float64))
    assert found.dtype == np.float32
    around = np.maximum(np.abs(exact), np.abs(x) * 2.0**-2) if name == "gelu" else np.abs(exact)
    unit = np.spacing(around.astype(np.float32)).astype(np.float64)
    assert (np.abs(found.astype(np.float64) - exact) / unit).max() < 0.51


@pytest.mark.parametrize("name", REFERENCES)
def test_compiled_code_gives_the_same_bits(name: str) -> None:
    x = arguments(name, 500)
    compare(
        Example(getattr(float_elementwise, name), ((x.reshape(1, -1), "float32"),), {}), FMA_TARGET
    )


def test_ends_of_the_range() -> None:
    x = np.array([88.723, 1000, np.inf, -np.inf], np.float32)
    assert t.exp(NUMPY, x).tolist() == [np.inf, np.inf, np.inf, 0]
    assert np.isfinite(t.exp(NUMPY, np.array([88.72283], np.float32))).all()
    logs = t.log_(NUMPY, np.array([0, 1, np.inf, -1], np.float32))
    assert logs[:3].tolist() == [-np.inf, 0, np.inf]
    assert np.isnan(logs[3])


def test_power() -> None:
    rng = np.random.default_rng(2)
    base = np.append(rng.uniform(0, 10, 2000), np.repeat(np.arange(-4, 5), 9)).astype(np.float32)
    exponent = np.append(rng.normal(size=2000) * 5, np.tile(np.arange(-4, 5), 9))
    exponent = exponent.astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(base.astype(np.float64), exponent.astype(np.float64))
        expected = expected.astype(np.float32)
    found = t.power(NUMPY, base, exponent)
    finite = np.isfinite(expected)
    error = np.abs(found[finite] - expected[finite])
    assert (error <= np.spacing(np.abs(expected[finite]))).all()
    assert np.array_equal(np.isinf(found), np.isinf(expected))
    assert np.isnan(t.power(NUMPY, np.array([-2], np.float32), np.array([0.5], np.float32))).all()
    compare(
        Example(
            float_elementwise.power,
            ((base.reshape(1, -1), "float32"), (exponent.reshape(1, -1), "float32")),
            {},
        ),
        FMA_TARGET,
    )


@pytest.mark.parametrize(
    ("name", "attributes"),
    [("leaky_relu", {"alpha": 0.1}), ("elu", {}), ("hard_swish", {})],
)
def test_other_functions_of_one_operand(name: str, attributes: dict[str, Any]) -> None:
    x = np.append(arguments(name, 200), np.arange(-5, 6, 0.5)).astype(np.float32).reshape(1, -1)
    compare(Example(getattr(float_elementwise, name), ((x, "float32"),), attributes), FMA_TARGET)
