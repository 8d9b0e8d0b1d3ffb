"""The dialect as Relax sees it: printing, parsing, saving, purity, types and their errors."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import Op

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.dialect.names import PREFIX
from stages.dialect.operators import OPERATORS
from stages.dialect.registry import register
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from tests.stages.dialect.examples import ALL, Example, floats, integers


def test_every_operator_has_an_example() -> None:
    assert {name.removeprefix(PREFIX) for name in OPERATORS} == ALL.keys()


@pytest.mark.parametrize("name", ALL)
def test_prints_and_parses(name: str) -> None:
    module = ALL[name].model().module
    text = module.script()
    assert f"R.qnn.{name}(" in text
    parsed = tvm.script.from_source(text)
    tvm.ir.assert_structural_equal(parsed["main"], module["main"])
    assert parsed.script() == text


@pytest.mark.parametrize("name", ALL)
def test_survives_json(name: str) -> None:
    module = ALL[name].model().module
    text = tvm.ir.save_json(module)
    loaded = tvm.ir.load_json(text)
    tvm.ir.assert_structural_equal(loaded, module)
    assert tvm.ir.save_json(loaded) == text


@pytest.mark.parametrize("name", ALL)
def test_a_loaded_module_computes_the_same(name: str) -> None:
    model = ALL[name].model()
    loaded = replace(model, module=tvm.ir.load_json(tvm.ir.save_json(model.module)))
    inputs = {"a0": ALL[name].operands[0][0]}
    before, after = (interpret.run(each, inputs)["y"] for each in (model, loaded))
    assert np.array_equal(before, after)


@pytest.mark.parametrize("name", ALL)
def test_meaning_has_the_inferred_type(name: str) -> None:
    model = ALL[name].model()
    result = bindings_of(model.module["main"])[0].var.ty
    value = interpret.run(model, {"a0": ALL[name].operands[0][0]})["y"]
    assert value.shape == shape_of(result)
    assert value.dtype == storage_dtype(dtype_of(result))


@pytest.mark.parametrize("name", ALL)
def test_is_pure_and_well_formed(name: str) -> None:
    assert Op.get(PREFIX + name).get_attr("FPurity")
    module = ALL[name].model().module
    assert module["main"].is_pure
    relax.analysis.well_formed(module)


@pytest.mark.parametrize("name", ALL)
def test_a_call_may_stand_in_a_dataflow_block(name: str) -> None:
    """What an impure operator may not; dead code elimination may remove it, too."""
    module = relax.transform.DeadCodeElimination()(ALL[name].model().module)
    assert any(str(b.value.op.name) == PREFIX + name for b in bindings_of(module["main"])[:1])


def test_the_builder_counts_arguments() -> None:
    x = relax.Var("x", relax.TensorType((1, 4), "uint8"))
    with pytest.raises(TypeError, match=r"qnn.dense takes \('data', 'weight'\), got 1 arguments"):
        ALL["dense"].build(x)


def test_an_operator_may_be_registered_again() -> None:
    """Reloading a module must not fail; the later row wins."""
    row = OPERATORS[PREFIX + "pad_channels"]
    try:
        register("pad_channels", row.arguments, lambda types, _: types[0])(row.meaning)
        assert ALL["pad_channels"].model().module["main"].ret_ty.shape[-1] == 8
    finally:
        register("pad_channels", row.arguments, row.infer)(row.meaning)
    assert ALL["pad_channels"].model().module["main"].ret_ty.shape[-1] == 32


def broken(
    name: str, attrs: dict[str, Any] | None = None, **operands: tuple[np.ndarray[Any, Any], str]
) -> Example:
    """An example with attributes or operands (by `a<number>`) replaced."""
    example = ALL[name]
    changed = [
        operands.get(f"a{number}", operand) for number, operand in enumerate(example.operands)
    ]
    return Example(example.build, tuple(changed), {**example.attrs, **(attrs or {})})


MISFITS = [
    (
        broken("conv2d", a1=integers(0, 1, (6, 3, 3, 4), "uint1")),
        "qnn.conv2d: data of 4 channels, weights of 4 channels in 2 groups",
    ),
    (
        broken("conv2d", a1=integers(0, 1, (5, 3, 3, 2), "uint1")),
        "qnn.conv2d: 5 output channels cannot be split into 2 groups",
    ),
    (
        broken("conv2d", {"groups": 0}),
        "qnn.conv2d: data of 4 channels, weights of 2 channels in 0 groups",
    ),
    (
        broken("bitserial_conv2d", a1=integers(0, 1, (6, 9, 3, 5), "uint1")),
        "qnn.bitserial_conv2d: a window of [9, 3] does not fit into data of [5, 4] with padding "
        "[1, 0, 1, 2]",
    ),
    (
        broken("conv2d", {"padding": [1, 1]}),
        "qnn.conv2d: padding [1, 1]; top, left, bottom, right are expected",
    ),
    (
        broken("conv2d", {"padding": [1, 0, 1, 2]}),
        "qnn.conv2d: padding [1, 0, 1, 2] without a pad_value",
    ),
    (
        broken("conv2d", {"strides": [0, 1]}),
        "qnn.conv2d: padding [1, 0, 1, 2], strides [0, 1]",
    ),
    (
        broken("conv2d", a0=integers(0, 1, (4, 4), "uint8")),
        "qnn.conv2d: NHWC data of shape [4, 4]; rank 4 is expected",
    ),
    (
        broken("conv2d", a0=(np.zeros((1, 5, 4, 4), np.float32), "float32")),
        "qnn.conv2d: data of float32; integers are expected",
    ),
    (
        broken("dense", a1=integers(0, 1, (4, 8), "int8")),
        "qnn.dense: data of 9 features, weights of 8",
    ),
    (
        broken("bitserial_dense", a0=integers(0, 1, (1, 1, 1, 9), "uint1")),
        "qnn.bitserial_dense: data of shape [1, 1, 1, 9]; rank 2 is expected",
    ),
    (
        broken("add", a1=integers(0, 1, (1, 2, 3, 1), "uint3")),
        "qnn.add: addends of shapes [1, 2, 3, 4] and [1, 2, 3, 1]",
    ),
    (
        broken("max_pool2d", {"kernel": [9, 9], "padding": [0, 0, 0, 0]}),
        "qnn.max_pool2d: a window of [9, 9] does not fit into data of [5, 4] with padding "
        "[0, 0, 0, 0]",
    ),
    (
        broken("max_pool2d", {"padding": [0, 2, 0, 0]}),
        "qnn.max_pool2d: padding [0, 2, 0, 0] for a window of [3, 2]: some are empty",
    ),
    (
        broken("sum_pool2d", {"kernel": [0, 1]}),
        "qnn.sum_pool2d: a window of [0, 1]",
    ),
    (
        broken("threshold", a1=integers(0, 1, (3, 2), "int32")),
        "qnn.threshold: thresholds of shape [3, 2] for data of 3 channels",
    ),
    (
        broken("threshold", a1=(np.zeros((0, 3), np.int32), "int32")),
        "qnn.threshold: thresholds of shape [0, 3] for data of 3 channels",
    ),
    (
        broken("threshold", a1=(np.zeros((3, 3), np.float32), "float32")),
        "qnn.threshold: thresholds of float32 for data of int32",
    ),
    (
        broken("threshold", a2=integers(0, 1, (1,), "uint8")),
        "qnn.threshold: flip of shape [1] for data of 3 channels",
    ),
    (
        broken("threshold", {"dtype": "uint1"}),
        "qnn.threshold: results from 0 to 3 do not fit uint1",
    ),
    (
        broken("requantize", a1=floats(1.0)),
        "qnn.requantize: multiplier of shape [1] for data of 3 channels",
    ),
    (
        broken("requantize", {"high": 32}),
        "qnn.requantize: results from 0 to 32 do not fit uint5",
    ),
    (
        broken("requantize", {"dtype": "float32"}),
        "qnn.requantize: a result of float32; integers are expected",
    ),
    (
        broken("saturate", {"low": -1}),
        "qnn.saturate: results from -1 to 60 do not fit uint6",
    ),
    (
        broken("quantize", a0=integers(0, 1, (1, 4, 4, 3), "uint8")),
        "qnn.quantize: x of uint8; float32 is expected",
    ),
    (
        broken("quantize", {"shift": 0}),
        "qnn.quantize: results from -8 to 7 do not fit uint4",
    ),
    (
        broken("quantize", {"rounding": "NEAREST"}),
        "qnn.quantize: rounding mode NEAREST; known: ROUND, ROUND_HALF_EVEN, HALF_EVEN, CEIL, "
        "FLOOR, ROUND_TO_ZERO, UP, DOWN, HALF_UP, HALF_DOWN",
    ),
    (
        broken("dequantize", a1=floats(1, 2)),
        "qnn.dequantize: scale of shape [2] for data of 3 channels",
    ),
]


@pytest.mark.parametrize(("example", "sentence"), MISFITS, ids=[text for _, text in MISFITS])
def test_a_call_that_does_not_fit(example: Example, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        example.model()


@pytest.mark.parametrize(
    ("name", "left_out"), [(n, a) for n, example in ALL.items() for a in example.attrs]
)
def test_a_missing_attribute(name: str, left_out: str) -> None:
    example = ALL[name]
    attrs = {k: v for k, v in example.attrs.items() if k != left_out}
    if (name, left_out) == ("batch_norm", "channel_axis"):
        Example(example.build, example.operands, attrs).model()  # it has a default
        return
    with pytest.raises(ValueError, match=f"^qnn.{name}: attribute '{left_out}' is missing$"):
        Example(example.build, example.operands, attrs).model()


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_attribute(name: str) -> None:
    with pytest.raises(ValueError, match=f"^qnn.{name}: there is no attribute 'stride'$"):
        broken(name, {"stride": 1}).model()


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        ("uint1", "uint8"),
        ("uint3", "uint8"),
        ("uint8", "uint8"),
        ("int1", "int8"),
        ("int3", "int8"),
        ("uint9", "uint16"),
        ("int17", "int32"),
        ("int32", "int32"),
        ("float32", "float32"),
    ],
)
def test_storage(dtype: str, stored: str) -> None:
    assert storage_dtype(dtype) == np.dtype(stored)
