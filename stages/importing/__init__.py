"""Importing: a model file becomes the Relax model that computes exactly the same.

`stages.importing.formats` lists the formats; each has a folder here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stages.dialect.calls import dtype_of, shape_of, tensor_types
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of, output_names, quantization_of
from stages.importing import closeness
from stages.importing.boundary_operators import boundary_operators
from stages.importing.formats import ONNX, format_of
from stages.importing.onnx.onnx_reader import read
from stages.importing.onnx.oracle import Oracle, evaluate
from stages.importing.samples import ELSEWHERE, Draw, draw, draw_stored
from stages.importing.starter import starter_recipe, takes_images
from stages.kinds import Golden, Model, Table
from stages.numerics.onnx_islands import islands_of
from stages.options import GoldenOptions, ImportOptions

__all__ = [
    "Oracle",
    "boundary_operators",
    "check",
    "describe",
    "evaluate",
    "executor",
    "golden",
    "inputs",
    "islands",
    "numerics",
    "output_tolerance",
    "read",
    "run",
    "signature",
    "starter_recipe",
    "takes_images",
]

Execute = Callable[[Mapping[str, Any]], Mapping[str, Any]]

STORED = re.compile(r"bool|uint1|u?int(2|3|4|8|16|32|64)|float(32|64)")
"""Types a tensor of an imported model may have."""


def run(*, source: bytes, options: ImportOptions) -> Model:
    """The unfolded source graph as a Relax model, in the source's own types and layout.

    `main` is named and laid out as the source: inputs by tensor name, each operator's variable
    by node name (the layer name of recipes and errors). Its attributes say `output_names`, the
    `numerics` to keep to, `finn_datatypes`, the annotated datatypes of source tensors, and
    `quantization`, the real meaning of stored inputs and outputs.
    """
    model: Model = format_of(source).load().convert_file(source, options)
    check(model)
    return model


def describe(*, source: bytes, options: ImportOptions | None = None) -> Table:
    """Everything `doit import` shows of a model file; what is unsupported is listed, not raised.

    Raises StageError only for bytes that are no valid file of their format at all.
    """
    table: Table = format_of(source).load().describe_file(source, options or ImportOptions())
    return table


def check(model: Model) -> None:
    """Raise AssertionError unless `main` holds its tensors as parameters alone, in stored types.

    A QONNX model is float32 throughout: its quantizers are operators on floats.
    """
    main = model.module["main"]
    count = int(main.attrs["num_input"])
    assert [parameter.name for parameter in main.params[count:]] == list(model.params)
    for parameter, value in zip(main.params[count:], model.params.values(), strict=True):
        assert shape_of(parameter.ty) == value.shape, parameter.name
    is_float = main.attrs["numerics"] == "qonnx"
    for variable in (*main.params, *(binding.var for binding in bindings_of(main))):
        for kind in tensor_types(variable.ty):
            dtype = dtype_of(kind)
            is_accepted = dtype == "float32" if is_float else bool(STORED.fullmatch(dtype))
            assert is_accepted, f"{variable.name} is {dtype}"
    names = {*(parameter.name for parameter in main.params[:count]), *output_names(model)}
    assert quantization_of(model).keys() <= names


def numerics(model: Model) -> str:
    """Whose rounding rules the model keeps: tflite, onnx, torch, mxnet or qonnx."""
    return str(model.module["main"].attrs["numerics"])


def islands(model: Model) -> list[Table]:
    """What the default session of ONNX Runtime fuses, kind by kind, with what a package gives.

    A kind is a table of `runtime` (what the session makes of it), `gives` and `layers`.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for island in islands_of(model):
        kinds.setdefault((island.runtime, island.gives), []).append(island.layer)
    return [
        {"runtime": runtime, "gives": gives, "layers": layers}
        for (runtime, gives), layers in sorted(kinds.items())
    ]


def output_tolerance(*, source: bytes, model: Model, options: GoldenOptions) -> float | None:
    """By how much outputs may differ on the golden inputs as last bits of floats move levels.

    None where nothing is close instead of equal, or the model is too large to try that.
    """
    size = sum(int(value.size) for value in model.params.values())
    if size > closeness.MOST_PARAMETERS or not closeness.inexact_operands(model):
        return None
    samples = inputs(source=source, model=model, seed=options.seed, count=options.samples)
    return max(closeness.output_tolerances(model, samples).values())


def signature(model: Model) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """The shape of each input by name, and the names of the outputs, in order."""
    shapes = {item.name: shape_of(item.ty) for item in _inputs(model)}
    return shapes, tuple(output_names(model))


def executor(
    *, source: bytes, options: ImportOptions | None = None, also: tuple[str, ...] = ()
) -> Execute:
    """What computes the source graph as it came, from inputs by name, in the graph's own shapes.

    It gives the graph's outputs and, of a QONNX graph, the tensors named in `also`. A pre-quantized
    model is executed as imported, in NumPy, operator by operator: that this is what its own
    framework computes is what the importer's tests show. A QONNX graph is executed by the oracle.
    """
    model = run(source=source, options=options or ImportOptions())
    return _executor(source, model, also)


def _executor(source: bytes, model: Model, also: tuple[str, ...]) -> Execute:
    if numerics(model) == "qonnx":
        return Oracle(read(source), also=also)
    shapes, _ = signature(model)

    def execute(sample: Mapping[str, Any]) -> Mapping[str, Any]:
        found = {name: np.shape(value) for name, value in sample.items()}
        if found != shapes:
            raise StageError(f"the graph takes the inputs {shapes}, not {found}")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return interpret.run(model, sample)

    return execute


def _inputs(model: Model) -> list[Any]:
    main = model.module["main"]
    return list(main.params[: int(main.attrs["num_input"])])


def golden(*, source: bytes, model: Model, options: GoldenOptions) -> Golden:
    """Seeded inputs, and what the source graph as it came computes from them (see `executor`).

    A sample has the graph's own shapes, so that inputs and outputs have the shape
    [samples, *shape in the graph]. `model` is the imported source, or what calibrating made of it:
    that is then executed itself, since the source knows nothing of its quantizers.
    """
    names = output_names(model)
    execute = _executor(source, model, tuple(names))
    for otherwise in (None, *ELSEWHERE):
        samples = _samples(source, model, options.seed, options.samples, otherwise)
        results = [execute(sample) for sample in samples]
        infinite = [n for n in names if not all(np.isfinite(r[n]).all() for r in results)]
        if not infinite:
            break
    else:
        raise StageError(
            f"output '{infinite[0]}' is infinite or NaN on the golden inputs, wherever between -1 "
            "and 2 those of floats are drawn",
            hint="a build compares finite outputs; see whether the network is meant to give others",
        )
    return Golden(
        inputs={name: np.stack([sample[name] for sample in samples]) for name in samples[0]},
        outputs={name: np.stack([result[name] for result in results]) for name in names},
    )


def inputs(*, source: bytes, model: Model, seed: int, count: int) -> list[dict[str, Any]]:
    """Seeded inputs in the range the network was made for: `count` samples, arrays by name."""
    return _samples(source, model, seed, count)


def _samples(
    source: bytes, model: Model, seed: int, count: int, otherwise: Draw | None = None
) -> list[dict[str, Any]]:
    draws = {
        item.name: (_draw(source, model, item, otherwise), shape_of(item.ty))
        for item in _inputs(model)
    }
    rng = np.random.default_rng(seed)
    return [
        {name: np.asarray(values(rng, shape)) for name, (values, shape) in draws.items()}
        for _ in range(count)
    ]


def _draw(source: bytes, model: Model, parameter: Any, otherwise: Draw | None) -> Draw:
    if format_of(source) is ONNX and dtype_of(parameter.ty) == "float32":
        return draw(read(source), parameter.name, otherwise)
    return draw_stored(model, parameter, otherwise)
