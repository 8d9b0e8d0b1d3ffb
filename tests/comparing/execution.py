"""Runs two packages of the same network, and says what they compute and what that costs.

A process of its own for each pair (`python -m tests.comparing.execution`), so that a package that
crashes ends nothing else. Its last line is JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw import host
from hw.isa.tile_registers import FEATURES
from pipelines.benchmarks.rounds import alternate
from pipelines.errors import UserError
from pipelines.runners.choose import Runner, choose
from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.native import NativeRunner
from pipelines.runners.package import Package, open_package
from tests.comparing.checkouts import ROOT

Inputs = Mapping[str, np.ndarray]
_EXTRA = 2
"""Random inputs beside the golden ones."""
_ROUND_SECONDS = 0.3
"""What a round takes at least, of three sides that settle first (`pipelines.benchmarks.rounds`)."""
_FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Measured:
    """What a pair of packages computes and costs; what was not measured is empty."""

    how: str = ""
    """natively or emulated; empty where they cannot run here, or one of them failed."""
    obstacle: str = ""
    """Why they cannot run here."""
    difference: str = ""
    """Which output differs, or which package fails; empty where all outputs are equal."""
    executed: tuple[int, int] | None = None
    """Instructions of one inference, old and new."""
    ratio: float | None = None
    """New time over old."""
    noise: float | None = None
    """How far the old package's time is from that of a copy of itself, as a part of it."""
    note: str = ""


def measure(old: Path, new: Path, seconds: float) -> Measured:
    """Measure in another process; times take about so many seconds."""
    with tempfile.TemporaryDirectory() as name:
        # Golden vectors are read here: the code that reads them takes seconds to be imported.
        inputs = Path(name) / "inputs.npz"
        write_inputs(open_package(old), inputs)
        words = [str(old), str(new), str(inputs), str(seconds)]
        command = [sys.executable, "-m", "tests.comparing.execution", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return Measured(difference=f"running ended with status {done.returncode}: {said}")
    tree = json.loads(done.stdout.splitlines()[-1])
    executed = tree.pop("executed")
    return Measured(**tree, executed=tuple(executed) if executed else None)


def measured(old: Path, new: Path, inputs: Path, seconds: float) -> Measured:
    """Measure in this process, on the inputs of a file that `write_inputs` wrote."""
    every = _read_inputs(inputs)
    with ExitStack() as stack:
        runners: list[Runner] = []
        for folder in (old, new):
            try:
                runners.append(stack.enter_context(choose(folder, host.detect())))
            except (UserError, ValueError) as error:
                why = _lacking(open_package(folder)) or str(error)
                if runners:
                    return Measured(difference=f"only the old one can run: {why}")
                return Measured(obstacle=why)
        how = runners[0].how
        difference = _difference(runners[0], runners[1], every)
        if difference:
            return Measured(how, difference=difference)
        emulated = [runner for runner in runners if isinstance(runner, EmulatedRunner)]
        if emulated:
            before, after = (_executed(runner, every[0]) for runner in emulated)
            return Measured(how, executed=(before, after))
        ratio, noise = _times(old, new, every[0], seconds)
        return Measured(how, ratio=ratio, noise=noise, note=_note(runners[1].package))


def _lacking(package: Package) -> str:
    """What this processor lacks of what a package for its architecture needs."""
    machine = host.detect()
    needed = package.manifest["target"]["required_features"]
    lacking = [name for name in needed if f"+{name}" not in machine.features and name != "sse2"]
    if package.architecture != machine.architecture or not lacking:
        return ""
    return f"this processor lacks {', '.join(lacking)}"


def _difference(old: Runner, new: Runner, every: Sequence[Inputs]) -> str:
    for number, inputs in enumerate(every):
        expected, found = old.run(inputs), new.run(inputs)
        for name, value in expected.items():
            other = found.get(name)
            if other is None or other.dtype != value.dtype or other.shape != value.shape:
                return f"output {name} has another type"
            if other.tobytes() != value.tobytes():
                count = int(np.count_nonzero(other != value))
                return f"output {name} of input {number} differs in {count} of {value.size} values"
    return ""


def write_inputs(package: Package, path: Path) -> None:
    """Write a package's golden inputs, then random ones of the same range."""
    golden, _ = package.golden()
    samples = len(next(iter(golden.values())))
    rng = np.random.default_rng(1)
    every = [{name: array[index] for name, array in golden.items()} for index in range(samples)]
    every += [{name: _random(array, rng) for name, array in golden.items()} for _ in range(_EXTRA)]
    arrays = {f"{at} {name}": value for at, one in enumerate(every) for name, value in one.items()}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _read_inputs(path: Path) -> list[Inputs]:
    found: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            at, _, name = key.partition(" ")
            found.setdefault(int(at), {})[name] = arrays[key]
    return [found[at] for at in sorted(found)]


def _random(golden: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    low, high = golden.min(), golden.max()
    if np.issubdtype(golden.dtype, np.integer):
        return rng.integers(int(low), int(high) + 1, golden.shape[1:]).astype(golden.dtype)
    return rng.uniform(low, high, golden.shape[1:]).astype(golden.dtype)


def _executed(runner: EmulatedRunner, inputs: Inputs) -> int:
    """Instructions of one inference; all have four bytes, in 32-bit ARM state as well."""
    _, blocks = runner.count_blocks(inputs)
    return sum(size // 4 * count for (_, size), count in blocks.items())


def _times(old: Path, new: Path, inputs: Inputs, seconds: float) -> tuple[float, float]:
    """New time over old, and how far a copy of the old package is from it in the same rounds.

    Each ratio is taken within a round. The noise is the further quartile of the copy's, while the
    new package's is a median: what differs beyond it differs beyond chance.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        again = Path(name) / old.name
        shutil.copytree(old, again)
        sides = {
            side: _timed(stack.enter_context(NativeRunner(open_package(folder))), inputs)
            for side, folder in (("old", old), ("again", again), ("new", new))
        }
        once = sum(timed(1) for timed in sides.values())
        rounds = max(_FEWEST_ROUNDS, round(seconds / max(_ROUND_SECONDS, 2 * once)))
        times = {side: np.array(found) for side, found in alternate(sides, rounds, None).items()}
    quartiles = np.quantile(times["again"] / times["old"], (0.25, 0.75))
    both = (times["old"] + times["again"]) / 2
    return float(np.median(times["new"] / both)), float(np.abs(quartiles - 1).max())


def _timed(runner: NativeRunner, inputs: Inputs) -> Any:
    return lambda count: float(np.mean(runner.timed(inputs, 1, count)[1]))


def _note(package: Package) -> str:
    """That kernels with tiles did not run, where the package has some and the processor none."""
    features = package.manifest["provenance"]["hardware"].get("features", ())
    uses_tiles = set(FEATURES) <= set(features)
    return "kernels with tiles did not run" if uses_tiles and not host.may_use_tiles() else ""


if __name__ == "__main__":
    old, new, inputs = (Path(word) for word in sys.argv[1:4])
    print(json.dumps(asdict(measured(old, new, inputs, float(sys.argv[4])))))
