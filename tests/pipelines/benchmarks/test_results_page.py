"""The page of benchmarks is what its results make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.benchmarks import contestants, results_page
from pipelines.errors import UserError

SIDES: dict[str, Any] = {
    "recipe": "resnet18_int8_host",
    "command": "doit bench recipe=resnet18_int8_host threads=1 model.format=float",
    "fields": {"model.format": "float"},
    "date": "2026-11-27",
    "processor": "A processor",
    "core": "zen4",
    "cpus": 2,
    "bitkiln": "0123456",
    "engines": {"OpenVINO": "2026.4.1"},
    "repeat": 20,
    "load_at_start": 0.25,
    "onednn_max_cpu_isa": "AVX512_CORE_BF16",
    "threads": [
        {
            "threads": 1,
            "rows": [
                {"what": "package", "median_ms": 15.8, "quartiles_ms": [15.7, 16.0]},
                {
                    "what": "OpenVINO 2026.4.1, float32",
                    "median_ms": 31.0,
                    "quartiles_ms": [30.5, 31.25],
                    "ratio": 0.51,
                    "ratio_quartiles": [0.5, 0.52],
                    "difference": 1.5e-6,
                },
            ],
            "seconds": {"package": [0.0158]},
            "refused": [{"what": "LiteRT 2.3", "why": "it reads tflite, and there is none"}],
        }
    ],
}
SIZES = {
    key: value for key, value in SIDES.items() if key not in ("load_at_start", "onednn_max_cpu_isa")
} | {
    "processor": "Another processor",
    "core": None,
    "cpus": 1,
    "fields": {},
    "threads": 1,
    "rows": [{"what": "as it is", "seconds": 0.5, "times_the_macs": 1.0, "times_the_time": 1.0}],
    "seconds": {"as it is": [0.5]},
}


ROW = {"what": "package", "instructions_emulated": 2_500_000, "cycles_modelled": 3_000_000}
EMULATED = {key: value for key, value in SIZES.items() if key != "seconds"} | {
    "processor": "A board, emulated",
    "core": "cortex-a53",
    "emulated": {"qemu": "7.2.22", "cpu": "cortex-a53"},
    "rows": [ROW],
    "layers": [{"layer": "a", "kind": "1x1", "macs": 2_000_000, "sides": {"package": ROW}}],
    "kinds": [{"kind": "1x1", "layers": 1, "macs": 2_000_000, "sides": {"package": ROW}}],
    "refused": [],
}


@pytest.mark.parametrize("path", results_page.files(), ids=lambda path: path.name)
def test_is_fresh(path: Path) -> None:
    fresh = results_page.files()[path]
    assert path.read_text(encoding="utf-8") == fresh, (
        "run: python -m pipelines.benchmarks.results_page"
    )


def test_kept_results_hold_what_the_page_needs() -> None:
    for path in results_page.RESULTS.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert results_page.kept(found) == found, f"{path.name} holds the time of every turn"


def test_a_section_a_machine_and_a_table_a_result() -> None:
    text = results_page.render([SIDES, SIZES])
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads[:6] == [
        "# Benchmarks",
        "## A processor (zen4), 2 CPUs",
        "### resnet18_int8_host, model.format=float",
        "## Another processor, 1 CPU",
        "### resnet18_int8_host",
        "## Earlier",
    ]
    for said in (
        "`doit bench recipe=resnet18_int8_host threads=1 model.format=float`, 2026-11-27, "
        "bitkiln 0123456, OpenVINO 2026.4.1. The load was 0.2 at the start. oneDNN was kept to "
        "AVX512_CORE_BF16.\n",
        "| 1 | package | 15.800 | 15.700 to 16.000 |  |  |  |\n",
        "| 1 | OpenVINO 2026.4.1, float32 | 31.000 | 30.500 to 31.250 | 0.51 | 0.50 to 0.52 "
        "| 1.5e-06 |\n",
        "\nNot timed: LiteRT 2.3: it reads tflite, and there is none.\n",
        "| as it is | 1.00 | 1.00 | 500.000 |\n",
    ):
        assert said in text
    assert text.endswith(results_page.EARLIER.read_text(encoding="utf-8"))


def test_what_was_emulated_says_so_of_every_figure() -> None:
    text = results_page.render([EMULATED])
    assert "## A board, emulated (cortex-a53), 1 CPU\n" in text
    assert " QEMU 7.2.22, -cpu cortex-a53.\n" in text
    assert "| what | M instructions (emulated) | M cycles (modelled) |" in text
    assert "| package | 2.5 | 3.0 |" in text
    assert "By kind of layer, M cycles (modelled):\n" in text
    assert "| 1x1 | 2.00 | 3.000 | 1.500 |" in text
    assert results_page.kept(EMULATED) == EMULATED


def test_primitives_say_how_many_times_as_fast_as_floats() -> None:
    costs = {"loops": ROW, "own float32": {**ROW, "cycles_modelled": 6_000_000}}
    row = {"layer": "a", "bits": "A2W1", "costs": costs}
    result = {key: value for key, value in EMULATED.items() if key != "rows"}
    result["primitives"] = [row]
    text = results_page.render([result])
    assert "| layer | bits | loops | own float32 |" in text
    assert "| a | A2W1 | 3000 (2.00) | 6000 |" in text
    assert results_page.kept(result) == result


def on_openvino(*names: str) -> list[str]:
    rows = [{"what": name, "median_ms": 1.0, "quartiles_ms": [1.0, 1.0]} for name in names]
    part = {"threads": 1, "rows": rows, "refused": []}
    text = results_page.render([{**SIDES, "threads": [part]}]).split("\n## Earlier")[0]
    return [line for line in text.splitlines() if line.startswith("OpenVINO was asked")]


@pytest.mark.parametrize("precision", ["float32", "as stored"])
def test_a_table_says_what_openvinos_floats_are(precision: str) -> None:
    assert on_openvino("package", "OpenVINO 2026.4.1, int8", f"LiteRT 2.3, {precision}") == []
    plain = f"OpenVINO 2026.4.1, {precision}"
    (said,) = on_openvino(plain)
    assert "bfloat16 on processors that have it" in said and said.endswith("has not.")
    (said,) = on_openvino(plain, f"OpenVINO 2026.4.1, {contestants.ROUNDED[precision]}")
    assert "Its own default is bfloat16 here" in said


def test_the_time_of_every_turn_is_not_kept() -> None:
    assert '"seconds"' not in json.dumps(results_page.kept(SIDES))
    assert results_page.kept(SIZES)["rows"] == SIZES["rows"] and "seconds" not in results_page.kept(
        SIZES
    )


def test_files_that_were_measured_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setattr(results_page, "RESULTS", results)
    monkeypatch.setattr(results_page, "PAGE", tmp_path / "BENCHMARKS.md")
    (tmp_path / "r.json").write_text(json.dumps(SIDES))
    results_page.main([str(tmp_path / "r.json")])
    assert json.loads((results / "r.json").read_text()) == results_page.kept(SIDES)
    assert (tmp_path / "BENCHMARKS.md").read_text() == results_page.render([SIDES])
    results_page.main([])
    assert (tmp_path / "BENCHMARKS.md").read_text() == results_page.render([SIDES])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read it: No such file"),
        ("{", "no JSON: "),
        ("[]", "no result that the page shows"),
        (json.dumps({**SIZES, "rows": None, "date": None}).replace("date", "day"), "no result"),
    ],
)
def test_other_files_are_refused_and_nothing_is_kept(
    text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_page, "RESULTS", tmp_path / "results")
    (tmp_path / "good.json").write_text(json.dumps(SIDES))
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_text(text)
    with pytest.raises(UserError) as error:
        results_page.main([str(tmp_path / "good.json"), str(bad)])
    assert error.value.message.startswith(f"{bad}: ") and said in error.value.message
    assert not (tmp_path / "results").exists()
