"""Products of two computed matrices: kernels of weights that are packed while a package runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of, calls_of
from stages.graph.builder import ModelBuilder
from stages.graph.composites import MATRICES
from stages.kinds import Model
from stages.layer_options import LayerAlgorithm
from stages.numerics import qlinear
from stages.numerics.quantization import Quantization
from stages.options import LegalizeOptions, QuantizeOptions
from stages.packaging.sums.window_reads import Windows
from stages.quantizing import run
from tests.stages.packaging.programs import assert_exact, pack
from tests.stages.packaging.sums.convolution_nets import convolutions, is_joined
from tests.targets import (
    AARCH64,
    AMX,
    ARMV7,
    AVX2,
    AVX512BW,
    AVX512VNNI,
    DOTPROD,
    EVERY,
    I8MM,
    SSE2,
    VNNI_256,
    skip_unless_runnable,
)

op = relax.op
SIZES = [(9, 64, 33), (5, 13, 40), (33, 37, 64), (1, 8, 8), (3, 70, 16)]
"""Rows, depth and columns: whole words and blocks, and parts of them."""
OUT = Quantization.of_type(0.5, 3, "int8")


def product(
    size: tuple[int, int, int],
    dtypes: tuple[str, str] = ("int8", "int8"),
    zero_points: tuple[int, int] = (-5, 7),
    order: tuple[int, ...] = (0, 2, 3, 1),
    is_rescaled: bool = True,
) -> Model:
    """Heads of one matrix by those of another, which comes in another order of axes."""
    rows, depth, columns = size
    builder = ModelBuilder()
    shape = (2, 3, depth, columns)
    a = builder.input("a", (2, 3, rows, depth), dtypes[0])
    b = builder.input("b", tuple(shape[axis] for axis in np.argsort(order)), dtypes[1])
    right = builder.emit(op.permute_dims(b, list(order)), "turned")
    sums = qlinear.product(
        builder,
        "product",
        a,
        right,
        None,
        data_zero_point=zero_points[0],
        weight_zero_point=zero_points[1],
    )
    factor = np.asarray(1e-3, np.float32)
    result = qlinear.rescaled(builder, "product", sums, factor, OUT) if is_rescaled else sums
    return builder.model([result], ["y"], attrs={"numerics": "onnx"})


def bytes_for(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of any bytes."""
    main, rng = model.module["main"], np.random.default_rng(0)
    found = {}
    for parameter in main.params[: int(main.attrs["num_input"])]:
        limits = np.iinfo(dtype_of(parameter.ty))
        values = rng.integers(limits.min, limits.max + 1, shape_of(parameter.ty))
        found[str(parameter.name)] = values.astype(limits.dtype)
    return found


def is_batched(model: Model) -> bool:
    calls = [binding.value for binding in bindings_of(model.module["main"])]
    return any(
        is_op(c, names.QNN_BATCH_DENSE) or is_op(c, names.QNN_FLOAT_BATCH_DENSE) for c in calls
    )


@pytest.mark.parametrize("size", SIZES)
@EVERY
def test_every_processor_gives_the_same_bits(
    size: tuple[int, int, int], hardware: Hardware
) -> None:
    skip_unless_runnable(hardware)
    model = product(size)
    packed, _ = assert_exact(model, bytes_for(model), hardware, tasks=(1, 3))
    assert any(f.attrs["composite"] == MATRICES for _, f in calls_of(packed))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 3, 1), (1, 0, 2, 3)])
@pytest.mark.parametrize(
    "hardware",
    (AVX2, VNNI_256, AVX512VNNI, AMX, AARCH64, DOTPROD, I8MM),
    ids=lambda item: item.name,
)
def test_matrices_are_packed_from_any_order_of_axes(
    order: tuple[int, ...], hardware: Hardware
) -> None:
    skip_unless_runnable(hardware)
    for size in ((6, 64, 48), (3, 21, 24)):
        model = product(size, order=order)
        assert_exact(model, bytes_for(model), hardware, tasks=(2,))


@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize("zero_points", [(0, 0), (128, 128), (17, 0), (0, 100), (-128, 3)])
def test_zero_points_of_both_are_taken_off(
    dtypes: tuple[str, str], zero_points: tuple[int, int]
) -> None:
    model = product((4, 19, 12), dtypes, zero_points, is_rescaled=False)
    assert is_batched(run(model=model))
    hardware = AVX2
    skip_unless_runnable(hardware)
    assert_exact(model, bytes_for(model), hardware, tasks=(1,))


def test_the_largest_sums_are_exact() -> None:
    """Bytes at their limits, of which kernels of pairs would saturate."""
    skip_unless_runnable(AVX2)
    model = product((2, 300, 32), ("uint8", "int8"), (0, 0), is_rescaled=False)
    for low in (-128, 127):
        inputs = {
            "a": np.full((2, 3, 2, 300), 255, np.uint8),
            "b": np.full((2, 32, 3, 300), low, np.int8),
        }
        assert_exact(model, inputs, AVX2, tasks=(1,))


def floats(size: tuple[int, int, int], order: tuple[int, ...] = (0, 1, 3, 2)) -> Model:
    """Heads of floats, scaled; whole numbers, whose sums are exact in any order."""
    rows, depth, columns = size
    builder = ModelBuilder()
    shape = (2, 3, depth, columns)
    a = builder.input("a", (2, 3, rows, depth), "int8")
    b = builder.input("b", tuple(shape[axis] for axis in np.argsort(order)), "int8")
    left = builder.emit(op.astype(a, "float32"), "left")
    right = builder.emit(
        op.permute_dims(builder.emit(op.astype(b, "float32"), "r"), list(order)), "t"
    )
    half = builder.tensor("half", np.asarray(0.5, np.float32))
    result = builder.emit(op.multiply(builder.emit(op.matmul(left, right), "product"), half), "y")
    return builder.model([result], ["y"], attrs={"numerics": "onnx"})


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2)])
@pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda item: item.name
)
def test_floats(order: tuple[int, ...], hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    for size in ((9, 16, 33), (3, 11, 8)):
        model = floats(size, order)
        assert is_batched(run(model=model))
        assert_exact(model, bytes_for(model), hardware, tasks=(1, 2))


def test_what_is_quantized_later_is_summed_as_it_was() -> None:
    """An integer could depend on the order of sums."""
    builder = ModelBuilder()
    a = builder.input("a", (1, 2, 4, 9), "float32")
    sums = builder.emit(op.matmul(a, builder.emit(op.permute_dims(a, [0, 1, 3, 2]), "t")), "sums")
    wide = builder.emit(op.astype(sums, "int32"), "wide")
    model = builder.model([wide], ["y"], attrs={"numerics": "onnx"})
    assert not is_batched(run(model=model))


def test_products_stay_float32_among_halves() -> None:
    builder = ModelBuilder()
    x = builder.input("x", (12, 16), "float32")
    weight = builder.tensor("w", np.ones((16, 16), np.float32))
    y = builder.emit(op.matmul(x, weight), "dense")
    z = builder.emit(op.matmul(y, builder.emit(op.permute_dims(y, [1, 0]), "t")), "z")
    model = builder.model([z], ["z"], attrs={"numerics": "onnx"})
    found = run(model=model, options=QuantizeOptions(floats="bfloat16"))
    kinds = {
        str(b.value.op.name): dtype_of(b.value.args[0].ty)
        for b in bindings_of(found.module["main"])
        if is_op(b.value, names.QNN_FLOAT_BATCH_DENSE) or is_op(b.value, "relax.qnn.float_dense")
    }
    assert kinds == {names.QNN_FLOAT_BATCH_DENSE: "float32", "relax.qnn.float_dense": "bfloat16"}


def moving_zero_point(weight: np.ndarray[Any, Any] | None, dtype: str = "uint8") -> Model:
    """A product of bytes whose zero point is computed, as dynamic quantization has, with weights or
    with a computed matrix."""
    builder = ModelBuilder()
    x = builder.input("x", (2, 5, 24), dtype)
    largest = builder.emit(op.max(x, [0, 1, 2]), "largest")
    zero_point = builder.emit(op.astype(largest, "int32"), "point")
    moved = builder.emit(
        op.subtract(builder.emit(op.astype(x, "int32"), "wide"), zero_point), "moved"
    )
    if weight is None:
        right = builder.emit(op.astype(builder.input("b", (2, 24, 40), dtype), "int32"), "right")
    else:
        right = builder.tensor("weight", weight.astype(np.int32))
    return builder.model(
        [builder.emit(op.matmul(moved, right), "y")], ["y"], attrs={"numerics": "onnx"}
    )


@pytest.mark.parametrize("limit", [127, 255])
def test_zero_points_may_be_computed(limit: int) -> None:
    skip_unless_runnable(AVX2)
    weight = np.random.default_rng(0).integers(-limit, limit + 1, (24, 40))
    model = moving_zero_point(weight)
    found = run(model=model)
    calls = [binding.value for binding in bindings_of(found.module["main"])]
    assert any(is_op(call, "relax.qnn.dense") for call in calls)
    assert_exact(model, bytes_for(model), AVX2, tasks=(1, 2))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_zero_points_of_computed_matrices_may_be_computed(dtype: str) -> None:
    skip_unless_runnable(AVX2)
    model = moving_zero_point(None, dtype)
    assert is_batched(run(model=model))
    assert_exact(model, bytes_for(model), AVX2, tasks=(1, 2))


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3, 4, 9), (1, 3, 9, 16)), ((4, 9), (9, 5)), ((9,), (9, 16))]
)
def test_others_stay(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Matrices that serve several images, few columns, and vectors."""
    builder = ModelBuilder()
    wide = [
        builder.emit(op.astype(builder.input(name, shape, "int8"), "int32"), f"{name}.wide")
        for name, shape in (("a", left), ("b", right))
    ]
    model = builder.model([builder.emit(op.matmul(*wide), "y")], ["y"], attrs={"numerics": "onnx"})
    found = run(model=model)
    assert not is_batched(found)
    inputs = bytes_for(model)
    given, expected = (interpret.run(each, inputs)["y"] for each in (found, model))
    np.testing.assert_array_equal(given, expected)


def test_rows_of_two_images_are_not_joined() -> None:
    made = convolutions(pack(product((3, 64, 32)), AVX512VNNI), AVX512VNNI)
    assert made and not any(map(is_joined, made))
    assert all(isinstance(one.reads, Windows) and one.reads.has_computed_weights for one in made)


def test_tiles_get_whole_steps() -> None:
    """Where a kernel takes 64 bytes at a time, what is behind the last one is 0."""
    made = convolutions(pack(product((40, 70, 64)), AMX), AMX)
    assert [one.sums.uses_tiles for one in made] == [True]


@pytest.mark.parametrize(
    "model", [product((9, 16, 33)), floats((9, 16, 33))], ids=["bytes", "floats"]
)
def test_a_recipe_may_name_the_algorithm(model: Model) -> None:
    assert pack(
        model, AVX2, LegalizeOptions(layers=(LayerAlgorithm(match="product", algorithm="mac8"),))
    )
    wish = LegalizeOptions(layers=(LayerAlgorithm(match="product", algorithm="winograd"),))
    with pytest.raises(
        StageError, match=r"^product: cannot choose winograd: it transforms windows of 3x3"
    ):
        pack(model, AVX2, wish)
