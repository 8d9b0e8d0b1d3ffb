"""Real networks through the front door: the same predictions as the qonnx executor, digit by digit.

The files and the labelled digits are not part of the project: BITKILN_REALDATA names their folder.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from hw import host
from pipelines.runners.choose import choose
from tests import warm
from tests.stages.importing.graphs import qonnx_executor

ROOT = Path(__file__).parents[2]
ZOO = "fastmachinelearning+qonnx_model_zoo/models"
TFC = f"{ZOO}/MNIST/Brevitas_FINN_TFC/TFC"
NETWORKS = {
    "tfc_1w1a": f"{TFC}/TFC_1W1A.onnx",
    "tfc_1w2a": f"{TFC}/TFC_1W2A.onnx",
    "finn_tfc": "Xilinx+finn/src/finn/qnn-data/build_dataflow/model.onnx",
}
DIGITS = "data/mnist_test_2000.npz"


def doit(*arguments: str) -> str:
    result = warm.run(*arguments, cwd=ROOT, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def keep_batch(model: onnx.ModelProto) -> None:
    """Let reshapes to one sample keep any batch instead (the FINN file has one)."""
    del model.graph.value_info[:]
    targets = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        shape = numpy_helper.to_array(tensor)
        if tensor.name in targets and shape[0] == 1:
            tensor.CopyFrom(numpy_helper.from_array(np.array([0, *shape[1:]]), tensor.name))


def qonnx_predictions(source: bytes, images: np.ndarray, batch: int) -> np.ndarray:
    """Arg max of the source graph's logits, executed by qonnx, `batch` images at a time."""
    model = onnx.load_model_from_string(source)
    name, last = model.graph.input[0].name, model.graph.node[-1]
    logits = last.input[0] if last.op_type == "TopK" else model.graph.output[0].name
    keep_batch(model)
    execute = qonnx_executor(model.SerializeToString(), full=True, **{name: [batch, 1, 28, 28]})
    parts = images.reshape(-1, batch, 1, 28, 28)
    return np.concatenate([execute({name: part})[logits].argmax(-1) for part in parts])


def built(source: Path, folder: Path) -> Path:
    """The package of a model, for this machine."""
    recipe = folder / f"{re.sub('[^a-z0-9]+', '_', source.stem.lower())}.yaml"
    recipe.write_text(f"extends: base\nmodel: {{file: {source}}}\nhardware: host\n")
    output = doit("build", f"recipe={recipe}")
    package = re.search(r"artifacts/packages/\S+", output)
    assert package, output
    return ROOT / package[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_network_predicts_as_qonnx_does(name: str, realdata: Path, tmp_path: Path) -> None:
    source = realdata / NETWORKS[name]
    data = np.load(realdata / DIGITS)
    raw, labels = data["x"], data["y"]
    scale = np.float32(1 if name == "finn_tfc" else 255)
    images = (raw.astype(np.float32) / scale).reshape(-1, 1, 1, 28, 28)
    with choose(built(source, tmp_path), host.detect()) as runner:
        (input_spec,) = runner.package.inputs
        (output_spec,) = runner.package.outputs
        predicted = np.asarray(
            [
                int(np.argmax(runner.run({input_spec.name: image})[output_spec.name]))
                for image in images
            ]
        )
    expected = qonnx_predictions(source.read_bytes(), images, batch=200)
    assert np.array_equal(predicted, expected)
    assert np.mean(predicted == labels) > 0.9


UNSW = f"{ZOO}/UNSW_NB15/unsw_nb15_mlp_w2a2/unsw_nb15-mlp-w2a2.onnx"
PARTLY_FLOAT = {
    UNSW: 0.0,
    "fastmachinelearning+example-models/onnx/bnn_model_fc_1layer.onnx": 0.0,
    # A sum on the boundary of two levels may end on either, as scales are no powers of two.
    "fastmachinelearning+qonnx/src/qonnx/data/onnx/bsd300x3-espcn/subpixel/quant_model.onnx": 1e-4,
}
"""Networks that read pixels or features as they are → the share of outputs that may differ."""


@pytest.mark.slow
@pytest.mark.parametrize("file", PARTLY_FLOAT)
def test_network_with_layers_in_float(file: str, realdata: Path, tmp_path: Path) -> None:
    source, rng = realdata / file, np.random.default_rng(0)
    with choose(built(source, tmp_path), host.detect()) as runner:
        (inner,), (outer,) = runner.package.inputs, runner.package.outputs
        execute = qonnx_executor(source.read_bytes(), full=True)
        for _ in range(3):
            x = rng.uniform(-1, 1, inner.shape).astype(np.float32)
            x = np.sign(x) if file == UNSW else x
            found = np.asarray(runner.run({inner.name: x})[outer.name])
            wanted = execute({inner.name: x})[outer.name]
            assert np.mean(found != wanted) <= PARTLY_FLOAT[file]
