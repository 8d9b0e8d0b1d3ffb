"""What boards say of themselves: the script under several shells, and a reader that trusts none."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents.board_files import list_boards, load_board
from pipelines.recipe.overrides import span
from pipelines.remote import checkup
from pipelines.remote.board_addresses import Board
from pipelines.remote.facts import BEGIN, END, SCRIPT, Facts, architecture_of, ask, glibc_of, parse
from pipelines.remote.transport import Local
from tests.pipelines.remote.answers import CORE, MODEL, PI4, facts, told

SHELLS = [["sh"], ["dash"], ["busybox", "sh"], ["bash", "--posix"]]
LONG = 400_000


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of a Raspberry Pi's kernel."""
    root = tmp_path / "a board's root"
    for number in range(2):
        cpu = f"sys/devices/system/cpu/cpu{number}/cpufreq"
        write(root, f"{cpu}/scaling_governor", "ondemand\n")
        write(root, f"{cpu}/scaling_cur_freq", "600000\n")
        write(root, f"{cpu}/cpuinfo_max_freq", "1800000\n")
    write(root, "sys/devices/system/cpu/cpufreq/boost", "0\n")
    write(root, "sys/class/thermal/thermal_zone0/temp", "51121\n")
    write(root, "sys/class/thermal/thermal_zone1/temp", "")
    write(root, "sys/devices/platform/soc/soc:firmware/get_throttled", "50005\n")
    write(root, "proc/cpuinfo", "\n".join(CORE.format(number=n) for n in range(2)))
    write(root, "proc/device-tree/model", f"{MODEL}\0")
    write(root, "proc/loadavg", "1.25 0.11 0.07 1/136 1234\n")
    write(root, "proc/meminfo", "MemTotal:         948304 kB\nMemAvailable:     612000 kB\n")
    return root


def run(shell: list[str], script: str, folder: Path, path: str | None = None) -> str:
    program = shutil.which(shell[0])
    if program is None:
        pytest.skip(f"{shell[0]} is not installed")
    done = subprocess.run(
        [program, *shell[1:], "-s"],
        input=script,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": path} if path is not None else None,
    )
    assert done.stderr == ""
    return done.stdout


def at(root: Path) -> str:
    assert "root=''\n" in SCRIPT
    quoted = str(root).replace("'", "'\\''")
    return SCRIPT.replace("root=''\n", f"root='{quoted}'\n")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda words: words[0])
def test_every_shell_reads_the_same(shell: list[str], tree: Path, tmp_path: Path) -> None:
    found = parse(run(shell, at(tree), tmp_path))
    assert isinstance(found, Facts)
    assert found.model == MODEL and found.cpus == 2
    assert found.governors == {0: "ondemand", 1: "ondemand"}
    assert found.clocks == {0: 600000, 1: 600000} and found.clocks_max == {0: 1800000, 1: 1800000}
    assert (found.celsius, found.throttled, found.load) == (51.121, 0x50005, 1.25)
    assert found.memory_kib == {"total": 948304, "available": 612000}
    assert set(found.disk_kib) == {"home", "tmp"} and min(found.disk_kib.values()) > 0
    assert found.is_writable and found.noise == ""
    assert found.machine and found.bits in (32, 64) and found.libc
    assert found.cpuinfo.count("CPU part : 0xd08") == 2


def test_a_board_with_nothing_in_its_files_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = parse(run(["sh"], at(tmp_path / "empty"), tmp_path))
    assert isinstance(found, Facts)
    assert (found.model, found.cpuinfo, found.governors) == ("", "", {})
    assert (found.celsius, found.throttled, found.load) == (None, None, None)


@pytest.mark.parametrize("shell", SHELLS[1:3], ids=lambda words: words[0])
def test_a_board_without_getconf_and_with_vcgencmd(
    shell: list[str], tree: Path, tmp_path: Path
) -> None:
    """Alpine's has none, and its C library is musl; older Raspberry Pis have no file."""
    (tree / "sys/devices/platform/soc/soc:firmware/get_throttled").unlink()
    (tree / "lib").mkdir()
    (tree / "lib/ld-musl-aarch64.so.1").touch()
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in (("getconf", "exit 127"), ("vcgencmd", 'echo "throttled=0x50000"')):
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    found = parse(run(shell, at(tree), tmp_path, f"{tools}:/usr/bin:/bin"))
    assert isinstance(found, Facts)
    assert (found.libc, found.glibc, found.throttled) == ("musl", None, 0x50000)
    assert found.bits in (32, 64)


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    assert "[ -w . ] && echo 'home writable'\n" in SCRIPT
    told_of = parse(told(home=None))
    assert isinstance(told_of, Facts) and not told_of.is_writable
    found = ask(Local(Board(name="local", address="local"), tmp_path))
    assert isinstance(found, Facts) and found.is_writable


@pytest.mark.parametrize(
    ("machine", "bits", "architecture"),
    [
        ("aarch64", 64, "aarch64"),
        ("arm64", None, "aarch64"),
        ("aarch64", 32, "armv7"),
        ("armv7l", 32, "armv7"),
        ("armv8l", 32, "armv7"),
        ("armv6l", 32, ""),
        ("x86_64", 64, "x86_64"),
        ("x86_64", 32, ""),
        ("riscv64", 64, ""),
        ("", None, ""),
    ],
)
def test_architectures(machine: str, bits: int | None, architecture: str) -> None:
    assert architecture_of(machine, bits) == architecture


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("glibc 2.28", (2, 28)),
        ("glibc 2.36.9000", (2, 36)),
        ("glibc 2.281111", None),
        ("glibc 2.x", None),
        ("musl", None),
        ("", None),
    ],
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    assert glibc_of(text) == version


def test_what_stands_before_the_facts_is_noise() -> None:
    found = parse(f"Welcome\x1b[31m!\n\n{told()}")
    assert isinstance(found, Facts) and found.noise == "Welcome [31m!"
    assert found.model == MODEL


@pytest.mark.parametrize(
    "text",
    ["", "hello\n", told().replace(END, ""), told().replace(BEGIN + "\n", ""), f"{END}\n{BEGIN}\n"],
)
def test_what_is_no_facts_comes_back_as_a_text(text: str) -> None:
    found = parse(text)
    assert isinstance(found, str) and found.isprintable()


def test_numbers_that_are_none_are_not_told() -> None:
    odd = facts(
        bits="sixty", cpus="-1", throttled="0xfffffffff", load="nan", heat=["0 999999", "1 x"],
        clock=["x 5", "0 " + 40 * "9"], governor=["y performance", "0"], memory="total ²",
    )  # fmt: skip
    assert (odd.bits, odd.cpus, odd.throttled, odd.load, odd.celsius) == (None,) * 5
    assert (odd.clocks, odd.governors, odd.memory_kib) == ({}, {}, {})


def test_a_board_s_first_word_on_a_fact_holds() -> None:
    assert facts(machine=["aarch64", "x86_64"]).machine == "aarch64"


@given(
    st.lists(
        st.one_of(
            st.sampled_from([BEGIN, END, *told().splitlines()]),
            st.builds("{} {}".format, st.sampled_from(list(PI4)), st.text(max_size=30)),
            st.text(max_size=30),
        ),
        max_size=60,
    )
)
def test_no_answer_is_an_error_or_reaches_the_terminal(lines: list[str]) -> None:
    """Whatever is read of it ends up printable, in findings too, of which there is one at least."""
    found = parse("\n".join(lines))
    texts = [found] if isinstance(found, str) else []
    if isinstance(found, Facts):
        stated = [load_board(name, span("hardware", name), []) for name in list_boards()]
        for hardware in (None, *stated):
            told_of = list(checkup.findings(found, hardware))
            assert told_of
            texts += [f"{each.found}{each.advice}" for each in told_of]
    assert all(text.isprintable() for text in texts)


def test_a_long_answer_is_cut() -> None:
    found = parse("x" * LONG + "\n" + told())
    assert isinstance(found, str) and len(found) < 5000
    found = parse(told(model="m" * 100_000, cpuinfo=["c" * 10_000] * 5))
    assert isinstance(found, Facts)
    sizes = [len(str(getattr(found, field.name))) for field in fields(Facts)]
    assert max(sizes) < 25_000
    found = parse(told(cpuinfo=["c"] * 10_000))
    assert isinstance(found, str), "its end is beyond what is read"
