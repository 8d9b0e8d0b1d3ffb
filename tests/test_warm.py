"""A fork of `tests/warm_server.py` is what a true start of doit would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests import warm

DODO = """
import atexit, json, os, signal, sys, threading, time
from doit.exceptions import InvalidDodoFile

WHAT = os.environ.get("WHAT")
atexit.register(print, "at the end")
if WHAT == "sleep":
    print("asleep", flush=True)
    time.sleep(60)
if WHAT == "raise":
    raise InvalidDodoFile("refused")
if WHAT == "word":
    sys.exit("a word")
if WHAT == "thread":
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()


def task_say():
    return {"actions": [say], "verbosity": 2, "uptodate": [False]}


def say():
    ours = ("pipelines", "stages", "hw", "tests", "recipes")
    print("said", json.dumps({
        "argv": sys.argv,
        "path": sys.path,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "leads": os.getpid() == os.getsid(0),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "pipe": str(signal.getsignal(signal.SIGPIPE)),
        "main": sys.modules["__main__"].__spec__.name,
        "ours": [name for name in sys.modules if name.partition(".")[0] in ours],
        "torch": "torch" in sys.modules,
        "terminal": [s.isatty() for s in (sys.stdin, sys.__stdout__, sys.__stderr__)],
        "input": sys.stdin.read(),
        "coding": [(s.encoding, s.errors) for s in (sys.__stdout__, sys.__stderr__)],
        "bytecode": [sys.dont_write_bytecode, sys.pycache_prefix],
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3],
    }))
    return WHAT != "fail"
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="all starts are true here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dodo.py").write_text(DODO)
    return tmp_path


def true(*arguments: str, folder: Path, env: dict[str, str]) -> tuple[int, str, str]:
    process = warm.Cold(arguments, folder, env)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def forked(*arguments: str, folder: Path, env: dict[str, str]) -> tuple[int, str, str]:
    process = warm.start(*arguments, cwd=folder, env=env)
    assert isinstance(process, warm.Warm)
    out, err = process.communicate(timeout=60)
    assert process.returncode is not None
    return process.returncode, out, err


def said(result: tuple[int, str, str]) -> Any:
    (line,) = [line for line in result[1].splitlines() if line.startswith("said ")]
    return json.loads(line.removeprefix("said "))


def test_it_finds_what_a_true_start_finds(folder: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "more"), "WHAT": "say", "HOME": "/nowhere"}
    env.pop("PATH")
    results = [each("say", folder=folder, env=env) for each in (true, forked)]
    assert results[0][0] == results[1][0] == 0
    assert said(results[0]) == said(results[1])
    assert said(results[1])["ours"] == [] and said(results[1])["input"] == ""


@pytest.mark.parametrize("what", ["", "fail", "raise", "word", "thread"])
def test_it_ends_as_a_true_start_does(what: str, folder: Path) -> None:
    env = {**os.environ, "WHAT": what}
    wanted, found = ([*each("list", folder=folder, env=env)] for each in (true, forked))
    assert found == wanted
    assert what not in ("raise", "word") or found[0] != 0
    ended = [each("say", folder=folder, env=env)[0] for each in (true, forked)]
    assert ended[0] == ended[1] == {"": 0, "fail": 1, "raise": 3, "word": 1, "thread": 0}[what]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(number: signal.Signals, folder: Path) -> None:
    env = {**os.environ, "WHAT": "sleep"}
    codes = []
    for process in (warm.start("list", cwd=folder, env=env), warm.Cold(["list"], folder, env)):
        asleep(process.pid)
        os.killpg(process.pid, number)
        process.communicate(timeout=30)
        codes.append(process.returncode)
    assert codes[0] == codes[1] != 0


def asleep(pid: int) -> None:
    """Wait until the sleeping dodo file is reached."""
    deadline = time.monotonic() + 60
    while "nanosleep" not in Path(f"/proc/{pid}/wchan").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_is_killed_when_time_is_up(folder: Path) -> None:
    env = {**os.environ, "WHAT": "sleep"}
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run("list", cwd=folder, env=env, timeout=0.2)


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LC_ALL", "OMP_NUM_THREADS"])
def test_what_is_read_at_the_start_gets_a_true_one(name: str, folder: Path) -> None:
    process = warm.start("list", cwd=folder, env={**os.environ, name: "1"})
    assert isinstance(process, warm.Cold)
    process.communicate(timeout=60)
    assert process.returncode == 0
