"""Rules of QDQ graphs that hold whatever the numerics: they change no result."""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, shape_of, storage_dtype
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.operators import OPERATORS
from stages.graph.bindings import remap, variables_in
from stages.graph.interpret import by_element
from stages.kinds import Array
from stages.nodes import Call, Expr, Op, Var
from stages.numerics import qlinear
from stages.numerics.linear_quantizers import FLOAT
from stages.numerics.qdq_graph import Quantized
from stages.numerics.qdq_rewriter import QdqRewriter
from stages.numerics.quantization import Quantization, every_byte
from stages.numerics.quantization_grid import Grid
from stages.numerics.rescale import table

LONGEST_CHAIN = 64


def move(graph: QdqRewriter, variable: Var, value: Expr) -> None:
    """Compute on integers what only moves, chooses or compares dequantized values."""
    if isinstance(value, relax.Var) and value in graph.quantized:
        graph.quantized[variable] = graph.quantized[value]
    elif isinstance(value, relax.TupleGetItem) and value.tuple_value in graph.quantized:
        parts = graph.quantized[value.tuple_value]
        part = relax.TupleGetItem(parts.value, value.index)
        _note(graph, variable, part, parts.grid)
    elif isinstance(value, Call) and isinstance(value.op, Op):
        _move_call(graph, variable, value)


def _move_call(graph: QdqRewriter, variable: Var, call: Call) -> None:
    operands = [graph.quantized.get(each) for each in variables_in(call)]
    first = operands[0] if operands else None
    if first is None:
        return
    name, of = str(call.op.name), first.grid.quantization
    if name == names.PERMUTE_DIMS and call.attrs.axes is not None:
        axes = tuple(int(axis) for axis in call.attrs.axes)
        _note(graph, variable, _on(graph, call), first.grid.transposed(axes))
    elif name in names.RESHAPES:
        grid = first.grid.reshaped(shape_of(call.args[0].ty), shape_of(variable.ty))
        if grid is not None:
            _note(graph, variable, _on(graph, call), grid)
    elif of is None:
        return
    elif name in names.MOVEMENTS:
        _note(graph, variable, _on(graph, call), first.grid)
    elif name in (names.ARGMAX, names.ARGMIN) and of.scale > 0:
        graph.values[variable] = graph.builder.emit(_on(graph, call), str(variable.name))
    elif name in (names.MAXIMUM, names.MINIMUM, names.CONCAT, names.STACK):
        if all(each is not None and each.grid.quantization == of for each in operands):
            _note(graph, variable, _on(graph, call), first.grid)
    elif name == names.RELU:
        low = max(of.levels.low, of.zero_point.whole)
        clipped = relax.op.clip(first.value, low, of.levels.high)
        is_idle = low == of.levels.low
        _note(graph, variable, first.value if is_idle else clipped, first.grid)
    elif name == names.MAX_POOL2D and _is_plain_pool(call):
        attrs = call.attrs
        arguments = (attrs.pool_size, attrs.strides, attrs.padding)
        windows = [[int(extent) for extent in each] for each in arguments]
        pooled = qlinear.max_pool(graph.builder, str(variable.name), first.value, *windows)
        graph.quantized[variable] = Quantized(pooled, first.grid)


def _is_plain_pool(call: Call) -> bool:
    attrs = call.attrs
    return (
        str(attrs.layout) == "NCHW"
        and not bool(attrs.ceil_mode)
        and all(int(each) == 1 for each in attrs.dilation)
    )


def _on(graph: QdqRewriter, call: Call) -> Expr:
    """A call on the integers that its operands dequantize."""
    mapping = {
        each: graph.quantized[each].value if each in graph.quantized else graph.value(each)
        for each in variables_in(call)
    }
    return remap(call, mapping)


def _note(graph: QdqRewriter, variable: Var, value: Expr, grid: Grid) -> None:
    name = str(variable.name)
    kept = value if isinstance(value, Var) else graph.builder.emit(value, name)
    graph.quantized[variable] = Quantized(kept, grid)


def same_or_lut(graph: QdqRewriter, variable: Var, out: Quantization, result: Var) -> Var | None:
    """Integers that mean what `out` says, of an old float variable of one byte alone."""
    direct = graph.quantized.get(variable)
    if direct is not None and direct.grid.quantization == out:
        return direct.value
    chain = _chain(graph, variable)
    if chain is None:
        return None
    root, order = chain
    data, of = graph.quantized[root].value, graph.quantized[root].grid.quantization
    if of is None or not of.is_byte or dtype_of(data.ty) != of.dtype:
        return None
    values = _evaluate(graph, order, {root: of.dequantize(every_byte(of.dtype))})
    quantize = graph.expressions[result]
    entries = OPERATORS[str(quantize.op.name)].meaning(
        values[variable],
        np.asarray(out.scale),
        np.asarray(out.zero_point.whole, storage_dtype(out.dtype)),
        **attributes(quantize),
    )
    name = str(result.name)
    entries = np.ascontiguousarray(np.broadcast_to(entries, (256,)))
    return lut_of(graph, data, entries, name)


def lut_of(graph: QdqRewriter, data: Var, entries: Array, name: str) -> Var:
    """`entries` [256] looked up for every byte of `data`."""
    values = graph.builder.tensor(f"{name}.table", entries)
    return graph.builder.emit(table(data, values), name)


def _chain(graph: QdqRewriter, variable: Var) -> tuple[Var, list[Var]] | None:
    """The one dequantized variable behind a float variable, and the chain from it in order."""
    roots: list[Var] = []
    order: list[Var] = []
    waiting = [variable]
    while waiting:
        current = waiting.pop()
        if current in order or graph.tensor(current) is not None:
            continue
        if current in graph.quantized:
            roots = [*roots, current] if current not in roots else roots
            continue
        call = graph.expressions.get(current)
        if not isinstance(call, Call) or not _is_pointwise(call) or len(order) == LONGEST_CHAIN:
            return None
        operands = variables_in(call)
        tensors = [graph.tensor(each) for each in operands]
        if any(each is not None and not _is_scalar(each) for each in tensors):
            return None
        order.append(current)
        waiting.extend(operands)
    if len(roots) != 1 or shape_of(roots[0].ty) != shape_of(variable.ty):
        return None
    return roots[0], sorted(order, key=graph.positions.__getitem__)


def _is_scalar(tensor: Array) -> bool:
    """Whether a constant holds one value, however often: exporters repeat it for every channel."""
    return bool(tensor.size) and bool((tensor == tensor.reshape(-1)[0]).all())


def _is_pointwise(call: Call) -> bool:
    name = str(call.op.name) if isinstance(call.op, Op) else ""
    is_pointwise = name in ELEMENTWISE and not WHOLE.get(name)
    return is_pointwise and dtype_of(call.ty) in (*FLOAT, "bool")


def _evaluate(graph: QdqRewriter, order: list[Var], values: dict[Var, Array]) -> dict[Var, Array]:
    """The values of a chain for all 256 values of its root, by the operators' meanings."""
    for variable in order:
        call = graph.expressions[variable]
        operands = [
            values[each]
            if (tensor := graph.tensor(each)) is None
            else np.asarray(tensor.reshape(-1)[0])
            for each in variables_in(call)
        ]
        values[variable] = by_element(call, operands)
    return values
