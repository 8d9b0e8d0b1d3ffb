"""QONNX's and FINN's operators as the oracle executes them, in float32 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from stages.importing.onnx import source_arithmetic as arithmetic
from stages.importing.onnx.domains import QONNX

Array = np.ndarray[Any, Any]


class Quant(OpRun):
    """QONNX Quant."""

    op_domain = QONNX

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array,
        bits: Array,
        signed: int = 1,
        narrow: int = 0,
        rounding_mode: str = "ROUND",
        **_exporter_extras: Any,
    ) -> tuple[Array]:
        return (
            arithmetic.quant(
                x,
                scale,
                zero_point,
                int(np.asarray(bits).item()),
                bool(signed),
                bool(narrow),
                rounding_mode,
            ),
        )


class IntQuant(Quant):
    """QONNX's newer name of Quant."""


class BipolarQuant(OpRun):
    """QONNX BipolarQuant."""

    op_domain = QONNX

    def _run(self, x: Array, scale: Array, **_exporter_extras: Any) -> tuple[Array]:
        return (arithmetic.bipolar_quant(x, scale),)


class MultiThreshold(OpRun):
    """FINN MultiThreshold."""

    op_domain = QONNX

    def _run(
        self,
        x: Array,
        thresholds: Array,
        out_scale: float = 1.0,
        out_bias: float = 0.0,
        data_layout: str = "",
        **_exporter_extras: Any,
    ) -> tuple[Array]:
        axis = channel_axis(data_layout, x.ndim)
        return (arithmetic.multi_threshold(x, thresholds, out_scale, out_bias, axis),)


class Trunc(OpRun):
    """QONNX Trunc, of either version."""

    op_domain = QONNX

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array,
        given: Array,
        *kept: Array,
        rounding_mode: str = "FLOOR",
        signed: int = 1,
        narrow: int = 0,
        **_exporter_extras: Any,
    ) -> tuple[Array]:
        if len(kept) == 1:
            step = np.array(2.0 ** (int(given.item()) - int(kept[0].item())), np.float32)
            return (arithmetic.trunc(x, scale, zero_point, step, scale, rounding_mode, None),)
        step = arithmetic.truncation_scale(scale, kept[0])
        limits = arithmetic.quant_limits(int(kept[1].item()), bool(signed), bool(narrow))
        return (arithmetic.trunc(x, scale, zero_point, step, kept[0], rounding_mode, limits),)


def channel_axis(data_layout: str, rank: int) -> int:
    """Where FINN's data layout puts the channels; without one, as FINN guesses from the rank."""
    layout = data_layout or {2: "NC", 3: "NWC", 4: "NCHW"}.get(rank, "")
    return layout.index("C") if "C" in layout else 1
