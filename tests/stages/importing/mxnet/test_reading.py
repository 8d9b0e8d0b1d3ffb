"""MXNet's files as bytes: the container, parameters of every version, and what is wrong in them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import StageError
from stages.importing import mxnet
from stages.importing.mxnet.container import unbundle
from stages.importing.mxnet.params import read_params
from stages.importing.mxnet.symbol import read_symbol
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]
RECORDED = np.load(Path(__file__).with_name("recorded.npz"))
SYMBOL, PARAMS = (RECORDED[f"conv True/{part}"].tobytes() for part in ("symbol", "params"))
OPTIONS = ImportOptions(inputs={"data": (2, 4, 6, 7)})
CODES = {"float32": 0, "float64": 1, "uint8": 3, "int32": 4, "int8": 5, "int64": 6}


def saved(arrays: dict[str, Array], version: int) -> bytes:
    """Parameters as `NDArray::Save` of a version writes them (0: before versions)."""
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    for array in arrays.values():
        if version:
            parts.append(struct.pack("<I", 0xF993FAC7 + version))
            if version >= 2:
                parts.append(struct.pack("<i", 0))
            parts.append(struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape))
        else:
            parts.append(struct.pack(f"<I{array.ndim}I", array.ndim, *array.shape))
        parts.append(struct.pack("<iii", 1, 0, CODES[str(array.dtype)]))
        parts.append(array.tobytes())
    parts.append(struct.pack("<Q", len(arrays)))
    for name in arrays:
        parts.append(struct.pack("<Q", len(name)) + name.encode())
    return b"".join(parts)


def test_a_bundle_is_the_same_bytes_for_the_same_contents() -> None:
    assert mxnet.bundle(SYMBOL, PARAMS) == mxnet.bundle(SYMBOL, PARAMS)
    assert unbundle(mxnet.bundle(SYMBOL, PARAMS)) == (SYMBOL, PARAMS)
    assert unbundle(mxnet.bundle(SYMBOL, None)) == (SYMBOL, None)
    assert unbundle(SYMBOL) == (SYMBOL, None)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_parameters_of_every_version(version: int) -> None:
    rng = np.random.default_rng(version)
    arrays = {
        f"arg:{dtype}": rng.integers(-9, 9, (2, 3)).astype(dtype) for dtype in CODES
    } | {"aux:one": np.array([7], np.float32)}  # fmt: skip
    found = read_params(saved(arrays, version))
    assert list(found) == [name.removeprefix("arg:").removeprefix("aux:") for name in arrays]
    for value, expected in zip(found.values(), arrays.values(), strict=True):
        assert value.dtype == expected.dtype
        assert np.array_equal(value, expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "cut short"),
        (b"\0" * 64, "does not start with the bytes"),
        (struct.pack("<QQQ", 0x112, 0, 1 << 40), "claims 1,099,511,627,776 arrays"),
        (struct.pack("<QQQI", 0x112, 0, 1, 40), "40 dimensions"),
        (struct.pack("<QQQI4I", 0x112, 0, 1, 4, *[65535] * 4), "the shape"),
        (struct.pack("<QQQIIIiii", 0x112, 0, 1, 2, 3, 3, 1, 0, 77), "type 77"),
        (struct.pack("<QQQIi", 0x112, 0, 1, 0xF993FAC9, 1), "sparse"),
        (struct.pack("<QQQIii2q", 0x112, 0, 1, 0xF993FAC9, 0, 2, 1 << 40, 1 << 40), "the shape"),
        (saved({"a": np.zeros(3, np.float32)}, 2)[:-1], "cut short"),
        (saved(dict.fromkeys(("arg:a", "aux:a"), np.zeros(3, np.float32)), 2), "same name"),
    ],
)  # fmt: skip
def test_damaged_parameters(source: bytes, message: str) -> None:
    with pytest.raises(StageError, match=message):
        read_params(source)


def _symbol(**changes: Any) -> bytes:
    content = {
        "nodes": [
            {"op": "null", "name": "data", "inputs": []},
            {
                "op": "Activation",
                "name": "act",
                "attrs": {"act_type": "relu"},
                "inputs": [[0, 0, 0]],
            },
        ],
        "heads": [[1, 0, 0]],
    }
    return json.dumps(content | changes).encode()


def _node(**changes: Any) -> list[dict[str, Any]]:
    return [
        {"op": "null", "name": "data"},
        {"op": "relu", "name": "r", "inputs": [[0, 0]]} | changes,
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no list of nodes"),
        (_symbol(nodes=[]), "0 nodes"),
        (_symbol(nodes=[1]), "no object"),
        (_symbol(nodes=[{"op": "null"}]), "no name"),
        (_symbol(heads=[]), "no outputs"),
        (_symbol(heads=[[9, 0, 0]]), "reads node 9, which is not before it"),
        (_symbol(nodes=_node(inputs=[[1, 0]])), "'r' reads node 1, which is not before it"),
        (_symbol(nodes=_node(inputs=[[-1, 0]])), "reads node -1"),
        (_symbol(nodes=_node(inputs=[[0]])), "no .node, output."),
        (_symbol(nodes=_node(inputs=[["0", 0]])), "no .node, output."),
        (_symbol(nodes=_node(inputs="0")), "no list"),
        (_symbol(nodes=_node(attrs=[1])), "attributes that are no object"),
        (_symbol(nodes=_node(subgraphs=[{}])), "no list of nodes"),
    ],
)
def test_damaged_symbols(source: bytes, message: str) -> None:
    with pytest.raises(StageError, match=message):
        read_symbol(source)


def test_symbols_inside_symbols_end_somewhere() -> None:
    inner: dict[str, Any] = json.loads(_symbol())
    for _ in range(6):
        inner = json.loads(_symbol(nodes=_node(subgraphs=[inner])))
    with pytest.raises(StageError, match="too deep"):
        read_symbol(json.dumps(inner).encode())


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"kernel": "(1000000000000, 1)"}, "1 to 1,048,576"),
        ({"kernel": "(3, 3)", "stride": "(0, 1)"}, "stride"),
        ({"kernel": "(3,)"}, "two dimensions"),
        ({"kernel": "(3, three)"}, "whole numbers are expected"),
        ({"kernel": "(3, 3)", "pad": "(1000000, 1000000)"}, "elements"),
        ({"kernel": "(9, 9)"}, "a kernel .9, 9."),
        ({"kernel": "(3, 3)", "num_group": "many"}, "no number"),
        ({"kernel": "(3, 3)", "no_bias": "perhaps"}, "True or False"),
        ({"kernel": "(3, 3)", "layout": "NHWC"}, "NCHW is accepted"),
        ({"kernel": "1" * 5000}, "whole numbers|1 to"),
    ],
)
def test_absurd_attributes_are_one_error(attrs: dict[str, str], message: str) -> None:
    nodes = [
        {"op": "null", "name": "data"},
        {"op": "null", "name": "w"},
        {
            "op": "Convolution",
            "name": "conv",
            "attrs": {"no_bias": "True", "num_filter": "2"} | attrs,
            "inputs": [[0, 0], [1, 0]],
        },
    ]
    params = saved({"w": np.ones((2, 3, 3, 3), np.float32)}, 2)
    source = mxnet.bundle(_symbol(nodes=nodes, heads=[[2, 0]]), params)
    with pytest.raises(StageError, match=message):
        mxnet.convert_file(source, ImportOptions(inputs={"data": (1, 3, 6, 6)}))


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_ranges_without_width_are_refused(value: float) -> None:
    params = read_params(PARAMS) | {
        "w_min": np.array([-value], "f"),
        "w_max": np.array([value], "f"),
    }
    symbol = json.loads(SYMBOL)
    for node in symbol["nodes"]:
        if node["op"] == "_contrib_quantize_v2":
            node["attrs"] |= {"min_calib_range": str(-value), "max_calib_range": str(value)}
    source = mxnet.bundle(json.dumps(symbol).encode(), saved(params, 2))
    with pytest.raises(StageError, match=r"range|infinities or NaN"):
        mxnet.convert_file(source, OPTIONS)


def test_weights_that_are_missing_are_named_and_described() -> None:
    source = mxnet.bundle(SYMBOL, None)
    with pytest.raises(StageError, match="weights of the model are missing: 6 parameters"):
        mxnet.convert_file(source, OPTIONS)
    table = mxnet.describe_file(source, OPTIONS)
    assert table["inputs"][0]["name"] == "data"
    assert table["unsupported"] == [
        {"op": "parameters", "why": "the .params file is missing", "layers": []}
    ]


def test_one_missing_weight_is_named() -> None:
    params = read_params(PARAMS)
    del params["b"]
    source = mxnet.bundle(SYMBOL, saved(params, 2))
    with pytest.raises(StageError, match="such as b;"):
        mxnet.convert_file(source, OPTIONS)
    assert mxnet.describe_file(source, OPTIONS)["unsupported"][0]["layers"] == ["b"]


def test_an_open_shape_is_asked_for() -> None:
    source = mxnet.bundle(SYMBOL, PARAMS)
    with pytest.raises(StageError, match="does not tell the shape of input 'data'"):
        mxnet.convert_file(source, ImportOptions())
    assert mxnet.describe_file(source, ImportOptions())["inputs"][0]["shape"] == [1, 4, None, None]
    with pytest.raises(StageError, match="no input 'image'"):
        mxnet.convert_file(source, ImportOptions(inputs={"image": (1, 4, 6, 7)}))


def test_everything_unsupported_is_one_error() -> None:
    nodes = [
        {"op": "null", "name": "data"},
        {"op": "Foo", "name": "first", "inputs": [[0, 0]]},
        {"op": "Bar", "name": "second", "inputs": [[1, 0]]},
        {"op": "Foo", "name": "third", "inputs": [[2, 0]]},
    ]
    source = mxnet.bundle(_symbol(nodes=nodes, heads=[[3, 0]]), None)
    with pytest.raises(StageError) as caught:
        mxnet.convert_file(source, ImportOptions(inputs={"data": (1, 4)}))
    assert "Foo (2x: first, third)" in str(caught.value)
    assert "Bar (1x: second)" in str(caught.value)


def test_an_output_that_its_node_does_not_have() -> None:
    source = mxnet.bundle(_symbol(heads=[[1, 5, 0]]), None)
    with pytest.raises(StageError, match="given by no operator"):
        mxnet.convert_file(source, ImportOptions(inputs={"data": (1, 4)}))


@settings(max_examples=60)
@given(st.data())
def test_flipped_bits_raise_nothing_else(data: st.DataObject) -> None:
    """The archive's checksums are made anew, so that damage reaches the readers."""
    symbol, params = bytearray(SYMBOL), bytearray(PARAMS)
    for _ in range(data.draw(st.integers(1, 4))):
        target = data.draw(st.sampled_from([symbol, params]))
        target[data.draw(st.integers(0, len(target) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, 2 * len(params)))
    with suppress(StageError):
        mxnet.convert_file(mxnet.bundle(bytes(symbol), bytes(params[:cut])), OPTIONS)


def test_members_stored_compressed_are_read_too() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("symbol.json", SYMBOL)
        archive.writestr("model.params", PARAMS)
    assert mxnet.convert_file(stream.getvalue(), OPTIONS).params
