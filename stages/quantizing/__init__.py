"""Quantizing: a float source graph with quantizers becomes a graph of integer operators.

Between two quantized layers scale, bias, normalization and activation become thresholds or
requantization, exact against the source's own arithmetic. What has no integer form stays in float.
A pre-quantized model, and a float one, keeps its operators and gets the forms that kernels take.
"""

from __future__ import annotations

from functools import partial

from stages.dialect.float_linear import HalfPrecision
from stages.graph.pass_table import Observer, Passes, PassRow, run_passes
from stages.graph.simplify_graph import SimplifyGraph
from stages.kinds import Model
from stages.options import QuantizeOptions
from stages.quantizing.fit_matrix_products import FitMatrixProducts
from stages.quantizing.fuse_byte_functions import FuseByteFunctions
from stages.quantizing.integer_sources_check import check
from stages.quantizing.lift_rows import LiftRows
from stages.quantizing.move_channels_last import MoveChannelsLast
from stages.quantizing.negate_falling_channels import NegateFallingChannels
from stages.quantizing.pad_columns import PadColumns
from stages.quantizing.quantize_layers import QuantizeLayers
from stages.quantizing.rescale_in_float32 import RescaleInFloat32
from stages.quantizing.round_to_half_precision import RoundToHalfPrecision
from stages.quantizing.sink_reshapes import SinkReshapes
from stages.quantizing.split_batch import SplitBatch, SplitWholeBatch

__all__ = ["check", "passes", "run"]

DEFAULT = QuantizeOptions()
FLOAT_SOURCES = ("qonnx", "simulated")
"""Numerics of float graphs with quantizers."""

WITH_QUANTIZERS: Passes = (
    PassRow(
        LiftRows,
        "lifts layers on rows to images of height 1",
        "layers are quantized on images: reshapes between them would end every chain of steps",
    ),
    PassRow(
        SplitWholeBatch,
        "has main compute one image of a batch",
        "the layers behind it are quantized for one image alone",
    ),
    PassRow(
        QuantizeLayers,
        "makes integer operators of layers between quantizers, float ones of the others",
        "the source's own steps are still there, from which exact thresholds are computed",
    ),
    PassRow(
        NegateFallingChannels,
        "negates the weights of channels whose thresholds fall",
        "there are thresholds now, and weights are still as they are stored",
    ),
)
"""The passes of a network that comes with quantizers."""

PREQUANTIZED: Passes = (
    PassRow(
        SimplifyGraph,
        "joins and drops transposes, computes what is constant",
        "weights that are transposed or scaled must be constants for the three that follow",
    ),
    PassRow(
        MoveChannelsLast,
        "puts float convolutions and pools between transposes, products on rows",
        "a product of constant weights is taken here, before those of computed ones are looked for",
    ),
    PassRow(
        FitMatrixProducts,
        "makes products of computed matrices those of bytes or floats that kernels compute",
        "the subtraction of zero points still stands in front of the product",
    ),
    PassRow(
        PadColumns,
        "adds columns to products of computed matrices that stay in loops",
        "only those are left that no kernel computes",
    ),
    PassRow(
        SimplifyGraph,
        "joins and drops the transposes of the passes above",
        "most of them cancel",
    ),
    PassRow(
        SinkReshapes,
        "moves reshapes of products behind what computes element by element",
        "reshapes have become one; what follows a product is then rescaled and fused on its rows",
    ),
    PassRow(
        RescaleInFloat32,
        "puts float32 in place of fixed-point rescaling where all bytes stay the same",
        "sums, their bias and the rescaling stand next to each other",
    ),
    PassRow(
        FuseByteFunctions,
        "makes one table of what several operands make of the same byte",
        "tables that only shift bytes are additions by now, and stay them",
    ),
)
"""The passes of a model that comes with integer operators, or with floats alone."""


def is_prequantized(model: Model) -> bool:
    """Whether a model comes with integer operators, or with floats alone.

    No later stage asks: layers between simulated quantizers are marked `of_levels`.
    """
    numerics = model.module["main"].attrs.get("numerics")
    return numerics is not None and str(numerics) not in FLOAT_SOURCES


def passes(model: Model, options: QuantizeOptions = DEFAULT) -> Passes:
    """The passes for a model, in order."""
    half = _in_halves(options)
    if is_prequantized(model):
        return (
            *PREQUANTIZED,
            *half,
            PassRow(
                SplitBatch,
                "has main compute one image of a batch, up to layers that are mostly weights",
                "what layers store between them is final, which says where a batch is split",
            ),
        )
    return (*WITH_QUANTIZERS, *half)


def _in_halves(options: QuantizeOptions) -> Passes:
    """The pass that a recipe asks for with `floats`."""
    if options.floats == "float32":
        return ()
    half: HalfPrecision = options.floats
    return (
        PassRow(
            partial(RoundToHalfPrecision, half=half),
            f"keeps what products of floats read in {half}",
            "products of floats have the form that kernels take, which is what rounds",
        ),
    )


def run(
    *, model: Model, options: QuantizeOptions = DEFAULT, observe: Observer | None = None
) -> Model:
    """Rewrite an imported model; raises StageError naming the layer that cannot be."""
    result = run_passes(passes(model, options), model, observe)
    if not is_prequantized(model):
        check(result)
    return result
