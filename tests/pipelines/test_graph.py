"""doit's own commands behave as its users expect, and a user's mistake is one message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import menu
from pipelines.builds import plan
from stages import STAGES
from tests.pipelines.fake_clone import ROOT, Clone


def test_list_shows_every_command(clone: Clone) -> None:
    out, err = clone.doit("list")
    shown = [line.split()[0] for line in out.splitlines()]
    assert shown == sorted(name for name in menu.COMMAND_NAMES if name != "clean")
    assert err == ""


def test_list_imports_neither_tvm_nor_numpy() -> None:
    code = (
        "import sys\n"
        "from doit.doit_cmd import DoitMain\n"
        "from doit.cmd_base import get_loader\n"
        "sys.argv = ['doit', 'list']\n"
        "from pipelines import command_line\n"
        "list(command_line.open_session(['list', 'recipe=resnet18_a2w1_rpi3']).tasks())\n"
        "print([name for name in ('tvm', 'onnx', 'numpy', 'rich') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_recipes_stages_are_tasks(clone: Clone) -> None:
    out, _ = clone.doit("list", "--all", "recipe=toy")
    names = [line.split()[0] for line in out.splitlines()]
    stages = ["golden", "importing", "legalizing", "packaging", "publishing", "verifying", "zoo"]
    assert [n for n in names if n.startswith("build:")] == [f"build:{name}" for name in stages]


def test_info_and_status_know_what_is_cached(clone: Clone) -> None:
    out, _ = clone.doit("info", "build:packaging", "recipe=toy", expect=1)
    assert "run" in out and "build:golden" in out
    clone.doit("build", "recipe=toy")
    out, _ = clone.doit("info", "build:packaging", "recipe=toy")
    assert "up-to-date" in out
    out, _ = clone.doit("list", "--all", "--status", "recipe=toy")
    assert "U build:packaging" in out


def test_one_stage_can_be_asked_for(clone: Clone) -> None:
    assert clone.counted("build:importing", "recipe=toy") == {"zoo": 1, "importing": 1}


def test_forget_takes_a_recipes_tasks_and_keeps_the_store(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    out, _ = clone.doit("forget", "recipe=toy")
    assert "forgetting build:importing" in out
    assert clone.counted("build", "recipe=toy") == {}


def test_a_build_prints_one_line_a_stage(clone: Clone) -> None:
    out, err = clone.doit("build", "recipe=toy")
    out, _, summary = out.partition("\n\n")
    names = ["zoo", "importing", "golden", "legalizing", "packaging", "publishing", "verifying"]
    assert [line.split()[0] for line in out.splitlines()] == names
    assert [line.split()[1] for line in out.splitlines()] == ["built"] * 5 + ["written", "built"]
    assert "\x1b" not in out and err == ""
    out, _ = clone.doit("build", "recipe=toy")
    lines = [f"{name:<15} cached" for name in names]
    lines[-2] += f"{'':13}artifacts/packages/toy"
    lines[-1] += f"{'':13}2 golden samples exact, in a test"
    assert out == "\n".join([*lines, "", summary])


def test_a_build_ends_with_a_summary(clone: Clone) -> None:
    """Of what one asks next: work, size, memory, place, command; not of less than a build."""
    given = ["recipe=toy", "golden.samples=3"]
    out, _ = clone.doit("-n", "2", "build", *given)
    _, _, said = out.partition("\n\n")
    folder = next((clone.root / "artifacts/packages").iterdir())
    size = sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    )
    assert said.splitlines() == [
        "computes        1.23 million multiply-accumulates; 2 layers with a choice of kernels: "
        "98,765 cycles predicted for cortex-a53, one thread",
        f"package         artifacts/packages/{folder.name}, {size / 1024:.1f} KiB",
        "memory          weights 2.0 KiB; buffers and scratch 3.0 MiB with 1 thread; 4.5 MiB with "
        "4",
        "next            doit verify recipe=toy golden.samples=3 board=user@host",
    ]
    assert clone.doit("build:verifying", *given)[0].count("\n\n") == 0
    clone.environment["FAKE_OFF"] = "0.25"
    out, _ = clone.doit("build", "recipe=toy", expect=1)
    assert "computes" not in out


def test_the_next_command_is_to_run_it_where_this_machine_can(clone: Clone) -> None:
    clone.edit("pipelines/machine.py", "return host.detect().architecture == architecture",
               "return True")  # fmt: skip
    out, _ = clone.doit("build", "recipe=toy")
    assert out.endswith("next            doit run recipe=toy input=FILE\n")


@pytest.mark.parametrize("word", ["build", "show", "run", "verify", "accuracy"])
def test_without_a_recipe_a_command_lists_them(clone: Clone, word: str) -> None:
    _, err = clone.doit(word, expect=3)
    assert err == f"ERROR: say which recipe: doit {word} recipe=NAME; there are\n  toy\n"


@pytest.mark.parametrize("word", ["clean", "forget"])
def test_clean_and_forget_want_a_recipe(clone: Clone, word: str) -> None:
    _, err = clone.doit(word, expect=3)
    assert err == (
        f"ERROR: doit {word} works on one recipe\n"
        f"say which recipe: doit {word} recipe=NAME; there are\n  toy\n"
    )


def test_an_unknown_variable_is_an_error(clone: Clone) -> None:
    _, err = clone.doit("build", "recipe=toy", "schedule.trails=5", expect=3)
    assert "schedule.trails: unknown variable; did you mean 'schedule.trials'?" in err
    _, err = clone.doit("build", "recip=toy", expect=3)
    assert "recip: unknown variable; did you mean 'recipe'?" in err
    assert "Traceback" not in err


def test_an_unknown_recipe_is_an_error(clone: Clone) -> None:
    _, err = clone.doit("build", "recipe=toi", expect=3)
    assert err.startswith("ERROR: no recipe 'toi' in recipes; did you mean 'toy'?")


def test_a_stages_refusal_names_stage_layer_and_remedy(clone: Clone) -> None:
    clone.edit("recipes/toy.yaml", "hardware:", "layers: [{match: c*, algorithm: mac8}]\nhardware:")
    out, err = clone.doit("build", "recipe=toy", expect=3)
    assert err == "ERROR: legalizing: conv2: no 8-bit kernel; use algorithm: bitserial\n"
    assert "importing       built" in out and "packaging" not in out


def test_a_fault_of_ours_keeps_its_traceback(clone: Clone) -> None:
    clone.environment["FAKE_CRASH"] = "1"
    _, err = clone.doit("build", "recipe=toy", expect=2)
    assert "Traceback" in err and "RuntimeError: a bug" in err
    assert err.endswith(
        "ERROR: build:legalizing: this is a fault of bitkiln, not of your recipe; "
        "please report it with the lines above\n"
    )


@pytest.mark.parametrize("file", ["command_line", "doit_tasks"])
def test_a_fault_of_ours_before_any_task_ends_alike(clone: Clone, file: str) -> None:
    """In reading the command line, or in making tasks."""
    name = {"command_line": "open_session", "doit_tasks": "tasks"}[file]
    with (clone.root / f"pipelines/{file}.py").open("a") as text:
        text.write(f"\n\ndef {name}(*_):\n    raise RuntimeError('a bug')\n")
    _, err = clone.doit("build", "recipe=toy", expect=2)
    assert "RuntimeError: a bug\nERROR: this is a fault of bitkiln" in err


@pytest.mark.parametrize("parallel", [[], ["-n", "2"]])
def test_statuses_tell_a_check_a_mistake_and_a_fault_apart(
    clone: Clone, parallel: list[str]
) -> None:
    """From a task in doit's own process and in another one; of several the gravest counts."""
    clone.environment["FAKE_OFF"] = "0.25"
    wrong = ["recipe=toy", "golden.samples=3"]
    _, err = clone.doit(*parallel, "build", *wrong, expect=1)
    assert err.startswith("ERROR: verifying: output 'y' differs from the golden one")
    clone.doit(*parallel, "-c", "build", "run", *wrong, "input=none.npy", expect=3)
    clone.environment["FAKE_CRASH"] = "1"
    clone.doit(*parallel, "build", "recipe=toy", "quantization.weights.bits=2", expect=2)


def test_an_old_python_gets_one_sentence(clone: Clone) -> None:
    clone.edit("pipelines/supported.py", "(3, 11)", "(9, 9)")
    _, err = clone.doit("list", expect=3)
    assert err.startswith("ERROR: bitkiln needs Python") and err.count("\n") == 1


def test_a_missing_dependency_gets_one_sentence(clone: Clone) -> None:
    clone.edit("pipelines/command_line.py", "import os", "import os\nimport not_installed")
    _, err = clone.doit("list", expect=3)
    expected = "the Python package 'not_installed' is not installed here; run: pip install -e ."
    assert err == f"ERROR: {expected}\n"


def test_the_plan_gives_each_stage_its_own_slice_only() -> None:
    made = plan.make(
        "net",
        source=Path("net.onnx"),
        options={
            "ImportOptions": {"inputs": {}},
            "GoldenOptions": {"samples": 1},
            "QuantizeOptions": {},
            "LegalizeOptions": {},
            "ScheduleOptions": {},
            "PackageOptions": {"name": "net"},
        },
        hardware={"isa": "sse2"},
    )
    absent = {"zoo", "calibrating"}
    assert [step.name for step in made.steps] == [s.name for s in STAGES if s.name not in absent]
    assert dict(made.producers(made.step("quantizing"))) == {"model": made.step("importing")}
    importing = made.step("importing")
    assert importing.options == {"options": {"inputs": {}}} and importing.hardware is None
    assert dict(made.producers(importing)) == {"source": None}
    packaging = made.step("packaging")
    assert dict(made.producers(packaging))["bodies"] == made.step("synthesizing")
    assert packaging.hardware == {"isa": "sse2"}


def test_every_stage_takes_from_one_before_it() -> None:
    seen: set[str] = {plan.CALIBRATION, plan.MEASUREMENTS}
    for stage in STAGES:
        assert set(stage.takes.values()) <= seen, stage.name
        seen.add(stage.name)


def test_no_file_of_pipelines_shadows_the_standard_library() -> None:
    names = {path.stem for path in (ROOT / "pipelines").iterdir()}
    assert not names & set(sys.stdlib_module_names)
