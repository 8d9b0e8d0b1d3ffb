"""onnx's own backend node tests: what passes, what is supported, and why the rest is not."""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from stages.errors import StageError
from stages.graph import interpret
from stages.importing.onnx.constant_subgraphs import FOLDABLE
from stages.importing.onnx.onnx_converters import CONVERTERS, QONNX_CONVERTERS
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.importing.unsupported import refusal
from stages.kinds import Model
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]

INTEGER = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
)
CONVERTED = {op for domain, op in (*CONVERTERS, *QONNX_CONVERTERS) if not domain}
KNOWN = CONVERTED | FOLDABLE | {"Shape", "Constant"}
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners": "the output's extent is a whole number",
    "test_resize_downsample_scales_cubic_align_corners": "the output's extent is a whole number",
}
"""Where ONNX Runtime, whose arithmetic is imported, does not pass the test either, and why."""


PASSED = {
    "QuantizeLinear": (13, 16),
    "DequantizeLinear": (9, 14),
    "DynamicQuantizeLinear": (3, 3),
    "QLinearConv": (1, 1),
    "QLinearMatMul": (4, 8),
    "ConvInteger": (2, 2),
    "MatMulInteger": (1, 1),
}
"""Passed and total; what is missing has float8, float4 or float16 in it, which are refused."""
OTHERS_PASSED = 613


@dataclass
class Tally:
    """What became of the cases of one operator."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    unsupported: Counter[str] = field(default_factory=Counter)

    @property
    def supported(self) -> int:
        return self.passed + len(self.failed)

    @property
    def total(self) -> int:
        return self.supported + sum(self.unsupported.values())


def cases() -> Iterator[Any]:
    """Node tests all of whose operators there are converters for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        loaded = load_model_tests(kind="node")
    for case in loaded:
        kinds = {node.op_type for node in case.model.graph.node}
        if kinds <= KNOWN and kinds & CONVERTED:
            yield case


def plain(value: Any) -> Any:
    """A value of a data set as an array; sequences and optionals as they are."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def stored(value: Array) -> Array:
    """An array in the bytes it is stored in, for types below them."""
    narrow = re.fullmatch(r"(u?int)[24]", str(value.dtype))
    return value.astype(narrow[1] + "8") if narrow else value


def frozen(model: onnx.ModelProto, values: Sequence[Any]) -> bytes:
    """The model with all inputs but the first stored in it, as networks store parameters."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.input[:]
    result.graph.input.append(model.graph.input[0])
    for info, value in zip(model.graph.input[1:], values[1:], strict=True):
        result.graph.initializer.append(numpy_helper.from_array(np.asarray(value), info.name))
    return bytes(result.SerializeToString())


def imported(case: Any, values: Sequence[Any]) -> Model:
    """The model with its inputs free, or with parameters frozen where they must be constant."""
    if any(not isinstance(value, np.ndarray) for value in values):
        raise StageError("an input is a sequence or an optional, not a tensor")
    try:
        return convert(case.model.SerializeToString())
    except StageError:
        if len(values) < 2:
            raise
        return convert(frozen(case.model, values))


def convert(source: bytes) -> Model:
    found = import_graph(read(source), ImportOptions())
    if found.model is None:
        raise refusal(found.unsupported)
    return found.model


def reason(error: StageError) -> str:
    """An error's kind: names and numbers taken out."""
    text = str(error).split("): ", 1)[-1].split("\n")[0]
    text = re.sub(r"'[^']*'", "'...'", text)
    return re.sub(r"\[[^]]*\]|\d+", "#", text)


def run(case: Any, tally: Tally) -> None:
    if case.name in DIFFERENT:
        tally.unsupported[f"ONNX Runtime differs, too: {DIFFERENT[case.name]}"] += 1
        return
    inputs, outputs = ([plain(value) for value in part] for part in case.data_sets[0])
    try:
        model = imported(case, inputs)
    except StageError as error:
        tally.unsupported[reason(error)] += 1
        return
    names = [info.name for info in case.model.graph.input]
    feeds = {name: stored(value) for name, value in zip(names, inputs, strict=True)}
    found = interpret.run(model, feeds)
    outputs_by_name = zip(case.model.graph.output, outputs, strict=True)
    expected = {info.name: stored(value) for info, value in outputs_by_name}
    try:
        for name, value in found.items():
            assert value.dtype == expected[name].dtype, f"{value.dtype}, {expected[name].dtype}"
            assert value.shape == expected[name].shape, f"{value.shape}, {expected[name].shape}"
            np.testing.assert_allclose(value, expected[name], rtol=case.rtol, atol=case.atol)
    except (AssertionError, KeyError) as error:
        tally.failed.append(f"{case.name}: {' '.join(str(error).split())[:160]}")
    else:
        tally.passed += 1


def table(tallies: dict[str, Tally]) -> str:
    lines = ["operator                 passed / supported / total"]
    for name, tally in sorted(tallies.items()):
        lines.append(f"{name:24} {tally.passed:4} / {tally.supported:4} / {tally.total:4}")
        lines += [f"    {count:3} x {why}" for why, count in tally.unsupported.most_common()]
        lines += [f"    failed: {line}" for line in tally.failed]
    return "\n".join(lines)


@pytest.mark.slow
def test_backend_nodes() -> None:
    """Run with -s to see the table."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case in cases():
        ops = [node.op_type for node in case.model.graph.node]
        name = next((op for op in ops if op in INTEGER), None)
        name = name or ("of several" if len(set(ops)) > 1 else ops[0])
        run(case, tallies[name])
    print(table(tallies))
    assert not [line for tally in tallies.values() for line in tally.failed]
    found = {op: (tallies[op].passed, tallies[op].total) for op in INTEGER}
    assert found == PASSED
    others = [tally for op, tally in tallies.items() if op not in INTEGER]
    assert sum(tally.passed for tally in others) == OTHERS_PASSED
