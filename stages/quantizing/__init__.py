"""Quantizing: a float source graph with quantizers becomes a graph of integer operators.

Between two quantized layers scale, bias, normalization and activation become thresholds or
requantization, exact against the source's own arithmetic. What has no integer form stays in float.
"""

from __future__ import annotations

from stages.graph.composites import is_plain
from stages.graph.simplify_graph import simplify
from stages.kinds import Model
from stages.options import QuantizeOptions
from stages.quantizing.channels_last import channels_last
from stages.quantizing.check import check
from stages.quantizing.fit_matrix_products import on_kernels
from stages.quantizing.fuse_byte_functions import of_one_byte
from stages.quantizing.lift_rows import opened
from stages.quantizing.negate_falling_channels import turned
from stages.quantizing.pad_columns import even_columns
from stages.quantizing.quantize_layers import rewrite
from stages.quantizing.rescale_in_float32 import floated
from stages.quantizing.round_to_halves import halved
from stages.quantizing.sink_reshapes import unrowed
from stages.quantizing.split_batch import always_apart, apart

__all__ = ["check", "run"]

DEFAULT = QuantizeOptions()


def run(*, model: Model, options: QuantizeOptions = DEFAULT) -> Model:
    """Rewrite an imported model; raises StageError naming the layer that cannot be."""
    half = None if options.floats == "float32" else options.floats
    if is_plain(model):
        # Once before, so that weights which are turned or scaled are constants.
        result = even_columns(on_kernels(channels_last(simplify(model))))
        result = floated(unrowed(simplify(result)))
        result = of_one_byte(result)
        return apart(halved(result, half) if half else result)
    result = turned(rewrite(always_apart(opened(model))))  # which know single pictures alone
    result = halved(result, half) if half else result
    check(result)
    return result
