"""`doit conformance` on a folder of models, through the front door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pipelines.commands import conformance
from pipelines.conformance import examiner_process, results_file
from pipelines.errors import UserError
from pipelines.recipe.overrides import Variables
from stages.importing.onnx.onnx_reader import QONNX
from tests import warm
from tests.stages.importing.graphs import graph, node

ROOT = Path(__file__).parents[2]


def quantized(scale: float) -> bytes:
    """A layer of QONNX that a package can be built of."""
    tensors = {"s": scale, "one": 1.0, "z": 0.0, "b": 4.0}
    quant = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    rng = np.random.default_rng(0)
    return graph(
        [
            helper.make_node("Quant", ["x", "s", "z", "b"], ["q"], domain=QONNX, **quant),
            helper.make_node("Quant", ["w", "one", "z", "b"], ["v"], domain=QONNX, **quant),
            node("MatMul", ["q", "v"]),
        ],
        {
            **{name: np.array(value, np.float32) for name, value in tensors.items()},
            "w": rng.integers(-7, 8, (6, 4)).astype(np.float32),
        },
        [1, 6],
    )


def dequantizing(kind: int, shape: list[int]) -> bytes:
    """Stored integers of any width, and their reals."""
    tensors = [helper.make_tensor("s", TensorProto.FLOAT, [], [0.5])]
    made = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["x", "s"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        tensors,
    )
    opsets = [helper.make_opsetid("", 21)]
    return bytes(helper.make_model(made, opset_imports=opsets).SerializeToString())


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "good.onnx").write_bytes(quantized(0.25))
    (folder / "odd.onnx").write_bytes(
        graph([node("Det", ["x"]), node("Relu", ["x"], "r")], {}, [2, 2], rank=0)
    )
    (folder / "cut.onnx").write_bytes(quantized(0.25)[:-20])
    (folder / "readme.txt").write_text("no model")
    for name in ("net-symbol.json", "net-0001.params", "net-0002.params"):
        (folder / name).write_text("{}")
    for name, kind, shape in (("bits", TensorProto.UINT4, [5]), ("scalar", TensorProto.INT8, [])):
        (folder / f"{name}.onnx").write_bytes(dequantizing(kind, shape))
    return folder


def table(tmp_path: Path, *arguments: str, fails: bool = False) -> tuple[dict[str, Any], str]:
    done = warm.run(
        "conformance",
        *arguments,
        f"json={tmp_path / 'r.json'}",
        cwd=ROOT,
        env={**warm.environment(), "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return json.loads((tmp_path / "r.json").read_text()), done.stdout


def test_every_file_has_its_row(models: Path, tmp_path: Path) -> None:
    pytest.importorskip("qonnx")
    pytest.importorskip("onnxruntime")
    result, said = table(tmp_path, str(models))
    rows = {row["file"]: row for row in result["rows"]}
    assert list(rows) == [
        *("bits.onnx", "cut.onnx", "inner/good.onnx", "net-symbol.json", "odd.onnx", "scalar.onnx")
    ]
    good = rows["inner/good.onnx"]
    assert (good["status"], good["difference"], good["samples"]) == ("exact", 0.0, 20)
    assert good["peer"].startswith("qonnx executor") and good["format"] == "QONNX"
    assert good["import_seconds"] > 0 and good["operators"]["MatMul"] == 1
    assert rows["odd.onnx"]["status"] == "refused"
    assert [item["op"] for item in rows["odd.onnx"]["unsupported"]] == ["Det"]
    assert rows["cut.onnx"]["status"] == "damaged" and rows["cut.onnx"]["why"]
    assert {rows[name]["status"] for name in ("bits.onnx", "scalar.onnx")} == {"exact"}
    twins = rows["net-symbol.json"]
    assert twins["status"] == "damaged" and "leave only one" in twins["why"]
    assert "2 damaged, 3 exact, 1 refused" in said
    kept = (ROOT / "artifacts" / "conformance.jsonl").read_text().splitlines()
    again, _ = table(tmp_path, str(models))
    assert again == result
    assert (ROOT / "artifacts" / "conformance.jsonl").read_text().splitlines() == kept


def test_it_says_where_the_default_session_is_not_followed(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "models"
    folder.mkdir()
    stored = {"w": np.arange(-96, 96).reshape(32, 6).astype(np.int8), "s": np.float32(0.01)}
    nodes = [node("DequantizeLinear", ["w", "s"], "f"), node("MatMul", ["x", "f"])]
    source = graph(nodes, stored, [2, 32], opset=21)  # type: ignore[arg-type]
    (folder / "weights.onnx").write_bytes(source)
    result, said = table(tmp_path, str(folder))
    (row,) = result["rows"]
    (island,) = row["islands"]
    assert row["status"] in ("exact", "close") and row["from_default"]["status"] == "differs"
    assert island["gives"] == "the unoptimized graph" and island["layers"] == ["MatMul_y"]
    assert "the unoptimized graph at MatMulNBits (1), by 0." in said
    assert "off the default session" in said


def test_a_file_that_kills_the_process_is_a_row_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a signal, in the framework's runtime and in bitkiln; the files behind it still come."""
    monkeypatch.setattr(examiner_process, "MODULE", "tests.pipelines.conformance.dying_worker")
    monkeypatch.setattr(conformance, "RESULTS", tmp_path / "rows.jsonl")
    for name in ("a dies.onnx", "b peer dies.onnx", "c.onnx"):
        (tmp_path / name).write_bytes(name.encode())
    written = tmp_path / "table.json"
    with pytest.raises(UserError, match=r"1 of 3 files crashed or differ, such as a dies\.onnx"):
        conformance.run(variables=Variables({"json": str(written)}, {}), files=[str(tmp_path)])
    rows = json.loads(written.read_text())["rows"]
    assert [row["status"] for row in rows] == ["crashed", "alone", "exact"]
    assert "b peer dies.onnx" in capsys.readouterr().out


@pytest.mark.slow
def test_packages_are_built_and_compared(models: Path, tmp_path: Path) -> None:
    pytest.importorskip("qonnx")
    result, _ = table(tmp_path, str(models / "inner" / "good.onnx"), "packages=yes", "samples=3")
    (row,) = result["rows"]
    assert row["package"]["status"] in ("exact", "not run"), row["package"]
    assert row["samples"] == 3


def test_a_row_that_was_being_written_is_found_out_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    kept = results_file.ResultsFile(path)
    kept.add("a", {"status": "exact"})
    with path.open("a") as file:
        file.write('{"key": "b", "row": {"sta')
    kept = results_file.ResultsFile(path)
    assert kept.row("a") == {"status": "exact"} and kept.row("b") is None
    kept.add("b", {"status": "close"})
    assert results_file.ResultsFile(path).row("b") == {"status": "close"}


def test_other_bytes_or_settings_are_another_result(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"one")
    settings = {"samples": 20, "pictures": [], "packages": False}
    first = results_file.key_of(path, settings)
    assert results_file.key_of(path, settings) == first
    assert results_file.key_of(path, {**settings, "samples": 21}) != first
    path.write_bytes(b"two")
    assert results_file.key_of(path, settings) != first


@pytest.mark.parametrize(
    ("files", "variables", "message"),
    [
        ((), {}, "names no model file; for example: doit conformance models/"),
        (("a.onnx",), {"packages": "maybe"}, "packages=maybe: accepted: yes, no"),
        (("a.onnx",), {"pictures": "."}, "pictures=.: holds no picture"),
        (("a.onnx",), {"samples": "0"}, "samples=0: not a whole number from 1 to 1000000000"),
    ],
)
def test_what_it_refuses(
    files: tuple[str, ...],
    variables: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(UserError) as error:
        conformance.run(variables=Variables(variables, {}), files=files)
    assert error.value.message == message
