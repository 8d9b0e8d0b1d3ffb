"""What a recipe says beside what its model file holds."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UserError
from pipelines.recipe import contradictions
from pipelines.recipe.load import load_recipe
from pipelines.recipe.resolved import Resolved
from tests.pipelines.fake_clone import TOY, Clone


def precision(bits: int, encoding: str) -> dict[str, Any]:
    return {"bits": bits, "encoding": encoding}


def layer(name: str, activations: dict[str, Any] | None, weights: dict[str, Any] | None) -> Any:
    return {"layer": name, "activations": activations, "weights": weights}


U8, S8 = precision(8, "unipolar"), precision(8, "signed")
U2, B1 = precision(2, "unipolar"), precision(1, "bipolar")
NET: dict[str, Any] = {
    "inputs": [{"name": "x.1", "dtype": "float32", "shape": [None, 3, 32, 32]}],
    "outputs": [{"name": "out", "shape": [1, 10]}],
    "operators": {"Conv": 4, "qonnx.custom_op.general.Quant": 7},
    "layers": [
        layer("conv1", U8, S8),
        layer("conv2", U2, B1),
        layer("conv3", U2, B1),
        layer("fc", U8, S8),
    ],
    "unsupported": [],
}


def resolved(folder: Path, text: str) -> Resolved:
    (folder / "net.onnx").write_bytes(b"net")
    (folder / "r.yaml").write_text(f"model: {{file: net.onnx}}\n{text}")
    return load_recipe(str(folder / "r.yaml"))


def said(folder: Path, text: str, description: dict[str, Any] = NET) -> list[str]:
    """What check says of the recipe, each from its line on, without column and source line."""
    try:
        contradictions.check(resolved(folder, text), description)
    except UserError as error:
        lines = error.message.replace(f"{folder}/", "").splitlines()
        return [re.sub(r"^r.yaml:(\d+):\d+", r"\1", x) for x in lines if x.startswith("r.yaml:")]
    return []


LEAVE = "; the file brings its own precision, so leave this out"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("quantization: {activations: {bits: 2}, weights: {bits: 1}}", []),
        ("quantization: {activations: {bits: 2, encoding: unipolar},"
         " weights: {bits: 1, encoding: bipolar}, stem: int8, head: int8}", []),
        ("quantization: {activations: {bits: 2}, weights: {bits: 2}}",
         ["2: quantization.weights.bits: says 2-bit, but in the model file layer 'conv2' has "
          f"1-bit bipolar weights, and 1 more differ{LEAVE}"]),
        ("quantization: {activations: {bits: 2, encoding: bipolar}, weights: {bits: 1}}",
         ["2: quantization.activations.encoding: says bipolar, but in the model file layer "
          f"'conv2' has 2-bit unipolar activations, and 1 more differ{LEAVE}"]),
        ("layers: [{match: conv2, weights: {bits: 1}, activations: {encoding: unipolar}}]", []),
        ("layers: [{match: 'conv[12]', weights: {bits: 2}}, {match: conv1, weights: {bits: 8}}]",
         ["2: layers[0].weights.bits: says 2-bit, but in the model file layer 'conv2' has 1-bit "
          f"bipolar weights{LEAVE}"]),
        ("quantization: {activations: {bits: 2}, weights: {bits: 3}}\n"
         "layers: [{match: '*', weights: {bits: 1}}, {match: conv1, weights: {bits: 8}},"
         " {match: fc, weights: {bits: 8}}]", []),
        ("layers: [{match: fc, algorithm: mac8}]", []),
        ("layers: [{match: conv9, algorithm: mac8}, {match: head, algorithm: mac8}]",
         ["2: layers[0].match: matches no layer; did you mean 'conv1'?",
          "2: layers[1].match: matches no layer; the layers are conv1, conv2, conv3, fc"]),
    ],
)  # fmt: skip
def test_precisions_and_patterns(tmp_path: Path, text: str, messages: list[str]) -> None:
    assert said(tmp_path, text) == messages


def test_the_place_is_shown(tmp_path: Path) -> None:
    found = resolved(tmp_path, "layers: [{match: conv2, weights: {bits: 2}}]")
    with pytest.raises(UserError) as error:
        contradictions.check(found, NET)
    assert error.value.message.replace(f"{tmp_path}/", "") == (
        "r.yaml:2:41: layers[0].weights.bits: says 2-bit, but in the model file layer 'conv2' has "
        f"1-bit bipolar weights{LEAVE}\n"
        "    2 | layers: [{match: conv2, weights: {bits: 2}}]\n"
        "      |                                         ^"
    )


def edited(**layers: tuple[Any, Any]) -> dict[str, Any]:
    net = copy.deepcopy(NET)
    for item in net["layers"]:
        if item["layer"] in layers:
            item["activations"], item["weights"] = layers[item["layer"]]
    return net


def test_the_first_and_last_layer_may_have_8_bits_or_the_inner_precision(tmp_path: Path) -> None:
    text = "quantization: {activations: {bits: 2}, weights: {bits: 1}"
    assert said(tmp_path, f"{text}}}", edited(conv1=(U8, B1), fc=(U2, B1))) == []
    assert said(tmp_path, f"{text}, stem: int8}}", edited(conv1=(U8, B1))) == [
        "2: quantization.stem: says int8, but in the model file layer 'conv1' has 1-bit bipolar "
        f"weights{LEAVE}"
    ]
    found = said(tmp_path, f"{text}}}", edited(conv1=(U8, precision(4, "signed"))))
    assert found and found[0].startswith("2: quantization.weights.bits: says 1-bit, but")


def test_an_inner_precision_that_no_layer_has_is_a_contradiction(tmp_path: Path) -> None:
    net = copy.deepcopy(NET)
    net["layers"] = [net["layers"][0], net["layers"][-1]]
    found = said(tmp_path, "quantization: {activations: {bits: 8}, weights: {bits: 1}}", net)
    assert found == [
        "2: quantization.weights.bits: says 1-bit, but in the model file layer 'conv1' has "
        f"8-bit signed weights, and 1 more differ{LEAVE}"
    ]


def test_a_float_layer_has_no_bits(tmp_path: Path) -> None:
    found = said(tmp_path, "layers: [{match: conv2, weights: {bits: 1}}]", edited(conv2=(U2, None)))
    assert found == [
        "2: layers[0].weights.bits: says 1-bit, but in the model file layer 'conv2' has float "
        f"weights{LEAVE}"
    ]


FLOAT = {
    **NET,
    "operators": {"Conv": 4, "Relu": 3},
    "layers": [layer(f"conv{n}", None, None) for n in range(5)],
}


def test_a_float_model_has_no_precision_without_calibration(tmp_path: Path) -> None:
    text = "quantization: {activations: {bits: 2}, weights: {bits: 1}}"
    assert said(tmp_path, text, FLOAT) == [
        "2: quantization: net.onnx has no quantizers: its 5 layers are float (conv0, conv1, "
        "conv2, conv3, ...); name calibration data under calibration, train it with quantizers and "
        "export it as QONNX (Brevitas does), or leave quantization out for a package that computes "
        "in float32"
    ]
    assert not said(tmp_path, "", FLOAT)
    assert not said(tmp_path, f"{text}\ncalibration: {{data: images.npz}}", FLOAT)


@pytest.mark.parametrize(
    "kind",
    ["qonnx.custom_op.general.BipolarQuant", "qonnx.custom_op.general.MultiThreshold", "Sign",
     "DequantizeLinear", "finn.custom_op.fpgadataflow.hls.MVAU_hls"],
)  # fmt: skip
def test_what_quantizes_is_left_to_the_importer(tmp_path: Path, kind: str) -> None:
    assert said(tmp_path, "", {**FLOAT, "operators": {"Conv": 1, kind: 1}}) == []


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ("shape: [1, 3, 32, 32], color: bgr, resize: 40, crop: 32, mean: [1, 1, 1]",
         []),
        ("resize: 32", []),
        ("shape: [1, 3, 224, 224]",
         ["2: inputs.x.1.shape: says [1, 3, 224, 224], but the model has [?, 3, 32, 32]"]),
        ("color: gray", ["2: inputs.x.1.color: gray has 1 channels, and the input takes "
                         "[1, 3, 32, 32]: 3"]),
        ("mean: [1, 2]", ["2: inputs.x.1.mean: has 2 values, and the input takes "
                          "[1, 3, 32, 32]: 3 channels"]),
        ("resize: 64, crop: 48", ["2: inputs.x.1.crop: gives 48 x 48 pixels, and the input "
                                  "takes [1, 3, 32, 32]"]),
        ("resize: 64", ["2: inputs.x.1.resize: gives a shorter side of 64 pixels, and the input "
                        "takes [1, 3, 32, 32]; state crop"]),
    ],
)  # fmt: skip
def test_inputs(tmp_path: Path, fields: str, messages: list[str]) -> None:
    assert said(tmp_path, f"inputs: {{x.1: {{{fields}}}}}") == messages


def test_inputs_and_outputs_that_the_model_has_not(tmp_path: Path) -> None:
    text = "inputs: {x: {scale: 1.0}}\noutputs: {logits: {postprocess: softmax}}"
    assert said(tmp_path, text) == [
        "2: inputs.x: the model has no such input; accepted: x.1",
        "3: outputs.logits: the model has no such output; accepted: out",
    ]


def test_an_input_that_is_no_picture_takes_no_picture(tmp_path: Path) -> None:
    net = {**NET, "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 600]}]}
    assert said(tmp_path, "inputs: {x: {crop: 8, scale: 1.0}}", net) == [
        "2: inputs.x.crop: is for pictures, and the input takes [1, 600], which holds none"
    ]


def test_labels_are_counted(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("a\nb\n")
    assert said(tmp_path, "outputs: {out: {labels: few.txt}}") == [
        "2: outputs.out.labels: few.txt has 2 lines, and the output has 10 classes; give one "
        "name a line, in the order of the classes"
    ]
    assert said(tmp_path, "outputs: {out: {labels: none.txt}}") == [
        "2: outputs.out.labels: none.txt does not exist"
    ]
    (tmp_path / "few.txt").write_text("a\n" * 10)
    assert said(tmp_path, "outputs: {out: {labels: few.txt}}") == []


def test_top5_of_few_classes(tmp_path: Path) -> None:
    net = {**NET, "outputs": [{"name": "out", "shape": [1, 4]}]}
    text = "evaluation: {data: d.npz, metric: top5}"
    assert said(tmp_path, text) == []
    assert said(tmp_path, text, net) == [
        "2: evaluation.metric: top5 says nothing about 4 classes; accepted: top1"
    ]


@pytest.mark.slow
def test_a_recipe_that_says_what_its_file_says_agrees() -> None:
    stated = {"quantization": "{activations: {bits: 2}, weights: {bits: 2}, stem: int8}"}
    found = load_recipe("digits_a2w2_host", stated)
    assert found.recipe.model.file is not None
    from stages import importing

    contradictions.check(found, importing.describe(source=found.recipe.model.file.read_bytes()))


def test_a_contradiction_stops_a_build_before_it_imports(clone: Clone) -> None:
    clone.write("models/net.onnx", "net 2 0")
    text = "model: {file: ../models/net.onnx}\nhardware: rpi3\n"
    clone.write("recipes/file.yaml", f"{text}layers: [{{match: conv2, weights: {{bits: 3}}}}]\n")
    for word in ("build", "accuracy"):
        _, err = clone.doit(word, "recipe=file", expect=3)
        assert err.startswith(
            "ERROR: recipes/file.yaml:3:41: layers[0].weights.bits: says 3-bit, but in the model "
            "file layer 'conv2' has 2-bit bipolar weights; the file"
        )
    assert clone.runs() == {}
    clone.doit("build", "recipe=file", "layers=[{match: conv2, weights: {bits: 2}}]")
    _, err = clone.doit("build", "recipe=file", "layers=[{match: conv7, weights: {bits: 2}}]",
                        expect=3)  # fmt: skip
    assert "command line: layers[0].match: matches no layer; did you mean 'conv1'?" in err


def test_what_a_file_holds_is_found_out_once_and_cleaned(clone: Clone) -> None:
    clone.write("models/net.onnx", "net 2 0")
    clone.write("recipes/file.yaml", "model: {file: ../models/net.onnx}\nhardware: rpi3\n")
    clone.doit("build", "recipe=file")
    (kept,) = clone.manifests("describing")
    before = kept.stat().st_ino
    clone.doit("build", "recipe=file", "package.formats=[shared]")
    assert [path.stat().st_ino for path in clone.manifests("describing")] == [before]
    (kept.parent / "files" / "table.json").write_text("damaged")
    clone.doit("build", "recipe=file")
    assert len(clone.manifests("describing")) == 1
    clone.doit("clean", "recipe=file")
    assert clone.manifests("describing") == []


def test_a_zoo_network_is_checked_too(clone: Clone) -> None:
    clone.write("recipes/toy.yaml", f"{TOY}outputs: {{z: {{postprocess: argmax}}}}\n")
    _, err = clone.doit("build", "recipe=toy", expect=3)
    assert "recipes/toy.yaml:6:11: outputs.z: the model has no such output" in err
    assert clone.runs() == {"zoo": 1}
