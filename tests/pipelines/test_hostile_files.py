"""Files that try to run code: no command runs any of it.

Each would create a file where it was obeyed. What of PyTorch or qonnx would obey it does so where
these are installed.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from stages.importing.onnx.domains import QONNX
from tests import warm
from tests.stages.importing.graphs import graph, node
from tests.stages.importing.torch_export import archives

ROOT = Path(__file__).resolve().parents[2]
MODULE = "bitkiln_hostile"


class Obeyed:
    """What creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return open, (str(self.mark), "w")


def expression(mark: Path) -> str:
    """Python that does the same."""
    return f"__import__('builtins').open({str(mark)!r}, 'w')"


def pickled(mark: Path) -> bytes:
    """As `torch.save` writes it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Obeyed(mark)))
        file.writestr("archive/version", "3\n")
        file.writestr("archive/byteorder", "little")
    return stream.getvalue()


def pt2_weights(mark: Path) -> bytes:
    config = {
        "config": {
            "weight": {"path_name": "w.pt", "is_param": True, "use_pickle": True, "tensor_meta": {}}
        }
    }
    return archives.archive(
        archives.PROGRAM,
        archives.TENSORS,
        {
            "m/data/weights/model_weights_config.json": json.dumps(config).encode(),
            "m/data/weights/w.pt": pickled(mark),
        },
    )


def pt2_weights_of_older_releases(mark: Path) -> bytes:
    return archives.archive(
        archives.PROGRAM,
        archives.TENSORS,
        {
            "m/data/weights/model_weights_config.json": None,
            "m/data/weights/model.pt": pickled(mark),
        },
    )


def pt2_constants(mark: Path) -> bytes:
    config = {"config": {"c": {"path_name": "c", "is_param": False, "use_pickle": True,
                               "tensor_meta": {}}}}  # fmt: skip
    return archives.archive(
        archives.PROGRAM,
        archives.TENSORS,
        {
            "m/data/constants/model_constants_config.json": json.dumps(config).encode(),
            "m/data/constants/c": pickled(mark),
            "m/data/constants/model.pt": pickled(mark),
        },
    )


def pt2_sample_inputs(mark: Path) -> bytes:
    """Our reader accepts it: it never looks at these."""
    return archives.archive(
        archives.PROGRAM, archives.TENSORS, {"m/data/sample_inputs/model.pt": pickled(mark)}
    )


def pt2_size(mark: Path) -> bytes:
    program = copy.deepcopy(archives.PROGRAM)
    values = program["graph_module"]["graph"]["tensor_values"]
    values["x"]["sizes"][0] = {"as_expr": {"expr_str": expression(mark), "hint": {"as_int": 1}}}
    return archives.archive(program, archives.TENSORS)


def pt2_target(mark: Path) -> bytes:
    program = copy.deepcopy(archives.PROGRAM)
    call = {"target": "torch.os.system", "outputs": [{"as_tensor": {"name": "z"}}], "name": "z",
            "inputs": [{"name": "command", "arg": {"as_string": f"touch {mark}"}}]}  # fmt: skip
    program["graph_module"]["graph"]["nodes"].insert(0, call)
    return archives.archive(program, archives.TENSORS)


def quantized(domain: str = QONNX) -> onnx.ModelProto:
    quant = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    source = graph(
        [
            helper.make_node("Quant", ["x", "s", "z", "b"], ["q"], domain=domain, **quant),
            helper.make_node("Quant", ["w", "s", "z", "b"], ["v"], domain=QONNX, **quant),
            node("MatMul", ["q", "v"]),
        ],
        {
            "s": np.array(0.25, np.float32), "z": np.array(0, np.float32),
            "b": np.array(4, np.float32), "w": np.ones((6, 4), np.float32),
        },
        [1, 6],
        domains=sorted({QONNX, domain}),
    )  # fmt: skip
    return onnx.load_model_from_string(source)


def onnx_layout(mark: Path) -> bytes:
    """Our reader accepts it: it looks at no annotation but datatypes."""
    model = quantized()
    annotation = model.graph.quantization_annotation.add(tensor_name="x")
    for key in ("tensor_layout", "tensor_sparsity"):
        annotation.quant_parameter_tensor_names.add(key=key, value=expression(mark))
    return model.SerializeToString()


def onnx_domain(_mark: Path) -> bytes:
    return quantized(MODULE).SerializeToString()


def onnx_domain_of_a_dead_node(_mark: Path) -> bytes:
    """Our reader may accept it: no output depends on that node."""
    model = quantized()
    model.graph.node.append(helper.make_node("Quant", ["q"], ["dead"], domain=MODULE))
    model.opset_import.append(helper.make_opsetid(MODULE, 1))
    return model.SerializeToString()


def mxnet_attribute(mark: Path) -> bytes:
    nodes = [
        {"op": "null", "name": "data", "inputs": [],
         "attrs": {"__shape__": expression(mark), "__init__": expression(mark)}},
        {"op": "Pooling", "name": "p", "inputs": [[0, 0, 0]],
         "attrs": {"kernel": expression(mark), "pool_type": "max"}},
    ]  # fmt: skip
    symbol = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {}}
    return json.dumps(symbol).encode()


MODELS: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    function.__name__: (ending, function)
    for ending, functions in {
        ".pt2": (
            pt2_weights, pt2_weights_of_older_releases, pt2_constants, pt2_sample_inputs, pt2_size,
            pt2_target,
        ),
        ".onnx": (onnx_layout, onnx_domain, onnx_domain_of_a_dead_node),
        "-symbol.json": (mxnet_attribute,),
    }.items()
    for function in functions
}  # fmt: skip
COMMANDS = (
    ("build",),
    ("verify",),
    ("accuracy", "reference=framework"),
    ("bench", "repeat=1"),
    ("tune", "schedule.trials=1"),
    ("run", "input=x.npy"),
    ("show",),
)
WHOLE = (pt2_sample_inputs, onnx_layout, mxnet_attribute)
"""A file of each format that takes every command; the others are refused by importing alike."""


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that nobody may create."""
    return tmp_path / "obeyed"


def doit(tmp_path: Path, mark: Path, *arguments: str) -> str:
    """Run a command with the hostile module at hand; return what it said."""
    modules = tmp_path / "modules"
    modules.mkdir(exist_ok=True)
    (modules / f"{MODULE}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    environment = {**os.environ, "PYTHONPATH": str(modules)}
    done = warm.run(*arguments, cwd=ROOT, env=environment, timeout=300)
    said = done.stdout + done.stderr
    assert not mark.exists(), f"{arguments} ran what the file holds"
    assert "Traceback" not in said, said
    return said


def test_what_the_files_hold_does_create_a_file(tmp_path: Path, mark: Path) -> None:
    pickle.loads(pickle.dumps(Obeyed(mark)))
    mark.unlink()
    eval(expression(mark))
    assert mark.exists()


@pytest.mark.slow
def test_conformance_runs_nothing(tmp_path: Path, mark: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for name, (ending, make) in MODELS.items():
        (folder / f"{name}{ending}").write_bytes(make(mark))
    result = tmp_path / "r.json"
    doit(tmp_path, mark, "conformance", str(folder), f"json={result}")
    rows = {Path(row["file"]).name for row in json.loads(result.read_text())["rows"]}
    assert rows == {f"{name}{ending}" for name, (ending, _) in MODELS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_no_command_runs_what_a_model_holds(name: str, tmp_path: Path, mark: Path) -> None:
    ending, make = MODELS[name]
    model, recipe = tmp_path / f"{name}{ending}", tmp_path / f"{name}.yaml"
    model.write_bytes(make(mark))
    shape = archives.SHAPE if ending == ".pt2" else (1, 6)
    np.savez(tmp_path / "data.npz", x=np.zeros((2, *shape[1:]), np.float32), y=np.zeros(2, int))
    recipe.write_text(
        f"model: {{file: {model.name}}}\nhardware: host\nevaluation: {{data: data.npz}}\n"
    )
    try:
        doit(tmp_path, mark, "import", str(model))
    finally:
        (ROOT / "recipes" / recipe.name).unlink(missing_ok=True)
    for command, *rest in COMMANDS if make in WHOLE else (("accuracy", "reference=framework"),):
        doit(tmp_path, mark, command, f"recipe={recipe}", *rest)


def _recipe(mark: Path) -> str:
    return f"model: !!python/object/apply:builtins.open [{mark}, w]\nhardware: host\n"


def test_recipes_and_arrays_run_nothing(tmp_path: Path, mark: Path) -> None:
    (tmp_path / "evil.yaml").write_text(_recipe(mark))
    (tmp_path / "board.yaml").write_text(_recipe(mark))
    array = np.array([Obeyed(mark)], object)
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    np.savez(tmp_path / "d.npz", x=array, y=array)
    mark.unlink(missing_ok=True)
    doit(tmp_path, mark, "build", f"recipe={tmp_path / 'evil.yaml'}")
    toy = "recipe=ci/residual_block_a2w1_host"
    doit(tmp_path, mark, "show", toy, f"hardware={tmp_path / 'board.yaml'}")
    assert "x.npy" in doit(tmp_path, mark, "run", toy, f"input={tmp_path / 'x.npy'}")
    said = doit(tmp_path, mark, "accuracy", toy, f"evaluation.data={tmp_path / 'd.npz'}")
    assert "d.npz" in said
