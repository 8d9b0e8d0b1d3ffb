"""A package on a board: how long its inferences take there, in how much memory, and which layers.

Where the board's own Python has LiteRT or ONNX Runtime, they run the same network in turns with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines import actions, tables, verifying
from pipelines.benching import rounds
from pipelines.benching.sides import PACKAGE, first_sample
from pipelines.benching.variants import variants
from pipelines.commands import arguments
from pipelines.errors import UserError, did_you_mean
from pipelines.execute import Workshop
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.plan import Plan
from pipelines.remote import engines
from pipelines.remote.engines import BoardEngine
from pipelines.remote.package import Opening, RemoteRunner
from pipelines.remote.session import Session
from pipelines.remote.starting import is_emulated
from pipelines.remote.transport import Transport
from pipelines.remote.turns import Round, Timing, counting, timed
from pipelines.runners.package import Package, open_package
from pipelines.tuning.preparing import KernelLibrary, Preparing
from stages.kinds import Golden

REPEAT = 100
"""Inferences at each number of threads."""
_TURNS = 10
"""Parts that these are measured in; what a slower clock spoils is measured again by the part."""
_WARM = 5
"""For so many inferences of a part one is run before it that is not counted."""
_LAYER_TIMING = Timing(rounds=3)
PERCENTILES = (50, 90, 99)


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
    package = open_package(actions.published(plan))
    peers = variables.command.get("peers")
    if is_emulated(to, package.architecture):
        # Other engines would run as they are, and the package some ten times slower.
        if peers not in (None, "all", "none"):
            raise UserError(f"peers={peers}: on {to.board.name} the package runs under QEMU, alone")
        peers = "none"
        print(f"{to.board.name} runs the package under QEMU: its times mean nothing")
    asked = _asked(peers, to)
    repeat = arguments.repeat(variables) or REPEAT
    with RemoteRunner(to, package) as runner:
        hello = runner.session.hello
        _check(plan, package, runner)
        stated = arguments.threads(variables)
        counts = [stated] if stated else sorted({1, len(hello.cores)})
        found = [_measured(plan, resolved, to, runner, asked, n, repeat) for n in counts]
        _tell(resolved, f"{to.board.name}, {hello.processor}", found, repeat)
        layers = list(_layers(plan, resolved, runner.session))
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
        if name not in engines.TITLES:
            known = ["all", "none", *engines.TITLES]
            raise UserError(
                f"peers={name}: no engine that a board can run{did_you_mean(name, known)}"
            )
    if stated == "none":
        return []
    there = engines.installed(to)
    for name in names:
        if name not in there:
            package = {"litert": "ai-edge-litert"}.get(name, name)
            raise UserError(
                f"peers={name}: {to.board.name} has no Python with {engines.TITLES[name]} and "
                f"NumPy; run there: pip install {package} numpy"
            )
    return names or there


def _check(plan: Plan, package: Package, runner: RemoteRunner) -> None:
    """A package whose golden vectors do not come out right is not timed."""
    golden = Golden(*package.golden())
    for item in verifying.compare(golden, runner.run, verifying.tolerance_of_package(plan)):
        if item.verdict == "departs":
            raise UserError(f"bench: {package.name}: {verifying.describe(item)}")


def _measured(
    plan: Plan,
    resolved: Resolved,
    to: Transport,
    runner: RemoteRunner,
    asked: Sequence[str],
    threads: int,
    repeat: int,
) -> Measured:
    inputs = first_sample(runner.package)
    runner.session.restart()  # so that its memory is the package's alone
    opening = runner.open(inputs, threads)
    expected = [array.ravel().astype(np.float64) for array in runner.run(inputs, threads).values()]
    differences: dict[str, float] = {}
    refused: list[dict[str, str]] = []
    energy: list[float] = []
    with contextlib.ExitStack() as stack:
        sides: dict[str, BoardEngine] = {}
        for name in asked:
            for variant in variants(plan, resolved):
                if variant.form != engines.FORMATS[name]:
                    continue
                title = f"{engines.TITLES[name]}, {variant.precision}"
                try:
                    made = BoardEngine(to, name, variant.source, inputs, threads)
                except UserError as error:
                    refused.append({"what": title, "why": error.message})
                    continue
                stack.callback(made.close)
                title = f"{made.title}, {variant.precision}"
                sides[title] = made
                if variant.is_same and [a.size for a in made.outputs] == [a.size for a in expected]:
                    apart = map(np.subtract, made.outputs, expected)
                    differences[title] = max(float(np.abs(a).max(initial=0.0)) for a in apart)
        each = -(-repeat // _TURNS)
        warm = -(-each // _WARM)

        def turn() -> Round:
            runner.infer(warm)
            own = runner.infer(each)
            if own.joules is not None:
                energy.append(own.joules / each)
            taken = [*own.seconds]
            for side in sides.values():
                taken += side.seconds(warm + each)[warm:]
            return tuple(taken), own.state

        kept = counting(
            to.board.name, _TURNS, lambda count: [turn() for _ in range(count)], runner.session.told
        )
    table = np.array(kept).reshape(len(kept), 1 + len(sides), each)
    names = [PACKAGE, *sides]
    seconds = {name: table[:, place].ravel().tolist() for place, name in enumerate(names)}
    joules = float(np.median(energy)) if energy else None
    return Measured(threads, opening, seconds, joules, differences, refused)


def _layers(plan: Plan, resolved: Resolved, session: Session) -> Iterator[dict[str, Any]]:
    """Yield each layer's seconds on one thread, alone, and its share of all."""
    preparing = Preparing(Workshop(plan), resolved.hardware)
    sides, objects = preparing.base_sides()
    kernels = {symbol: n for side in sides.values() for symbol, n in side.kernels().items()}
    session.load(KernelLibrary(objects, kernels, resolved.hardware))
    found: dict[str, float] = {}
    for name, side in sides.items():
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
        tables.show(f"{resolved.name} on {where}, {threads}, {repeat} inferences", rows, [*rows[0]])
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
            "us": tables.microseconds(row["seconds"]),
            "share": f"{row['share']:.1%}",
        }
        for row in layers
    ]
    tables.show(f"{resolved.name} on {to.board.name}, 1 thread, each layer alone", rows, [*rows[0]])


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
