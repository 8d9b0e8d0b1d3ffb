"""Imported MXNet models give what MXNet 1.9.1 gave: `recorded.npz`, made by `record.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.graph import interpret
from stages.importing import mxnet
from stages.kinds import Model
from stages.options import ImportOptions
from tests.stages.importing.compiling import in_relax

Array = np.ndarray[Any, Any]
RECORDED = np.load(Path(__file__).with_name("recorded.npz"))
CASES = sorted({name.rsplit("/", 1)[0] for name in RECORDED.files})
COMPILED = ["network auto", "network auto open", "network int8"]


def converted(case: str) -> Model:
    symbol, params = (RECORDED[f"{case}/{part}"].tobytes() for part in ("symbol", "params"))
    shapes = {"data": RECORDED[f"{case}/data"].shape}
    return mxnet.convert_file(mxnet.bundle(symbol, params), ImportOptions(inputs=shapes))


def recorded_outputs(case: str) -> list[Array]:
    names = [name for name in RECORDED.files if name.startswith(f"{case}/output")]
    return [RECORDED[name] for name in sorted(names)]


@pytest.mark.parametrize("case", CASES)
def test_every_output_is_mxnets(case: str) -> None:
    """Integers and what comes of them bit for bit; float32 operators up to the order of sums."""
    found = interpret.run(converted(case), {"data": RECORDED[f"{case}/data"]})
    for value, expected in zip(found.values(), recorded_outputs(case), strict=True):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        if case.startswith("float"):
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=3e-6)
        else:
            assert np.array_equal(value, expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
def test_networks_compile_to_the_same(case: str) -> None:
    sample = {"data": RECORDED[f"{case}/data"]}
    assert np.array_equal(in_relax(converted(case), sample), recorded_outputs(case)[0])


def test_layers_keep_their_names() -> None:
    names = {
        str(variable.name)
        for block in converted("network auto").module["main"].body.blocks
        for variable in (binding.var for binding in block.bindings)
    }
    symbol = json.loads(RECORDED["network auto/symbol"].tobytes())
    layers = {node["name"] for node in symbol["nodes"] if node["op"] != "null"}
    last = layers - names
    assert len(last) <= 1, last  # the output goes by a name of its own


def test_later_releases_call_the_fused_operators_otherwise() -> None:
    symbol, params = (RECORDED[f"network auto/{p}"].tobytes() for p in ("symbol", "params"))
    renamed = symbol.replace(b"_sg_mkldnn_", b"_sg_onednn_")
    assert renamed != symbol
    data = RECORDED["network auto/data"]
    model = mxnet.convert_file(
        mxnet.bundle(renamed, params), ImportOptions(inputs={"data": data.shape})
    )
    found = next(iter(interpret.run(model, {"data": data}).values()))
    assert np.array_equal(found, recorded_outputs("network auto")[0])


def test_the_description_of_a_quantized_network() -> None:
    symbol, params = (RECORDED[f"network auto/{p}"].tobytes() for p in ("symbol", "params"))
    shape = RECORDED["network auto/data"].shape
    table = mxnet.describe_file(mxnet.bundle(symbol, params), ImportOptions(inputs={"data": shape}))
    assert (table["format"], table["producer"]) == ("MXNet", "MXNet 1.9.1")
    assert table["inputs"][0]["shape"] == list(shape)
    assert table["inputs"][0]["smallest"] < 0 < table["inputs"][0]["largest"]
    assert table["unsupported"] == []
    assert {layer["op"] for layer in table["layers"]} == {
        "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"
    }  # fmt: skip
    assert all(layer["weights"] == {"bits": 8, "encoding": "signed"} for layer in table["layers"])
