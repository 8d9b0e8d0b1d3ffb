"""The first steps with a model: import, build, and run on photographs of any size."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines import work_folder
from pipelines.commands import importing
from pipelines.recipe.overrides import parse
from tests import warm
from tests.stages.importing.graphs import graph, node
from tests.stages.importing.tflite.test_metadata import model, told

ROOT = Path(__file__).parents[2]
HEIGHT, WIDTH = 12, 20


def imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doit import`, which writes beside the model here."""
    monkeypatch.setattr(work_folder, "RECIPES", path.parent)
    importing.run(variables=parse(["import"], ()), files=[str(path)])


def test_a_photograph_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The middle of what covers the input: here the mean of its colours decides."""
    weight = np.eye(3, dtype=np.float32)
    nodes = [
        node("GlobalAveragePool", ["x"], "p"),
        node("Flatten", ["p"], "f"),
        node("MatMul", ["f", "w"]),
    ]
    path = tmp_path / "first_steps.onnx"
    path.write_bytes(graph(nodes, {"w": weight}, [1, 3, HEIGHT, WIDTH], opset=13))
    imported(path, monkeypatch)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        f"written: {path.with_suffix('.yaml')}",
        "next: doit build recipe=first_steps",
        "next: doit run recipe=first_steps input=photo.jpg",
    ]
    recipe = path.with_suffix(".yaml")
    for number, (width, height) in enumerate([(97, 41), (5, 9)]):
        photo = tmp_path / f"{number}.png"
        Image.new("RGB", (width, height), (20, 40, 200)).save(photo)
        done = warm.run("run", f"recipe={recipe}", f"input={photo}", cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
        (best,) = re.findall(r"^  1 +(\d) +([\d.]+)$", done.stdout, re.MULTILINE)
        scores = np.exp(np.array([20, 40, 200]) / 255)
        assert best[0] == "2" and float(best[1]) == pytest.approx(
            scores[2] / scores.sum(), abs=1e-5
        )

    text = recipe.read_text()
    recipe.write_text(re.sub(r'^  "x": .*$', '  "x": {color: bgr}', text, flags=re.MULTILINE))
    done = warm.run("run", f"recipe={recipe}", f"input={tmp_path / '0.png'}", cwd=ROOT)
    assert done.returncode == 3
    advice = 'inputs:\n  "x": {color: "bgr", resize: [12, 20], crop: [12, 20]}\n'
    assert done.stderr == (
        f"ERROR: {tmp_path / '0.png'}: has 97 x 41 pixels, and input 'x' takes 20 x 12; for "
        f"pictures of any size write in the recipe\n{advice}"
    )
    recipe.write_text(f"model: {{file: {path}}}\n{advice}")
    done = warm.run("run", f"recipe={recipe}", f"input={tmp_path / '0.png'}", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_labels_come_out_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.tflite"
    names = ["background", *(f"class {number}" for number in range(1, 192))]
    path.write_bytes(model(told([127.5], [127.5]), "\n".join(names).encode()))
    mine = tmp_path / "net_labels.txt"
    mine.write_text("mine\n")  # is not written over
    imported(path, monkeypatch)
    assert mine.read_text() == "mine\n"
    assert (tmp_path / "net_labels2.txt").read_text().splitlines() == names
    text = path.with_suffix(".yaml").read_text()
    assert '{labels: "net_labels2.txt"}' in text and "# evaluation: " in text
    assert "first class is the background" in text and "first_class: 1" in text
    assert f"written: {tmp_path / 'net_labels2.txt'}" in capsys.readouterr().out
    imported(path, monkeypatch)
    assert "is there already" in capsys.readouterr().out
    assert not (tmp_path / "net_labels3.txt").exists()
    path.with_suffix(".yaml").unlink()
    imported(path, monkeypatch)
    assert '{labels: "net_labels2.txt"}' in path.with_suffix(".yaml").read_text()
