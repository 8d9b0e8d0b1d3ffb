"""Reading exported programs without PyTorch: what they mean, and what is wrong with them."""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.importing import torch_export
from stages.options import ImportOptions
from tests.stages.importing.compiling import in_relax
from tests.stages.importing.test_archive import packed
from tests.stages.importing.torch_export.archives import (
    PROGRAM,
    SHAPE,
    SOURCE,
    TENSORS,
    archive,
    content,
    node,
)

NONE = ImportOptions()


def _sample() -> Any:
    return np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)


def test_a_convolution_means_what_its_formulas_say() -> None:
    """Written out in float64 from the documented formulas, on a sample without ties."""
    x = _sample()
    found = interpret.run(torch_export.convert_file(SOURCE, NONE), {"x": x})["out"]
    q = np.clip(np.rint(x * np.float32(1 / np.float32(0.02))) + 3, -128, 127)
    data = np.pad((q - 3) * np.float64(np.float32(0.02)), [(0, 0), (0, 0), (1, 1), (1, 1)])
    weight = TENSORS["weight"] * TENSORS["scales"].astype(np.float64).reshape(4, 1, 1, 1)
    view = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3))
    y = np.einsum("nchwkl,ockl->nohw", view, weight) + TENSORS["bias"].reshape(1, 4, 1, 1)
    expected = np.clip(np.rint(np.maximum(y, 0) / np.float32(0.05)) + 3, -128, 127)
    assert found.dtype == np.int8
    assert np.array_equal(found, expected)


def test_the_island_is_computed_on_integers_and_compiles_to_the_same() -> None:
    model = torch_export.convert_file(SOURCE, NONE)
    operators = [
        str(binding.value.op.name)
        for binding in bindings_of(model.module["main"])
        if hasattr(binding.value, "op")
    ]
    assert "relax.qnn.conv2d" in operators
    assert "relax.nn.conv2d" not in operators
    sample = {"x": _sample()}
    assert np.array_equal(in_relax(model, sample), interpret.run(model, sample)["out"])
    assert str(model.module["main"].attrs["numerics"]) == "torch"


def test_reading_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torchao", "pickle"):
        monkeypatch.setitem(sys.modules, name, None)
    assert torch_export.convert_file(SOURCE, NONE).params


def test_the_description_lists_layers_and_widths() -> None:
    table = torch_export.describe_file(SOURCE, NONE)
    assert table["producer"] == "PyTorch 2.9.0"
    assert table["inputs"][0]["shape"] == list(SHAPE)
    assert table["outputs"] == [{"name": "out", "shape": [1, 4, 6, 5]}]
    assert table["unsupported"] == []
    assert table["layers"] == [
        {
            "layer": "conv",
            "op": "conv2d",
            "weight_shape": [4, 3, 3, 3],
            "activations": {"bits": 8, "encoding": "signed"},
            "weights": {"bits": 8, "encoding": "signed"},
        }
    ]


def test_tensors_share_bytes_through_strides_and_offsets() -> None:
    shared = np.arange(12, dtype=np.float32)
    config = {
        name: {
            "path_name": "weight_0",
            "use_pickle": False,
            "tensor_meta": {
                "dtype": 7,
                "sizes": [{"as_int": 2}, {"as_int": 3}],
                "strides": [{"as_int": stride} for stride in strides],
                "storage_offset": {"as_int": offset},
            },
        }
        for name, strides, offset in (("a", (1, 2), 0), ("b", (3, 1), 6))
    }
    nodes = [
        node("aten.add.Tensor", "one", self="%x", other="%a"),
        node("aten.add.Tensor", "two", self="%one", other="%b"),
    ]
    names = dict.fromkeys("ab", shared)
    source = archive(
        content(nodes, names, "two", {"x": ("float32", (2, 3))}), {"only": shared},
        {"m/data/weights/model_weights_config.json": json.dumps({"config": config}).encode()},
    )  # fmt: skip
    found = interpret.run(torch_export.convert_file(source, NONE), {"x": np.zeros((2, 3), "f")})
    expected = shared[:6].reshape(3, 2).T + shared[6:].reshape(2, 3)
    assert np.array_equal(found["two"], expected)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a/code/x.py", b""), ("a/data.pkl", b"")], "TorchScript archive.*torch.export.save"),
        ([("archive/data.pkl", b"")], "pickled PyTorch checkpoint.*torch.export.save"),
        ([("serialized_exported_program.json", b"{}"), ("serialized_state_dict.pt", b"")],
         "Python pickle.*PyTorch 2.9"),
        ([("notes.txt", b"")], "has no models"),
        ([("m/models/a.json", b"{}"), ("m/models/b.json", b"{}")], "holds 2 programs"),
    ],
)  # fmt: skip
def test_other_files_of_pytorch_are_refused_with_the_way_out(
    members: list[tuple[str, bytes]], message: str
) -> None:
    with pytest.raises(StageError, match=message):
        torch_export.convert_file(packed(*members), NONE)


def test_a_pickle_that_the_graph_needs_is_refused_by_name() -> None:
    config = {name: {"path_name": "p", "use_pickle": True} for name in TENSORS}
    path = "m/data/weights/model_weights_config.json"
    source = archive(PROGRAM, TENSORS, {path: json.dumps({"config": config}).encode()})
    with pytest.raises(StageError, match=r"'weight' .* packed tensor subclass.*unwrap_tensor_sub"):
        torch_export.convert_file(source, NONE)
    without = {path: None, "m/data/weights/model.pt": b""}
    with pytest.raises(StageError, match="keeps its tensors as a Python pickle"):
        torch_export.convert_file(archive(PROGRAM, TENSORS, without), NONE)


def test_everything_unsupported_is_one_error() -> None:
    nodes = [
        node("aten.foo.default", "first", self="%x"),
        node("aten.bar.default", "second", self="%first"),
        node("aten.foo.default", "third", self="%second"),
    ]
    source = archive(content(nodes, {}, "third", {"x": ("float32", (2,))}), {})
    with pytest.raises(StageError) as caught:
        torch_export.convert_file(source, NONE)
    assert "aten.foo.default (2x: first, third)" in str(caught.value)
    assert "aten.bar.default (1x: second)" in str(caught.value)
    listed = torch_export.describe_file(source, NONE)["unsupported"]
    assert [item["op"] for item in listed] == ["aten.foo.default", "aten.bar.default"]


def test_writing_into_an_operand_is_seen_by_its_later_readers() -> None:
    nodes = [
        node("aten.add.Tensor", "sum", self="%x", other=1.0),
        node("aten.relu_.default", "written", self="%sum"),
        node("aten.add.Tensor", "out", self="%sum", other="%x"),
    ]
    source = archive(content(nodes, {}, "out", {"x": ("float32", (3,))}), {})
    x = np.array([-5, -0.5, 2], np.float32)
    found = interpret.run(torch_export.convert_file(source, NONE), {"x": x})["out"]
    assert np.array_equal(found, np.maximum(x + 1, 0) + x)


def test_writing_into_a_view_is_refused() -> None:
    nodes = [
        node("aten.add.Tensor", "sum", self="%x", other=1.0),
        node("aten.select.int", "part", self="%sum", dim=0, index=1),
        node("aten.relu_.default", "written", self="%part"),
        node("aten.add.Tensor", "out", self="%sum", other="%x"),
    ]
    source = archive(content(nodes, {}, "out", {"x": ("float32", (3,))}), {})
    with pytest.raises(StageError, match=r"seen by several names.*run_decompositions"):
        torch_export.convert_file(source, NONE)


def test_open_extents_are_asked_for() -> None:
    program = copy.deepcopy(PROGRAM)
    sizes = program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0] = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 4}}}
    source = archive(program, TENSORS)
    assert torch_export.describe_file(source, NONE)["inputs"][0]["shape"] == [None, 3, 6, 5]
    model = torch_export.convert_file(source, ImportOptions(inputs={"x": (2, 3, 6, 5)}))
    assert interpret.run(model, {"x": np.zeros((2, 3, 6, 5), "f")})["out"].shape[0] == 2
    with pytest.raises(StageError, match="but the file says"):
        torch_export.convert_file(source, ImportOptions(inputs={"x": (1, 3, 9, 9)}))
    sizes[2] = sizes[0]
    with pytest.raises(StageError, match="leaves the shape of input 'x' open"):
        torch_export.convert_file(archive(program, TENSORS), NONE)


def test_a_real_torchscript_file_is_refused_with_the_way_out() -> None:
    folder = os.environ.get("BITKILN_REALDATA")
    if not folder:
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    for name in (
        "derived/mobilenet_quantized_scripted_925_reexported_torch2.pt",
        "pytorch+android-demo-app/PyTorchDemoApp/app/src/main/assets/"
        "mobilenet_quantized_scripted_925.pt",
    ):
        path = Path(folder) / name
        if path.exists():
            with pytest.raises(StageError, match=r"TorchScript archive.*torch\.export\.save"):
                torch_export.convert_file(path.read_bytes(), NONE)
