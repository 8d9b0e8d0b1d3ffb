"""Layer times through the front door: a recipe in, a table and a trace out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw import host
from pipelines.errors import UserError
from pipelines.evaluation import layer_times
from tests.pipelines.fake_clone import ROOT, doit
from tests.stages.packaging.files.clients import imported

RECIPE = ("recipe=digits_a2w2_host", "package.profile=true")
BLOCK = "recipe=ci/residual_block_a2w1"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """What `doit run` printed, a folder with what it wrote, and the package."""
    if not host.detect().architecture:
        pytest.skip("this machine is no target")
    folder = tmp_path_factory.mktemp("profile")
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)
    np.save(folder / "x.npy", image)
    wanted = (f"input={folder / 'x.npy'}", f"profile={folder / 'trace.json'}", "repeat=30")
    more = (f"json={folder / 'r.json'}", f"out={folder / 'out.npz'}", "threads=1")
    done = doit("run", *RECIPE, *wanted, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    built = doit("build", *RECIPE)
    (package,) = re.findall(r"^package +(artifacts/packages/\w+),", built.stdout, re.MULTILINE)
    return done.stdout, folder, ROOT / package


def test_the_table_is_of_the_program_s_calls_and_adds_up(ran: tuple[str, Path, Path]) -> None:
    printed, folder, package = ran
    layers = json.loads((package / "manifest.json").read_text())["layers"]
    told = json.loads((folder / "r.json").read_text())["profile"]
    assert (told["runs"], told["threads"]) == (30, 1)
    assert [(row["layer"], row["kernel"]) for row in told["layers"]] == [
        (layer["layer"], layer["kernel"]) for layer in layers
    ]
    inside = sum(row["mean_ms"] for row in told["layers"])
    whole = told["whole"]["mean_ms"]
    assert 0 < inside <= whole
    assert inside + told["between"]["mean_ms"] == pytest.approx(whole, abs=1e-5)
    title, head, *rows = printed[printed.index("layers: ") :].splitlines()
    assert title == "layers: mean and least of 30 runs, 1 thread"
    assert head.split() == ["mean", "ms", "least", "ms", "share", "layer", "kernel"]
    names = [row["layer"] for row in told["layers"]]
    assert [row.split()[4] for row in rows[: len(names)]] == names
    assert rows[-2].endswith("100.0 %  (whole)")
    assert rows[-1].startswith("written: ") and "ui.perfetto.dev" in rows[-1]


def test_the_trace_has_a_slice_for_each_layer(ran: tuple[str, Path, Path]) -> None:
    _, folder, package = ran
    layers = json.loads((package / "manifest.json").read_text())["layers"]
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    run, *own = sorted(slices, key=lambda event: (event["ts"], -event["dur"]))
    assert run["name"] == "sample 0" and run["ts"] == 0
    assert [event["name"] for event in own] == [layer["layer"] for layer in layers]
    ends = [event["ts"] + event["dur"] for event in own]
    assert all(end <= later["ts"] + 1e-6 for end, later in zip(ends, own[1:], strict=False))
    assert ends[-1] <= run["dur"] + 1e-6
    assert {event["tid"] for event in slices} == {1} and {event["pid"] for event in slices} == {1}


def test_the_loader_names_the_same_layers(ran: tuple[str, Path, Path]) -> None:
    _, folder, package = ran
    digits: Any = imported(package / "digits_a2w2_host.py")
    sys.modules.pop("digits_a2w2_host", None)
    layers = json.loads((package / "manifest.json").read_text())["layers"]
    image = np.load(folder / "x.npy")
    with digits.Network() as net, np.load(folder / "out.npz") as kept:
        found = net.profile(image)
        assert [(t.layer, t.kernel) for t in found] == [
            (layer["layer"], layer["kernel"]) for layer in layers
        ]
        np.testing.assert_array_equal(net(image)["out"], kept["out"])


@pytest.mark.parametrize("board", ["rpi3", "rpi3_armv7"])
def test_a_board_s_package_replays_its_vectors(board: str) -> None:
    pytest.importorskip("unicorn", reason="the emulator extra is not installed")
    done = doit("build", f"{BLOCK}_{board}", "package.profile=true")
    assert "2 golden samples exact" in done.stdout or "verifying       cached" in done.stdout
    if host.detect().architecture == "x86_64":
        asked = ("input=x.npy", "profile=p.json", "package.profile=true")
        done = doit("run", f"{BLOCK}_{board}", *asked)
        assert done.returncode == 3
        assert "are emulated here, and times of an emulator mean nothing" in done.stderr


@pytest.mark.parametrize(
    "trace",
    [
        b"",
        b"[]",
        b"{}",
        b'{"otherData": {"threads": 1, "runs": 1, "layers": [{}]}}',
        b'{"otherData": {"threads": 1, "runs": 1, "layers": [], "between": 1, "whole": 2}}',
        b"[" * 100_000,
    ],
)
def test_what_a_board_sends_is_looked_at(trace: bytes) -> None:
    with pytest.raises(UserError, match="toy: its program wrote no trace of layers"):
        layer_times._read("toy", trace)
