"""The runner itself: what it answers, what it refuses, and what ends it."""

from __future__ import annotations

import threading
import time
import zlib
from pathlib import Path

import pytest

from hw import host
from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.remote import board_programs
from pipelines.remote.deployment import BoardError, probe
from pipelines.remote.dialogue import FaultError, LostError, is_time
from pipelines.remote.runner_session import Session
from pipelines.remote.timed_turns import TurnLengths, timed
from pipelines.remote.transport import FOLDER
from pipelines.runners.replay import QEMU, qemu_lacks
from stages.codegen import compile_object
from tests.pipelines.remote.fakes import fake, faulty
from tests.stages.pipeline import board

HERE = host.detect().architecture
NOTHING = TurnLengths(rounds=3, settle=0, turn=0)


class Adding:
    """A library of one kernel, which adds a constant to 64 bytes; one that crashes; one that is of
    floats."""

    name = "adding"

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware

    def _objects(self) -> dict[str, bytes]:
        from tvm.script.ir_builder import IRBuilder
        from tvm.script.ir_builder import tirx as T

        with IRBuilder() as builder, T.prim_func():
            T.func_name("add")
            T.func_attr({"global_symbol": "add"})
            given, out, scratch = (
                T.arg(name, T.Buffer((64,), "uint8")) for name in ("given", "out", "scratch")
            )
            task, tasks = (T.arg(name, T.int32()) for name in ("task", "n_tasks"))
            with T.serial(64 * task // tasks, 64 * (task + 1) // tasks) as i:
                T.buffer_store(scratch, given[i] + T.uint8(3), [i])
                T.buffer_store(out, scratch[i], [i])
        return {"add.o": compile_object({"add": builder.get()}, self.hardware)}

    def shared(self) -> bytes:
        return board_programs.library(self._objects(), {"add": 2}, self.hardware)

    def static(self) -> bytes:
        return board_programs.static(self._objects(), {"add": 2}, self.hardware)


def hardware(architecture: str) -> Hardware:
    names = {"aarch64": "rpi3", "armv7": "rpi3_armv7", "x86_64": "x86_64"}
    return board(names[architecture])


@pytest.fixture(params=sorted(board_programs.ARCHITECTURES))
def architecture(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if found != HERE and (found not in QEMU or qemu_lacks(found)):
        pytest.skip(f"programs of {found} do not run here")
    return found


GIVEN = bytes(range(64))
WANTED = bytes((n + 3) % 256 for n in GIVEN)
SIDE = "add 64 {tasks} 2 c given w 64"


STATIC = "aarch64"
"""The one architecture whose static runner is made here: another C library takes zig half a minute
the first time."""


@pytest.mark.parametrize("is_static", [False, True])
def test_a_kernel_is_checked_and_timed(
    architecture: str, is_static: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_static and architecture != STATIC:
        pytest.skip(f"static runners are tested for {STATIC}")
    monkeypatch.setattr("pipelines.remote.deployment.is_static", lambda to, a, found: is_static)
    with Session(fake(tmp_path, "pi"), architecture) as session:
        session.ready(pytest.fail)
        session.load(Adding(hardware(architecture)))
        session.put({"given": GIVEN})
        for number, tasks in ((0, 1), (1, 5)):
            session.send(f"side {number} 3 1 {SIDE.format(tasks=tasks)}")
            assert session.ask(f"check {number}") == {"checksums": [zlib.crc32(WANTED)]}
            assert session.ask_bytes(f"read {number} 0", 64) == WANTED
        for threads in (1, 3):
            found = timed(session, (0, 1), NOTHING, threads=threads, far_bytes=1 << 16)
            assert len(found) == 3 and all(0 < seconds < 5 for r in found for seconds in r)
            assert session.ask("check 1") == {"checksums": [zlib.crc32(WANTED)]}
        session.keep(set())
        with pytest.raises(BoardError, match="pi: it was not sent: given"):
            session.ask(f"side 2 1 1 {SIDE.format(tasks=1)}")


def test_nothing_but_the_runner_stays_on_a_board(tmp_path: Path) -> None:
    to = fake(tmp_path, "pi")
    with Session(to, HERE) as session:
        session.ready(pytest.fail)
        session.load(Adding(hardware(HERE)))
        kept = sorted(path.name for path in (to.home / ".cache/bitkiln").iterdir())
    assert len(kept) == 2 and kept[0] == "lock" and kept[1].startswith("runner-")
    assert probe(to).runners == {kept[1]}
    assert (to.home / ".cache/bitkiln" / kept[1]).stat().st_size < 200 * 1024


def test_a_library_that_is_cut_off_does_not_stay(tmp_path: Path) -> None:
    to = fake(tmp_path, "pi")
    with Session(to, HERE) as session:
        session.ready(pytest.fail)
        session.send("library 100000", b"a" * 99_999)
        end = time.monotonic() + 20
        while not list(to.home.glob(f"{FOLDER}/library-*")) and time.monotonic() < end:
            time.sleep(0.01)
        assert list(to.home.glob(f"{FOLDER}/library-*"))
    assert not list(to.home.glob(f"{FOLDER}/library-*"))


@pytest.mark.parametrize("value", [10**400, 1e18, float("inf"), float("nan"), 0, -1, True, "1"])
def test_what_is_no_time(value: object) -> None:
    assert not is_time(value)


@pytest.mark.parametrize("value", [1, 1e-9, 9e17])
def test_what_is_a_time(value: object) -> None:
    assert is_time(value)


def test_the_runner_is_small() -> None:
    for name in board_programs.ARCHITECTURES:
        for form in (False, True) if name == STATIC else (False,):
            assert board_programs.runner(name, form).stat().st_size < 200 * 1024


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("halt", "no such command: halt"),
        ("put key", "a command lacks a word"),
        ("put key -1", "no such number: -1"),
        ("put key 99999999999", "no such number: 99999999999"),
        (f"put {'k' * 80} 1", f"no key, or one that is taken: {'k' * 80}"),
        ("check 7", "no such side"),
        ("check 64", "no such number: 64"),
        ("library 3\nabc", "a library cannot be loaded"),
        ("time 0 1 0 0 0 1 0", "nothing is to be timed"),
        ("infer 1", "no package is open"),
        ("output 0", "no package is open"),
        ("package no_such_name 1 0 0", "the package has no such function: no_such_name_run"),
    ],
)
def test_what_a_runner_refuses(line: str, sentence: str, tmp_path: Path) -> None:
    with Session(fake(tmp_path, "pi"), HERE) as session:
        session.ready(pytest.fail)
        with pytest.raises(BoardError) as error:
            session.ask(line)
        assert error.value.message.startswith(f"pi: {sentence}")
        with pytest.raises(LostError):
            session.ask("ping")


def test_a_kernel_that_crashes_says_so(tmp_path: Path) -> None:
    with Session(fake(tmp_path, "pi"), HERE) as session:
        session.ready(pytest.fail)
        session.load(Adding(hardware(HERE)))
        session.put({"given": GIVEN})
        # A task of no tasks divides by zero; without a tensor it reads where nothing is.
        session.send("side 0 1 1 add 0 1 1 c given")
        with pytest.raises(FaultError, match="it read or wrote where it must not"):
            session.ask("check 0")


def test_two_who_want_one_board(tmp_path: Path) -> None:
    to = fake(tmp_path, "pi")
    said: list[str] = []
    is_said = threading.Event()
    first = Session(to, HERE)
    first.ready(pytest.fail)

    def told(text: str) -> None:
        said.append(text)
        is_said.set()

    with Session(to, HERE) as second:
        waiting = threading.Thread(target=second.ready, args=(told,))
        waiting.start()
        assert is_said.wait(20)
        assert said[0].startswith("pi is in use by ") and said[0].endswith("; waiting for it")
        assert first.ask("ping") == {"pong": True}
        first.close()
        waiting.join(20)
        assert second.ask("ping") == {"pong": True}


def test_what_answers_no_runner_gives(tmp_path: Path) -> None:
    to = faulty(tmp_path, "pi", "babbles", 2)
    with Session(to, HERE) as session:
        session.ready(pytest.fail)
        with pytest.raises(BoardError) as error:
            session.ask("ping")
    assert "pi answers what no runner says: " in error.value.message
    assert error.value.message.isprintable()
    with pytest.raises(BoardError, match="pi answers what no runner says"):
        Session(faulty(tmp_path, "pi", "babbles", 0), HERE)


def test_a_board_that_is_silent_is_not_waited_for(tmp_path: Path) -> None:
    to = faulty(tmp_path, "pi", "hides", 2)
    to.mark.touch()
    with Session(to, HERE) as session:
        session.ready(pytest.fail)
        with pytest.raises(LostError, match="pi: no answer in 0 s"):
            session.ask("ping", seconds=0.1)


def test_cores_that_a_board_has_not(tmp_path: Path) -> None:
    to = fake(tmp_path, "pi")
    odd = type(to)(to.board.model_copy(update={"cores": (1023,)}), to.home)
    with pytest.raises(UserError, match="pi: the board has no such cores: 1023"):
        Session(odd, HERE)
    some = type(to)(to.board.model_copy(update={"cores": (0, 1023)}), to.home)
    with pytest.raises(BoardError, match="pi has no cores 1023; accepted in cores: 0"):
        Session(some, HERE)
    one = type(to)(to.board.model_copy(update={"cores": (0,)}), to.home)
    with Session(one, HERE) as session:
        assert session.hello.cores == (0,)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        (
            "sys/devices/platform/soc/soc:firmware/get_throttled",
            "50005",
            "pi: 9 of 9 rounds were thrown away: the firmware throttled (get_throttled says "
            "0x50005); cool it, or give it a better power supply",
        ),
        ("sys/devices/platform/soc/soc:firmware/get_throttled", "50000", None),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1500000", None),
    ],
)
def test_what_the_runner_reads_of_the_system(
    file: str, text: str, sentence: str | None, tmp_path: Path
) -> None:
    told = tmp_path / "root" / file
    told.parent.mkdir(parents=True)
    told.write_text(f"{text}\n")
    with Session(fake(tmp_path, "pi"), HERE, ["--root", str(tmp_path / "root")]) as session:
        session.ready(pytest.fail)
        session.load(Adding(hardware(HERE)))
        session.put({"given": GIVEN})
        session.send(f"side 0 1 1 {SIDE.format(tasks=1)}")
        if sentence is None:
            assert len(timed(session, (0,), NOTHING)) == 3
            return
        with pytest.raises(BoardError) as error:
            timed(session, (0,), NOTHING)
        assert error.value.message == sentence
