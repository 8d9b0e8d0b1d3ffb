"""Quantizing: a float source graph with quantizers becomes a graph of integer operators.

Between two quantized layers scale, bias, normalization and activation become thresholds or
requantization, exact against the source's own arithmetic. What has no integer form stays in float.
"""

from __future__ import annotations

from stages.graph.composites import is_plain
from stages.graph.simplifying import simplify
from stages.kinds import Model
from stages.options import QuantizeOptions
from stages.quantizing.batches import always_apart, apart
from stages.quantizing.channels_last import channels_last
from stages.quantizing.check import check
from stages.quantizing.columns import even_columns
from stages.quantizing.floating import floated
from stages.quantizing.halves import halved
from stages.quantizing.matrices import on_kernels
from stages.quantizing.of_one_byte import of_one_byte
from stages.quantizing.opening import opened
from stages.quantizing.rewrite import rewrite
from stages.quantizing.turning import turned
from stages.quantizing.unrowing import unrowed

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
