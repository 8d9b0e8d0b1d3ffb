"""`doit bench` of boards of another architecture: emulated, beside other engines where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hw import host
from pipelines.benchmarks.primitives import PRIMITIVES
from pipelines.benchmarks.variant_packages import title
from pipelines.emulating import emulated_bench, pinned_counts, result_tables, userland
from pipelines.emulating.block_costs import Cost
from pipelines.emulating.emulated_comparison import Compared, EmulatedCost, behind_floats
from pipelines.emulating.layer_kinds import DEPTHWISE, RUNTIME, LayerOfKind
from pipelines.errors import UserError
from pipelines.recipe.load import load_recipe
from pipelines.recipe.overrides import Variables
from pipelines.runners.replay import qemu_lacks
from tests.pipelines.fake_clone import doit

SMALL = "residual_block_a2w1_rpi3"


def skip_unless_emulated(*packages: str) -> None:
    if host.detect().architecture == "aarch64":
        pytest.skip("this machine is of the board's architecture")
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed")
    if lacking := qemu_lacks("aarch64"):
        pytest.skip(f"{' and '.join(lacking)} are not installed")


def bench(recipe: str, *given: str, into: Path) -> dict[str, Any]:
    done = doit("bench", f"recipe={recipe}", *given, f"json={into}")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(into.read_text())
    return found


@pytest.mark.slow
def test_a_package_alone(tmp_path: Path) -> None:
    """QEMU counts what unicorn counts: two emulators, and the library linked in two ways."""
    skip_unless_emulated("elftools")
    found = bench(f"ci/{SMALL}", "peers=none", into=tmp_path / "r.json")
    assert found["processor"] == "Raspberry Pi 3 Model B with a 64-bit system, emulated"
    (row,) = found["rows"]
    layers = {x["layer"]: x["sides"]["package"]["instructions_emulated"] for x in found["layers"]}
    assert sum(layers.values()) == pytest.approx(row["instructions_emulated"], abs=len(layers))
    pinned = pinned_counts.read(pinned_counts.FOLDER / f"{SMALL}.json").layers
    assert layers.keys() == pinned.keys()
    for name in layers.keys() - {RUNTIME}:
        assert layers[name] == pytest.approx(pinned[name], rel=1e-2, abs=50), name
    kinds = {each["kind"]: each for each in found["kinds"]}
    assert sum(each["macs"] for each in kinds.values()) == found["macs"]
    # A 3x3 kernel over 64 channels to as many, 8x8 pixels, twice.
    assert kinds["3x3"]["macs"] == 2 * 9 * 64 * 64 * 8 * 8


@pytest.mark.slow
def test_one_primitive_more_at_a_time(tmp_path: Path) -> None:
    """Of loops that compute the same sums; the package's own cycles are those of the layer."""
    skip_unless_emulated("elftools")
    found = bench(f"ci/{SMALL}", "primitives=*", into=tmp_path / "r.json")
    row, other = found["primitives"]
    assert (row["layer"], other["layer"]) == ("layer1.0.conv1", "layer1.0.downsample")
    assert row["bits"] == "A2W1"
    added = ["+ 4 threads", "+ micro-kernel", "+ packing", "own float32"]
    assert list(row["costs"]) == [*PRIMITIVES, *added]
    executed = {what: each["instructions_emulated"] for what, each in row["costs"].items()}
    assert executed["loops"] > executed["+ unrolling"] > executed["+ 4 threads"]
    pinned = pinned_counts.read(pinned_counts.FOLDER / f"{SMALL}.json").layers[row["layer"]]
    assert executed["+ packing"] == pytest.approx(pinned / 4, rel=0.05)


@pytest.mark.slow
def test_beside_other_engines_on_the_same_network(tmp_path: Path) -> None:
    skip_unless_emulated("elftools", "ai_edge_litert")
    if lack := userland.lack():
        pytest.skip(lack)
    found = bench("ds_cnn_int8_rpi3", "hardware=rpi3", into=tmp_path / "r.json")
    package, litert, ort = found["rows"]
    for row in (litert, ort):
        assert row["difference"] <= 0.0625  # two levels of the output
        ratio = package["instructions_emulated"] / row["instructions_emulated"]
        assert row["ratio_instructions_emulated"] == pytest.approx(ratio, rel=1e-3)
    sides = {side for row in found["layers"] for side in row["sides"]}
    assert sides == {"package", litert["what"]}
    assert found["engines"] == {"LiteRT": "2.3.0", "ONNX Runtime": "1.32.0"}


COMPARED = Compared(
    [
        EmulatedCost(
            "package", Cost(3e6, 4e6, 3.5e6), {"a": Cost(2e6, 3e6, 3e6), RUNTIME: Cost(1e6, 1e6)}
        ),
        EmulatedCost(
            "LiteRT 2, int8", Cost(6e6, 2e6, 2e6), {"a": Cost(5e6, 2e6, 2e6), "out": Cost(1e6)}
        ),
        EmulatedCost(
            "ONNX Runtime 1, int8", Cost(4e6, 8e6, 8e6), difference=0.5, products={"SDOT": 9}
        ),
    ],
    [LayerOfKind("a", DEPTHWISE, 2_000_000), LayerOfKind("a.tiles", DEPTHWISE)],
    [{"what": "Larq", "why": "it has no wheels"}],
)


def test_figures_are_called_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = result_tables.data(COMPARED)
    assert found["rows"][2]["products_emulated"] == {"SDOT": 9}
    figures = {name for row in found["rows"] for name in row} - {"what", "difference"}
    assert all("emulated" in name or "modelled" in name for name in figures)
    assert [row["layer"] for row in found["layers"]] == ["a", RUNTIME, "out"]
    result_tables.tell(found, "toy")
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[1] == [
        "what",
        *("M instructions (emulated)", "M cycles (modelled)", "all in L1 (modelled)"),
        *("package executes (emulated)", "package takes (modelled)"),
        *("multiplies by (emulated)", "output differs by"),
    ]
    assert cells[3] == ["LiteRT 2, int8", "6.0", "2.0", "2.0", "0.50 of it", "2.00 of it"]
    assert cells[4][-3:] == ["0.50 of it", "SDOT", "0.5"]
    assert ["toy: M cycles (modelled)"] in cells
    assert [DEPTHWISE, "2.00", "3.000", "1.500", "2.000", "1.000", "1.50 of it"] in cells
    assert ["not emulated: Larq: it has no wheels"] in cells
    result_tables.tell(found, "toy", layers=["out"])
    assert "toy: M instructions (emulated)\n  layer" in capsys.readouterr().out


def test_without_a_model_of_the_core_there_are_instructions_alone() -> None:
    found = result_tables.data(Compared([EmulatedCost("package", Cost(3e6), {"a": Cost(3e6)})], []))
    assert found["rows"] == [{"what": "package", "instructions_emulated": 3_000_000}]
    assert result_tables.figures(found) == ["instructions_emulated"]
    assert "cycles" not in result_tables.section(found)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"peers": "litrt"}, "peers=litrt: no such engine; did you mean 'litert'?"),
        ({"peers": "openvino"}, "peers=openvino: no such engine; emulated ones: all, none, litert"),
        ({"threads": "2"}, "threads=2: rpi3 is emulated here, one inference on one thread, and"),
        ({"grow": "all"}, "grow=all: rpi3 is emulated here, one inference on one thread, and"),
    ],
)
def test_what_emulating_does_not_heed(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulated_bench, "qemu_lacks", lambda _: [])
    with pytest.raises(UserError) as error:
        emulated_bench.check(load_recipe("ds_cnn_int8_rpi3", {}), Variables(given, {}))
    assert error.value.message.startswith(said)


def test_what_is_not_installed_is_said_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulated_bench, "qemu_lacks", lambda _: ["qemu-user", "libc6-arm64-cross"])
    with pytest.raises(UserError) as error:
        emulated_bench.check(load_recipe("ds_cnn_int8_rpi3", {}), Variables({}, {}))
    assert error.value.message == (
        "emulating rpi3 needs qemu-user and libc6-arm64-cross; on Debian or Ubuntu: apt install "
        "qemu-user libc6-arm64-cross"
    )


@pytest.mark.parametrize(
    ("ours", "floats", "notes"),
    [
        (12.0, 10.0, ["slower than its own float32: 1.20 of that package's modelled cycles"]),
        (10.0, 10.0, []),
        (12.0, None, []),
    ],
    ids=["slower", "as fast", "no cycles"],
)
def test_a_package_behind_its_own_floats_is_told(
    ours: float, floats: float | None, notes: list[str]
) -> None:
    sides = [
        EmulatedCost("package", Cost(1, ours)),
        EmulatedCost(title("float32"), Cost(1, floats)),
    ]
    assert behind_floats(sides) == notes
    assert behind_floats(sides[:1]) == []
