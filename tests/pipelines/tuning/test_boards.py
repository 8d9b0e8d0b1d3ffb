"""Tuning on boards: on fakes of this machine, of which some go wrong, and under QEMU."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pipelines.builds import plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.recipe import load
from pipelines.remote.timed_turns import TurnLengths
from pipelines.remote.transport import Transport
from pipelines.runners.replay import qemu_lacks
from pipelines.tuning import kernels_by_layer, ledger
from pipelines.tuning.trials import Tuner
from tests.pipelines.fake_clone import doit
from tests.pipelines.remote.fakes import fake, faulty

RECIPE = "ci/residual_block_a2w1_host"
AT_ONCE = TurnLengths(rounds=1, settle=0, turn=0)


def tuner(boards: Sequence[Transport], said: list[str], **fields: str) -> Tuner:
    resolved = load.load_recipe(RECIPE, fields)
    made = plan.of(resolved)
    return Tuner(made, resolved.hardware, said.append, boards, AT_ONCE, waits=(0.0,))


def kept() -> list[dict[str, Any]]:
    if not ledger.path().exists():
        return []
    return [json.loads(line) for line in ledger.path().read_text().splitlines()]


def trials() -> Counter[tuple[Any, ...]]:
    lines = [line for line in kept() if "kernel" in line]
    keys = ("layer", "kernel", "order", "rows", "threads", "on_threads")
    return Counter(tuple(line.get(key) for key in keys) for line in lines)


@pytest.mark.slow
def test_three_boards_of_which_two_fail(tmp_path: Path) -> None:
    """One is killed in the middle, one answers garbage, one is slow and does what is left."""
    said: list[str] = []
    boards = [
        faulty(tmp_path, "killed", "dies", 9),
        faulty(tmp_path, "garbage", "babbles", 7),
        faulty(tmp_path, "slow", "slow", 2),
    ]
    tuner(boards, said).run(2)
    found = trials()
    assert found and set(found.values()) == {1}
    assert not [line for line in kept() if line.get("failed")]
    assert "killed: the program there ended without a word; trying to reach it again" in said
    assert "killed: cannot be asked: it is gone; the other boards take its share" in said
    assert any(
        text.startswith("garbage answers what no runner says: ") and text.isprintable()
        for text in said
    )
    # Short layers were tried in fewer tasks on all cores, beside the same without a limit.
    cores = len(os.sched_getaffinity(0))
    limited = [line for line in kept() if line.get("on_threads")]
    assert {line["on_threads"] for line in limited} == ({cores} if cores > 1 else set())
    assert all(line["against"] == line["kernel"] and line["threads"] < cores for line in limited)
    # A second run has nothing to measure.
    again = kept()
    tuner([fake(tmp_path, "slow")], said).run(2)
    assert kept()[:-1] == again


@pytest.mark.slow
def test_what_was_measured_before_a_kill_is_not_measured_again(tmp_path: Path) -> None:
    said: list[str] = []
    board = faulty(tmp_path, "pi", "dies", 12)
    with pytest.raises(UserError) as error:
        tuner([board], said).run(2)
    assert error.value.message == (
        "no board is left: pi: cannot be asked: it is gone; what was measured is kept, and the "
        "same command goes on there"
    )
    before = kept()
    assert before
    tuner([fake(tmp_path, "pi")], said).run(2)
    assert kept()[: len(before)] == before and set(trials().values()) == {1}


@pytest.mark.slow
def test_two_tuners_want_the_same_board(tmp_path: Path) -> None:
    """The second one is told who has it, and goes on when the first has done."""
    said: list[str] = []
    board = fake(tmp_path, "pi")
    first = tuner([board], said)
    second = tuner([board], said)  # its runner waits for the board from now on
    running = Thread(target=first.run, args=(1,))
    running.start()
    second.run(1)
    running.join(120)
    assert not running.is_alive()
    assert len([line for line in kept() if "finished" in line]) == 2
    waited = [text for text in said if text.startswith("pi is in use by ")]
    assert len(waited) == 1 and waited[0].endswith("; waiting for it")


@pytest.mark.slow
@pytest.mark.parametrize("hardware", ["rpi3", "rpi3_armv7"])
def test_a_board_of_another_architecture(hardware: str, tmp_path: Path) -> None:
    architecture = {"rpi3": "aarch64", "rpi3_armv7": "armv7"}[hardware]
    if lacking := qemu_lacks(architecture):
        pytest.skip(f"without {' and '.join(lacking)}")
    said: list[str] = []
    made = tuner([fake(tmp_path, "one"), fake(tmp_path, "two")], said, hardware=hardware)
    made.run(1)
    machine = made.groups[0].machine
    assert machine.processor.startswith(f"QEMU {architecture} on ")
    assert set(trials().values()) == {1}
    # A build for the board takes what was measured there, and needs no board for it.
    resolved = load.load_recipe(RECIPE, {"hardware": hardware, "schedule.trials": "1"})
    wanted = plan.of(resolved)
    assert (
        ledger.machine_for(resolved.hardware.core, resolved.hardware.isa, architecture) == machine
    )
    layer = made.groups[0].layers[0]
    other = layer.candidates(1)[0]
    made.record(made.groups[0], layer, other, seconds=1e-9, against_seconds=1.0, ratio=1e-9)
    tuned = PlanExecution(wanted)
    tuned.produce(wanted.step("scheduling"))
    assert kernels_by_layer.running(tuned)[layer.name] == other.kernel
    untuned = PlanExecution(
        replace(wanted, measured_choices=replace(wanted.measured_choices, trials=0))
    )
    untuned.produce(wanted.step("scheduling"))
    assert kernels_by_layer.running(untuned)[layer.name] == layer.default.kernel


@pytest.mark.slow
def test_the_headline_recipe_is_tuned_and_exact(tmp_path: Path) -> None:
    """Over two boards, of which one is lost in the middle."""
    if lacking := qemu_lacks("aarch64"):
        pytest.skip(f"without {' and '.join(lacking)}")
    said: list[str] = []
    resolved = load.load_recipe("resnet18_a2w1_rpi3", {"schedule.trials": "8"})
    boards = [fake(tmp_path, "one"), faulty(tmp_path, "two", "dies", 99)]
    made = Tuner(plan.of(resolved), resolved.hardware, said.append, boards, AT_ONCE, waits=(0.0,))
    made.run(8)
    assert "two: cannot be asked: it is gone; the other boards take its share" in said
    assert set(trials().values()) == {1} and len(trials()) > 8 * 12
    done = doit("build", "recipe=resnet18_a2w1_rpi3", "schedule.trials=8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measurements    cached" in done.stdout
    assert "2 golden samples exact" in done.stdout


def test_a_build_that_wants_trials_wants_a_board() -> None:
    done = doit("build", f"recipe={RECIPE}", "hardware=graviton2", "schedule.trials=1")
    assert done.returncode and done.stderr.endswith(
        "not aarch64; name a board to measure on: board=user@host, or leave out schedule.trials\n"
    )
