"""Pictures of few channels: one pass from what the user hands in to what a product reads.

That is four bytes at a time, so that a picture of one to four channels becomes one word a pixel; or
pixels close together, where rows of a window have fewer words so (`Geometry.as_unpadded`). What
computes it element by element (quantizing, as a rule) is done on the way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tvm import relax

from stages.bitpacking.edges import Layout, store
from stages.bitpacking.results import computed
from stages.kinds import Model
from stages.qnn.builder import FunctionBuilder, bindings_of, calls_of, outputs_of
from stages.qnn.composites import PICTURES, PLAIN
from stages.qnn.elementwise import ELEMENTWISE
from stages.qnn.methods import WORD_BYTES
from stages.qnn.registry import dtype_of, shape_of
from stages.qnn.rewriting import Rewriting


@dataclass(frozen=True)
class Source:
    """What computes a picture element by element: a composite, and what `main` hands it."""

    function: Any
    arguments: list[Any]


def is_narrow(edge: Layout) -> bool:
    """Whether an edge holds a word for every pixel, or less."""
    return edge.form == "bytes" and edge.padded_channels <= WORD_BYTES


def sources(model: Model, readers: Counter[Any]) -> dict[Any, Source]:
    """Variable of `main` → the elementwise composite that gives it to a single reader."""
    found = {}
    for binding, function in calls_of(model):
        is_plain = str(function.attrs["composite"]) == PLAIN
        if is_plain and readers[binding.var] == 1 and _is_elementwise(function):
            found[binding.var] = Source(function, list(binding.value.args))
    return found


def _is_elementwise(function: Any) -> bool:
    """Whether a composite computes one picture of bytes from others of its shape and scalars."""
    outputs = outputs_of(function)
    if len(outputs) != 1 or dtype_of(outputs[0].ty) not in ("uint8", "int8"):
        return False
    shape = shape_of(outputs[0].ty)
    calls = [b for b in bindings_of(function) if b.var not in outputs]
    same = all(shape_of(b.var.ty) == shape for b in calls)
    operands = all(shape_of(p.ty) in (shape, ()) for p in function.params)
    names = {str(b.value.op.name) for b in calls}
    return len(shape) == 4 and same and operands and names <= ELEMENTWISE


def picture(
    to: Rewriting, origin: Any, source: Source | None, order: list[int] | None, edge: Layout
) -> tuple[Any, list[Any]]:
    """The composite that lays `origin` out as `edge`, and what it is called with.

    `order` is the transpose to NHWC, None if it lies so.
    """
    builder = FunctionBuilder()
    arguments = source.arguments if source else [origin]
    actual = [to.read(argument) for argument in arguments]
    inside = [builder.param(f"p{i}", shape_of(a.ty), dtype_of(a.ty)) for i, a in enumerate(actual)]
    value = computed(source.function, inside, builder) if source else inside[0]
    if order is not None:
        value = builder.emit(relax.op.permute_dims(value, order), "turned")
    result = builder.emit(store(value, edge), "bytes")
    return builder.finish([result], {"composite": PICTURES}), actual
