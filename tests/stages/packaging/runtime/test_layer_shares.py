"""The time of each layer, of spans that threads noted."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stages.packaging.runtime.loaded import SPAN
from tests.stages.packaging.support import (
    X86_64,
    copy_runtime,
    zig,
)
from tests.targets import is_native


def swept(spans: np.ndarray, layers: int) -> np.ndarray:
    """What layer times are said to be: each moment in equal parts for each thread in a layer."""
    times = np.zeros(layers)
    moments = np.unique(np.concatenate([spans["begin"], spans["end"]]))
    for first, last in pairwise(moments):
        inside = spans["layer"][(spans["begin"] <= first) & (spans["end"] >= last)]
        if len(inside):
            np.add.at(times, inside, float(last - first) / len(inside))
    return times


@st.composite
def logs(draw: st.DrawFn) -> np.ndarray:
    """Spans of a few threads, those of each in order, as several write them."""
    spans = []
    for thread in range(draw(st.integers(1, 4))):
        edges = sorted(draw(st.lists(st.integers(0, 40), max_size=12)))
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            spans.append((begin, end, draw(st.integers(0, 4)), 0, thread, 0))
    return np.array(sorted(spans, key=lambda span: span[1]), SPAN)


@pytest.fixture(scope="module")
def layer_times(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The runtime's `rt_layer_times` on an array of spans."""
    if not is_native(X86_64):
        pytest.skip("runs natively")
    folder = tmp_path_factory.mktemp("times")
    copy_runtime(folder, "runtime.h", "profile.h", "profile.c")
    wrapper = (
        '#include "profile.h"\n'
        "void times(struct rt_span *s, uint32_t n, int32_t threads, int32_t layers, double *t)\n"
        "{ struct rt_log log = {s, 0, n}; rt_layer_times(&log, threads, layers, t); }\n"
    )
    (folder / "times.c").write_text(wrapper)
    zig(folder, "cc", "-shared", "-fPIC", "times.c", "profile.c", "-o", "times.so")
    return ctypes.CDLL(str(folder / "times.so")).times


@given(logs())
def test_layer_times_share_each_moment(layer_times: Any, spans: np.ndarray) -> None:
    found = np.full(5, np.nan)
    pointer = ctypes.c_void_p
    layer_times(pointer(spans.ctypes.data), len(spans), 4, 5, pointer(found.ctypes.data))
    np.testing.assert_allclose(found, swept(spans, 5), atol=1e-9)
