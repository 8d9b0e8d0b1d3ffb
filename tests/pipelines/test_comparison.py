"""How outputs compare, and what `doit verify` says of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.builds import opened_package
from pipelines.commands import doctor, verify
from pipelines.errors import UserError
from pipelines.evaluation import comparison
from pipelines.recipe.overrides import Variables
from stages.kinds import Golden
from tests.pipelines.fake_clone import Clone
from tests.pipelines.test_commands import raising


def test_a_comparison_counts_and_measures() -> None:
    golden = Golden({"x": np.zeros((2, 1))}, {"y": np.array([[1, 2], [3, 4]], np.float32)})
    found = [{"y": np.array([1, 2.5], np.float32)}, {"y": np.array([3, 4], np.float32)}]
    (result,) = comparison.compare(golden, lambda inputs: found.pop(0))
    assert (result.differing, result.values, result.largest_difference) == (1, 4, 0.5)
    assert result.verdict == "departs"


@pytest.mark.parametrize(
    ("wanted", "given", "verdict"),
    [
        (np.float32(1.0), np.float32(1.0), "exact"),
        (np.float32(1.0), np.float32(1.000001), "close"),
        (np.float32(1.0), np.float32(1.001), "departs"),
        (np.float32(1.0), np.float32(np.nan), "departs"),
        (np.float32(np.inf), np.float32(np.inf), "exact"),
        (np.int32(100000), np.int32(100001), "departs"),
    ],
)
def test_verdicts(wanted: np.generic, given: np.generic, verdict: str) -> None:
    golden = Golden({"x": np.zeros((1, 1))}, {"y": np.array([wanted])})
    (result,) = comparison.compare(golden, lambda inputs: {"y": np.asarray(given)})
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("differing", "by", "verdict"),
    [(0, 1, "exact"), (2, 1, "close"), (3, 1, "departs"), (1, 2, "departs")],
)
def test_few_levels_may_be_the_next_one(differing: int, by: int, verdict: str) -> None:
    """Of 20,000 levels two, where scales are no powers of two."""
    levels = np.arange(20_000) % 16
    golden = Golden({"x": np.zeros((1, 1))}, {"y": (levels * np.float32(0.1))[None]})
    moved = (levels + by * (np.arange(20_000) < differing)) * np.float32(0.1)
    (result,) = comparison.compare(golden, lambda inputs: {"y": moved})
    assert result.verdict == verdict


def test_doctor_names_every_dependency(clone: Clone) -> None:
    out, _ = clone.doit("doctor", "json=r.json")
    rows = {row["what"]: row for row in json.loads((clone.root / "r.json").read_text())}
    assert {"python", "platform", "processor", "apache-tvm", "C compiler", "ARM emulator"} <= set(
        rows
    )
    assert rows["numpy"]["found"] == np.__version__
    assert rows["qemu armv7"]["advice"] == "apt install qemu-user libc of armv7"
    assert "doctor" in out
    for row in rows.values():
        (line,) = [line for line in out.splitlines() if line.startswith(f"  {row['what']}  ")]
        assert line.endswith(f"{row['found']}; {row['advice']}" if row["advice"] else row["found"])


def test_doctor_cuts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    features = "zen4, avx512: " + " ".join(f"feature{i}" for i in range(30))
    found = [
        doctor.Finding("processor", "ok", features),
        doctor.Finding("disk", "missing", features, "have 2 GiB free"),
    ]
    monkeypatch.setattr(doctor, "findings", lambda: iter(found))
    doctor.run(variables=Variables({}, {}))
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2].endswith(features) and printed[-1].endswith(f"{features}; have 2 GiB free")


class _Workshop:
    """Three stages; the module of the second gives something else."""

    plan = SimpleNamespace(
        recipe="toy",
        calibration=None,
        step=lambda name: SimpleNamespace(name=name),
        steps=[
            SimpleNamespace(name=name, stage=SimpleNamespace(gives=gives), options={})
            for name, gives in [("importing", "model"), ("golden", "golden"),
                                ("quantizing", "model"), ("bitpacking", "model")]
        ],
    )  # fmt: skip

    def load(self, step: Any) -> Any:
        if step.name == "golden":
            return Golden({"x": np.ones((2, 1))}, {"y": np.ones((2, 3), np.float32)})
        return {"importing": 0.0, "quantizing": 0.5, "bitpacking": np.nan}[step.name]


def test_verify_names_the_stage_that_departs_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interpret(model: float, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": np.array([1, 1 + model, 1], np.float32)}

    fake = SimpleNamespace(interpret=SimpleNamespace(run=interpret))
    monkeypatch.setitem(sys.modules, "stages.graph", fake)
    monkeypatch.setattr(verify, "PlanExecution", lambda plan: _Workshop())
    monkeypatch.setattr(opened_package, "is_native", lambda plan: False)
    monkeypatch.setattr(
        opened_package, "opened", raising(opened_package.UnavailableError("no emulator"))
    )
    monkeypatch.setattr(
        opened_package, "replays", raising(opened_package.UnavailableError("no program"))
    )
    variables = Variables({"json": str(tmp_path / "r.json")}, {})
    with pytest.raises(UserError) as error:
        verify.run(
            plan=_Workshop.plan,  # type: ignore[arg-type]
            resolved=SimpleNamespace(name="toy", hardware=None),  # type: ignore[arg-type]
            variables=variables,
        )
    departs = "departs  output 'y' differs from the golden one in 2 of 6 values, by at most"
    assert str(error.value) == (
        "quantizing is the first to depart from the golden samples: output 'y' differs from the "
        "golden one in 2 of 6 values, by at most 0.5"
    )
    assert capsys.readouterr().out.splitlines() == [
        f"{'importing':<28} exact    output 'y' of 2 samples equals the golden one",
        f"{'quantizing':<28} {departs} 0.5",
        f"{'bitpacking':<28} {departs} inf",
        f"{'library':<28} not run  no emulator",
        f"{'program':<28} not run  no program",
    ]
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["verdict"] for row in rows] == ["exact", "departs", "departs"] + 2 * ["not run"]
    assert rows[2]["largest_difference"] == "inf"
