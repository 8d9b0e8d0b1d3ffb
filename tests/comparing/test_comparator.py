"""The comparator finds one instruction, and says nothing where nothing changed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.runners.package import open_package
from stages.kinds import Files
from stages.options import PackageOptions
from tests.comparing import integer_networks, levels_networks, report
from tests.comparing.__main__ import main
from tests.comparing.checkouts import WORKING_TREE, checked_out, resolve
from tests.comparing.execution import Measured, measure, measured, write_inputs
from tests.comparing.instructions import UnknownCodeError, split
from tests.comparing.jobs import chosen
from tests.comparing.verdicts import Row, Verdict, compare, judged, refused
from tests.stages.packaging.support import (
    AARCH64,
    BIAS,
    KERNELS,
    X86_64,
    assembled,
    make_golden,
    make_program,
    write,
)
from tests.targets import skip_unless_runnable

SUM = "b)[i] + ((const int32_t *)c)[i]"
LAST = "bias)[i % 5];"
ONE_MORE = KERNELS.replace(LAST, f'{LAST} __asm__ volatile("nop");')
OTHER_RESULT = KERNELS.replace(SUM, SUM.replace("+", "-"))


@cache
def package(hardware: Hardware, source: str = KERNELS) -> Files:
    return assembled(
        program=make_program(hardware, source=source),
        golden=make_golden(),
        options=PackageOptions(name="toy", formats=("shared", "static")),
        hardware=hardware,
        provenance={
            "hardware": hardware.ingredients(),
            "kernels": {"k": {"text": source, "proved": 1}},
        },
    )


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[Files, Files], tuple[Path, Path]]:
    def make(old: Files, new: Files) -> tuple[Path, Path]:
        for name in ("old", "new"):
            (tmp_path / name).mkdir()
        return write(tmp_path / "old", old), write(tmp_path / "new", new)

    return make


def not_called(_old: Path, _new: Path) -> Measured:
    raise AssertionError("there is nothing to run")


def briefly(old: Path, new: Path) -> Measured:
    inputs = old.parent / "inputs.npz"
    write_inputs(open_package(old), inputs)
    return measured(old, new, inputs, 0.1)


Pair = Callable[[Files, Files], tuple[Path, Path]]


def test_equal_packages_are_the_same_bytes_but_for_digests_of_kernels(pair: Pair) -> None:
    files = package(AARCH64)
    other = files["manifest.json"].replace(b"\\n", b"\\r")
    assert other != files["manifest.json"]
    row = compare("toy", *pair(files, {**files, "manifest.json": other}), not_called)
    assert row == Row("toy", Verdict.BYTES)


def test_renamed_functions_are_the_same_code(pair: Pair) -> None:
    files = package(AARCH64)
    renamed = files["libtoy.a"].replace(b"toy__window", b"toy__widnow")
    row = compare("toy", *pair(files, {**files, "libtoy.a": renamed}), not_called)
    assert (row.verdict, row.reasons) == (Verdict.CODE, ())


def test_other_weights_are_found(pair: Pair) -> None:
    files = package(AARCH64)
    other = files["libtoy.a"].replace(BIAS.tobytes(), (BIAS + 1).tobytes())
    folders = pair(files, {**files, "libtoy.a": other})
    row = compare("toy", *folders, lambda _old, _new: Measured(executed=(9, 9)))
    assert row.verdict is Verdict.OUTPUTS
    times = iter([Measured(ratio=1.5, noise=0.01), Measured(ratio=1.0, noise=0.01)])
    assert compare("toy", *folders, lambda _old, _new: next(times)).ratio == 1.0
    assert row.reasons == ("no function changed, but data did, or what functions refer to",)


@pytest.mark.parametrize("hardware", [X86_64, AARCH64], ids=lambda item: item.architecture)
def test_one_more_instruction_is_found(pair: Pair, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    row = compare("toy", *pair(package(hardware), package(hardware, ONE_MORE)), briefly)
    assert row.verdict in (Verdict.OUTPUTS, Verdict.DEPARTS)
    assert any(text.startswith("add: ") for text in row.reasons), row
    assert row.static is not None and row.static[0] is not None
    assert row.static[1] == row.static[0] + 1
    if hardware is AARCH64:
        assert row.executed is not None and row.executed[1] == row.executed[0] + 1
        assert row.verdict is Verdict.OUTPUTS
    else:
        assert row.ratio is not None and row.noise is not None and 0.2 < row.ratio < 5


def test_one_other_instruction_is_found(pair: Pair) -> None:
    skip_unless_runnable(AARCH64)
    folders = pair(package(AARCH64), package(AARCH64, OTHER_RESULT))
    row = compare("toy", *folders, lambda old, new: measure(old, new, 0.1))
    assert row.verdict is Verdict.DEPARTS
    assert row.reasons[0].startswith("output scores */ of input 0 differs in")
    assert row.reasons[1].startswith("add: ")


def test_costs_count_beyond_the_noise_only() -> None:
    row = Row("toy", Verdict.OUTPUTS, ("add: changed",))
    assert judged(row, Measured(executed=(1000, 1009))).verdict is Verdict.OUTPUTS
    assert judged(row, Measured(executed=(1000, 1011))).verdict is Verdict.DEPARTS
    assert judged(row, Measured(ratio=1.04, noise=0.05)).verdict is Verdict.OUTPUTS
    assert judged(row, Measured(ratio=1.04, noise=0.002)).verdict is Verdict.DEPARTS
    assert judged(row, Measured(ratio=0.9, noise=0.002)).verdict is Verdict.OUTPUTS
    assert judged(row, Measured(obstacle="no such processor")).verdict is Verdict.NOT_RUN


def test_what_is_proved() -> None:
    same, code, refusal = (Row("a", v) for v in (Verdict.BYTES, Verdict.CODE, Verdict.REFUSED))
    assert report.is_proved([same, code, refusal], "outputs")
    assert not report.is_proved([same, code], "bytes")
    not_run = replace(same, verdict=Verdict.NOT_RUN)
    assert report.is_proved([not_run], "outputs") and not report.is_proved([not_run], "code")
    assert not report.is_proved([same, replace(same, verdict=Verdict.DEPARTS)], "outputs")
    assert refused("a", "no\nkernel", "no\nkernel").verdict is Verdict.REFUSED
    assert refused("a", None, "no kernel").reasons == ("new: no kernel",)


INSTRUCTIONS = (
    *("c3", "90", "4883ec08", "0f1f440000", "66480f6ec0", "e800000000", "0f8400000000"),
    *("48b80000000000000080", "f6c101", "f7c100010000", "c5f877", "c5fd6f05000000ff"),
    *("c4e3fd00c04e", "c4e37d394c24400f"[:14] + "01", "62f27d4850c1", "62f1fd48704c24010f"),
    *("62f3fd48ce442401ff", "c4e27b5ec1", "c4e27b4b4c8500", "66c70424ffff"),
)
"""x86-64: prefixes, immediates of every length, VEX, EVEX with disp8, VNNI, GFNI and tiles."""


def test_instructions_are_told_apart() -> None:
    parts = [bytes.fromhex(text) for text in INSTRUCTIONS]
    assert split("x86_64", b"".join(parts)) == parts
    assert split("armv7", bytes(12), [(4, 8)]) == [bytes(4)] * 2
    with pytest.raises(UnknownCodeError):
        split("x86_64", b"".join(parts)[:-1])


def test_a_commit_is_checked_out(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True)

    git("init", "-q")
    (tmp_path / "a.py").write_text("1")
    git("add", "a.py")
    git("commit", "-q", "-m", "one")
    (tmp_path / "a.py").write_text("2")
    (tmp_path / "b.py").write_text("3")
    commit, tree = resolve("HEAD", tmp_path), resolve(WORKING_TREE, tmp_path)
    old = checked_out(commit, tmp_path / "old", tmp_path)
    new = checked_out(tree, tmp_path / "new", tmp_path)
    assert [path.name for path in old.iterdir()] == ["a.py"]
    assert (old / "a.py").read_text() == "1" and (new / "a.py").read_text() == "2"
    assert (new / "b.py").exists()
    with pytest.raises(UserError, match="git knows no commit 'none'"):
        resolve("none", tmp_path)


def test_jobs_are_chosen_by_name() -> None:
    root = Path(__file__).resolve().parents[2]
    quick = {job.name for job in chosen([root], [], quick=True)}
    whole = {job.name for job in chosen([root], [], quick=False)}
    assert quick < whole and {"levels_0_sapphirerapids", "resnet18_a1w1_host"} <= whole
    assert [job.name for job in chosen([root], ["int8_1_rpi*v7"], quick=False)] == [
        "int8_1_rpi3_armv7"
    ]
    with pytest.raises(UserError, match="no package is called nothing"):
        chosen([root], ["nothing"], quick=True)


@pytest.mark.parametrize("network", [levels_networks.network, integer_networks.network])
def test_random_networks_are_those_of_their_seed(network: Callable[[int], bytes]) -> None:
    assert network(1) == network(1) != network(2)


def test_an_unknown_commit_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-commit", "HEAD"]) == 2
    said = capsys.readouterr().err
    assert "no-such-commit" in said and "Traceback" not in said
