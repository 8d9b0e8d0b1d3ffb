"""What takes turns in `doit bench`: packages of ours, and engines with each file they can run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hw.profile import Hardware
from pipelines.benchmarks.engines import Array, Engine, EngineError, Timed, load
from pipelines.benchmarks.variants import Variant
from pipelines.errors import CheckError
from pipelines.runners.native import NativeRunner
from pipelines.runners.package import Package

PACKAGE = "package"
BFLOAT16 = frozenset({"+avx512bf16", "+amx-bf16"})
"""Features of processors that multiply bfloat16."""
BY_DEFAULT = "bfloat16 (its default here)"
ROUNDED: Mapping[str, str] = {"float32": BY_DEFAULT, "as stored": f"as stored, {BY_DEFAULT}"}
"""Precision of a file with floats → what it is called when the engine rounds them by itself."""

FAR_OFF = 1 / 16
"""Of the span of outputs; a twin that differs by more is not timed. Saturated sums and other ways
to round stay below it."""


@dataclass
class Contestants:
    """What takes turns at one number of threads; `differences` are from the package's outputs."""

    timed: dict[str, Timed] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    refused: list[dict[str, str]] = field(default_factory=list)
    """What cannot take part, and why."""


def contestants(
    runners: Mapping[str, NativeRunner],
    files: Sequence[Variant],
    wanted: Sequence[Engine],
    hardware: Hardware,
    threads: int,
) -> Contestants:
    """Return packages and engines, loaded, with the first golden sample as their input."""
    found = Contestants()
    for name, runner in runners.items():
        found.timed[name] = timed(runner, threads)
    package = runners[PACKAGE]
    inputs = first_sample(package.package)
    expected = list(package.run(inputs, threads).values())
    for name, engine, variant in asked(wanted, files, hardware):
        try:
            loaded = load(engine, variant, inputs, threads)
        except EngineError as error:
            found.refused.append({"what": name, "why": str(error)})
            continue
        outputs = loaded.outputs()
        if [each.size for each in outputs] != [each.size for each in expected]:
            shapes = [list(each.shape) for each in outputs]
            raise CheckError(f"bench: {name} gives outputs {shapes}, not those of the package")
        if variant.is_same:
            difference = max(map(_difference, outputs, expected))
            if engine.runs_twin(variant) and (said := _far_off(difference, expected)):
                found.refused.append({"what": name, "why": said})
                continue
            found.differences[name] = difference
        found.timed[name] = loaded.timed
    found.refused += _without_a_file(wanted, files)
    return found


def asked(
    wanted: Sequence[Engine], files: Sequence[Variant], hardware: Hardware
) -> Iterator[tuple[str, Engine, Variant]]:
    """Yield each engine with each file that it reads, and what the two are called.

    An engine that by its own default computes floats in bfloat16, where the processor can, is asked
    a second time to do so, of files that have floats. A profile without bfloat16 keeps the engine
    from the instructions for it; the engine would imitate them then, which tells nothing.
    """
    is_rounding = not BFLOAT16.isdisjoint(hardware.features)
    for engine in wanted:
        for variant in files:
            if not engine.takes(variant):
                continue
            yield f"{engine.title}, {variant.precision}", engine, variant
            name = ROUNDED.get(variant.precision)
            if name and is_rounding and engine.load_by_default is not None:
                yield (
                    f"{engine.title}, {name}",
                    replace(engine, load=engine.load_by_default),
                    variant,
                )


def timed(runner: NativeRunner, threads: int) -> Timed:
    """Return what runs a package a number of times."""
    inputs = first_sample(runner.package)
    return lambda count: float(np.mean(runner.timed(inputs, threads, count)[1]))


def first_sample(package: Package) -> dict[str, Array]:
    """Return the first golden sample's inputs."""
    return {name: array[0] for name, array in package.golden()[0].items()}


def _without_a_file(wanted: Sequence[Engine], files: Sequence[Variant]) -> list[dict[str, str]]:
    return [
        {"what": engine.title, "why": f"it reads {' or '.join(engine.formats)}, and there is none"}
        for engine in wanted
        if not any(engine.takes(variant) for variant in files)
    ]


def _far_off(difference: float, expected: Sequence[Array]) -> str:
    """Return why a twin is not the network that the package is, or nothing."""
    reach = max(float(np.ptp(each.astype(np.float64))) for each in expected)
    if difference <= FAR_OFF * reach:
        return ""
    return f"its twin's outputs differ by {difference:.3g}, and all of them span {reach:.3g}"


def _difference(found: Array, expected: Array) -> float:
    flat = found.astype(np.float64).ravel() - expected.astype(np.float64).ravel()
    return float(np.abs(flat).max(initial=0.0))
