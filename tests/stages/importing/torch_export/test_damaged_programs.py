"""Damaged exported programs: whatever is wrong with one, it is one error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import StageError
from stages.importing import torch_export
from stages.options import ImportOptions
from tests.stages.importing.torch_export.archives import (
    NODES,
    PROGRAM,
    SHAPE,
    SOURCE,
    TENSORS,
    archive,
    content,
)

NONE = ImportOptions()


def _changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    program = copy.deepcopy(PROGRAM)
    change(program["graph_module"])
    return archive(program, TENSORS)


def _stored(name: str, value: Any) -> bytes:
    return archive(PROGRAM, TENSORS | {name: np.asarray(value, TENSORS[name].dtype)})


def _member(name: str, data: bytes | None) -> bytes:
    return archive(PROGRAM, TENSORS, {f"m/{name}": data})


def _set(position: int, name: str, value: Any) -> bytes:
    def change(module: dict[str, Any]) -> None:
        for each in module["graph"]["nodes"][position]["inputs"]:
            if each["name"] == name:
                each["arg"] = value

    return _changed(change)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (archive({}, TENSORS), "does not follow the schema"),
        (archive([], TENSORS), "does not follow the schema"),
        (_member("models/model.json", b"{"), "no JSON"),
        (_member("models/model.json", b"[" * 100_000), "no JSON"),
        (_member("byteorder", b"big"), "big-endian"),
        (_member("data/weights/weight_0", b"short"), "reaches beyond its 5"),
        (_member("data/weights/weight_2", None), "no member"),
        (archive(PROGRAM, {"scales": TENSORS["scales"]}), "no tensor 'weight'"),
        (_stored("scales", [-1, 1, 1, 1]), "not a positive number"),
        (_stored("scales", [np.nan, 1, 1, 1]), "not a positive number"),
        (_stored("scales", [1, 1]), "has 2 scales"),
        (_stored("bias", [np.inf, 0, 0, 0]), "infinities or NaN"),
        (_stored("points", [0, 0, 0, 300]), "zero point that is no int8"),
        (_stored("bias", [0] * 7), "bias of shape"),
        (_set(3, "stride", {"as_ints": [0, 1]}), "stride .0, 1."),
        (_set(3, "padding", {"as_ints": [10**9, 1]}), "padding"),
        (_set(3, "padding", {"as_ints": [1 << 20, 1 << 20]}), "elements"),
        (_set(3, "input", {"as_tensor": {"name": "nobody"}}), "given by no operator|no tensor"),
        (_set(0, "quant_max", {"as_int": 9999}), "quantizes to -128 .. 9999"),
        (_set(0, "scale", {"as_float": 0.0}), "not a positive number"),
        (_changed(lambda m: m["graph"].update(nodes=[])), "given by no operator"),
        (_changed(lambda m: m["graph"].update(nodes=NODES * 4000)), "24,000 nodes"),
        (_changed(lambda m: m["signature"].update(input_specs=[])), "no inputs or no outputs"),
        (_changed(lambda m: m["graph"].update(tensor_values={})), "no tensor"),
        (_changed(lambda m: m["graph"]["nodes"].reverse()),
         "given by no operator|no tensor|constant"),
        (archive(content(NODES, TENSORS, "out", {"x": ("float32", (1 << 20, 1 << 20))}), TENSORS),
         "at most"),
        (archive(content(NODES, TENSORS, "out", {"x": ("float64", SHAPE)}), TENSORS), "is float64"),
    ],
)  # fmt: skip
def test_damaged_programs_are_one_error(source: bytes, message: str) -> None:
    with pytest.raises(StageError, match=message):
        torch_export.convert_file(source, NONE)


def test_a_tensor_of_absurd_shape_is_refused_before_memory_is_taken() -> None:
    path = "m/data/weights/model_weights_config.json"
    for sizes, strides in (
        ([1 << 40], [0]),
        ([1 << 20, 1 << 20], [0, 0]),
        ([-1], [1]),
        ([2], [-1]),
    ):
        entry = {
            "path_name": "weight_0",
            "tensor_meta": {
                "dtype": 7,
                "sizes": [{"as_int": n} for n in sizes],
                "strides": [{"as_int": n} for n in strides],
                "storage_offset": {"as_int": 0},
            },
        }
        config = json.dumps({"config": dict.fromkeys(TENSORS, entry)}).encode()
        with pytest.raises(StageError, match="tensor 'weight' has"):
            torch_export.convert_file(archive(PROGRAM, TENSORS, {path: config}), NONE)


@settings(max_examples=60)
@given(st.data())
def test_flipped_bits_raise_nothing_else(data: st.DataObject) -> None:
    """The archive's checksums are made anew, so that damage reaches the reader."""
    text = bytearray(json.dumps(PROGRAM).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(StageError):
        torch_export.convert_file(_member("models/model.json", bytes(text)), NONE)


@given(st.integers(0, len(SOURCE)))
def test_truncated_files_are_one_error(end: int) -> None:
    if end < len(SOURCE):
        with pytest.raises(StageError):
            torch_export.convert_file(SOURCE[:end], NONE)
