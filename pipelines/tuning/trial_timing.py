"""One trial on a board: the candidate's outputs are checked, then both sides are timed in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.evaluation import comparison
from pipelines.remote.deployment import BoardError
from pipelines.remote.dialogue import FaultError
from pipelines.remote.runnable_layers import RunnableLayer
from pipelines.remote.runner_session import Session
from pipelines.remote.timed_turns import TurnLengths, timed
from pipelines.remote.worker_pool import Failed
from pipelines.tuning.trial_libraries import Prepared
from stages.dialect.float_linear import departure

BASE, TRIAL = 0, 1
"""The runner's numbers of the two sides."""


@dataclass(frozen=True)
class Times:
    """Seconds of one run: medians over the rounds, and the median of their ratios."""

    seconds: float
    against_seconds: float
    ratio: float


def measure(session: Session, trial: Prepared, timing: TurnLengths) -> Times | Failed:
    """Do a trial on a board."""
    session.load(trial.library)
    session.keep({*trial.base.blobs, *trial.side.blobs})
    for number, side in ((BASE, trial.base), (TRIAL, trial.side)):
        session.put(side.blobs)
        session.send(side.define(number, trial.threads, session.hello.tiles))
    tolerance = _tolerance(trial)
    try:
        fault = checked(session, BASE, trial.base, tolerance)
    except FaultError as error:
        fault = error.message
    if fault:
        raise BoardError(
            f"{session.board.name}: the predicted kernel of {trial.layer.name} fails there: "
            f"{fault}; is the board the hardware= that the recipe names?"
        )
    if fault := checked(session, TRIAL, trial.side, tolerance):
        return Failed(fault)
    rounds = timed(
        session,
        (BASE, TRIAL),
        timing,
        threads=trial.threads,
        far_bytes=max(trial.base.far_bytes, trial.side.far_bytes),
    )
    base, own = np.array(rounds).T
    return Times(
        seconds=float(np.median(own)),
        against_seconds=float(np.median(base)),
        ratio=float(np.median(own / base)),
    )


def checked(session: Session, number: int, side: RunnableLayer, tolerance: float | None) -> str:
    """Run a side once; return what is wrong with its outputs, or nothing.

    Sums of floats may come out otherwise in another order, so that outputs are compared by value.
    """
    said = session.ask(f"check {number}")
    if said.get("checksums") == side.checksums:
        return ""
    if tolerance is None:
        return "the outputs differ from those that NumPy computes"
    first = sum(len(each.arguments) - len(each.call.reads) for each in side.calls[:-1])
    for place, (wanted, dtype) in enumerate(zip(side.expected, side.dtypes, strict=True)):
        given = session.ask_bytes(f"read {number} {first + place}", len(wanted))
        if not _is_close(np.frombuffer(given, dtype), np.frombuffer(wanted, dtype), tolerance):
            return "the outputs are not close to those that NumPy computes"
    return ""


def _tolerance(trial: Prepared) -> float | None:
    """How near outputs must come, relative to the largest value; None if they must be equal."""
    algorithms = {kernel.algorithm for kernel in trial.layer.kernels.candidates}
    if "macf16" in algorithms:
        return max(comparison.CLOSE, departure(1))
    if "macbf16" in algorithms:
        return comparison.CLOSE_OF_BFLOAT16
    return comparison.CLOSE if "macf32" in algorithms else None


def _is_close(given: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], tolerance: float) -> bool:
    one, other = given.astype(np.float64), wanted.astype(np.float64)
    difference = np.abs(one - other)
    if wanted.dtype.kind == "f":
        return bool((difference <= tolerance * np.abs(other).max(initial=0.0)).all())
    return bool((difference > 0).mean() <= max(comparison.RARE, 1 / wanted.size))
