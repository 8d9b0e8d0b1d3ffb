"""Boards behind a real sshd on loopback: what tunes, runs and verifies there, and a network that
is cut."""

from __future__ import annotations

import getpass
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hw import host
from pipelines.builds import plan
from pipelines.recipe import load
from pipelines.remote.board_addresses import VARIABLE, Board
from pipelines.remote.runner_session import Session
from pipelines.remote.timed_turns import TurnLengths
from pipelines.remote.transport import Ssh
from pipelines.remote.worker_pool import WorkerPool
from pipelines.tuning import ledger
from pipelines.tuning.trials import Tuner
from tests.pipelines.fake_clone import doit
from tests.pipelines.remote.proxy import proxy
from tests.pipelines.remote.sshd import Sshd

RECIPE = "ci/residual_block_a2w1_host"
HERE = host.detect().architecture


@pytest.fixture(autouse=True)
def _own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.slow
def test_what_a_package_gives_on_a_board(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(sshd.boards_file(sshd.board("pi"))))
    done = doit("verify", "recipe=digits_a2w2_host", "board=pi")
    assert done.returncode == 0, done.stdout + done.stderr
    for what in ("library", "program"):
        for threads in ("1 thread", "2 threads", "3 threads"):
            assert re.search(f"^{what} on pi, {threads} +exact ", done.stdout, re.MULTILINE)
    sample = tmp_path / "sample.npy"
    np.save(sample, np.zeros((1, 1, 8, 8), np.float32))
    done = doit("run", "recipe=digits_a2w2_host", "board=pi", f"input={sample}")
    assert "digits_a2w2_host, on pi: " in done.stdout, done.stdout + done.stderr
    here = doit("run", "recipe=digits_a2w2_host", f"input={sample}")
    assert here.stdout.splitlines()[1:] == done.stdout.splitlines()[1:]
    trace = tmp_path / "trace.json"
    told = ("package.profile=true", "board=pi", f"profile={trace}", "threads=2")
    done = doit("run", "recipe=digits_a2w2_host", f"input={sample}", *told)
    assert "layers: mean and least of 20 runs, 2 threads" in done.stdout, done.stdout + done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    assert "conv2" in {event["name"] for event in events}
    table = tmp_path / "bench.json"
    done = doit("bench", "recipe=digits_a2w2_host", "board=pi", "peers=none", f"json={table}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "p99 ms" in done.stdout and "MiB of memory at most" in done.stdout
    done = doit("run", "recipe=digits_a2w2_host", "board=pi,local", f"input={sample}")
    assert done.stderr == "ERROR: board=pi,local: these are 2 boards; doit run takes one\n"
    tuned = ("recipe=digits_a2w2_host", "schedule.trials=1")
    records = tmp_path / "records.jsonl"
    done = doit("tune", *tuned, "board=pi", "repeat=1", f"out={records}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "doit build recipe=digits_a2w2_host schedule.trials=1 uses them" in done.stdout
    lines = ledger.path().read_text().splitlines()
    assert sorted(records.read_text().splitlines()) == sorted(lines[:-1])
    done = doit("build", *tuned)
    assert "measurements    cached" in done.stdout and "golden samples exact" in done.stdout
    # Nothing is left there but the runner and its lock.
    left = sorted(path.name for path in (sshd.home / ".cache/bitkiln").iterdir())
    assert len(left) == 2 and left[0] == "lock" and left[1].startswith("runner-")


@pytest.mark.slow
def test_tuning_while_the_board_is_taken_away(sshd: Sshd) -> None:
    """It is gone in the middle, and comes back: nothing measured is measured again."""
    said: list[str] = []
    resolved = load.load_recipe(RECIPE)
    timing = TurnLengths(rounds=1, settle=0, turn=0)
    made = plan.of(resolved)
    tuner = Tuner(
        made, resolved.hardware, said.append, [sshd.transport()], timing, waits=(0.1,) * 9
    )
    record = tuner.record

    def record_and_cut(*given: object, **found: object) -> None:
        record(*given, **found)  # type: ignore[arg-type]
        if len(ledger.path().read_text().splitlines()) == 4:
            sshd.stop()
            sshd.start()

    tuner.record = record_and_cut  # type: ignore[method-assign]
    tuner.run(2)
    trials = ledger.trials(tuner.groups[0].machine)
    counted = Counter((t.layer, t.kernel, t.order, t.rows, t.max_tasks) for t in trials)
    assert len(trials) > 6 and set(counted.values()) == {1}
    assert not [trial for trial in trials if trial.failed]
    assert len([text for text in said if text.endswith("; trying to reach it again")]) == 1


def test_a_network_that_is_cut_and_restored(sshd: Sshd) -> None:
    said: list[str] = []
    with proxy(sshd.port) as network:
        sshd.write_config("user", "StrictHostKeyChecking no")
        address = f"{getpass.getuser()}@127.0.0.1:{network.port}"
        board = Board(name="pi", address=address, ssh_config=str(sshd.config))
        to = replace(Ssh(board), alive=(1, 1))
        tries: Counter[int] = Counter()

        def work(session: Session, item: int) -> int:
            tries[item] += 1
            if item == 2 and tries[item] == 1:
                network.cut()
            if item == 2 and tries[item] == 2:
                network.restore()
            assert session.ask("ping") == {"pong": True}
            return item

        def connect() -> Session:
            network.restore()  # until then nothing can be reached
            return Session(to, HERE)

        with WorkerPool([("pi", connect)], work, said.append, waits=(0.0,)) as pool:
            pool.submit(range(5))
            assert {pool.next()[0] for _ in range(5)} == set(range(5))
    assert tries == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}
    assert len(said) == 1 and said[0].endswith("; trying to reach it again")
