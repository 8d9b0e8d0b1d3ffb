"""What is built of each commit: the repository's recipes, and random networks on every board."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from pipelines.errors import UserError
from tests.comparing import integer_networks, levels_networks
from tests.comparing.checkouts import ROOT

NETWORKS: Mapping[str, Callable[[int], bytes]] = {
    "levels": levels_networks.network,
    "int8": integer_networks.network,
}
QUICK_BOARDS = ("x86_64", "haswell", "icelake", "sapphirerapids", "rpi3", "rpi3_armv7")
"""An instruction set each; the other boards' are between these."""
SEEDS = 3
"""Random networks of each kind on every board, in the whole form."""


@dataclass(frozen=True)
class Job:
    """One package: a recipe of the repository by its path, or a random network on a board."""

    name: str
    path: str = ""
    """Of a recipe in the checkout; empty for a random network."""
    kind: str = ""
    seed: int = 0
    board: str = ""

    @property
    def key(self) -> str:
        """A name for what is kept of the job: another model or recipe text has another."""
        text = self.path or self.recipe(Path("models"))
        model = b"" if self.path else self.model()
        return f"{self.name}-{hashlib.sha256(text.encode() + model).hexdigest()[:8]}"

    @property
    def model_name(self) -> str:
        """The file name of a random network's model."""
        return f"{self.kind}_{self.seed}.onnx"

    def model(self) -> bytes:
        """A random network's model file."""
        return _model(self.kind, self.seed)

    def recipe(self, models: Path) -> str:
        """The text of a random network's recipe; the model file lies in `models`."""
        return (
            f"description: Random network {self.seed} of {self.kind} for {self.board}\n"
            f"model: {{file: {(models / self.model_name).as_posix()}}}\n"
            f"hardware: {self.board}\n"
            "golden: {samples: 2, seed: 0}\n"
            "package: {formats: [shared, static]}\n"
        )


@cache
def _model(kind: str, seed: int) -> bytes:
    return NETWORKS[kind](seed)


def chosen(checkouts: Iterable[Path], patterns: Sequence[str], *, quick: bool) -> list[Job]:
    """The jobs of a form whose names match one of the patterns; all where there are none."""
    every = [*_recipes(checkouts, quick=quick), *_networks(quick=quick)]
    found = [
        job for job in every if not patterns or any(fnmatch(job.name, item) for item in patterns)
    ]
    if not found:
        names = ", ".join(job.name for job in every)
        raise UserError(f"no package is called {' or '.join(patterns)}; there are {names}")
    return found


def _recipes(checkouts: Iterable[Path], *, quick: bool) -> Iterator[Job]:
    """Every recipe that one of the checkouts has, each on its own board; in short, those for CI."""
    patterns = ["recipes/ci/residual*.yaml"] if quick else ["recipes/ci/*.yaml", "recipes/*.yaml"]
    paths = {
        path.relative_to(checkout).as_posix()
        for checkout in checkouts
        for pattern in patterns
        for path in checkout.glob(pattern)
        if path.name != "base.yaml"
    }
    yield from (Job(Path(path).stem, path) for path in sorted(paths))


def _networks(*, quick: bool) -> Iterator[Job]:
    """Random networks; `host` is left out, since it is one of the other boards or nearly so."""
    boards = sorted(path.stem for path in (ROOT / "hw" / "boards").glob("*.yaml"))
    for seed in range(1 if quick else SEEDS):
        for board in QUICK_BOARDS if quick else (name for name in boards if name != "host"):
            for kind in NETWORKS:
                yield Job(f"{kind}_{seed}_{board}", "", kind, seed, board)
