"""Figures of how far layers are from float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation.layer_errors import _figures, _sums
from pipelines.reporting import report_sections


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 10))
def test_figures_over_samples_are_those_of_all_values_together(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    wanted = rng.normal(0, 1, (3, 4, 5))
    found = wanted + scale * rng.normal(0, 1, wanted.shape)
    sums = sum((_sums(a, b) for a, b in zip(wanted, found, strict=True)), np.zeros(4))
    figures = _figures(sums)
    noise = wanted.var() + wanted.mean() ** 2, ((found - wanted) ** 2).mean()
    assert figures["snr_db"] == pytest.approx(10 * math.log10(noise[0] / noise[1]))
    angle = np.corrcoef(
        np.r_[wanted.ravel(), -wanted.ravel()], np.r_[found.ravel(), -found.ravel()]
    )
    assert figures["cosine"] == pytest.approx(angle[0, 1])


def test_nothing_differs() -> None:
    alike = {"is_exact": True, "snr_db": None, "cosine": 1.0}
    assert _figures(_sums(np.ones(3), np.ones(3))) == alike
    assert _figures(_sums(np.zeros(3), np.zeros(3))) == alike
    # A layer of which nothing is left, or that was to give nothing.
    lost = {"is_exact": False, "snr_db": 0.0, "cosine": 0.0}
    assert _figures(_sums(np.ones(3), np.zeros(3))) == lost
    assert _figures(_sums(np.zeros(3), np.ones(3))) == {**lost, "snr_db": None}


EXACT, NOISE, FAIR = (
    {"layer": name, "weight_bits": 8, "is_exact": exact, "snr_db": snr, "cosine": 1.0}
    for name, exact, snr in (("a", True, None), ("b", False, None), ("c", False, 20.0))
)


@pytest.mark.parametrize(
    ("layers", "worst"),
    [
        ([EXACT], None),
        ([EXACT, FAIR], "Worst: c, 20.0 dB."),
        ([FAIR, NOISE, EXACT], "Worst: b, noise alone."),
    ],
)
def test_the_worst_layer_is_named(layers: list[dict[str, object]], worst: str | None) -> None:
    text = "".join(report_sections.errors({"samples": 1, "layers": layers, "output": EXACT}))
    assert ("Worst" in text) == (worst is not None) and (worst or "") in text
