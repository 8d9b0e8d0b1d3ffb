"""`doit paper`: each figure names what is published and how ours came about, and goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.benchmarks import engines
from pipelines.commands import paper
from pipelines.emulating import emulated_bench
from pipelines.errors import CheckError, UserError
from pipelines.paper import all_figures as everything
from pipelines.paper import emulated_results, needs, resnet18, runs
from pipelines.paper.figure import CGO, Figure, Part, Results, Table, geomean
from pipelines.paper.paper_page import page, results_of
from pipelines.paper.runs import run
from pipelines.recipe.overrides import Variables

FIGURES = {figure.name: figure for figure in everything.figures()}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept: nothing of this machine's is shown."""
    monkeypatch.setattr(runs, "KEPT", tmp_path / "paper")
    return tmp_path / "paper"


def test_all_that_the_sources_have_is_there() -> None:
    published = {
        *("cgo-table-1", "cgo-table-2", *(f"cgo-figure-{n}" for n in (4, 6, 7, 8, 9, 10, 11))),
        *("qnn-table-1", "qnn-table-2", *(f"qnn-figure-{n}" for n in range(4, 10))),
        *("alios-figure-8", "alios-figure-9", "alios-figure-10", "rfc-table"),
    }
    assert published <= FIGURES.keys()
    assert len(FIGURES) == len(everything.figures()), "names are unique"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_results_says_what_it_would_show(name: str) -> None:
    figure = FIGURES[name]
    assert figure.heading.endswith(f"({' and '.join(figure.kinds)})")
    for part in figure.show({}):
        assert name in ("qnn-table-1", "qnn-table-2"), "what is published needs no run"
        assert isinstance(part, Table)


def test_the_page_of_a_clean_clone() -> None:
    text = page([*FIGURES.values()], "bitkiln, in a test")
    for figure in FIGURES.values():
        assert f'id="{figure.name}"' in text
    assert "nan" not in text.lower().replace("nanosecond", "") and "None" not in text
    assert "C12" in text and "the same" in text, "Table 1 is shown by what comes with bitkiln"
    assert "<script" not in text
    shown = [row[3] for row in _table("cgo-table-1").rows]
    assert shown == ["the same"] * 11, "our shapes are the source's"


def _table(name: str) -> Table:
    (part,) = FIGURES[name].show(results_of(FIGURES[name]))
    assert isinstance(part, Table)
    return part


@pytest.mark.parametrize("bits", ["A1W1", "A2W1", "A2W2"])
def test_loops_instead_of_micro_kernels_take_longer(bits: str) -> None:
    known = results_of(FIGURES["cgo-figure-7"])
    own, plain = resnet18.package(known, bits), resnet18.without_kernels(known, bits)
    assert own is not None and plain is not None and 1.2 < plain / own < 10
    shapes = resnet18.by_shape(known, bits)
    cycles = emulated_results.cycles
    slower = {
        name
        for name, costs in shapes.items()
        if cycles(costs["loops"]) > cycles(costs["+ packing"]) * resnet18.threads_of(costs)
    }
    assert {"C2", "C6", "C9", "C12"} <= slower


def test_the_geometric_mean() -> None:
    assert geomean([2.0, 8.0]) == pytest.approx(4.0) and geomean([3.0]) == 3.0


LISTED, WRONG = run("recipes"), run("show recipe=nonesuch")


def _show(results: Results) -> list[Part]:
    found = results.get(LISTED)
    return [Table(["recipes"], [[str(len(found.result))]])] if found else []


def test_measuring_goes_on_where_it_was(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = Figure(
        "ours", CGO, "Figure 1", "recipes", ("stated",), "none", "some", _show, (WRONG, LISTED)
    )
    monkeypatch.setattr(everything, "figures", lambda: [figure])
    out = tmp_path / "paper.html"
    asked = Variables({"figure": "ours", "out": str(out), "json": str(tmp_path / "all.json")}, {})
    with pytest.raises(CheckError, match=r"doit show recipe=nonesuch: .*nonesuch"):
        paper.run(variables=asked)
    first = capsys.readouterr()
    assert (
        "0 of 2 results were measured here, by this code; measuring 2" in first.err
        and "2/2  doit recipes  " in first.err
    )
    assert [path.name.split("_")[0] for path in kept.glob("*.json")] == ["recipes"]
    (said,) = json.loads((tmp_path / "all.json").read_text())
    count = said["parts"][0]["rows"][0][0]
    assert int(count) > 30 and count in out.read_text()

    with pytest.raises(CheckError):
        paper.run(variables=asked)
    assert "1 of 2 results were measured here" in capsys.readouterr().err

    found = next(kept.glob("*.json"))
    found.write_text(found.read_text()[:-5])
    assert not runs.is_current(LISTED) and runs.find(LISTED) is None, "torn files are none"


def test_names_of_no_figure_are_refused() -> None:
    with pytest.raises(UserError, match="figure=cgo-figure-77: no such figure; did you mean"):
        everything.chosen("cgo-figure-77", [*FIGURES.values()])
    with pytest.raises(UserError, match="names none"):
        everything.chosen(",", [*FIGURES.values()])
    assert everything.chosen("all", [*FIGURES.values()]) == [*FIGURES.values()]


def test_what_is_emulated_without_cycles_is_no_result() -> None:
    cost = {"instructions_emulated": 5, "cycles_modelled": 7}
    runs._check_modelled({"rows": [cost], "notes": []})
    with pytest.raises(runs.RunError, match="apt install llvm-19"):
        runs._check_modelled(
            {"rows": [cost, {"instructions_emulated": 5}], "notes": ["apt install llvm-19"]}
        )
    with pytest.raises(runs.RunError, match="doit doctor"):
        runs._check_modelled({"primitives": [{"costs": {"loops": {"instructions_emulated": 5}}}]})


def test_what_is_missing_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulated_bench, "qemu_lacks", lambda architecture: ["qemu-user"])
    with pytest.raises(UserError, match=r"cgo-figure-8 cannot be measured here: .*(qemu|pyelf)"):
        needs.check([FIGURES["qnn-table-2"], FIGURES["cgo-figure-8"]])
    absent = {name: replace(engine, version=None) for name, engine in engines.ENGINES.items()}
    monkeypatch.setattr(needs, "ENGINES", absent)
    with pytest.raises(UserError, match=r"qnn-figure-9 .* PyTorch is not installed; run: pip"):
        needs.check([FIGURES["qnn-figure-9"]])
