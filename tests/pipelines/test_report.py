"""`doit report`: one page that stands alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pipelines import load, plan
from pipelines.execute import Workshop
from pipelines.reporting.gathering import gather
from pipelines.reporting.page import page
from tests.pipelines.fake_clone import doit

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
