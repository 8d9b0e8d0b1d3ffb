"""What figures need to be measured: looked at before the first of them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.benchmarks.engines import ENGINES
from pipelines.emulating import userland
from pipelines.emulating.block_costs import pricing_of
from pipelines.emulating.emulated_bench import lacking
from pipelines.emulating.guest_engines import GUESTS
from pipelines.errors import UserError
from pipelines.paper.figure import Figure
from pipelines.recipe import load
from pipelines.store import keys


def check(figures: Sequence[Figure]) -> None:
    """Raise UserError that says what is missing here for figures to be measured."""
    for figure in figures:
        found = [*_of_boards(figure.boards), *_of_engines(figure)]
        if found:
            raise UserError(f"{figure.name} cannot be measured here: {'; '.join(found)}")


def _of_boards(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        hardware = load.load_recipe(f"resnet18_int8_{name}").hardware
        if keys.installed_version("pyelftools") is None:
            yield "pyelftools is not installed; run: pip install -e '.[emulator]'"
        elif absent := lacking(hardware):
            yield absent
        elif lack := pricing_of(hardware).lack:
            yield f"cycles of {name}: {lack}"


def _of_engines(figure: Figure) -> Iterator[str]:
    for name in figure.peers:
        if figure.boards:
            if name in GUESTS and (lack := userland.lack()):
                yield lack
        elif not ENGINES[name].is_installed:
            yield f"{ENGINES[name].name} is not installed; run: pip install -e '.[peers]'"
