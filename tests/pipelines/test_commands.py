"""The commands through the front door, with a package that adds a number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.commands import check
from pipelines.commands.importing import _tell as tell
from pipelines.commands.importing import recipe_name
from pipelines.errors import UserError
from pipelines.recipe.overrides import Variables
from tests.pipelines.fake_clone import TOY, Clone


def saved(clone: Clone, name: str, array: np.ndarray) -> str:
    np.save(clone.root / name, array)
    return name


def test_run_builds_what_is_missing_and_prints_the_best(clone: Clone) -> None:
    name = saved(clone, "x.npy", np.array([[1, 5, 2], [0, 3, 4]], np.float32))
    out, _ = clone.doit("run", "recipe=toy", f"input={name}", "json=r.json", "out=r.npz")
    assert "toy, in a test:" in out and "packaging       built" in out
    result = json.loads((clone.root / "r.json").read_text())
    added = int(clone.package()["added"])
    best = result["outputs"]["y"]["best"]
    assert [row["class"] for row in best] == [1, 5, 4, 2, 0]
    assert best[0]["value"] == 5 + added
    kept = np.load(clone.root / "r.npz")["y"]
    assert (
        kept.tolist()
        == result["outputs"]["y"]["values"]
        == [[1 + added, 5 + added, 2 + added], [added, 3 + added, 4 + added]]
    )


def test_run_is_silent_about_what_is_cached(clone: Clone) -> None:
    name = saved(clone, "x.npy", np.array([[1, 5, 2], [0, 3, 4]], np.float32))
    clone.doit("build", "recipe=toy")
    out, err = clone.doit("run", "recipe=toy", f"input={name}")
    assert out.startswith("toy, in a test:") and "cached" not in out and err == ""


def test_run_knows_labels_and_softmax(clone: Clone) -> None:
    clone.write("recipes/names.txt", "\n".join("abcdef"))
    clone.write(
        "recipes/toy.yaml", f"{TOY}outputs: {{y: {{postprocess: softmax, labels: names.txt}}}}\n"
    )
    name = saved(clone, "x.npy", np.array([[0, 9, 0], [0, 0, 0]], np.float32))
    clone.doit("run", "recipe=toy", f"input={name}", "json=r.json")
    best = json.loads((clone.root / "r.json").read_text())["outputs"]["y"]["best"]
    assert best[0]["label"] == "b" and best[0]["probability"] > 0.99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "input= is missing; for example: doit run recipe=toy input=FILE"),
        (["input=none.npy"], "none.npy: there is no such file"),
        (["input=x.txt"], "x.txt: '.txt' is not accepted; accepted: .jpg, .jpeg, .png, .bmp, "
                          ".npy, .npz"),
        (["input=bad.npy"], "bad.npy: not a .npy file of plain numbers"),
        (["input=big.npy"], "input 'x' takes [2, 3], found [4, 4]; axes of length 1 may be left "
                            "out and channels may stand last"),
        (["input=x.npy", "threads=many"], "threads=many: not a whole number from 1 to 256"),
        (["input=x.npy", "repeat=3"], "repeat=: doit run repeats runs to time them, with "
                                      "profile=FILE.json"),
        (["input=x.npy", "profile=p.json"], "profile=: the package is built without layer times; "
                                            "add package.profile=true to the command line, or "
                                            "package: {profile: true} to the recipe"),
        (["input=x.npy", "profile=p.json", "package={profile: true, formats: [shared]}"],
         "profile=: it is the package's own program that tells layer times; add executable to "
         "package.formats"),
    ],
)  # fmt: skip
def test_what_run_refuses(clone: Clone, arguments: list[str], message: str) -> None:
    clone.write("bad.npy", "no array")
    saved(clone, "big.npy", np.zeros((4, 4), np.float32))
    saved(clone, "x.npy", np.zeros((2, 3), np.float32))
    _, err = clone.doit("run", "recipe=toy", *arguments, expect=3)
    assert err == f"ERROR: {message}\n"


def test_recipes_lists_the_broken_ones_too(clone: Clone) -> None:
    clone.write("recipes/odd.yaml", TOY.replace("bits: 1", "bitz: 1"))
    out, _ = clone.doit("recipes", "json=r.json")
    rows = {row["recipe"]: row for row in json.loads((clone.root / "r.json").read_text())}
    assert rows["toy"]["description"] == "a toy" and rows["toy"]["hardware"] == "rpi3"
    assert rows["odd"]["description"].startswith("broken: ") and "bitz" in out


def test_json_that_cannot_be_written(clone: Clone) -> None:
    _, err = clone.doit("recipes", "json=no/folder.json", expect=3)
    assert err == "ERROR: json=no/folder.json: cannot write it: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "import takes one model file, found none; for example: doit import net.onnx"),
        (("a.onnx", "b.onnx"), "import takes one model file, found 2: a.onnx, b.onnx; "
                               "for example: doit import net.onnx"),
        (("a.onnx",), "a.onnx: No such file or directory"),
        (("a.tflite",), "a.tflite: No such file or directory"),
        (("file=a.h5",), "a.h5: '.h5' is not accepted; accepted: .onnx (ONNX, QONNX, FINN-ONNX), "
                         ".tflite (TensorFlow Lite), .pt2 (a PyTorch exported program), "
                         "-symbol.json (MXNet, with NAME-*.params beside it)"),
    ],
)  # fmt: skip
def test_what_import_refuses(clone: Clone, arguments: tuple[str, ...], message: str) -> None:
    clone.write("stages/importing/__init__.py", "")
    _, err = clone.doit("import", *arguments, expect=3)
    assert err == f"ERROR: {message}\n"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ([], "everything in it is supported\n"),
        (
            [{"op": "TopK", "layer": "best"}],
            "left to the caller: TopK (best) at the end; it is not packaged\n"
            "everything else in it is supported\n",
        ),
    ],
)
def test_import_says_what_is_not_packaged(
    left: list[dict[str, str]], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty: dict[str, Any] = {"inputs": [], "outputs": [], "layers": [], "unsupported": []}
    about = {"format": "QONNX", "producer": "", "parameters": 1, "bytes": 1, "operators": {}}
    tell(Path("net.onnx"), {**about, **empty, "left_to_caller": left})
    assert capsys.readouterr().out.endswith(f"\n{said}")


def test_import_writes_a_starter_recipe_once(clone: Clone) -> None:
    clone.write(
        "stages/importing/__init__.py",
        "def describe(*, source):\n"
        "    return dict(format='QONNX', opset=9, producer='', parameters=1, bytes=len(source),\n"
        "                inputs=[], outputs=[], operators={'MatMul': 1}, left_to_caller=[],\n"
        "                layers=[], unsupported=[dict(op='Odd', why='no', layers=['a', 'b'])])\n"
        "def starter_recipe(description, model_path, name, labels):\n"
        "    return f'# {name} {model_path}\\n'\n",
    )
    clone.write("models/TFC 1W2A.onnx", "net")
    out, _ = clone.doit("import", "models/TFC 1W2A.onnx")
    target = clone.root / "recipes" / "tfc_1w2a.yaml"
    assert target.read_text() == "# tfc_1w2a ../models/TFC 1W2A.onnx\n"
    assert "NOT SUPPORTED (1)" in out and "a, b" in out
    assert out.endswith("written: recipes/tfc_1w2a.yaml\n")  # a build would stop: nothing is next
    target.write_text("mine")
    out, _ = clone.doit("import", "models/TFC 1W2A.onnx")
    assert target.read_text() == "mine" and "kept: recipes/tfc_1w2a.yaml is there already" in out


@pytest.mark.parametrize(
    ("stem", "name"),
    [("TFC_1W2A", "tfc_1w2a"), ("a--b", "a_b"), ("8bit", "model_8bit"), ("é", "model")],
)
def test_recipe_names(stem: str, name: str) -> None:
    assert recipe_name(Path(f"{stem}.onnx")) == name


def raising(error: Exception) -> Callable[..., Any]:
    def function(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return function


def test_check_runs_every_step_and_names_what_failed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = (("types", "mypy", ("--no-such-flag",)), ("lint", "ruff", ("--version",)))
    monkeypatch.setattr(check, "STEPS", steps)
    with pytest.raises(UserError, match=r"^check: types failed; see above$"):
        check.run(variables=Variables({}, {}))
    out, _ = capfd.readouterr()
    assert "ruff 0." in out and "longest files" in out
    monkeypatch.setattr(check, "STEPS", steps[1:])
    check.run(variables=Variables({}, {}))
    monkeypatch.setattr(check, "STEPS", (("lint", "no-such-tool", ()),))
    with pytest.raises(UserError, match=r"no-such-tool not installed; run: pip install"):
        check.run(variables=Variables({}, {}))


def test_check_ends_with_the_slowest_tests(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tests = ("def test_quick():\n    pass\n", "def test_dear():\n    time.sleep(0.3)\n")
    (tmp_path / "test_two.py").write_text("import time\n\n\n" + "\n\n".join(tests))
    words = (str(tmp_path), "-c", "/dev/null", "-p", "no:cacheprovider")
    step = ("tests", "pytest", (*words, f"--junitxml={check.REPORT}"))
    monkeypatch.setattr(check, "STEPS", (step,))
    check.run(variables=Variables({"json": str(tmp_path / "result.json")}, {}))
    out, _ = capfd.readouterr()
    assert re.findall(r"::(test_\w+)$", out.split("slowest tests")[1], re.MULTILINE) == [
        "test_dear",
        "test_quick",
    ]
    dearest = json.loads((tmp_path / "result.json").read_text())["dearest"]
    assert dearest[0]["seconds"] >= 0.3 > dearest[1]["seconds"]
