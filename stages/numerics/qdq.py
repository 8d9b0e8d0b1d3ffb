"""QDQ graphs to integers: dequantize -> operator -> quantize becomes one integer operator.

    x = dequantize_linear(q, xs, xz)
    y = relax.nn.relu(relax.reshape(x, ...))          ->   clip(relax.reshape(q, ...), xz, 127)
    r = quantize_linear(y, xs, xz)

Used by every importer whose source says `dequantize, float operator, quantize`, and after
post-training quantization has put such pairs into a float model. Four rules, all but the last of
which leave every result as it is:

* *Moving values about* commutes with dequantizing: reshapes, slices, concatenations of one grid,
  maxima and the like are done on the integers, and dequantizing sinks below them.
* *A function of one byte* is a table of 256 entries, however long its chain of float operators.
* *Convolutions and matrix products* of quantized operands add integers. A float result is
  `dequantize_linear(accumulator, xs * ws, 0)`, the exact sum rounded once.
* *numerics="onnx"*: what ONNX Runtime fuses into its own quantized operators is computed as those
  do (`stages.numerics.qdq_onnx`). For other numerics, what stands between accumulators and
  `quantize_linear` stays float, operator by operator.

What no rule fits stays a float island between dequantize_linear and quantize_linear.
"""

from __future__ import annotations

from stages.dialect.calls import is_op
from stages.graph.bindings import bindings_of, output_names, outputs_of
from stages.kinds import Model
from stages.nodes import Call, Expr, Var
from stages.numerics import qdq_integers, qdq_onnx, qdq_onnx_pools
from stages.numerics.linear_quantizers import dequantize_linear, quantize_linear
from stages.numerics.onnx_islands import ATTRIBUTE, NOTHING_KNOWN, Session, islands_of, written
from stages.numerics.qdq_rewriter import QdqRewriter


def to_integers(model: Model, numerics: str, session: Session = NOTHING_KNOWN) -> Model:
    """`model` with its QDQ islands turned into integer operators; attributes of `main` are kept.

    `model` is a `main` whose quantizers are `qnn.quantize_linear` and `qnn.dequantize_linear` with
    scales and zero points among its parameters (computed ones stay as they are). Convolutions and
    pools are NCHW and OIHW. Variables keep their names; parameters that nothing reads are gone.
    `session` is what else ONNX Runtime knows of the graph.
    """
    main = model.module["main"]
    graph = QdqRewriter(model, session)
    for binding in bindings_of(main):
        _visit(graph, binding.var, binding.value, numerics)
    outputs = [graph.value(output) for output in outputs_of(main)]
    graph.builder.prune(outputs)
    attrs = {
        str(key): value
        for key, value in main.attrs.items()
        if key not in ("global_symbol", "num_input", "output_names")
    }
    islands = (*islands_of(model), *graph.islands)
    attrs |= {ATTRIBUTE: written(islands)} if islands else {}
    return graph.builder.model(outputs, output_names(model), attrs=attrs)


def _visit(graph: QdqRewriter, variable: Var, value: Expr, numerics: str) -> None:
    """Apply the first rule that fits a binding of the source."""
    if is_op(value, dequantize_linear.name):
        graph.note_dequantized(variable, value)
    elif is_op(value, quantize_linear.name):
        grid = graph.grid(value)
        out = None if grid is None else grid.quantization
        if out is None or not _is_whole(value, out.limits):
            return
        result = qdq_integers.same_or_lut(graph, value.args[0], out, variable)
        graph.target = str(variable.name)
        if result is None and numerics == "onnx" and out.is_byte:
            result = qdq_onnx.fused(graph, value.args[0], out)
        if result is not None:
            graph.values[variable] = result
    else:
        qdq_integers.move(graph, variable, value)
        if variable.name in graph.session.reductions and isinstance(value, Call):
            qdq_onnx_pools.reduce(graph, variable, value)


def _is_whole(call: Call, limits: tuple[int, int]) -> bool:
    """Whether a quantizer uses every integer of its dtype."""
    return (int(call.attrs["low"]), int(call.attrs["high"])) == limits
