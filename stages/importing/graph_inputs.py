"""Inputs of a graph: their static shapes, from what the file leaves open and the recipe states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from stages.errors import StageError
from stages.importing.limits import SHAPE_RULE, is_accepted_shape
from stages.importing.unsupported import NO_INPUT
from stages.options import ImportOptions

Shape = tuple[int, ...]
_HINT = "state it in the recipe's inputs"


@dataclass(frozen=True)
class GraphInput:
    """An input to feed.

    Extents that the file leaves open are None; where it binds no shape at all, `is_unbound` is set
    and `shape` is empty. `usual` is taken if the recipe states no shape; without it, an open batch
    is 1.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    usual: Shape | None = None
    is_unbound: bool = False


def input_shapes(
    inputs: Sequence[GraphInput], options: ImportOptions, accepts: Collection[str] = ()
) -> dict[str, Shape]:
    """The static shape of every input by its name.

    `accepts` lists the element types accepted; without it, whoever declares the inputs checks them.
    Raises StageError for a graph without inputs, a recipe that states an unknown input or a shape
    that contradicts the file's, and a shape that stays open or is too large.
    """
    names = [item.name for item in inputs]
    if not names:
        raise StageError(NO_INPUT)
    unknown = sorted(set(options.inputs) - set(names))
    if unknown:
        raise StageError(f"the model has no input '{unknown[0]}'; its inputs are {names}")
    for item in inputs:
        if accepts and item.dtype not in accepts:
            listed = ", ".join(accepts)
            raise StageError(f"input '{item.name}' is {item.dtype}; {listed} is accepted")
    return {item.name: _static_shape(item, options.inputs.get(item.name)) for item in inputs}


def _static_shape(item: GraphInput, wanted: Shape | None) -> Shape:
    shape = _chosen_shape(item, wanted)
    if not is_accepted_shape(shape):
        is_open = item.is_unbound or None in item.shape
        raise StageError(
            f"input '{item.name}' has the shape {list(shape)}; {SHAPE_RULE}",
            hint="state another in the recipe's inputs" if is_open else None,
        )
    return shape


def _chosen_shape(item: GraphInput, wanted: Shape | None) -> Shape:
    if wanted is not None:
        if not item.is_unbound and not _fits(wanted, item.shape):
            raise StageError(
                f"input '{item.name}' is given the shape {list(wanted)}, "
                f"but the file says {_shown(item.shape)}"
            )
        return wanted
    if item.usual is not None:
        return item.usual
    if item.is_unbound:
        raise StageError(f"the file does not tell the shape of input '{item.name}'", hint=_HINT)
    if None in item.shape[1:]:
        shown = _shown(item.shape)
        raise StageError(
            f"the file leaves the shape of input '{item.name}' open: {shown}", hint=_HINT
        )
    return tuple(1 if extent is None else extent for extent in item.shape)


def _fits(wanted: Shape, stated: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(stated) and all(
        extent in (None, chosen) for extent, chosen in zip(stated, wanted, strict=True)
    )


def _shown(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape) + "]"
