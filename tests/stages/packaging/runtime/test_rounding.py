"""The runtime's rounding functions against NumPy, on the values where they can go wrong."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stages.packaging.support import zig

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="compiles for x86-64 Linux and runs it",
)


def away(x: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    whole = np.trunc(x)
    return np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x)


MEANING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "roundeven": np.rint,
    "rint": np.rint,
    "nearbyint": np.rint,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": away,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("rounding")
    source = files("stages.packaging").joinpath("runtime").joinpath("rounding.c").read_text()
    # A name of its own for each, lest libm's be called; an array at a time.
    loops = "\n".join(
        f"void all_{name}{s}(const {real} *x, {real} *y, long n)"
        f" {{ for (long i = 0; i < n; i++) y[i] = {name}{s}(x[i]); }}"
        for name in MEANING
        for real, s in (("float", "f"), ("double", ""))
    )
    own = "\n".join(f"#define {n}{s} my_{n}{s}" for n in MEANING for s in ("f", ""))
    (folder / "r.c").write_text(f"{own}\n{source}\n{loops}\n")
    zig(folder, "cc", "-shared", "-fPIC", "-fno-builtin", "-nostdlib", "r.c", "-o", "r.so")
    return ctypes.CDLL(str(folder / "r.so"))


def values(dtype: type[np.floating[Any]]) -> np.ndarray:
    rng = np.random.default_rng(1)
    width = np.dtype(dtype).itemsize
    word = np.uint32 if width == 4 else np.uint64
    anything = rng.integers(0, np.iinfo(word).max, 200_000, word, endpoint=True).view(dtype)
    halves = np.arange(-4000, 4001, dtype=dtype) / dtype(2)
    digits = np.finfo(dtype).nmant
    large = dtype(2) ** np.arange(digits - 3, digits + 3).astype(dtype)
    special = np.array([0.0, np.inf, np.nan, np.finfo(dtype).tiny], dtype)
    points = np.concatenate([halves, large, large - dtype(0.5), large + dtype(0.5), special])
    near = [np.nextafter(points, dtype(np.inf)), np.nextafter(points, dtype(-np.inf))]
    return np.concatenate([anything, points, -points, *near])


@pytest.mark.parametrize("name", MEANING)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_is_exact(library: Any, name: str, dtype: type[np.floating[Any]]) -> None:
    x = np.ascontiguousarray(values(dtype))
    y = np.empty_like(x)
    function = getattr(library, f"all_{name}{'f' if dtype is np.float32 else ''}")
    function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(len(x)))
    with np.errstate(invalid="ignore"):
        expected = MEANING[name](x)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(y[number], expected[number])
    np.testing.assert_array_equal(np.signbit(y[number]), np.signbit(expected[number]))
