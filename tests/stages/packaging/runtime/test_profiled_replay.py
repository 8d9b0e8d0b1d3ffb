"""Layer times as a package's program prints and traces them, and as its loader gives them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from pipelines.runners.replay import qemu_lacks, qemu_prefix
from stages.kinds import Golden
from stages.options import PackageOptions
from tests.stages.packaging.files.clients import imported
from tests.stages.packaging.profiled import NAMES, check_trace, native, profiled, toy_program
from tests.stages.packaging.runtime.loaded import run_program
from tests.stages.packaging.support import (
    AARCH64,
    ARMV7,
    X86_64,
    assembled,
    make_golden,
    make_program,
    package,
    write,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("profiled"), profiled(X86_64))


@native
@pytest.mark.parametrize("threads", [1, 3])
def test_the_program_prints_a_table_and_writes_a_trace(
    folder: Path, threads: int, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    options = ("--threads", str(threads), "--repeat", "4", "--profile", "--trace", str(trace))
    done = run_program(folder / "toy", *options)
    assert done.returncode == 0, done.stderr
    first, head, *rows = done.stdout.splitlines()
    assert re.match(rf"ok: 3 samples bit for bit, {threads} threads, median ", first)
    assert head.split() == ["mean", "ms", "least", "ms", "share", "layer", "kernel"]
    cells = [re.match(r" +([\d.]+) +([\d.]+) +([\d.]+) %  (.*)", row) for row in rows]
    assert [cell and cell[4] for cell in cells] == [
        'stem "a\\b"    look_up',
        "left?[2J???=  window",
        "rechts é      divide",
        "sum */        add",
        "(between layers)",
        "(whole)",
    ]
    means, least, shares = ([float(cell[place]) for cell in cells if cell] for place in (1, 2, 3))
    assert sum(means[:-1]) == pytest.approx(means[-1], abs=1e-5)
    assert sum(shares[:-1]) == pytest.approx(100, abs=0.4) and shares[-1] == 100
    assert all(a <= b for a, b in zip(least, means, strict=True))
    check_trace(json.loads(trace.read_text()), toy_program(X86_64), threads, 3)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("hardware", [AARCH64, ARMV7], ids=lambda item: item.name)
def test_programs_for_arm_trace_their_threads(hardware: Hardware, tmp_path: Path) -> None:
    if lacking := qemu_lacks(hardware.architecture):
        pytest.skip(f"needs {' and '.join(lacking)}")
    program = write(tmp_path, profiled(hardware)) / "toy"
    options = (
        "--threads",
        "3",
        "--repeat",
        "2",
        "--profile",
        "--trace",
        str(tmp_path / "trace.json"),
    )
    command = [*(qemu_prefix(hardware.architecture) or ()), str(program), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "(whole)" in done.stdout, done.stderr
    check_trace(json.loads((tmp_path / "trace.json").read_text()), toy_program(hardware), 3, 3)


@native
def test_the_program_refuses_a_trace_that_cannot_be(folder: Path, tmp_path: Path) -> None:
    done = run_program(folder / "toy", "--trace")
    assert done.returncode == 3 and "[--profile] [--trace FILE] [golden.bin]" in done.stderr
    done = run_program(folder / "toy", "--trace", "none/trace.json")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: none/trace.json: No such file or directory\n"
    (tmp_path / "taken").mkdir()
    done = run_program(folder / "toy", "--trace", str(tmp_path / "taken"))
    assert done.returncode == 3 and "the trace cannot be written: " in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    done = run_program(write(tmp_path, package(X86_64)) / "toy", "--profile")
    assert done.returncode == 3 and "[--profile]" not in done.stderr


@native
def test_times_of_outputs_that_differ_are_told_too(tmp_path: Path) -> None:
    """As those of networks of floats may, in the last bit."""
    wrong = Golden(make_golden().inputs, {k: v ^ 1 for k, v in make_golden().outputs.items()})
    files = assembled(
        program=make_program(X86_64),
        golden=wrong,
        options=PackageOptions(name="toy", formats=("executable",), profile=True),
        hardware=X86_64,
        provenance={},
    )
    done = run_program(write(tmp_path, files) / "toy", "--repeat", "3", "--profile")
    assert done.returncode == 1
    assert len(re.findall("mismatch: ", done.stdout)) == 1 and "(whole)" in done.stdout
    assert run_program(tmp_path / "toy").stdout.startswith("mismatch: sample 0, ")


@native
def test_the_loader_tells_layer_times(folder: Path, tmp_path: Path) -> None:
    golden = make_golden()
    image = golden.inputs["image"][0]
    toy: Any = imported(folder / "toy.py")
    for threads in (1, 2):
        with toy.Network(threads=threads) as net:
            times = net.profile(image)
            assert [(t.layer, t.kernel) for t in times] == [
                (name, call.symbol)
                for name, call in zip(NAMES, make_program(X86_64).calls, strict=True)
            ]
            assert all(0 <= t.seconds < 60 for t in times) and any(t.seconds for t in times)
            np.testing.assert_array_equal(net(image)["levels"], golden.outputs["levels"][0])
            with pytest.raises(toy.InputError, match="'image' is uint8"):
                net.profile(image[0])
            assert len(net.profile({"image": image})) == 4
        with pytest.raises(toy.NetworkError, match="toy is closed"):
            net.profile(image)
    write(tmp_path, package(X86_64))
    with toy.Network(library=tmp_path / "libtoy.so") as net, pytest.raises(toy.LibraryError) as no:
        net.profile(image)
    assert str(no.value) == (
        "libtoy.so was built without layer times; set package.profile: true in the recipe and "
        "build it again"
    )
    assert not hasattr(imported(tmp_path / "toy.py").Network, "profile")
