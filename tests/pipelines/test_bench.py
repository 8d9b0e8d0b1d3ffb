"""`doit bench`: package and other engines in turns; nothing is said of how long they take."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hw import host
from pipelines.benchmarks import engines, growth, kernel_work, rounds
from pipelines.errors import UserError
from pipelines.machine import processor
from pipelines.recipe.load import load_recipe
from pipelines.recipe.recipe import Recipe
from tests.pipelines.fake_clone import doit
from tests.pipelines.test_bench_engines import check
from tests.stages.packaging.integer_net import Net, mobile
from tests.stages.packaging.programs import pack
from tests.stages.pipeline import algorithm
from tests.targets import AARCH64

RECIPE = "ci/residual_block_a2w1_host"


@pytest.mark.slow
def test_bench_of_the_small_recipe(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    target = tmp_path / "r.json"
    given = ("peers=onnxruntime", "own=int8,float32", "threads=2", "repeat=3", f"json={target}")
    done = doit("bench", f"recipe={RECIPE}", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(target.read_text())
    assert found["processor"] == processor() and found["processor"] in done.stdout
    (part,) = found["threads"]
    assert (part["threads"], part["refused"]) == (2, [])
    version = metadata.version("onnxruntime")
    names = [f"ONNX Runtime {version}, {precision}" for precision in ("float32", "int8")]
    own = ["bitkiln, float32", "bitkiln, int8"]
    assert {name: len(times) for name, times in part["seconds"].items()} == dict.fromkeys(
        ["package", *own, *names], 3
    )
    assert all(name in done.stdout for name in (*own, *names))
    for row in part["rows"][1:]:
        ratios = np.divide(part["seconds"]["package"], part["seconds"][row["what"]])
        assert row["ratio"] == pytest.approx(np.median(ratios))


@pytest.mark.slow
def test_the_very_file_of_an_integer_recipe_is_run(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    target = tmp_path / "r.json"
    given = ("peers=onnxruntime", "own=none", "repeat=2", f"json={target}")
    done = doit("bench", "recipe=ds_cnn_int8_host", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in json.loads(target.read_text())["threads"]:
        differences = {row["what"]: row["difference"] for row in part["rows"]}
        same = [value for name, value in differences.items() if name.endswith(", int8")]
        # Without VNNI the runtime's sums saturate: it may differ, and the table says by how much.
        assert len(same) == 1 and same[0] is not None
        assert differences["package"] is None


def test_another_architectures_package_is_emulated_and_not_timed() -> None:
    """What only times heed is refused, and nothing is built first."""
    if host.detect().architecture == "aarch64":
        pytest.skip("this machine is of the package's architecture")
    done = doit("bench", "recipe=ci/residual_block_a2w1_rpi3", "repeat=3")
    assert done.returncode == 3 and "built" not in done.stdout
    assert done.stderr == (
        "ERROR: repeat=3: rpi3 is emulated here, one inference on one thread, and nothing is "
        "timed; leave it out, or add hardware=host\n"
    )


@pytest.mark.slow
def test_each_kernel_alone(tmp_path: Path) -> None:
    target = tmp_path / "r.json"
    done = doit("bench", f"recipe={RECIPE}", "layer=all", f"json={target}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(target.read_text())
    tiles = {"tiles", "tiles_bf16"} if host.may_use_tiles() else set()
    assert set(found["peaks"]) == {"mac8", "mac16", "macf32", "macbf16", "popcount", *tiles}
    assert min(found["peaks"].values()) > 0
    rows = {row["layer"]: row for row in found["layers"]}
    # A 3x3 kernel over 64 channels to as many, 8x8 pixels.
    assert rows["layer1.0.conv1"]["macs"] == 9 * 64 * 64 * 8 * 8
    assert all(row["seconds"] > 0 for row in found["layers"])
    for row in found["layers"]:
        assert (row["peak_share"] is None) == (row["how"] not in found["peaks"])
        assert row["layer"] in done.stdout
    done = doit("bench", f"recipe={RECIPE}", "layer=layer1.0.conf1")
    assert done.returncode == 3
    assert "layer=layer1.0.conf1: matches no kernel; did you mean" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recipe", (RECIPE, "resnet8_int8_host"))
def test_a_network_at_several_sizes(recipe: str, tmp_path: Path) -> None:
    target = tmp_path / "r.json"
    given = ("grow=all", "repeat=2", f"json={target}")
    done = doit("bench", f"recipe={recipe}", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(target.read_text())
    first, pictures, wide = found["rows"]
    assert (first["what"], first["times_the_macs"], first["times_the_time"]) == ("as it is", 1, 1)
    # All but the classifier has four times the pixels; channels are squared, but for the image's.
    assert 3.8 < pictures["times_the_macs"] <= 4 and 3 < wide["times_the_macs"] < 4
    for row in found["rows"]:
        assert row["seconds"] == np.median(found["seconds"][row["what"]]) > 0
        assert row["what"] in done.stdout


def test_what_cannot_be_made_larger() -> None:
    model = {"zoo": "resnet8", "batch": 2}
    precision = {"activations": {"bits": 8}, "weights": {"bits": 8}}
    cases = [
        (
            {"file": Path("digits.onnx")},
            None,
            "all",
            "toy has a model file, whose layers have their",
        ),
        (model, precision, "all", "one picture at a time is timed; leave model.batch out"),
        ({"zoo": "resnet8"}, precision, "chanels", "no such axis; did you mean 'channels'?"),
        ({"zoo": "resnet8", "width": 5}, precision, "channels", "model.width=10: Input should be "),
    ]
    for source, quantization, axes, said in cases:
        stated = {"model": source, "quantization": quantization, "hardware": "host"}
        resolved: Any = SimpleNamespace(name="toy", recipe=Recipe.model_validate(stated))
        with pytest.raises(UserError) as error:
            growth.grown(resolved, axes)
        assert error.value.message.startswith(f"grow={axes}: {said}")


def test_what_the_layers_of_a_packed_model_multiply() -> None:
    found = kernel_work.work_of_layers(pack(mobile()[0], AARCH64))
    assert found["stem"] == kernel_work.Work("mac8", 9 * 3 * 16 * 6 * 7, 0)
    # A depthwise convolution has one channel of weights a channel.
    assert found["dw"] == kernel_work.Work("mac8", 9 * 16 * 6 * 7, 0)
    assert found["pw"] == kernel_work.Work("mac8", 16 * 16 * 6 * 7, 0)
    assert not any(name.endswith(".bytes") for name in found)


def test_transformed_products_count_as_those_of_the_convolution() -> None:
    for stride, pixels, saved in ((1, 6 * 7, 4), (2, 3 * 4, 1.44)):
        net = Net((1, 6, 7, 16))
        model = net.model(net.conv(net.x, "w", 8, strides=[stride, stride]))
        packed = pack(model, AARCH64, algorithm("winograd"))
        assert kernel_work.work_of_layers(packed) == {
            "w": kernel_work.Work("mac16", 9 * 16 * 8 * pixels, 0, saved)
        }


def test_turns_rotate_and_the_first_runs_of_each_are_not_counted() -> None:
    log: list[tuple[str, int]] = []

    def side(name: str, seconds: float) -> engines.Timed:
        def timed(count: int) -> float:
            log.append((name, count))
            return seconds if len(log) % 2 else 2 * seconds

        return timed

    times = rounds.alternate({"a": side("a", 1e-3), "b": side("b", 1.0)}, 3, "")
    # Both are tried out first, so that what is counted is every other one.
    assert times == {"a": [2e-3] * 3, "b": [2.0] * 3}
    a, b = [("a", 70), ("a", 20)], [("b", 1), ("b", 1)]
    # Who is first changes, and so does who comes behind whom.
    assert log == [("a", 1), ("b", 1), *a, *b, *b, *a, *b, *a]


def test_medians_spread_and_ratio() -> None:
    package, other = rounds.compared({"p": [1.0, 2.0, 9.0], "o": [8.0, 4.0, 9.0]}, "p")
    assert (package["median_ms"], other["median_ms"]) == (2000.0, 8000.0)
    assert package["quartiles_ms"] == [1500.0, 5500.0]
    assert "ratio" not in package
    assert other["ratio"] == 0.5
    assert other["ratio_quartiles"] == list(np.percentile([0.125, 0.5, 1.0], [25, 75]))


def test_what_can_neither_be_timed_nor_emulated_is_refused() -> None:
    board: Any = SimpleNamespace(name="board", architecture="riscv64")
    block = load_recipe(RECIPE, {"hardware": "rpi3"})
    said = (
        "residual_block_a2w1_host is for board, of riscv64: bench times this machine's own "
        "processor, and emulates aarch64 and armv7; try: "
        "doit bench recipe=ci/residual_block_a2w1_host hardware=host"
    )
    with pytest.raises(UserError) as error:
        check(replace(block, hardware=board))
    assert error.value.message == said


def test_what_only_emulated_boards_heed_is_refused() -> None:
    with pytest.raises(UserError, match=r"^pin=: instructions of emulated boards are pinned, and"):
        check(pin="why")
