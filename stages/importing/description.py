"""What `doit import` shows of a model file: one table, whatever the format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from stages.errors import StageError
from stages.importing.importer import Imported
from stages.importing.unsupported import Unsupported
from stages.kinds import Table


def attempted(attempt: Callable[[], Imported]) -> Imported:
    """What importing gives; an error in what the recipe states of inputs is listed, not raised."""
    try:
        return attempt()
    except StageError as error:
        return Imported(None, unsupported=(Unsupported("input", str(error), ()),))


def shown_outputs(names: Iterable[str], imported: Imported) -> list[Table]:
    """Outputs by name, with the shapes of those that could be converted."""
    shapes = imported.shapes
    return [
        {"name": name, "shape": list(shapes[name]) if name in shapes else None} for name in names
    ]


def description(
    *,
    form: str,
    source: bytes,
    opset: int,
    producer: str,
    inputs: Sequence[Table],
    outputs: Sequence[Table],
    operators: Iterable[str],
    parameters: Iterable[int],
    layers: Sequence[Table],
    unsupported: Iterable[Unsupported],
    left_to_caller: Iterable[tuple[str, str]] = (),
) -> Table:
    """The table: operators counted by name, `parameters` summed, everything unsupported listed.

    `left_to_caller` holds operator and layer of last nodes that a package does not compute.
    """
    return {
        "format": form,
        "bytes": len(source),
        "opset": opset,
        "producer": producer,
        "inputs": list(inputs),
        "outputs": list(outputs),
        "left_to_caller": [{"op": op, "layer": layer} for op, layer in left_to_caller],
        "operators": dict(sorted(Counter(operators).items())),
        "parameters": sum(parameters),
        "layers": list(layers),
        "unsupported": [
            {"op": item.op, "why": item.why, "layers": list(item.layers)} for item in unsupported
        ],
    }
