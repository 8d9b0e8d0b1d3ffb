"""Reductions over the last axis of TE tensors, which every softmax is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te

from stages.dialect import let_bindings
from stages.dialect.calls import dtype_of, shape_of, tensor_type
from stages.nodes import Tensor, TensorType


def named(expression: Any) -> Any:
    """An expression whose values that are used several times have names; indices have none."""
    return let_bindings.shared(expression, in_indices=False)


def last_axis_type(types: Sequence[TensorType], accepted: Sequence[str], dtype: str) -> Any:
    """The type of a result that is shaped as data of one of the accepted types."""
    shape, found = shape_of(types[0]), dtype_of(types[0])
    if found not in accepted or not shape:
        raise ValueError(f"data of {found} {list(shape)}; {', '.join(accepted)} is expected")
    return tensor_type(shape, dtype)


def outer_shape(tensor: Tensor) -> tuple[int, ...]:
    """All extents but the last."""
    return tuple(int(extent) for extent in tensor.shape[:-1])


def reduced(data: Tensor, combine: Any, element: Any, name: str) -> Any:
    """A reduction over the last axis of `element(index)`, as a TE tensor of the leading axes."""
    k = te.reduce_axis((0, int(data.shape[-1])), name="k")
    return te.compute(
        outer_shape(data), lambda *i: combine(named(element((*i, k))), axis=k), name=name
    )
