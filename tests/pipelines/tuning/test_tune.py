"""`doit tune` through the front door; nothing is said of which kernel is the fastest."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hw import host
from pipelines.builds import plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.machine import check_runs
from pipelines.recipe import load
from pipelines.tuning import alternatives, finished_trials, kernels_by_layer, ledger
from pipelines.tuning.candidates import candidate_name
from pipelines.tuning.dry_build import DryBuild
from pipelines.tuning.ledger import Finished, Trial
from pipelines.tuning.measured_choices import MeasuredChoices
from tests.pipelines.fake_clone import doit
from tests.stages.pipeline import board

RECIPE = "ci/residual_block_a2w1_host"


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.path().read_text().splitlines()]


@pytest.mark.slow
def test_every_trial_is_kept_and_measured_once(tmp_path: Path) -> None:
    target = tmp_path / "r.json"
    done = doit("tune", f"recipe={RECIPE}", "schedule.trials=2", "repeat=2", f"json={target}")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = lines()
    assert kept[-1]["trials"] == 2 and "finished" in kept[-1]
    found = json.loads(target.read_text())
    rows = {row["layer"]: row for row in found["layers"]}
    assert rows["layer1.0.conv1"]["count"] == 2 and rows["layer1.0.conv1"]["failed"] == 0
    assert sum(len(row["trials"]) for row in rows.values()) == len(kept) - 1
    for line in kept[:-1]:
        assert line["ratio"] > 0 and line["seconds"] > 0 and line["against_seconds"] > 0
    assert 0 < found["gain"] <= 1
    assert f"{found['gain']:.2f} of their time" in done.stdout
    # A build that wants as many has nothing to measure, and is exact whatever it chooses.
    done = doit("build", f"recipe={RECIPE}", "schedule.trials=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^measurements +cached$", done.stdout, re.MULTILINE), done.stdout
    assert lines() == kept
    done = doit("show", f"recipe={RECIPE}", "schedule.trials=2", "layer=layer1.0.conv1")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = rows["layer1.0.conv1"]["trials"][0]
    assert f"{1e6 * measured['seconds']:.1f}" in done.stdout
    assert done.stdout.count(" runs ") == 1
    assert re.search(
        r"^ +layer1.0.conv1 +Windows .* ChannelVectors +linear layer of floats, of bits",
        done.stdout,
        re.M,
    )
    done = doit("show", f"recipe={RECIPE}", "layer=layer1.0.conf1")
    assert done.returncode == 3
    assert "matches no layer; did you mean 'layer1.0.conv1'" in done.stderr


def test_a_kernel_on_rebased_images_is_the_candidate_that_was_timed() -> None:
    kernels = ["mac8_pairs4_by4_2x16", "mac8_pairs4_by2_2x16", "mac8_pairs4_by4_1x16"]
    runs = "mac8_pairs4_by4_rebased_2x16"
    assert [candidate_name(name) for name in (runs, *kernels)] == [kernels[0], *kernels]


@pytest.mark.slow
def test_what_was_measured_best_is_built() -> None:
    """Trials are made up here: every kernel there is for a layer, each once the best by far."""
    resolved = load.load_recipe(RECIPE)
    made = plan.of(resolved)
    built = PlanExecution(made)
    built.produce(made.step("packaging"))
    machine = ledger.machine(resolved.hardware.core, resolved.hardware.isa)
    layer = "layer1.0.conv1"
    layer_kernels, default = (
        kernels_by_layer.of(built)[layer],
        kernels_by_layer.running(built)[layer],
    )
    algorithms = {one.algorithm: layer_kernels.kernel(one) for one in layer_kernels.ranked()}
    assert len(algorithms) > 1
    for kernel in algorithms.values():
        ledger.append(
            [
                Trial(
                    machine=machine,
                    workloads=tuple(workload.name for workload in layer_kernels.workloads),
                    kernel=kernel,
                    order="blocks_inner",
                    against=default,
                    ratio=0.5 / (1 + len(ledger.trials(machine))),
                    recipe="made up",
                    layer=layer,
                    at="",
                )
            ]
        )
        tuned = PlanExecution(
            replace(made, measured_choices=replace(made.measured_choices, trials=1))
        )
        tuned.produce(made.step("scheduling"))
        assert kernels_by_layer.running(tuned)[layer] == kernel
        assert kernels_by_layer.orders(tuned)[layer] == "blocks_inner"
    # Without trials the ledger is not heeded.
    assert kernels_by_layer.running(PlanExecution(made))[layer] == default


@pytest.mark.slow
def test_row_blocks_and_limits_of_tasks_are_built_and_shown() -> None:
    resolved = load.load_recipe(RECIPE)
    built = PlanExecution(plan.of(resolved))
    built.produce(built.plan.step("packaging"))
    machine = ledger.machine(resolved.hardware.core, resolved.hardware.isa)
    layer = "layer1.0.conv1"
    layer_kernels, default = (
        kernels_by_layer.of(built)[layer],
        kernels_by_layer.running(built)[layer],
    )
    facts: dict[str, Any] = {
        "machine": machine,
        "workloads": tuple(workload.name for workload in layer_kernels.workloads),
        "kernel": default,
        "order": "rows_inner",
        "rows": 3,
        "against": default,
        "recipe": "made up",
        "layer": layer,
        "at": "",
    }
    key = finished_trials.key_of(built)
    assert key is not None
    ledger.append(
        [
            Trial(**facts, ratio=0.5, seconds=1e-6),
            Trial(**facts, ratio=0.5, threads=2, on_threads=4),
            Finished(finished=key, trials=1),
        ]
    )
    before = lines()
    done = doit("build", f"recipe={RECIPE}", "schedule.trials=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verifying" in done.stdout and lines() == before
    tuned = PlanExecution(
        replace(built.plan, measured_choices=replace(built.plan.measured_choices, trials=1))
    )
    schedules = tuned.load(tuned.plan.step("scheduling")).values()
    chosen = [s for s in schedules if (s.get("rows"), s.get("threads")) == (3, 2)]
    # The other layer of this shape too.
    assert [schedule["order"] for schedule in chosen] == ["rows_inner"] * 2
    done = doit("show", f"recipe={RECIPE}", "schedule.trials=1", f"layer={layer}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows_inner 3 rows 2 tasks at most" in done.stdout


@pytest.mark.slow
def test_a_dry_build_leaves_nothing_but_items() -> None:
    resolved = load.load_recipe(RECIPE)
    built = PlanExecution(plan.of(resolved))
    built.produce(built.plan.step("packaging"))
    before = sorted((built.store.root / "bitpacking").iterdir())
    layer_kernels = kernels_by_layer.of(built)["layer1.0.conv1"]
    kernel = layer_kernels.kernel(layer_kernels.ranked()[-1])
    choices = {w.name: {"kernel": kernel, "order": None} for w in layer_kernels.workloads}
    assert kernels_by_layer.running(DryBuild(built, choices))["layer1.0.conv1"] == kernel
    assert sorted((built.store.root / "bitpacking").iterdir()) == before


def test_layers_of_a_recipe_that_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = load.load_recipe(RECIPE)
    execution = PlanExecution(plan.of(resolved))
    monkeypatch.setattr(PlanExecution, "is_current", lambda self, step: False)
    with pytest.raises(UserError) as error:
        alternatives.rows(execution, resolved, "conv1")
    assert error.value.message == (
        "layer=conv1: the layers of residual_block_a2w1_host are known once it is built; "
        "run: doit build recipe=ci/residual_block_a2w1_host"
    )


def test_a_mark_says_that_a_model_had_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.builds import plan_execution
    from pipelines.tuning import finished_trials

    address = SimpleNamespace(key="key")
    monkeypatch.setattr(plan_execution.PlanExecution, "address", lambda self, step: address)
    wanted = replace(
        plan.of(load.load_recipe(RECIPE)), measured_choices=MeasuredChoices(3, "c", "i")
    )
    assert not finished_trials.is_measured(wanted)
    ledger.append([Finished(finished="key", trials=2)])
    assert not finished_trials.is_measured(wanted)
    ledger.append([Finished(finished="key", trials=3)])
    assert finished_trials.is_measured(wanted)


def test_measuring_for_a_processor_that_is_not_here() -> None:
    other = board("rpi3" if host.detect().architecture == "x86_64" else "haswell")
    with pytest.raises(UserError) as error:
        check_runs(other, "measuring", "leave it")
    here = host.detect().architecture
    assert error.value.message == (
        f"measuring for {other.name}: this machine is {here}, not {other.architecture}; leave it"
    )
    detected = host.detect()
    check_runs(detected, "measuring", "leave it")
    more = detected.model_copy(update={"features": (*detected.features, "+madeup")})
    with pytest.raises(UserError, match=r"this machine lacks madeup; leave it$"):
        check_runs(more, "measuring", "leave it")
