"""The real stages through the front door: a recipe in, a package out, numbers compared.

`doit verify` compares the source graph with every stage's module and with the package, natively
with 1, 2 and 3 threads or emulated; these tests read its table.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from hw import host
from pipelines.runners import replay
from stages.importing.onnx.onnx_reader import QONNX
from tests import warm
from tests.stages.importing.graphs import graph, node

ROOT = Path(__file__).resolve().parents[2]
BLOCK = "ci/residual_block_a2w1_host"
HOST, PI = f"recipes/{BLOCK}.yaml", "recipes/ci/residual_block_a2w1_rpi3.yaml"
ARM = ("rpi3", "rpi3_armv7")
PRECISIONS = ("a1w1", "a2w1", "a1w2", "a2w2", "a3w3")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with an empty store."""
    root = tmp_path_factory.mktemp("clone")
    for folder in ("pipelines", "stages", "hw", "recipes"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    warm.compile_all(root)
    return root


def doit(root: Path, *arguments: str, timeout: float = 600) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = warm.run(*arguments, cwd=root, env=environment, timeout=timeout)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def states(output: str) -> dict[str, str]:
    """Stage → built, cached or written, as a build prints it."""
    return dict(re.findall(r"^(\w+)\s+(built|cached|written)\b", output, re.MULTILINE))


def kernels(root: Path) -> set[str]:
    return {path.name for path in (root / "artifacts/items/kernel").iterdir()}


def size_of(precision: str) -> list[str]:
    """The README's network as it is; others of one size, so that all processors share a model."""
    return [] if precision == "a2w1" else ["model.image_size=64"]


def verdicts(root: Path, recipe: str, *fields: str) -> dict[str, str]:
    """What `doit verify` says of each stage and of each way to run the package."""
    table = root / "artifacts" / f"verify-{os.getpid()}.json"
    doit(root, "verify", f"recipe={recipe}", f"json={table}", *fields)
    rows = json.loads(table.read_text())["rows"]
    table.unlink()
    return {str(row["stage"]): str(row["verdict"]) for row in rows}


@pytest.mark.slow
def test_work_is_shared_between_builds(clone: Path) -> None:
    first = states(doit(clone, "build", f"recipe={HOST}"))
    assert first["packaging"] == "built"
    kept = kernels(clone)

    again = states(doit(clone, "build", f"recipe={HOST}"))
    assert "built" not in again.values()

    formats = states(doit(clone, "build", f"recipe={HOST}", "package.formats=[shared]"))
    assert {stage for stage, state in formats.items() if state == "built"} <= {
        "packaging",
        "verifying",
    }
    assert kernels(clone) == kept

    other = states(doit(clone, "build", f"recipe={PI}"))
    assert {other[stage] for stage in ("zoo", "importing", "golden", "quantizing")} == {"cached"}
    assert other["bitpacking"] == other["packaging"] == "built"


@pytest.mark.slow
def test_one_layer_s_precision_rebuilds_that_layer_and_its_neighbours(clone: Path) -> None:
    wide = "layers=[{match: layer1.0.conv2, algorithm: bitserial}]"
    doit(clone, "build", f"recipe={HOST}", wide)
    kept = kernels(clone)
    changed = (
        "layers=[{match: layer1.0.conv2, algorithm: bitserial, weights: {bits: 2}, "
        "activations: {bits: 3}}]"
    )
    doit(clone, "build", f"recipe={HOST}", changed)
    # conv2 itself, and conv1, whose epilogue now writes three planes; of tiles it has a fallback.
    assert len(kernels(clone) - kept) == (3 if host.may_use_tiles() else 2)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_resnet18_is_exact_on_this_machine(precision: str, alone: Callable[[str], str]) -> None:
    found = verdicts(ROOT, alone(f"resnet18_{precision}_host"), *size_of(precision))
    assert {f"library natively, {n} thread{'s' * (n > 1)}" for n in (1, 2, 3)} <= set(found)
    assert set(found.values()) == {"exact"}


@pytest.mark.slow
@pytest.mark.parametrize("floats", ["float32", "bfloat16"])
def test_a_float_network_is_close(floats: str, alone: Callable[[str], str]) -> None:
    """Stages before kernels take sums in float64; bfloat16 is rounded from its stage on, weights
    that are transformed (Winograd) when they are packed, on processors where that is chosen."""
    found = verdicts(ROOT, alone(BLOCK), "model.format=float", f"floats={floats}")
    rounded = "close" if floats == "bfloat16" else "exact"
    assert found["importing"] == "exact"
    assert found["quantizing"] == rounded
    assert found["bitpacking"] in (rounded, "close")
    assert found["library natively, 2 threads"] == "close"
    assert "departs" not in found.values()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "floats"), [*((board, "float32") for board in ARM), ("rpi5", "float16")]
)
def test_a_float_network_is_close_on_emulated_arm(
    board: str, floats: str, alone: Callable[[str], str]
) -> None:
    pytest.importorskip("unicorn", reason="the emulator extra is not installed")
    fields = (f"hardware={board}", f"floats={floats}", "model.format=float", "golden.samples=1")
    output = doit(ROOT, "build", f"recipe={alone(BLOCK)}", *fields)
    if states(output)["verifying"] == "cached":
        return
    assert "close, emulated" in output
    told = re.search(r"apart by at most \S+, (\S+) of the largest value, and by \S+, ", output)
    assert (told is not None and float(told[1]) < 0.02) == (floats == "float16")


def test_numbers_that_float16_cannot_hold_are_named(tmp_path: Path) -> None:
    """What golden samples make of them is infinite, and the sources' outputs are not."""
    pytest.importorskip("unicorn", reason="the emulator extra is not installed")
    nodes = [node("MatMul", ["x", "large"], "hidden"), node("MatMul", ["hidden", "small"])]
    constants = {"large": np.full((8, 4), 60000, np.float32), "small": np.eye(4, dtype=np.float32)}
    (tmp_path / "large.onnx").write_bytes(graph(nodes, constants, [1, 8]))
    recipe = tmp_path / f"large_{os.getpid()}.yaml"
    recipe.write_text("model: {file: large.onnx}\nhardware: rpi5\nfloats: float16\n")
    environment = {**warm.environment(), "PYTHONPATH": str(ROOT)}
    result = warm.run("build", f"recipe={recipe}", cwd=ROOT, env=environment)
    warm.run("clean", f"recipe={recipe}", cwd=ROOT, env=environment)
    assert "Warning" not in result.stdout + result.stderr
    assert result.stderr == (
        "ERROR: verifying: output 'y' differs from the golden one in 8 of 8 values, by at most "
        "inf; values of 'MatMul_hidden' are beyond 65504, where float16 ends, and count as "
        "infinite; write floats: bfloat16, or float32\n"
    )


@pytest.mark.slow
def test_floats_of_what_only_qemu_runs_are_close(tmp_path: Path) -> None:
    """The package's own program compares bits; its library's outputs are compared by rounding."""
    if lacking := replay.qemu_lacks("aarch64"):
        pytest.skip(f"apt install {' '.join(lacking)}")
    weights = {"w": np.random.default_rng(0).normal(size=(200, 40)).astype(np.float32)}
    (tmp_path / "floats.onnx").write_bytes(graph([node("MatMul", ["x", "w"])], weights, [1, 200]))
    recipe = tmp_path / f"floats_{os.getpid()}.yaml"
    recipe.write_text("model: {file: floats.onnx}\nhardware: graviton3\n")
    environment = {**warm.environment(), "PYTHONPATH": str(ROOT)}
    found = [warm.run("build", f"recipe={recipe}", cwd=ROOT, env=environment) for _ in range(2)]
    warm.run("clean", f"recipe={recipe}", cwd=ROOT, env=environment)
    lines = [re.search(r"verifying +(\w+) .*?(2 golden.*)", each.stdout) for each in found]
    said = "2 golden samples close, under qemu"
    assert [line and line.groups() for line in lines] == [("built", said), ("cached", said)]


def test_what_a_board_has_no_memory_for_is_not_packaged(tmp_path: Path) -> None:
    weights = {"w": np.ones((1024, 600), np.float32)}
    (tmp_path / "wide.onnx").write_bytes(graph([node("MatMul", ["x", "w"])], weights, [1, 1024]))
    board = (ROOT / "hw/boards/x86_64.yaml").read_text().replace("threads: 1", "threads: 4")
    (tmp_path / "tiny.yaml").write_text(f"{board}memory_mib: 226\n")
    recipe = tmp_path / f"wide_{os.getpid()}.yaml"
    recipe.write_text("model: {file: wide.onnx}\nhardware: ./tiny.yaml\n")
    environment = {**warm.environment(), "PYTHONPATH": str(ROOT)}
    result = warm.run("build", f"recipe={recipe}", cwd=ROOT, env=environment)
    warm.run("clean", f"recipe={recipe}", cwd=ROOT, env=environment)
    assert "bitpacking" in result.stdout and "publishing" not in result.stdout
    assert result.stderr == (
        "ERROR: packaging: the network takes 2.6 MiB on 4 threads (weights 2.4, buffers 0.1, "
        "scratch 0.0, inputs and outputs 0.1), and tiny has 2.0 MiB for it (memory_mib 226, of "
        "which the operating system keeps 224); take a smaller input or network, or a board with "
        "more memory\n"
    )


def test_bfloat16_without_float_layers_is_refused(clone: Path) -> None:
    with pytest.raises(AssertionError, match="no layer is left in float to be rounded"):
        doit(clone, "build", f"recipe={HOST}", "floats=bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2, 3])
def test_a_batch_is_exact_on_fewer_and_on_more_threads(
    batch: int, alone: Callable[[str], str]
) -> None:
    found = verdicts(ROOT, alone(BLOCK), f"model.batch={batch}")
    assert {f"library natively, {n} thread{'s' * (n > 1)}" for n in (1, 2, 3)} <= set(found)
    assert set(found.values()) == {"exact"}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["bitserial", "mac8"])
def test_a_block_is_exact_under_either_algorithm(
    algorithm: str, alone: Callable[[str], str]
) -> None:
    found = verdicts(ROOT, alone(BLOCK), f"layers=[{{match: layer*, algorithm: {algorithm}}}]")
    assert set(found.values()) == {"exact"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "board"), [("a2w1", "rpi3"), *zip(PRECISIONS, cycle(ARM), strict=False)]
)
def test_resnet18_is_exact_on_emulated_arm(
    precision: str, board: str, alone: Callable[[str], str]
) -> None:
    """Precisions in turn on both boards, the one of the README on each."""
    pytest.importorskip("unicorn", reason="the emulator extra is not installed")
    output = doit(
        ROOT,
        "build",
        f"recipe={alone(f'resnet18_{precision}_host')}",
        f"hardware={board}",
        "golden.samples=1",
        *size_of(precision),
    )
    assert "exact, emulated" in output or states(output)["verifying"] == "cached"


def test_infinities_on_the_way_are_no_warnings(tmp_path: Path) -> None:
    """Products of two scales that are infinite: a quantizer clips them."""
    quant = {"domain": QONNX, "signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    nodes = [
        helper.make_node("Quant", ["x", "s", "z", "b"], ["q"], **quant),
        helper.make_node("BipolarQuant", ["w", "s"], ["k"], domain=QONNX),
        node("MatMul", ["q", "k"], "a"),
        helper.make_node("Quant", ["a", "one", "z", "b"], ["y"], **quant),
    ]
    numbers = {"s": 1e29, "one": 1.0, "z": 0.0, "b": 4.0}
    constants = {name: np.array(value, np.float32) for name, value in numbers.items()}
    constants["w"] = np.ones((8, 4), np.float32)
    (tmp_path / "small.onnx").write_bytes(graph(nodes, constants, [1, 8], domains=[QONNX]))
    recipe = tmp_path / f"small_{os.getpid()}.yaml"
    recipe.write_text("model: {file: small.onnx}\nhardware: host\npackage: {formats: [shared]}\n")
    environment = {**warm.environment(), "PYTHONPATH": str(ROOT)}
    result = warm.run("build", f"recipe={recipe}", cwd=ROOT, env=environment)
    warm.run("clean", f"recipe={recipe}", cwd=ROOT, env=environment)
    said = result.stdout + result.stderr
    assert "Warning" not in said and "Traceback" not in said, said
    assert "importing" in said
