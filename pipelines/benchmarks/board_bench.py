"""A package on a board: how long its inferences take there, in how much memory, and which layers.

Where the board's own Python has LiteRT or ONNX Runtime, they run the same network in turns with it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from pipelines.benchmarks import rounds
from pipelines.benchmarks.contestants import PACKAGE, first_sample
from pipelines.benchmarks.variants import variants
from pipelines.builds import publication
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.commands import arguments
from pipelines.errors import CheckError, UserError, did_you_mean
from pipelines.evaluation import comparison, verification
from pipelines.output import printed_tables
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.remote import board_engines
from pipelines.remote.board_engines import BoardEngine
from pipelines.remote.deployment import is_emulated
from pipelines.remote.remote_package import Opening, RemoteRunner
from pipelines.remote.runner_session import Told
from pipelines.remote.timed_turns import Round, TurnLengths, measure_steady_rounds, timed
from pipelines.remote.transport import Transport
from pipelines.runners.package import Package, open_package
from pipelines.tuning.trial_libraries import KernelLibrary, Preparing
from stages.kinds import Golden

REPEAT = 100
"""Inferences at each number of threads."""
_TURNS = 10
"""Parts that these are measured in; what a slower clock spoils is measured again by the part."""
_WARM = 5
"""For so many inferences of a part one is run before it that is not counted."""
_LAYER_TIMING = TurnLengths(rounds=3)
PERCENTILES = (50, 90, 99)


@dataclass
class _Engines:
    """What takes turns with the package, and what cannot."""

    sides: dict[str, BoardEngine] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    refused: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Measured:
    """What was measured at one number of threads."""

    threads: int
    opening: Opening
    seconds: dict[str, list[float]]
    """Of the package and of each engine."""
    joules: float | None
    """Of one inference."""
    differences: dict[str, float]
    refused: list[dict[str, str]]


def bench(plan: Plan, resolved: Resolved, variables: Variables, to: Transport) -> dict[str, Any]:
    """Measure a package on a board, print it, and return it as plain data."""
    package = open_package(publication.package_folder_of(plan))
    peers = variables.command.get("peers")
    if is_emulated(to, package.architecture):
        # Other engines would run as they are, and the package some ten times slower.
        if peers not in (None, "all", "none"):
            raise UserError(f"peers={peers}: on {to.board.name} the package runs under QEMU, alone")
        peers = "none"
        print(f"{to.board.name} runs the package under QEMU: its times mean nothing")
    asked = _asked(peers, to)
    repeat = arguments.repeat(variables) or REPEAT
    # The last line is redrawn on a terminal alone.
    with RemoteRunner(to, package) as runner, Console().status(to.board.name) as status:
        hello = runner.session.hello
        _check(plan, package, runner)
        bench = _Bench(plan, resolved, runner, asked, repeat, status.update)
        stated = arguments.threads(variables)
        found = [bench.measured(n) for n in ([stated] if stated else sorted({1, len(hello.cores)}))]
        layers = list(bench.layers())
    _tell(resolved, f"{to.board.name}, {hello.processor}", found, repeat)
    _tell_layers(resolved, to, layers)
    return {
        "board": to.board.name,
        "processor": hello.processor,
        "repeat": repeat,
        "threads": [_plain(each) for each in found],
        "layers": layers,
    }


def _asked(stated: str | None, to: Transport) -> list[str]:
    """The engines to run on a board: those it has, or of them those that were asked for."""
    names = [] if stated in (None, "all") else [n for n in str(stated).split(",") if n != "none"]
    for name in names:
        if name not in board_engines.TITLES:
            known = ["all", "none", *board_engines.TITLES]
            raise UserError(
                f"peers={name}: no engine that a board can run{did_you_mean(name, known)}"
            )
    if stated == "none":
        return []
    there = board_engines.installed(to)
    for name in names:
        if name not in there:
            package = {"litert": "ai-edge-litert"}.get(name, name)
            raise UserError(
                f"peers={name}: {to.board.name} has no Python with "
                f"{board_engines.TITLES[name]} and NumPy; run there: pip install {package} numpy"
            )
    return names or there


def _check(plan: Plan, package: Package, runner: RemoteRunner) -> None:
    """A package whose golden vectors do not come out right is not timed."""
    golden = Golden(*package.golden())
    for item in comparison.compare(golden, runner.run, verification.tolerance_of_package(plan)):
        if item.verdict == "departs":
            raise CheckError(f"bench: {package.name}: {comparison.describe(item)}")


@dataclass
class _Bench:
    """One package on one board."""

    plan: Plan
    resolved: Resolved
    runner: RemoteRunner
    asked: Sequence[str]
    repeat: int
    shown: Told

    def measured(self, threads: int) -> Measured:
        """Time the package on so many threads, in turns with the engines."""
        runner, inputs = self.runner, first_sample(self.runner.package)
        runner.session.restart()  # so that its memory is the package's alone
        opening = runner.open(inputs, threads)
        energy: list[float] = []
        each = -(-self.repeat // _TURNS)
        warm = -(-each // _WARM)
        with contextlib.ExitStack() as stack:
            found = self._engines(stack, threads)

            def turn() -> Round:
                runner.infer(warm)
                own = runner.infer(each)
                if own.joules is not None:
                    energy.append(own.joules / each)
                taken = [*own.seconds]
                for side in found.sides.values():
                    taken += side.seconds(warm + each)[warm:]
                return tuple(taken), own.state

            def turns(count: int) -> list[Round]:
                self.shown(f"{self.to.board.name}: {threads} threads, {self.repeat} inferences")
                return [turn() for _ in range(count)]

            kept = measure_steady_rounds(self.to.board.name, _TURNS, turns, runner.session.told)
        table = np.array(kept).reshape(len(kept), 1 + len(found.sides), each)
        names = [PACKAGE, *found.sides]
        seconds = {name: table[:, place].ravel().tolist() for place, name in enumerate(names)}
        joules = float(np.median(energy)) if energy else None
        return Measured(threads, opening, seconds, joules, found.differences, found.refused)

    @property
    def to(self) -> Transport:
        """How the board is reached."""
        return self.runner.to

    def _engines(self, stack: contextlib.ExitStack, threads: int) -> _Engines:
        """Load every engine with each of the recipe's files that it reads."""
        inputs, found = first_sample(self.runner.package), _Engines()
        outputs = self.runner.run(inputs, threads)
        expected = [array.ravel().astype(np.float64) for array in outputs.values()]
        files = variants(self.plan, self.resolved) if self.asked else []
        for name, variant in itertools.product(self.asked, files):
            if variant.form != board_engines.FORMATS[name]:
                continue
            title = f"{board_engines.TITLES[name]}, {variant.precision}"
            self.shown(f"{self.to.board.name}: {title} is loaded")
            try:
                made = BoardEngine(self.to, name, variant.source, inputs, threads)
            except UserError as error:
                found.refused.append({"what": title, "why": error.message})
                continue
            stack.callback(made.close)
            title = f"{made.title}, {variant.precision}"
            found.sides[title] = made
            if variant.is_same and [a.size for a in made.outputs] == [a.size for a in expected]:
                apart = map(np.subtract, made.outputs, expected)
                found.differences[title] = max(float(np.abs(a).max(initial=0.0)) for a in apart)
        return found

    def layers(self) -> Iterator[dict[str, Any]]:
        """Yield each layer's seconds on one thread, alone, and its share of all."""
        session = self.runner.session
        sides, objects = Preparing(PlanExecution(self.plan), self.resolved.hardware).base_sides()
        kernels = {symbol: n for side in sides.values() for symbol, n in side.kernels().items()}
        session.load(KernelLibrary(objects, kernels, self.resolved.hardware))
        found: dict[str, float] = {}
        for name, side in sides.items():
            self.shown(f"{self.to.board.name}: layer {name}")
            session.keep(set(side.blobs))
            session.put(side.blobs)
            session.send(side.define(0, 1, session.hello.tiles))
            taken = timed(session, (0,), _LAYER_TIMING, far_bytes=side.far_bytes)
            found[name] = float(np.median([seconds for (seconds,) in taken]))
        total = sum(found.values())
        for name, seconds in found.items():
            yield {"layer": name, "seconds": seconds, "share": seconds / total}


def _tell(resolved: Resolved, where: str, found: Sequence[Measured], repeat: int) -> None:
    for each in found:
        compared = {row["what"]: row for row in rounds.compared(each.seconds, PACKAGE)}
        rows = []
        for name, seconds in each.seconds.items():
            row = {"what": name}
            row |= {f"p{p} ms": f"{1e3 * s:.3f}" for p, s in _percentiles(seconds).items()}
            ratio = compared[name].get("ratio")
            row["package takes"] = "" if ratio is None else f"{ratio:.2f} of it"
            apart = each.differences.get(name)
            row["output differs by"] = "" if apart is None else f"{apart:.6g}"
            rows.append(row)
        threads = f"{each.threads} thread{'s' if each.threads > 1 else ''}"
        printed_tables.show(
            f"{resolved.name} on {where}, {threads}, {repeat} inferences", rows, [*rows[0]]
        )
        energy = "" if each.joules is None else f", {1e3 * each.joules:.3g} mJ an inference"
        print(
            f"first inference after {1e3 * each.opening.seconds:.1f} ms, "
            f"{each.opening.peak_kib / 1024:.1f} MiB of memory at most{energy}"
        )
        for item in each.refused:
            print(f"not timed: {item['what']}: {item['why']}")


def _tell_layers(resolved: Resolved, to: Transport, layers: Sequence[dict[str, Any]]) -> None:
    rows = [
        {
            "layer": row["layer"],
            "us": printed_tables.microseconds(row["seconds"]),
            "share": f"{row['share']:.1%}",
        }
        for row in layers
    ]
    printed_tables.show(
        f"{resolved.name} on {to.board.name}, 1 thread, each layer alone", rows, [*rows[0]]
    )


def _percentiles(seconds: Sequence[float]) -> dict[int, float]:
    return {percent: float(np.percentile(seconds, percent)) for percent in PERCENTILES}


def _plain(each: Measured) -> dict[str, Any]:
    return {
        "threads": each.threads,
        "seconds": each.seconds,
        "percentiles": {name: _percentiles(seconds) for name, seconds in each.seconds.items()},
        "first_seconds": each.opening.seconds,
        "peak_kib": each.opening.peak_kib,
        "arena_bytes": each.opening.arena_bytes,
        "joules": each.joules,
        "differences": each.differences,
        "refused": each.refused,
    }
