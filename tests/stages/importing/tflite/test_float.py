"""Operators of floats and of blocks of pixels against TensorFlow Lite's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import StageError
from tests.stages.importing.tflite.cases import compare, compare_nearly, imported, random_integers
from tests.stages.importing.tflite_models import Tensor, constant, run_reference, single

F = "float32"
WINDOWS = st.fixed_dictionaries(
    {
        "padding": st.integers(0, 1),
        "stride_h": st.integers(1, 2),
        "stride_w": st.integers(1, 3),
        "fused_activation_function": st.integers(0, 3),
    }
)


def normal(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def with_result(op: str, inputs: list[Any], x: Any, table: str, **options: Any) -> bytes:
    """A file whose output has the shape that the kernel gives it."""
    draft = single(op, inputs, [Tensor((), F)], table, **options)
    (result,) = run_reference(draft, x)
    return single(op, inputs, [Tensor(result.shape, F)], table, **options)


@settings(max_examples=12)
@given(
    options=WINDOWS, dilation=st.integers(1, 2), groups=st.sampled_from([1, 2]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)), seed=st.integers(0, 99),
)  # fmt: skip
def test_convolutions(options: Any, dilation: int, groups: int, kernel: Any, seed: int) -> None:
    x = normal((2, 7, 8, 4), seed)
    weight = constant(normal((6, *kernel, 4 // groups), seed + 1))
    inputs = [Tensor(x.shape, F), weight, constant(normal((6,), seed + 2))]
    factors = {"dilation_h_factor": dilation, "dilation_w_factor": 3 - dilation}
    model = with_result("CONV_2D", inputs, x, "Conv2DOptions", **options, **factors)
    is_clipped_to_one = options["fused_activation_function"] == 2  # of sums up to ten times that
    compare_nearly(model, x, ulps=64 if is_clipped_to_one else 8, compiled=seed % 4 == 0)


@settings(max_examples=8)
@given(options=WINDOWS, multiplier=st.integers(1, 3), seed=st.integers(0, 99))
def test_depthwise_convolutions(options: Any, multiplier: int, seed: int) -> None:
    x = normal((1, 7, 8, 4), seed)
    weight = constant(normal((1, 3, 2, 4 * multiplier), seed + 1))
    inputs = [Tensor(x.shape, F), weight, constant(normal((4 * multiplier,), seed + 2))]
    model = with_result(
        "DEPTHWISE_CONV_2D", inputs, x, "DepthwiseConv2DOptions", **options,
        depth_multiplier=multiplier,
    )  # fmt: skip
    compare_nearly(model, x, ulps=8, compiled=seed % 4 == 0)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_fully_connected(keep: bool, bias: bool) -> None:
    x = normal((2, 3, 20))
    addend = constant(normal((7,), 2)) if bias else None
    inputs = [Tensor(x.shape, F), constant(normal((7, 20), 1)), addend]
    options = {"keep_num_dims": keep, "fused_activation_function": int(bias)}
    model = with_result("FULLY_CONNECTED", inputs, x, "FullyConnectedOptions", **options)
    compare_nearly(model, x, ulps=8)


@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@settings(max_examples=6)
@given(options=WINDOWS, seed=st.integers(0, 99))
def test_pools(op: str, options: Any, seed: int) -> None:
    x = normal((1, 7, 8, 3), seed)
    size = {"filter_height": 3, "filter_width": 2}
    model = with_result(op, [Tensor(x.shape, F)], x, "Pool2DOptions", **options, **size)
    compare_nearly(model, x, ulps=4, compiled=seed % 4 == 0)


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV"])
@pytest.mark.parametrize("activation", [0, 1, 2, 3])
def test_arithmetic_of_two(op: str, activation: int) -> None:
    a, b = normal((2, 3, 4)), normal((3, 1), 1)
    tensors = [Tensor(a.shape, F), Tensor(b.shape, F)]
    table = f"{op.capitalize()}Options"
    result = Tensor(a.shape, F)
    compare(single(op, tensors, [result], table, fused_activation_function=activation), a, b)


UNARY = {
    "ABS": 0, "NEG": 0, "FLOOR": 0, "CEIL": 0, "ROUND": 0, "RELU": 0, "RELU6": 0,
    "RELU_N1_TO_1": 0, "HARD_SWISH": 0, "EXP": 1, "SIN": 1, "COS": 1, "TANH": 2, "LOGISTIC": 2,
    "ELU": 2, "SQUARE": 0, "GELU": 8,
}  # fmt: skip
"""Operator → units in the last place of the largest result by which it may differ."""


OPTIMIZED = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
WITHOUT = {"CEIL", "ROUND", "ELU"}
"""Operators that have no reference kernel."""


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_operand(op: str) -> None:
    x = np.append(normal((30,)) * 4, np.arange(-4, 5, 0.5)).astype(np.float32).reshape(1, -1)
    model = single(op, [Tensor(x.shape, F)], [Tensor(x.shape, F)])
    compare_nearly(model, x, ulps=UNARY[op], kernels=OPTIMIZED if op in WITHOUT else "BUILTIN_REF")


@pytest.mark.parametrize(("op", "ulps"), [("LOG", 1), ("SQRT", 0), ("RSQRT", 0)])
def test_functions_of_positive_operands(op: str, ulps: int) -> None:
    x = np.exp(normal((3, 40)) * 4)
    model = single(op, [Tensor(x.shape, F)], [Tensor(x.shape, F)])
    compare_nearly(model, x, ulps=ulps)


def test_slopes_of_negative_values() -> None:
    x, alpha = normal((2, 3, 4)), normal((1, 1, 4), 1)
    tensors = [Tensor(x.shape, F), constant(alpha)]
    compare(single("PRELU", tensors, [Tensor(x.shape, F)]), x)
    table = "LeakyReluOptions"
    compare(single("LEAKY_RELU", tensors[:1], [Tensor(x.shape, F)], table, alpha=0.3), x)


@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True)])
def test_batch_matmul(adjoint: tuple[bool, bool]) -> None:
    a, b = normal((2, 3, 4, 5)), normal((1, 3, 5, 6), 1)
    a, b = (
        v.swapaxes(-1, -2).copy() if turn else v for v, turn in zip((a, b), adjoint, strict=True)
    )
    model = single(
        "BATCH_MATMUL", [Tensor(a.shape, F), Tensor(b.shape, F)], [Tensor((2, 3, 4, 6), F)],
        "BatchMatMulOptions", adj_x=adjoint[0], adj_y=adjoint[1],
    )  # fmt: skip
    compare_nearly(model, a, b, ulps=4)


def test_l2_normalization() -> None:
    x = normal((2, 3, 9))
    model = single("L2_NORMALIZATION", [Tensor(x.shape, F)], [Tensor(x.shape, F)], "L2NormOptions")
    compare_nearly(model, x, ulps=1)


def test_blocks_of_pixels() -> None:
    scale = {"scale": 0.1, "zero_point": 3}
    for op, shape, result in (
        ("DEPTH_TO_SPACE", (2, 3, 2, 12), (2, 6, 4, 3)),
        ("SPACE_TO_DEPTH", (2, 6, 4, 3), (2, 3, 2, 12)),
    ):
        table = "DepthToSpaceOptions" if op[0] == "D" else "SpaceToDepthOptions"
        tensors = Tensor(shape, "int8", scale=0.1), Tensor(result, "int8", scale=0.1)
        model = single(op, [tensors[0]], [tensors[1]], table, block_size=2)
        compare(model, random_integers("int8", shape))
    data = Tensor((2, 4, 5, 3), "int8", **scale)  # type: ignore[arg-type]
    padded = Tensor((8, 3, 3, 3), "int8", **scale)  # type: ignore[arg-type]
    blocks = [constant([2, 2], "int32"), constant([[1, 1], [0, 1]], "int32")]
    x = random_integers("int8", (2, 4, 5, 3))
    found = compare(single("SPACE_TO_BATCH_ND", [data, *blocks], [padded]), x)
    back = compare(single("BATCH_TO_SPACE_ND", [padded, *blocks], [data]), found)
    assert np.array_equal(back, x)


def test_reversed_broadcast_and_gathered() -> None:
    x = random_integers("int32", (3, 4, 2))
    data = Tensor(x.shape, "int32")
    compare(single("REVERSE_V2", [data, constant([1], "int32")], [Tensor(x.shape, "int32")]), x)
    shape = constant([5, 3, 4, 2], "int32")
    compare(
        single("BROADCAST_TO", [data, shape], [Tensor((5, 3, 4, 2), "int32")], version=3),
        x,
        kernels=OPTIMIZED,
    )
    lengths = constant([2, 0, 4], "int32")
    compare(
        single(
            "REVERSE_SEQUENCE", [data, lengths], [Tensor(x.shape, "int32")],
            "ReverseSequenceOptions", seq_dim=1, batch_dim=0,
        ), x,
    )  # fmt: skip
    widths = constant([[0, 0], [2, 3], [1, 0]], "int32")
    padded = Tensor((3, 9, 3), "int32")
    compare(single("MIRROR_PAD", [data, widths], [padded], "MirrorPadOptions", mode=0), x)
    places = constant([[0, 1], [2, 3], [1, 1]], "int32")
    compare(single("GATHER_ND", [data, places], [Tensor((3, 2), "int32")]), x)


def narrow(shape: tuple[int, ...], seed: int) -> Any:
    """Weights as converters write them: LiteRT's x86 kernels go wrong over -128."""
    return np.maximum(random_integers("int8", shape, seed), -127)


@settings(max_examples=12)
@given(options=WINDOWS, scale=st.floats(0.01, 0.3), seed=st.integers(0, 99))
def test_convolutions_of_floats_with_int8_weights(options: Any, scale: float, seed: int) -> None:
    x = normal((3, 6, 7, 4), seed) * np.float32(seed + 1)
    x[0] *= 0
    weight = constant(narrow((5, 3, 2, 4), seed), scale=scale)
    inputs = [Tensor(x.shape, F), weight, constant(normal((5,), seed))]
    compare(
        with_result("CONV_2D", inputs, x, "Conv2DOptions", **options), x, compiled=seed % 4 == 0
    )


@pytest.mark.parametrize("keep", [False, True])
def test_fully_connected_of_floats_with_int8_weights(keep: bool) -> None:
    x = normal((2, 3, 20)) * 30
    x[1, 1] = 0
    weight = constant(narrow((7, 20), 0), scale=0.02)
    inputs = [Tensor(x.shape, F), weight, constant(normal((7,), 2))]
    options = {"keep_num_dims": keep, "fused_activation_function": 1}
    compare(with_result("FULLY_CONNECTED", inputs, x, "FullyConnectedOptions", **options), x)


@pytest.mark.parametrize("depthwise", [False, True])
@settings(max_examples=12)
@given(options=WINDOWS, shift=st.sampled_from([-2.0, 0.0, 1.0, 9.0]), seed=st.integers(0, 99))
def test_convolutions_of_floats_with_a_scale_a_channel(
    depthwise: bool, options: Any, shift: float, seed: int
) -> None:
    x = normal((3, 6, 7, 4), seed) * np.float32(seed + 1) + np.float32(shift * seed)
    x[0] *= 0
    shape, axis = ((1, 3, 2, 8), 3) if depthwise else ((8, 3, 2, 4), 0)
    scales = np.random.default_rng(seed).uniform(0.01, 0.2, 8).tolist()
    weight = constant(narrow(shape, seed), scale=scales, axis=axis)
    inputs = [Tensor(x.shape, F), weight, constant(normal((8,), seed))]
    op, table = "CONV_2D", "Conv2DOptions"
    if depthwise:
        op, table, options = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", dict(options)
        options["depth_multiplier"] = 2
    compare(with_result(op, inputs, x, table, **options), x, compiled=seed % 8 == 0)


def test_float_data_and_weights_along_another_axis_are_refused() -> None:
    weight = constant(np.ones((2, 3, 3, 2)), "int8", scale=[0.1, 0.2], axis=3)
    model = single(
        "CONV_2D", [Tensor((1, 5, 5, 2), F), weight, None], [Tensor((1, 3, 3, 2), F)],
        "Conv2DOptions", padding=1, stride_h=1, stride_w=1,
    )  # fmt: skip
    with pytest.raises(StageError, match="along axis 3"):
        imported(model)
