"""BMXNet's binary layers: what its kernels count, and how it packs weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stages.errors import StageError
from stages.graph import interpret
from stages.importing import mxnet
from stages.options import ImportOptions
from tests.stages.importing.compiling import in_relax
from tests.stages.importing.mxnet.test_reading import saved

Array = np.ndarray[Any, Any]


def _model(op: str, weight: Array, data: Array, **attrs: Any) -> Any:
    nodes = [
        {"op": "null", "name": "data"},
        {"op": "null", "name": "w"},
        {"op": op, "name": "layer", "attr": {k: str(v) for k, v in attrs.items()},
         "inputs": [[0, 0], [1, 0]]},
    ]  # fmt: skip
    symbol = json.dumps({"nodes": nodes, "heads": [[2, 0]]}).encode()
    source = mxnet.bundle(symbol, saved({"w": weight}, 0))
    return mxnet.convert_file(source, ImportOptions(inputs={"data": data.shape}))


def _counts(rows: Array, columns: Array) -> Array:
    """Positions where signs agree, one at a time: rows [N, K], columns [O, K] give [N, O]."""
    return np.array(
        [[np.count_nonzero((a >= 0) == (b >= 0)) for b in columns] for a in rows], np.float32
    )


def _pack(values: Array, bits: int) -> Array:
    """The words of consecutive values: the first is the lowest bit."""
    words = (values.reshape(-1, bits) >= 0) @ (1 << np.arange(bits, dtype=np.uint64))
    return words.astype(f"u{bits // 8}").view(f"f{bits // 8}")


def _data(*shape: int) -> Array:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    values.reshape(-1)[::7] = 0.0  # zero counts as 1
    return values


@pytest.mark.parametrize("bits", [0, 32, 64])
def test_a_fully_connected_layer_counts_agreeing_signs(bits: int) -> None:
    data, weight = _data(3, 2, 64), _data(5, 128)[:, ::-1].copy()
    stored = weight
    if bits:  # words run over outputs first: [K / bits, O]
        stored = _pack(weight.reshape(5, -1, bits).transpose(1, 0, 2), bits)
    model = _model("QFullyConnected", stored, data, num_hidden=5, binarized_weights_only=bool(bits))
    found = interpret.run(model, {"data": data})["layer"]
    assert np.array_equal(found, _counts(data.reshape(3, 128), weight))
    assert np.array_equal(in_relax(model, {"data": data}), found)


@pytest.mark.parametrize("bits", [0, 32, 64])
def test_a_convolution_counts_agreeing_signs_and_pads_with_ones(bits: int) -> None:
    data, weight = _data(2, 64, 5, 4), _data(3, 64, 3, 3) - np.float32(0.2)
    model = _model(
        "QConvolution", _pack(weight, bits) if bits else weight, data, kernel="(3, 3)",
        num_filter=3, pad="(1, 1)", stride="(2, 1)", binarized_weights_only=bool(bits),
    )  # fmt: skip
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2]
    rows = view.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 64 * 9)
    expected = _counts(rows, weight.reshape(3, -1)).reshape(2, 3, 4, 3).transpose(0, 3, 1, 2)
    found = interpret.run(model, {"data": data})["layer"]
    assert np.array_equal(found, expected)
    assert np.array_equal(in_relax(model, {"data": data}), found)


def test_an_activation_of_its_own_gives_signs() -> None:
    nodes = [
        {"op": "null", "name": "data"},
        {"op": "QActivation", "name": "signs", "attr": {"act_bit": "1"}, "inputs": [[0, 0]]},
    ]
    source = mxnet.bundle(json.dumps({"nodes": nodes, "heads": [[1, 0]]}).encode(), None)
    data = _data(2, 3, 4)
    model = mxnet.convert_file(source, ImportOptions(inputs={"data": data.shape}))
    found = interpret.run(model, {"data": data})["signs"]
    assert np.array_equal(found, np.where(data >= 0, np.float32(1), np.float32(-1)))


@pytest.mark.parametrize(
    ("weight", "attrs", "message"),
    [
        (np.zeros(7, np.float32), {}, "has 7 words of 32 bits"),
        (np.zeros(4, np.int8), {}, "packed weights of int8"),
        (np.zeros(20, np.float32), {"act_bit": 2}, "act_bit 2"),
        (np.zeros(20, np.float32), {"scaling_mode": "forward"}, "scaling_mode"),
        (np.zeros((5, 9), np.float32), {"binarized_weights_only": False}, "has weights .5, 9."),
    ],
)
def test_what_does_not_fit_is_refused(weight: Array, attrs: dict[str, Any], message: str) -> None:
    options = {"num_hidden": 5, "binarized_weights_only": True} | attrs
    with pytest.raises(StageError, match=message):
        _model("QFullyConnected", weight, _data(1, 128), **options)
