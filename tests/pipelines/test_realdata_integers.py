"""Real integer networks through the front door: the very predictions of their own framework.

The files and the labelled data are not part of the project: BITKILN_REALDATA names their folder.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pipelines.test_realdata import ROOT, doit

TINY = "mlcommons+tiny/benchmark/training"
COCO = "google-coral+test_data"
PHOTOS = {
    "data/imagenet_sample/n02077923_sea_lion.JPEG": "sea lion",
    "data/imagenet_sample/n01820546_lorikeet.JPEG": "lorikeet",
}
KEYWORDS = "tum-ei-eda+mlonmcu-models/micro_kws_m_quantized/micro_kws_m_static_qdq.onnx"


@dataclass(frozen=True)
class Case:
    """A network, its labelled data, and what a recipe must say beside what `import` guessed."""

    file: str
    data: str
    least: float
    """The rate it reaches at least, 0 to 1; published rates are a little higher."""
    says: str = ""
    first_class: int = 0
    samples: int = 200


CASES = {
    "resnet8": Case(
        f"{TINY}/image_classification/trained_models/pretrainedResnet_quant.tflite",
        "data/cifar10_test_jpeg_2000.npz",
        0.75,
    ),
    "kws": Case(
        f"{TINY}/keyword_spotting/trained_models/kws_ref_model.tflite",
        "data/kws01_mfcc_int8_500.npz",
        0.85,
    ),
    "mobilenet_v1": Case(
        f"{COCO}/mobilenet_v1_0.25_128_quant.tflite",
        "data/imagenet_sample",
        0.3,
        "{resize: 128, crop: 128}",
        first_class=1,
    ),
    "mobilenet_v2": Case(
        f"{COCO}/tf2_mobilenet_v2_1.0_224_ptq.tflite",
        "data/imagenet_sample",
        0.6,
        "{resize: 224, crop: 224}",
        first_class=1,
        samples=40,
    ),
}


def first_input(path: Path) -> str:
    from stages import importing

    return str(importing.describe(source=path.read_bytes())["inputs"][0]["name"])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_network_predicts_as_its_framework_does(name: str, realdata: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is the reference")
    case = CASES[name]
    source = realdata / case.file
    said = f"inputs: {{{json.dumps(first_input(source))}: {case.says}}}\n" if case.says else ""
    recipe = tmp_path / f"{name}.yaml"
    recipe.write_text(
        f"model: {{file: {json.dumps(str(source))}}}\n{said}hardware: host\n"
        f"evaluation: {{data: {realdata / case.data}, first_class: {case.first_class}}}\n"
    )
    result = tmp_path / "r.json"
    given = ("reference=framework", f"samples={case.samples}", f"json={result}")
    doit("accuracy", f"recipe={recipe}", *given)
    found = json.loads(result.read_text())
    assert found["reference"].startswith("LiteRT reference kernels")
    assert found["samples"] == case.samples
    assert found["differing"] == []
    assert found["rate"] >= case.least
    assert (ROOT / "artifacts" / "packages" / name).is_dir()


@pytest.mark.slow
def test_a_starter_recipe_builds_unchanged(realdata: Path) -> None:
    """`doit import` on a uint8 network, then `doit verify`."""
    source = realdata / CASES["mobilenet_v1"].file
    recipe = ROOT / "recipes" / "mobilenet_v1_0_25_128_quant.yaml"
    labels = recipe.with_name(f"{recipe.stem}_labels.txt")
    for file in (recipe, labels):
        file.unlink(missing_ok=True)
    try:
        said = doit("import", str(source))
        assert "everything in it is supported" in said and "tflite numerics" in said
        assert "pixels are stored as they are" in recipe.read_text()
        assert f"next: doit run recipe={recipe.stem} input=photo.jpg" in said
        assert "exact" in doit("verify", f"recipe={recipe.stem}")
        for photo, name in PHOTOS.items():  # of any size, with names out of the file's metadata
            out = doit("run", f"recipe={recipe.stem}", f"input={realdata / photo}")
            assert re.search(rf"^  1 +\d+ +{name}", out, re.MULTILINE), out
    finally:
        for file in (recipe, labels):
            file.unlink(missing_ok=True)


@pytest.mark.slow
def test_a_file_that_leaves_its_batch_open_takes_several_samples(
    realdata: Path, tmp_path: Path
) -> None:
    source = realdata / KEYWORDS
    recipe, result = tmp_path / "keywords.yaml", tmp_path / "r.json"
    recipe.write_text(
        f"model: {{file: {json.dumps(str(source))}}}\nhardware: host\n"
        f"inputs: {{{json.dumps(first_input(source))}: {{shape: [4, 1960]}}}}\n"
    )
    doit("verify", f"recipe={recipe}", f"json={result}")
    assert {row["verdict"] for row in json.loads(result.read_text())["rows"]} == {"exact"}
    manifest = json.loads((ROOT / "artifacts/packages/keywords/manifest.json").read_text())
    (given,) = manifest["inputs"]
    assert given["shape"] == [4, 1960]
    assert manifest["memory"]["buffer_bytes"] < 4 * given["bytes"]  # that of one sample
