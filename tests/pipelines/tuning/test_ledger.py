"""The ledger keeps every trial, whatever kills the run; a build heeds the best of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.builds import plan
from pipelines.builds.stage_calls import validated
from pipelines.errors import UserError
from pipelines.recipe import load
from pipelines.store import keys
from pipelines.tuning import ledger
from pipelines.tuning.ledger import Finished, Machine, Trial
from pipelines.tuning.measured_choices import (
    MARGIN,
    MeasuredChoices,
    best_of,
    better_of,
    capped_of,
    choices_of,
)
from stages import importing, legalizing, quantizing
from stages.importing import zoo
from stages.options import ImportOptions, LegalizeOptions

RECORDED = "resnet18_int8_host"
HERE = Machine(processor="this", core="generic", isa="avx2", tools=("tvm 1",))


def trial(kernel: str, ratio: float | None, **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "machine": HERE,
        "workloads": ("u8s8 shape",),
        "kernel": kernel,
        "against": "default",
        "ratio": ratio,
        "failed": "why" if ratio is None else None,
        "recipe": "toy",
        "layer": "conv",
        "at": "2026-01-01T00:00:00+00:00",
    }
    return Trial(**{**facts, **changes})


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RECORDS", tmp_path / "records")


def test_what_was_appended_is_read_in_order() -> None:
    lines = [trial("a", 0.5), trial("b", None, order="rows_inner")]
    ledger.append(lines[:1])
    ledger.append([Finished(finished="key", trials=4), *lines[1:]])
    assert ledger.trials(HERE) == lines
    assert ledger.is_finished("key", 4)
    assert not ledger.is_finished("key", 5)
    assert not ledger.is_finished("other", 1)


def test_no_ledger_is_an_empty_one() -> None:
    assert ledger.trials(HERE) == []
    assert not ledger.is_finished("key", 1)


@given(st.integers(1, 400))
def test_a_line_that_was_cut_off_costs_only_itself(cut: int) -> None:
    file = ledger.path()
    file.unlink(missing_ok=True)
    ledger.append([trial("a", 0.5), trial("b", 0.25)])
    whole = file.read_bytes()
    file.write_bytes(whole[: -min(cut, len(whole.splitlines()[1]))])
    ledger.append([trial("c", 0.75)])
    assert [t.kernel for t in ledger.trials(HERE) if t.kernel != "b"] == ["a", "c"]


def test_trials_of_other_machines_mean_nothing_here(tmp_path: Path) -> None:
    there = [HERE.model_copy(update=change) for change in (
        {"processor": "that"}, {"core": "zen"}, {"isa": "sse2"}, {"tools": ("tvm 2",)},
    )]  # fmt: skip
    ledger.append([trial("a", 0.5, machine=machine) for machine in there])
    assert ledger.trials(HERE) == []
    ledger.append([trial("b", 0.5)], tmp_path / "records" / "this.jsonl")
    assert [t.kernel for t in ledger.trials(HERE)] == ["b"]


def test_whose_trials_a_build_for_boards_heeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the board that was measured last; QEMU's times never take the place of a board's."""
    monkeypatch.setattr(ledger, "is_here", lambda _: False)
    found = []
    for processor in ("QEMU aarch64 on this", "pi 3", "pi 4", "QEMU aarch64 on that"):
        here = ledger.machine("cortex-a72", "neon_aarch64", processor)
        ledger.append([trial("a", 0.5, machine=here)])
        chosen = ledger.machine_for("cortex-a72", "neon_aarch64", "aarch64")
        found.append(chosen.processor)
    assert found == ["QEMU aarch64 on this", "pi 3", "pi 4", "pi 4"]


def test_records_replace_what_a_file_held(tmp_path: Path) -> None:
    for kernels in ("ab", "c"):
        ledger.export([trial(kernel, 0.5) for kernel in kernels], tmp_path / "records" / "r.jsonl")
        assert [t.kernel for t in ledger.trials(HERE)] == list(kernels)


def test_a_ledger_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "bitkiln").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"ledger\.jsonl: .*; trials are kept there$"):
        ledger.append([trial("a", 0.5)])


def test_the_best_of_what_ran_beside_the_kernel_now_predicted() -> None:
    old = trial("fast", 0.1, against="another")
    assert best_of([old, trial("a", 0.9), trial("b", 0.7), trial("c", None)]) == trial("b", 0.7)
    assert best_of([trial("c", None)]) is None
    # Measured again, it is the later one that counts.
    assert best_of([trial("a", 0.5), trial("b", 0.7), trial("a", 0.8)]) == trial("b", 0.7)


def test_choices() -> None:
    slower = trial("slow", 1.3, workloads=("u8s8 second",))
    within_noise = trial("same", (1 + MARGIN) / 2, workloads=("u8s8 third",))
    bits = trial("mac8", 0.6, workloads=("a2w1_bipolar s", "u2s2 s"), order="blocks_inner")
    also = trial("own", 0.5, workloads=("u2s2 s",))
    found = choices_of([trial("a", 0.9), slower, within_noise, bits, also])
    assert found == {
        "u8s8 shape": {"kernel": "a", "order": None, "against": "default"},
        "u8s8 second": {"kernel": "default", "order": None, "against": "default"},
        "u8s8 third": {"kernel": "default", "order": None, "against": "default"},
        "a2w1_bipolar s": {"kernel": "mac8", "order": "blocks_inner", "against": "default"},
        "u2s2 s": {"kernel": "own", "order": None, "against": "default"},
    }


OLD = (
    '{"machine":{"processor":"this","core":"generic","isa":"avx2","tools":["tvm 1"]},'
    '"workloads":["u8s8 shape"],"kernel":"a","order":"blocks_inner","against":"default",'
    '"seconds":0.5,"against_seconds":1.0,"ratio":0.5,"recipe":"toy","layer":"conv","at":"then"}'
)


def test_a_line_from_before_there_were_row_blocks_says_what_it_said() -> None:
    ledger.path().parent.mkdir(parents=True)
    ledger.path().write_text(f"{OLD}\n")
    (found,) = ledger.trials(HERE)
    assert (found.rows, found.max_tasks, found.on_threads, found.predicted) == (None,) * 4
    assert found.model_dump_json(exclude_none=True) == OLD
    choice = {"kernel": "a", "order": "blocks_inner", "against": "default"}
    assert choices_of([found]) == {"u8s8 shape": choice}


def test_row_blocks_are_tried_apart_from_what_they_lie_between() -> None:
    tried = [trial("a", 0.9, order="rows_inner", rows=rows) for rows in (None, 8, 4)]
    tried[1] = tried[1].model_copy(update={"ratio": 0.6})
    assert best_of(tried) == tried[1]
    # Measured again, it is the later one that counts, of as many rows alone.
    again = trial("a", 0.95, order="rows_inner", rows=8)
    assert best_of([*tried, again]) in (tried[0], tried[2])
    choice = {"kernel": "a", "order": "rows_inner", "against": "default", "rows": 8}
    assert choices_of(tried) == {"u8s8 shape": choice}
    assert tried[1].schedule == "rows_inner 8 rows"


def capped(kernel: str, most: int, ratio: float | None, **changes: Any) -> Trial:
    changes = {"against": kernel, "on_threads": 4, **changes}
    return trial(kernel, ratio, threads=most, **changes)


def test_trials_on_several_threads_say_nothing_of_one() -> None:
    tried = [trial("a", 0.9), capped("a", 1, 0.2), trial("b", 0.4, on_threads=4)]
    assert best_of(tried) == better_of(tried) == tried[0]
    assert best_of(tried[1:]) is None and choices_of(tried[1:]) == {}


def test_the_kernel_that_is_chosen_has_the_tasks_that_are_best_for_it() -> None:
    tried = [trial("a", 0.9, order="rows_inner", rows=8), trial("b", 0.95)]
    loops: dict[str, Any] = {"order": "rows_inner", "rows": 8}
    chosen = {"kernel": "a", "order": "rows_inner", "rows": 8, "against": "default"}
    others = [capped("b", 1, 0.1), capped("a", 1, 0.1), capped("a", 1, None, **loops)]
    assert choices_of([*tried, *others]) == {"u8s8 shape": chosen}
    own = [capped("a", most, ratio, **loops) for most, ratio in ((1, 0.8), (2, 0.7), (4, 0.99))]
    assert choices_of([*tried, *others, *own]) == {"u8s8 shape": {**chosen, "threads": 2}}
    assert own[1].schedule == "rows_inner 8 rows 2 tasks at most"
    # Less than the noise is no gain, and a later measurement replaces an earlier one.
    again = capped("a", 2, MARGIN + 0.001, **loops)
    assert capped_of([own[1], again], "a", "rows_inner", 8) is None
    # What was measured on other threads is not compared.
    elsewhere = capped("a", 1, 0.9, on_threads=2, **loops)
    assert capped_of([*own, elsewhere], "a", "rows_inner", 8) == elsewhere
    # The predicted kernel has a limit too.
    default = [trial("b", 1.1), capped("default", 1, 0.5)]
    found = {"kernel": "default", "order": None, "against": "default", "threads": 1}
    assert choices_of(default) == {"u8s8 shape": found}


def test_without_trials_nothing_measured_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "machine", lambda core, isa: HERE)
    ledger.append([trial("a", 0.5)])
    assert MeasuredChoices().choices() == {}
    assert MeasuredChoices(1, "generic", "avx2").choices() == choices_of([trial("a", 0.5)])
    assert MeasuredChoices(stated={"w": "x"}).choices() == {"w": "x"}


def test_shipped_records_are_trials_of_kernels_there_are() -> None:
    files = list((keys.ROOT / "hw" / "records").glob("*.jsonl"))
    assert files
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        found = [ledger.Trial.model_validate_json(line) for line in lines]
        assert len(found) == len(set(lines))
        for item in found:
            assert item.kernel.endswith(item.machine.isa) and item.workloads
            assert (item.failed is None) == (item.ratio is not None)


def test_shipped_records_are_found_by_the_layers_that_they_were_measured_for() -> None:
    """By the names under which legalizing and bit-packing look for them."""
    recorded = {
        workload
        for file in (keys.ROOT / "hw" / "records").glob("*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
        if (item := ledger.Trial.model_validate_json(line)).recipe == RECORDED
        for workload in item.workloads
    }
    step = plan.of(load.load_recipe(str(keys.ROOT / "recipes" / f"{RECORDED}.yaml"))).step("zoo")
    source = zoo.build(options=validated("stages.options", "ZooOptions", step.options["options"]))
    model = quantizing.run(model=importing.run(source=source, options=ImportOptions()))
    found = legalizing.kernels_by_layer(model=model, options=LegalizeOptions(), candidates={})
    assert recorded and recorded <= {one.workload.name for one in found.values()}
