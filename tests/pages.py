"""The pages of this repository as tests read them: README.md and the pages of the rooms."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("recipes", "stages", "hw", "pipelines")
_PARTS = ROOT / "pipelines/benchmarks/results"
"""Pages here are parts of pipelines/BENCHMARKS.md, and are read there."""


def _paths() -> list[Path]:
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*.md")]
    own = [ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md"]
    return [*own, *sorted(path for path in found if path.parent != _PARTS)]


PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in _paths()}
"""Path from the root → text."""


def blocks(page: str, language: str) -> list[str]:
    """Every block of a page in a language; "" is output."""
    pairs = re.findall(r"^```(\w*)\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)
    return [text for name, text in pairs if name == language]


def block(page: str, language: str, start: str) -> str:
    """The one block of a page and a language that begins like this."""
    (found,) = [text for text in blocks(page, language) if text.startswith(start)]
    return found


def section(page: str, title: str) -> str:
    """What stands below a heading of the second level, up to the next one."""
    return PAGES[page].split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(page: str) -> list[list[str]]:
    """The words behind each `doit` of a page: in its shell blocks, and in what it quotes."""
    quoted = re.findall(r"`((?:\.venv/bin/)?doit [^`]+)`", PAGES[page])
    lines = [part for text in blocks(page, "sh") for part in re.split(r"\n|&&", text)]
    given = [line.strip().removeprefix(".venv/bin/") for line in [*lines, *quoted]]
    return [line.split()[1:] for line in given if line.startswith("doit ")]


def paths(page: str) -> set[str]:
    """The files and folders of this repository that a page quotes."""
    return set(re.findall(r"`((?:recipes|hw|tests|stages|pipelines)/[\w./]+)`", PAGES[page]))


def links(page: str) -> list[tuple[str, str]]:
    """Each link of a page to a file: the file, as the page writes it, and the heading in it."""
    found = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", PAGES[page])
    return [(target, anchor) for target, anchor in found if not target.startswith("http")]


def anchors(page: str) -> set[str]:
    """What a link may name behind #: the headings of a page, as GitHub and others spell them."""
    heads = re.findall(r"^#+ (.+)$", PAGES[page], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
