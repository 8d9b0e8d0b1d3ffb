"""`doit doctor board=`: the command, and boards behind a real sshd."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path

import pytest

from hw import host
from pipelines.remote.checkup import examine
from tests import warm
from tests.pipelines.fake_clone import ROOT
from tests.pipelines.remote.sshd import Sshd

OTHER = "rpi3" if platform.machine() == "x86_64" else "haswell"
"""A board of another architecture than this machine's."""
GONE = ("Z", "X", "")
"""States of a process that runs no more."""


def doctor(*arguments: str, boards: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**warm.environment(), "PYTHONPATH": str(ROOT)}
    environment.pop("BITKILN_BOARDS", None)
    if boards is not None:
        environment["BITKILN_BOARDS"] = str(boards)
    return warm.run("doctor", *arguments, cwd=ROOT, env=environment)


def test_this_machine_as_a_board(tmp_path: Path) -> None:
    table = tmp_path / "r.json"
    result = doctor("board=local", f"json={table}")
    rows = {row["what"]: row for row in json.loads(table.read_text())}
    assert "doctor: local\n" in result.stdout
    assert rows["connection"]["state"] == "ok" and rows["connection"]["board"] == "local"
    assert rows["system"]["found"] == host.detect().architecture
    faults = [what for what, row in rows.items() if row["state"] == "fault"]
    assert (result.returncode == 0) == (not faults), faults


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["board="], "ERROR: board=: is no address; accepted: user@host"),
        (["board=-oProxyCommand=x"], "ERROR: board=-oProxyCommand=x: an address does not begin "),
        (["board=local", "hardware=rpi33"], "did you mean 'rpi3'?"),
        (["board=local", "golden.seed=1"], "golden.seed: `doit doctor` does not heed it"),
        (["board=local", "recipe=nothing_of_the_kind"], "nothing_of_the_kind"),
        (["hardware=rpi3"], "hardware: `doit doctor` does not heed it; accepted: json, board ("),
    ],
)
def test_what_is_refused(arguments: list[str], sentence: str) -> None:
    result = doctor(*arguments)
    assert result.returncode and result.stdout == ""
    assert sentence in result.stderr and "Traceback" not in result.stderr


def test_a_name_that_no_board_has(tmp_path: Path) -> None:
    boards = tmp_path / "boards.yaml"
    boards.write_text("boards:\n- {name: pi4a, address: pi@10.0.0.9}\n")
    result = doctor("board=pi4b", boards=boards)
    assert result.returncode and result.stderr == (
        f"ERROR: board=pi4b: {boards} has no board of this name; did you mean 'pi4a'?\n"
    )


def test_boards_behind_ssh(sshd: Sshd) -> None:
    """One is as it should be, one is called what it is not, one does not let in."""
    own = {path: path.stat().st_mtime_ns for path in Path.home().glob(".ssh/*")}
    here, wrong, stranger = (
        sshd.board("here"),
        sshd.board("wrong", kind=OTHER),
        sshd.board("stranger", user="nobody_of_this_name"),
    )
    table = sshd.folder / "r.json"
    boards = sshd.boards_file(here)
    result = doctor("board=here", f"json={table}", boards=boards)
    rows = {row["what"]: row for row in json.loads(table.read_text())}
    assert rows["connection"]["state"] == rows["disk"]["state"] == "ok"
    assert f"doctor: here, {here.address}\n" in result.stdout
    # Boards of one address are one board: each way to write it is asked on its own.
    for board, what, sentence in (
        (wrong, "system", f", and {OTHER} is "),
        (stranger, "connection", "nobody_of_this_name@127.0.0.1 is not let in: "),
    ):
        result = doctor(f"board={board.name}", boards=sshd.boards_file(board))
        assert result.returncode and sentence in result.stdout
        assert result.stderr == (
            f"ERROR: a fault keeps these from being used: {board.name} ({what})\n"
        )
    assert {path: path.stat().st_mtime_ns for path in Path.home().glob(".ssh/*")} == own
    assert list(sshd.home.iterdir()) == [], "a doctor leaves nothing behind"


def test_a_recipe_names_the_hardware_too() -> None:
    recipe = "recipe=ci/residual_block_a2w1_host"
    result = doctor("board=local", recipe)
    assert f"  {host.detect().architecture}, as host is\n" in result.stdout
    result = doctor("board=local", recipe, f"hardware={OTHER}")
    assert f" {OTHER} " in result.stdout and "as host is" not in result.stdout


def test_what_a_real_ssh_says(sshd: Sshd) -> None:
    def connection() -> str:
        found, *_ = examine(sshd.transport(), None)
        return found.found

    assert connection().startswith("answers: ")
    sshd.make_key("stranger")
    sshd.write_config("stranger")
    assert "is not let in: the board has no such user, or does not know your key" in connection()
    sshd.write_config("user")
    sshd.trust("stranger")
    assert "its host key is not the one that this machine knows" in connection()
    sshd.known_hosts.write_text("")
    assert connection() == "this machine does not know its host key yet"
    sshd.trust("host")
    sshd.write_config("user", "Bogus yes")
    assert connection().startswith("ssh does not take its configuration: ")
    sshd.write_config("user")
    sshd.noise.write_text("Welcome!\n")
    assert connection() == "a start-up file of its shell prints 'Welcome!' to programs too"
    sshd.noise.unlink()
    sshd.stop()
    assert connection() == f"nothing answers ssh on 127.0.0.1, port {sshd.port}"
    sshd.start()
    assert connection().startswith("answers: ")


def test_a_server_of_a_test_leaves_nothing_running(sshd: Sshd) -> None:
    command = sshd.transport().command(["sh", "-c", "echo $$; exec sleep 1000"])
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert client.stdout is not None
    process = int(client.stdout.readline())
    assert _state(process) not in GONE
    sshd.stop()
    assert client.wait(timeout=10) == 255, "it lost its connection"
    client.stdout.close()
    end = time.monotonic() + 10
    while _state(process) not in GONE and time.monotonic() < end:
        time.sleep(0.02)
    assert _state(process) in GONE


def _state(process: int) -> str:
    """A letter of Linux's for a process; nothing if there is none of that number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def test_files_are_copied_to_a_board_behind_ssh(sshd: Sshd, tmp_path: Path) -> None:
    """Into what stands for the home folder of whoever logs in."""
    file = tmp_path / "some file"
    file.write_bytes(os.urandom(1000))
    sshd.transport().copy(file, "copied")
    assert (sshd.home / "copied").read_bytes() == file.read_bytes()


def test_a_board_of_another_kind_and_cores_that_it_lacks(tmp_path: Path) -> None:
    boards = tmp_path / "boards.yaml"
    boards.write_text("boards:\n- {name: here, address: local, kind: rpi4, cores: [0, 1023]}\n")
    result = doctor("board=here", "hardware=rpi3", boards=boards)
    assert result.returncode and "it is a rpi4, and what is built is for rpi3" in result.stderr
    result = doctor("board=here", boards=boards)
    assert "it has no cores 1023, only " in result.stdout
    assert result.returncode and "here (" in result.stderr and "cores" in result.stderr
