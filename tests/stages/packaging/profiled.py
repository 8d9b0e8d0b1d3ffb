"""A package that tells layer times, with names that are hard to write, and what its traces are."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from hw.profile import Hardware
from stages.kinds import Files
from stages.options import PackageOptions
from stages.packaging.program.kernel_program import Program
from tests.stages.packaging.support import X86_64, assembled, make_golden, make_program
from tests.targets import is_native

native = pytest.mark.skipif(not is_native(X86_64), reason="runs packages for x86-64 natively")
NAMES = ('stem "a\\b"', "left\x1b[2J\n??=", "rechts é", "sum */")


def toy_program(hardware: Hardware) -> Program:
    """The toy, with names that are not easily written in C, JSON or on a terminal."""
    made = make_program(hardware)
    calls = (replace(call, layer=name) for call, name in zip(made.calls, NAMES, strict=True))
    return replace(made, calls=tuple(calls))


@lru_cache
def profiled(hardware: Hardware) -> Files:
    return assembled(
        program=toy_program(hardware),
        golden=make_golden(),
        options=PackageOptions(name="toy", profile=True),
        hardware=hardware,
        provenance={"recipe": "toy"},
    )


def check_trace(trace: Any, program: Program, threads: int, samples: int) -> None:
    """Whether a trace is as the format says, and tells what a program calls."""
    events = trace["traceEvents"]
    assert trace["displayTimeUnit"] == "ms"
    assert {event["ph"] for event in events} == {"M", "X"}
    assert all({"name", "pid", "tid"} <= event.keys() for event in events)
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named == {thread + 1: f"thread {thread}" for thread in range(threads)}
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in slices} <= named.keys()
    for thread in named:
        open_until: list[float] = []
        own = [event for event in slices if event["tid"] == thread]
        # Slices of one row either follow one another or lie in one another.
        for event in sorted(own, key=lambda e: (e["ts"], -e["dur"])):
            end = round(event["ts"] + event["dur"], 3)
            assert event["ts"] >= 0 and event["dur"] >= 0
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)
    layers = [event for event in slices if event["cat"] == "layer"]
    for event in layers:
        call = program.calls[event["args"]["number"]]
        assert (event["name"], event["args"]["kernel"]) == (call.layer, call.symbol)
    assert {e["args"]["number"] for e in layers} == set(range(len(program.calls)))
    runs = [event["name"] for event in slices if event["cat"] == "run"]
    assert runs == [f"sample {index}" for index in range(samples)]
    pictures = {event["name"] for event in slices if event["cat"] == "picture"}
    several = range(program.images) if program.images > 1 else ()
    assert pictures == {f"picture {index}" for index in several}
    told = trace["otherData"]
    assert told["threads"] == threads
    assert [row["layer"] for row in told["layers"]] == [call.layer for call in program.calls]
    inside = sum(row["mean_ms"] for row in told["layers"]) + told["between"]["mean_ms"]
    assert inside == pytest.approx(told["whole"]["mean_ms"], abs=1e-5)
