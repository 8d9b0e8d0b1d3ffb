"""`doit report`: one page that stands alone."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pipelines.builds import plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.recipe import load
from pipelines.reporting.accuracy_files import LayerCost, LayerCosts, rates, read
from pipelines.reporting.drawings import short
from pipelines.reporting.recipe_comparison import Entry, figure, pareto_front
from pipelines.reporting.report_facts import gather
from pipelines.reporting.report_page import comparison, page
from tests.pipelines.fake_clone import ROOT, doit
from tests.stages.calibrating.digits import digits, network

RECIPE = "digits_a2w2_host"
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Whether every tag is closed, and what a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.outside += [str(value) for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow
def test_one_page_that_stands_alone(tmp_path: Path) -> None:
    bench, out = tmp_path / "bench.json", tmp_path / "pages/report.html"
    done = doit("bench", f"recipe={RECIPE}", "layer=all", f"json={bench}")
    assert done.returncode == 0, done.stdout + done.stderr
    done = doit("report", f"recipe={RECIPE}", f"bench={bench}", f"out={out}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "report.html, " in done.stdout
    text = out.read_text()
    assert len(text) < 2e6
    found = Page(text)
    assert not found.open and not found.outside and "script" not in found.tags
    assert not re.search(r"https?:|@import|url\(", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    layers = [row["layer"] for row in json.loads(bench.read_text())["layers"]]
    assert layers and all(f">{name}<" in text for name in layers)
    assert text.count("exact") >= 5 and "SHA-256" in text and " us</text>" in text
    _looked_at(out, tmp_path)


def _looked_at(file: Path, folder: Path) -> None:
    """A browser has nothing to complain of, and draws something."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed: the page was parsed, and not drawn")
    shot = folder / "page.png"
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=900,1200"]
    done = subprocess.run(
        [*command, f"--screenshot={shot}", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "CONSOLE" not in done.stderr
    assert shot.stat().st_size > 20_000


def test_names_of_a_model_are_no_markup() -> None:
    resolved = load.load_recipe(RECIPE)
    made = plan.of(resolved)
    PlanExecution(made).produce(made.step("packaging"))
    facts = gather(made, resolved, None)
    # conv2 is the largest: it reads 32 channels of 8x8 and gives as many, in float32.
    assert facts.float_arena == 4 * (32 + 32) * 8 * 8 and facts.errors is None
    odd = '<script>alert("x")</script>&'
    layers = (replace(facts.layers[0], name=odd, kernel=odd, how=odd), *facts.layers[1:])
    manifest: dict[str, Any] = {"files": {}, "provenance": {"kernels": {odd: {}}, "tools": {}}}
    text = page(resolved, manifest, replace(facts, layers=layers), odd)
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not Page(text).open


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{}", "is no result of `doit bench … json=FILE`"), ("what", "cannot be read: ")],
)
def test_a_file_that_is_no_result(text: str, sentence: str, tmp_path: Path) -> None:
    bench = tmp_path / "odd.json"
    bench.write_text(text)
    done = doit("report", f"recipe={RECIPE}", f"bench={bench}")
    assert done.returncode and sentence in done.stderr and "Traceback" not in done.stderr


def entry(name: str, cycles: float, memory: int, rate: float | None) -> Entry:
    arena: Any = SimpleNamespace(size=lambda threads: memory << 20)
    facts: Any = SimpleNamespace(macs=1, cycles=1e6 * cycles, arena=arena, weights=0, exactness=())
    return Entry(name, "host", facts, None, rate)


def test_who_is_on_the_front() -> None:
    """Nobody who is slower and no better, whatever the order in which they are named."""
    slow, fast, beaten = entry("slow", 9, 1, 0.9), entry("fast", 1, 5, 0.5), entry("b", 9, 6, 0.4)
    for order in itertools.permutations([slow, fast, beaten]):
        assert pareto_front(order) == [fast, slow]
    # Without rates of all of them it is memory that counts.
    some = [replace(each, rate=None) if each is fast else each for each in (slow, fast, beaten)]
    assert [each.name for each in pareto_front(some)] == ["fast", "slow"]
    alike = [entry("one", 2, 2, 0.5), entry("two", 2, 2, 0.5)]
    assert pareto_front(alike) == alike[:1]
    ElementTree.fromstring(figure(alike))
    text = comparison([slow, fast, beaten])
    assert not Page(text).open and text.count('class="best"') == 2


@pytest.mark.slow
def test_recipes_beside_each_other(tmp_path: Path) -> None:
    other = "ci/residual_block_a2w1_host"
    for name in (RECIPE, other):
        assert doit("build", f"recipe={name}").returncode == 0
    rated, out = tmp_path / "rate.json", tmp_path / "c.html"
    doit("accuracy", f"recipe={RECIPE}", "samples=20", f"json={rated}")
    named = (f"recipes={RECIPE},{other}", f"accuracy={rated}", f"out={out}")
    done = doit("compare", *named)
    assert done.returncode == 0, done.stdout + done.stderr
    rate = json.loads(rated.read_text())["rate"]
    assert f"{rate:.2%}" in done.stdout and f"{rate:.2%}" in out.read_text()
    assert not Page(out.read_text()).outside
    _looked_at(out, tmp_path)


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    odd = tmp_path / "odd.yaml"
    known = ROOT / "recipes/ds_cnn_int8_rpi3.yaml"
    odd.write_text(f"extends: {known}\ngolden: {{samples: 1, seed: 977}}\n")
    for words, sentence in (
        ((f"recipes={RECIPE}",), "recipes=: name two or more, for example: doit compare "),
        ((), "recipes=: name two or more"),
        ((f"recipes={odd},{RECIPE}",), f"{odd} is not built; run: doit build recipe={odd}"),
    ):
        done = doit("compare", *words)
        assert done.returncode and sentence in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0 k"), (118_013_952, "118.0 M"), (1.827e9, "1,827 M")],
)
def test_counts_in_a_few_digits(number: float, text: str) -> None:
    assert short(number) == text


FLOAT = """
model: {file: digits.onnx}
calibration: {data: digits.npz, samples: 24}
evaluation: {data: digits.npz, tolerance: 100}
quantization: {activations: {bits: 2}, weights: {bits: 2, encoding: signed}}
hardware: x86_64
"""


@pytest.mark.slow
def test_what_quantization_costs(tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").write_bytes(network())
    images, labels = digits()
    np.savez(tmp_path / "digits.npz", images=images[:60, np.newaxis], labels=labels[:60])
    recipe, whole, single, out = (
        tmp_path / name for name in ("few.yaml", "whole.json", "single.json", "few.html")
    )
    recipe.write_text(FLOAT)
    for words in ((f"json={whole}",), ("layer=conv*", f"json={single}")):
        done = doit("accuracy", f"recipe={recipe}", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    rated, costs = (json.loads(path.read_text()) for path in (whole, single))
    # NumPy with quantizers answers as the package does, and as the source model without them.
    assert costs["quantized"]["right"] == rated["right"] < costs["float"]["right"]
    assert costs["float"]["right"] == rated["source"]["right"]
    assert [row["layer"] for row in costs["layers"]] == ["conv1", "conv2"]
    assert costs["layers"][1]["right"] != rated["right"]
    for _ in range(2):
        given = f"accuracy={whole},{single}"
        done = doit("report", f"recipe={recipe}", given, f"out={out}")
        assert done.returncode == 0, done.stdout + done.stderr
        text = out.read_text()
        assert not Page(text).open and not Page(text).outside
        rate = rated["rate"]
        assert f"{rate:.2%}" in text and "on 16 of the calibration samples" in text
        assert text.count('<tr class="worst">') == 2
        signal = [float(db) for db in re.findall(r"<em>(-?[0-9.]+) dB</em>", text)]
        assert len(signal) == 6 and f"Worst: fc, {min(signal)} dB." in text
    done = doit("report", f"recipe={RECIPE}", f"accuracy={whole}")
    assert done.returncode and f"is of the recipe few, and the report of {RECIPE}" in done.stderr
    _looked_at(out, tmp_path)


def test_layers_that_were_not_quantized_here() -> None:
    done = doit("accuracy", f"recipe={RECIPE}", "layer=all")
    assert done.returncode and done.stderr.splitlines()[-1] == (
        f"ERROR: layer=all: no layer of {RECIPE} was quantized here; this is for float models that "
        "`calibration` quantizes"
    )


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "3", "what", '{"recipe": "a", "metric": "b", "samples": 1e999}',
     '{"recipe": "a", "layers": 3}', "[" * 100_000,
     '{"recipe": "a", "metric": "top1", "samples": 1, "right": 1, "rate": 7}'],
)  # fmt: skip
def test_a_file_that_is_no_rate(text: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    for ask in (read, rates):
        with pytest.raises(UserError, match="is no result of `doit accuracy … json=FILE`"):
            ask([file])


def test_rates_of_layers_are_not_of_the_whole(tmp_path: Path) -> None:
    file = tmp_path / "layers.json"
    half = {"right": 1, "rate": 0.5}
    row = {"recipe": "a", "metric": "top1", "samples": 2, "quantized": half, "float": half}
    file.write_text(json.dumps({**row, "layers": [{"layer": "conv", **half}]}))
    (found,) = read([file])
    assert found == LayerCosts("a", "top1", 2, 0.5, 0.5, (LayerCost("conv", 0.5, 1),))
    with pytest.raises(UserError, match="has the rates of single layers"):
        rates([file])
