"""Compares an imported single-operator file with TensorFlow Lite's own reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.relax_te import expression
from stages.graph import interpret
from stages.graph.bindings import bindings_of, outputs_of
from stages.importing.tflite import convert_file
from stages.kinds import Model
from stages.options import ImportOptions
from tests.stages.dialect.test_legalize import FMA_TARGET, has_fma
from tests.stages.importing.tflite_models import run_reference

Array = np.ndarray[Any, Any]

TARGET = FMA_TARGET if has_fma() else "llvm"


def imported(source: bytes) -> Model:
    return convert_file(source, ImportOptions())


def fed(model: Model, inputs: tuple[Array, ...]) -> dict[str, Array]:
    main = model.module["main"]
    names = [str(parameter.name) for parameter in main.params[: int(main.attrs["num_input"])]]
    return dict(zip(names, inputs, strict=True))


def is_tensor(argument: Any) -> bool:
    """Whether a call's argument is a tensor or a tuple of tensors, not of bounds."""
    if isinstance(argument, relax.Tuple):
        return all(is_tensor(field) for field in argument.fields)
    return isinstance(argument, relax.Var)


def compiled_outputs(model: Model, feeds: dict[str, Array]) -> list[Array]:
    """What the expressions that go into packages compute, as one compiled function."""
    main = model.module["main"]
    values: dict[Any, Any] = {
        parameter: te.placeholder(
            shape_of(parameter.ty), str(storage_dtype(dtype_of(parameter.ty))), parameter.name
        )
        for parameter in main.params
    }

    def value(expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return [value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return value(expr.tuple_value)[expr.index]
        return values[expr]

    for binding in bindings_of(main):
        call = binding.value
        if isinstance(call, tvm.ir.Call):
            tensors = [value(argument) for argument in call.args if is_tensor(argument)]
            values[binding.var] = expression(call, tensors)
        else:
            values[binding.var] = value(call)
    results = [values[output] for output in outputs_of(main)]
    function = te.create_prim_func([*(values[p] for p in main.params), *results])
    buffers = [
        tvm.runtime.tensor(np.zeros([int(e) for e in result.shape], str(result.dtype)))
        for result in results
    ]
    read = [feeds.get(str(p.name), model.params.get(str(p.name))) for p in main.params]
    tvm.compile(function, target=TARGET)(*map(tvm.runtime.tensor, read), *buffers)
    return [buffer.numpy() for buffer in buffers]


def result_of(source: bytes, *inputs: Array, compiled: bool = True) -> Array:
    """The single output in NumPy, the same compiled."""
    model = imported(source)
    feeds = fed(model, inputs)
    (found,) = interpret.run(model, feeds).values()
    if compiled:
        (again,) = compiled_outputs(model, feeds)
        assert again.dtype == found.dtype
        assert np.array_equal(again, found), "compiled code differs from NumPy"
    return found


def compare(
    source: bytes, *inputs: Array, compiled: bool = True, kernels: str = "BUILTIN_REF"
) -> Array:
    """The import gives exactly what the reference kernels give."""
    (expected,) = run_reference(source, *inputs, kernels=kernels)
    found = result_of(source, *inputs, compiled=compiled)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.array_equal(found, expected), (
        f"{np.count_nonzero(found != expected)} of {found.size} differ, "
        f"by up to {np.abs(found.astype(np.float64) - expected).max()}"
    )
    return found


def compare_nearly(
    source: bytes,
    *inputs: Array,
    ulps: float,
    compiled: bool = True,
    kernels: str = "BUILTIN_REF",
) -> Array:
    """The import of a float operator comes within units in the last place of the largest result."""
    (expected,) = run_reference(source, *inputs, kernels=kernels)
    found = result_of(source, *inputs, compiled=compiled)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    unit = np.spacing(np.abs(expected).max())
    assert np.abs(found - expected).max() <= ulps * unit, np.abs(found - expected).max() / unit
    return found


def random_integers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
