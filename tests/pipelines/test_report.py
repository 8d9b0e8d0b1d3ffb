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

import pytest

from pipelines import load, plan
from pipelines.execute import Workshop
from pipelines.reporting.comparing import Entry, figure, front
from pipelines.reporting.drawing import short
from pipelines.reporting.gathering import gather
from pipelines.reporting.page import comparison, page
from tests.pipelines.fake_clone import ROOT, doit

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
    Workshop(made).produce(made.step("packaging"))
    facts = gather(made, resolved, None)
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
        assert front(order) == [fast, slow]
    # Without rates of all of them it is memory that counts.
    some = [replace(each, rate=None) if each is fast else each for each in (slow, fast, beaten)]
    assert [each.name for each in front(some)] == ["fast", "slow"]
    alike = [entry("one", 2, 2, 0.5), entry("two", 2, 2, 0.5)]
    assert front(alike) == alike[:1]
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
