"""Importing: an ONNX or QONNX file becomes the Relax model that computes exactly the same."""

from __future__ import annotations

import numpy as np

from stages.errors import StageError
from stages.importing.converters import convert, importable_outputs, input_shapes
from stages.importing.describing import describe, starter_recipe
from stages.importing.onnx_reader import read
from stages.importing.oracle import Oracle, evaluate
from stages.importing.samples import draw
from stages.kinds import Golden, Model
from stages.options import GoldenOptions, ImportOptions
from stages.qnn.builder import bindings_of
from stages.qnn.registry import dtype_of, shape_of

__all__ = ["Oracle", "check", "describe", "evaluate", "golden", "read", "run", "starter_recipe"]


def run(*, source: bytes, options: ImportOptions) -> Model:
    """The unfolded source graph as a Relax model: float32, in the source's own layout.

    `main` is named and laid out as the source: inputs by tensor name, each operator's variable
    by node name (the layer name of recipes and errors). Its attributes say `output_names`, the
    `numerics` to keep to and `finn_datatypes`, the annotated datatypes of source tensors.
    """
    model = convert(read(source), options)
    check(model)
    return model


def check(model: Model) -> None:
    """Raise AssertionError unless `main` is float32 and holds its tensors as parameters alone."""
    main = model.module["main"]
    count = int(main.attrs["num_input"])
    assert [parameter.name for parameter in main.params[count:]] == list(model.params)
    for parameter, value in zip(main.params[count:], model.params.values(), strict=True):
        assert shape_of(parameter.ty) == value.shape, parameter.name
    for variable in (*main.params, *(binding.var for binding in bindings_of(main))):
        assert dtype_of(variable.ty) == "float32", variable.name


def golden(
    *, source: bytes, options: GoldenOptions, imports: ImportOptions | None = None
) -> Golden:
    """Seeded inputs, and what the source graph as it came computes from them.

    A sample has the graph's own shapes, so that inputs and outputs have the shape
    [samples, *shape in the graph]. `imports` gives the shapes that the file leaves open.
    """
    graph = read(source)
    options_of_import = imports or ImportOptions()
    convert(graph, options_of_import)  # a graph that cannot be built, or is too large, ends here
    shapes = input_shapes(graph, options_of_import)
    outputs, _ = importable_outputs(graph)
    execute = Oracle(graph, also=outputs)
    rng = np.random.default_rng(options.seed)
    draws = {name: draw(graph, name) for name in shapes}
    samples = [
        {name: draws[name](rng, shape) for name, shape in shapes.items()}
        for _ in range(options.samples)
    ]
    results = [execute(sample) for sample in samples]
    for name in outputs:
        if not all(np.isfinite(result[name]).all() for result in results):
            raise StageError(f"output '{name}' is infinite or NaN on the golden inputs")
    return Golden(
        inputs={name: np.stack([sample[name] for sample in samples]) for name in shapes},
        outputs={name: np.stack([result[name] for result in results]) for name in outputs},
    )
