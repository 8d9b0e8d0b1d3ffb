"""What a network would take in float32: its own layers in their order, 4 bytes an element."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from stages.packaging.program.arena import Item, align, place

if TYPE_CHECKING:
    from stages.kinds import Model
    from stages.nodes import TensorType

BYTES = 4


def arena_bytes(model: Model) -> int:
    """Return the bytes of an arena for a canonicalized model whose elements have 4 bytes each.

    Planned as a package's own is: every tensor is kept from the layer that makes it to the last
    one that reads it, inputs and outputs are among them, and reshapes name the same memory. Scratch
    and padding are left out, so it is the least that float32 would need with this order of layers.
    """
    items = _items(model)
    offsets = place(items)
    return max((offsets[item.key] + align(item.size) for item in items), default=0)


def _items(model: Model) -> list[Item]:
    from tvm import relax

    from stages.dialect.calls import tensor_types
    from stages.graph.bindings import bindings_of, outputs_of, variables_in
    from stages.graph.collecting import images_of, is_collect
    from stages.graph.composites import is_reshape

    main = model.module["main"]
    inputs = list(main.params[: int(main.attrs["num_input"])])
    root: dict[Any, Any] = {variable: variable for variable in inputs}
    uses: dict[Any, list[int]] = {variable: [-1] for variable in inputs}
    copies: dict[Any, int] = {}
    calls = 0
    for binding in bindings_of(main):
        value = binding.value
        read = [root[each] for each in variables_in(value) if each in root]
        is_view = isinstance(value, (relax.Var, relax.TupleGetItem)) or is_reshape(value)
        if (is_view or is_collect(value)) and read:
            root[binding.var] = read[0]
            if is_collect(value):
                copies[read[0]] = images_of(model)
                uses[read[0]].append(0)
            continue
        for each in read:
            uses[each].append(calls)
        root[binding.var] = binding.var
        uses[binding.var] = [calls]
        calls += 1
    for output in outputs_of(main):
        if output in root:
            uses[root[output]].append(calls)
    return [
        Item(
            ("buffer", str(variable.name)),
            BYTES
            * copies.get(variable, 1)
            * sum(_elements(kind) for kind in tensor_types(variable.ty)),
            min(at),
            max(at),
        )
        for variable, at in uses.items()
        if len(at) > 1 or variable not in inputs
    ]


def _elements(kind: TensorType) -> int:
    from stages.dialect.calls import shape_of

    return prod(shape_of(kind))
