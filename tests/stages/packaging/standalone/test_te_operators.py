"""Every operator of the dialect, and of Relax that has a meaning, as a package's kernel."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from stages.dialect.calls import dtype_of, shape_of
from stages.dialect.names import PREFIX
from stages.dialect.operators import OPERATORS
from stages.graph.bindings import bindings_of, outputs_of, remap
from stages.graph.builder import ModelBuilder
from stages.kinds import Model
from tests.stages.dialect.examples import ALL
from tests.stages.dialect.test_relax_numpy import CASES, network
from tests.stages.packaging.programs import assert_exact
from tests.stages.packaging.sized_rows import NARROW, SINGLE
from tests.targets import AARCH64, AVX2, skip_unless_runnable

HARDWARE = AVX2 if platform.machine() == "x86_64" else AARCH64


def is_package(name: str) -> bool:
    """Whether an example has an expression, and an input and an output that C has types for.

    What collects the images of a batch is no kernel.
    """
    main = ALL[name].model().module["main"]
    kinds = (main.params[0].ty, outputs_of(main)[0].ty)
    has_types = not any(NARROW.fullmatch(dtype_of(kind)) for kind in kinds)
    is_kernel = OPERATORS[PREFIX + name].legalize is not None and name != "collect"
    return has_types and is_kernel


COMPILED = [name for name in ALL if name not in SINGLE and is_package(name)]
"""Those that `test_sizes` does not compile as they stand here."""


def as_te_composite(model: Model) -> Model:
    """The same model as an importer of integer networks gives it."""
    main, builder = model.module["main"], ModelBuilder()
    count = int(main.attrs["num_input"])
    mapping = {
        p: builder.input(p.name, shape_of(p.ty), dtype_of(p.ty)) for p in main.params[:count]
    }
    for parameter in main.params[count:]:
        value = model.params[parameter.name]
        mapping[parameter] = builder.tensor(parameter.name, value, dtype_of(parameter.ty))
    outputs = outputs_of(main)
    for binding in bindings_of(main):
        value = remap(binding.value, mapping)
        is_output = binding.var in outputs
        mapping[binding.var] = value if is_output else builder.emit(value, binding.var.name)
    return builder.model([mapping[o] for o in outputs], ["y"], attrs={"numerics": "onnx"})


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_operators_of_the_dialect(name: str) -> None:
    skip_unless_runnable(HARDWARE)
    example = ALL[name]
    assert_exact(as_te_composite(example.model()), {"a0": example.operands[0][0]}, HARDWARE)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_operators_of_relax(name: str) -> None:
    skip_unless_runnable(HARDWARE)
    x, w, build = CASES[name]
    assert_exact(as_te_composite(network(x, w, build)), {"x": np.ascontiguousarray(x)}, HARDWARE)
