"""Quantizing: a float source graph with quantizers becomes a graph of integer operators.

Afterwards no float tensor remains between two quantized layers: scale, bias, normalization and
activation have become thresholds or requantization, exact against the source's own arithmetic.
"""

from __future__ import annotations

from stages.errors import StageError
from stages.kinds import Model
from stages.options import QuantizeOptions
from stages.qnn.composites import is_plain
from stages.qnn.simplifying import simplify
from stages.quantizing.batches import always_apart, apart
from stages.quantizing.bfloat16 import HINT, halved
from stages.quantizing.channels_last import channels_last
from stages.quantizing.check import check
from stages.quantizing.floating import floated
from stages.quantizing.rewrite import rewrite
from stages.quantizing.turning import turned

__all__ = ["check", "run"]

DEFAULT = QuantizeOptions()


def run(*, model: Model, options: QuantizeOptions = DEFAULT) -> Model:
    """Rewrite an imported model; raises StageError naming the layer that has no integer form."""
    if is_plain(model):
        # Once before, so that weights which are turned or scaled are constants.
        result = floated(simplify(channels_last(simplify(model))))
        return apart(halved(result) if options.floats == "bfloat16" else result)
    if options.floats == "bfloat16":
        raise StageError("no layer is left in float to be rounded to bfloat16", hint=HINT)
    result = turned(rewrite(always_apart(model)))  # which know single pictures alone
    check(result)
    return result
