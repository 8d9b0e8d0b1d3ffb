"""Every sentence that a doctor says of a board."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hw.profile import Hardware
from pipelines import machine
from pipelines.documents.board_files import load_board
from pipelines.output.findings import show
from pipelines.recipe.overrides import span
from pipelines.remote import checkup
from pipelines.remote import facts as facts_of_boards
from pipelines.remote.board_addresses import Board
from pipelines.remote.checkup import examine
from pipelines.remote.transport import Local
from tests.pipelines.remote.answers import MODEL, facts, recorded, told

COOL = "cool it, by a heat sink or a fan"
SUPPLY = "use the supply and cable that Raspberry Pi names for it"
STATIC = "kernels are timed by a runner that is linked statically; "
PACKAGES = "packages need a system with glibc 2.28"


def profile(name: str) -> Hardware:
    found = load_board(name, span("hardware", name), [])
    assert found is not None
    return found


def say(hardware: str | None, changed: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """State and sentence of each finding."""
    made = checkup.findings(facts(**changed), profile(hardware) if hardware else None)
    return {f.what: (f.state, "; ".join(filter(None, [f.found, f.advice]))) for f in made}


def test_a_board_with_which_nothing_is_wrong() -> None:
    assert say("rpi4", {}) == {
        "connection": ("ok", f"answers: 0x41 0xd08 r0p3, {MODEL}"),
        "system": ("ok", "aarch64, as rpi4 is"),
        "C library": ("ok", "glibc 2.36"),
        "throttling": ("ok", "never since it started"),
        "temperature": ("ok", "48.3 degrees Celsius"),
        "clock": ("ok", "governor performance, 1800 of 1800 MHz"),
        "load": ("ok", "0.08 programs at work on 4 cores, on average of a minute"),
        "disk": ("ok", "10240 MiB free in the home folder, 1897 in /tmp"),
        "memory": ("ok", "3419 of 3793 MiB free"),
    }


ONES = [f"{n} performance" for n in range(4)]
MIXED = "armv7: a 32-bit system on a 64-bit kernel"


@pytest.mark.parametrize(
    ("hardware", "what", "changed", "state", "sentence"),
    [
        ("rpi3_armv7", "system", {}, "fault",
         "aarch64, and rpi3_armv7 is armv7; name a board of hw/boards that is aarch64: "
         "hardware=NAME"),
        ("rpi4", "system", {"bits": "32"}, "fault",
         f"{MIXED}, and rpi4 is aarch64; install a 64-bit system, or build with "
         "hardware=rpi3_armv7"),
        ("rpi3_armv7", "system", {"bits": "32"}, "ok", f"{MIXED}, as rpi3_armv7 is"),
        (None, "system", {"bits": "32"}, "warning",
         f"{MIXED}; build for it with hardware=rpi3_armv7, or install a 64-bit system"),
        (None, "system", {}, "ok", "aarch64"),
        (None, "system", {"machine": "armv6l", "bits": "32"}, "fault",
         "its processor is called 'armv6l'; accepted: aarch64, armv7, x86_64"),
        ("rpi5", "processor", {}, "fault",
         "its processor lacks dotprod, which rpi5 has; name the board that it is: hardware=NAME"),
        (None, "C library", {"libc": "glibc 2.28"}, "ok", "glibc 2.28"),
        (None, "C library", {"libc": "glibc 2.27"}, "warning",
         f"glibc 2.27 is older than glibc 2.28: {STATIC}{PACKAGES}"),
        (None, "C library", {"libc": "musl"}, "warning", f"musl, not glibc: {STATIC}{PACKAGES}"),
        (None, "C library", {"libc": ""}, "warning", f"unknown, not glibc: {STATIC}{PACKAGES}"),
        (None, "throttling", {"throttled": "0x1"}, "fault",
         f"now its voltage is too low; {SUPPLY}"),
        (None, "throttling", {"throttled": "50005"}, "fault",
         f"now its voltage is too low and it is throttled; {SUPPLY}"),
        (None, "throttling", {"throttled": "e000e"}, "fault",
         "now its clock is capped and it is throttled and it is at its soft temperature limit; "
         + COOL),
        (None, "throttling", {"throttled": "0x50000"}, "warning",
         "not now, but since it started its voltage was too low and it was throttled; "
         + SUPPLY),
        (None, "throttling", {"throttled": "0x80000"}, "warning",
         f"not now, but since it started it was at its soft temperature limit; {COOL}"),
        (None, "temperature", {"heat": "0 69949"}, "ok", "69.9 degrees Celsius"),
        (None, "temperature", {"heat": "0 70000"}, "warning",
         f"70.0 degrees Celsius, near the 80 at which the clock is lowered; {COOL}"),
        (None, "temperature", {"heat": ["0 40000", "1 80000", "2 0"]}, "fault",
         "80.0 degrees Celsius, and from 80 on the clock is lowered; let it cool, by a heat sink "
         "or a fan"),
        (None, "clock", {"governor": [f"{n} ondemand" for n in range(4)],
                         "clock": [f"{n} 600000" for n in range(4)]}, "warning",
         "governor ondemand on cores 0 to 3, 600 of 1800 MHz; "
         "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
        (None, "clock", {"governor": [*ONES[:2], "2 powersave", ONES[3]]}, "warning",
         "governor powersave on core 2, 1800 of 1800 MHz; "
         "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
        (None, "clock", {"clock": ["0 1800000", "1 1000000"]}, "warning",
         "governor performance, and yet 1000 of 1800 MHz; something lowers it: heat, the supply, "
         "or a limit in cpufreq/scaling_max_freq"),
        (None, "clock", {"clock": None}, "ok", "governor performance"),
        (None, "load", {"load": "0.50 0.1 0.1 1/9 9"}, "ok",
         "0.50 programs at work on 4 cores, on average of a minute"),
        (None, "load", {"load": "0.51 0.1 0.1 1/9 9"}, "warning",
         "0.51 programs at work on 4 cores, on average of a minute; end them, or wait: times are "
         "taken beside them"),
        (None, "disk", {"disk": [f"home {64 * 1024}"]}, "ok", "64 MiB free in the home folder"),
        (None, "disk", {"disk": [f"home {63 * 1024}"]}, "fault",
         "63 MiB free in the home folder; have 64 MiB there; what bitkiln keeps is in "
         ".cache/bitkiln"),
        (None, "disk", {"home": None}, "fault",
         "nothing can be written to the home folder; is its file system read-only? what does "
         "`mount` say there?"),
        (None, "memory", {"memory": ["total 433152", f"available {64 * 1024}"]}, "ok",
         "64 of 423 MiB free"),
        (None, "memory", {"memory": ["total 433152", f"available {63 * 1024}"]}, "fault",
         "63 of 423 MiB free; end other programs: a runner takes 64 MiB and more"),
    ],
)  # fmt: skip
def test_what_is_said(
    hardware: str | None,
    what: str,
    changed: dict[str, str | Sequence[str] | None],
    state: str,
    sentence: str,
) -> None:
    assert say(hardware, changed)[what] == (state, sentence)


@pytest.mark.parametrize(
    ("what", "missing"),
    [
        ("throttling", {"throttled": None}),
        ("temperature", {"heat": None}),
        ("clock", {"governor": None}),
        ("load", {"load": None}),
        ("disk", {"disk": None}),
        ("memory", {"memory": ["total 433152"]}),
    ],
)
def test_what_a_board_does_not_tell_is_not_judged(
    what: str, missing: dict[str, str | Sequence[str] | None]
) -> None:
    assert say(None, {}).keys() - say(None, missing).keys() == {what}


def test_only_faults_of_the_processor_that_is_wanted_are_told() -> None:
    assert "processor" not in say("rpi4", {})
    assert "processor" not in say("rpi3_armv7", {}), "the system is another already"
    dotprod = "Features : fp asimd asimddp"
    assert "processor" not in say("rpi5", {"cpuinfo": [dotprod]})
    tiles = profile("sapphirerapids")
    flags = " ".join(["flags : pni ssse3 sse4_1 sse4_2 popcnt abm bmi1 bmi2 avx f16c fma avx2",
                      "avx512f avx512cd avx512dq avx512bw avx512vl avx512vbmi avx512_vbmi2",
                      "avx512_vnni avx512_bf16 avx512_bitalg avx512_vpopcntdq gfni"])  # fmt: skip
    found = checkup.findings(facts(machine="x86_64", cpuinfo=[flags]), tiles)
    assert "processor" not in {each.what for each in found}, "packages do without tiles"


# -- what ssh says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prints", "sentence"),
    [
        ("", "answers nothing instead of facts"),
        ("\x1b]0;BusyBox\x07 router>\n" * 99, "answers ' ]0;BusyBox  router> "),
        ("uname: not found\n", "answers 'uname: not found' instead of facts"),
    ],
)
def test_what_is_no_facts_is_garbage(prints: str, sentence: str) -> None:
    (found,) = examine(recorded(prints), None)
    assert found.state == "fault" and found.found.startswith(sentence)
    assert found.found.isprintable() and len(found.found) < 200
    assert found.advice == "a shell of POSIX must answer there; what does `ssh … echo hello` print?"


def test_a_start_up_file_that_prints_is_a_fault() -> None:
    first, *others = examine(recorded(f"Welcome to pi4!\n{told()}"), None)
    assert (first.state, first.found) == (
        "fault",
        "a start-up file of its shell prints 'Welcome to pi4!' to programs too",
    )
    assert {each.state for each in others} == {"ok"}


def test_this_machine_runs_what_is_for_others_under_qemu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    to = Local(Board(name="local", address="local"), tmp_path)
    monkeypatch.setattr(facts_of_boards, "ask", lambda _: facts(machine="x86_64", cpuinfo=[]))
    monkeypatch.setattr(machine, "is_here", lambda architecture: architecture == "x86_64")
    for lacking, state, sentence in (
        ([], "warning", "runs under QEMU; its times mean nothing"),
        (["qemu-user"], "fault", "runs under QEMU alone; apt install qemu-user"),
    ):
        monkeypatch.setattr(checkup, "qemu_lacks", lambda _, lacking=lacking: lacking)
        (found,) = [each for each in examine(to, profile("rpi3")) if each.what == "system"]
        assert (found.state, f"{found.found}; {found.advice}") == (
            state,
            f"x86_64, and what is for rpi3 (aarch64) {sentence}",
        )
    monkeypatch.setattr(facts_of_boards, "ask", lambda _: facts())
    monkeypatch.setattr(machine, "is_here", lambda architecture: architecture == "aarch64")
    (found,) = [each for each in examine(to, profile("haswell")) if each.what == "system"]
    assert found.state == "fault" and found.advice == "take a board of that architecture"


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "pipelines/commands/README.md").read_text()
    (shown,) = re.findall(r"```\n(doctor: pi@raspberrypi\n.*?)```", page, re.DOTALL)
    slow = {"governor": [f"{n} ondemand" for n in range(4)], "clock": ["0 600000"]}
    made = checkup.findings(facts(throttled="10000", **slow), profile("rpi4"))
    show("doctor: pi@raspberrypi", list(made))
    assert capsys.readouterr().out == shown
