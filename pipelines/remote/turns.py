"""Sides timed in turns on a board, and the rounds that count.

A round during which the clock was slower than in others, or the firmware throttled, is thrown away
and measured again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines.remote.session import Session
from pipelines.remote.starting import BoardError

SLOWER = 0.99
"""A clock below so much of the fastest of a trial's has changed."""
THROTTLED_NOW = 0xF
"""Bits of the Raspberry Pi's firmware: under-voltage, clock capped, throttled, temperature limit
(Raspberry Pi documentation, "vcgencmd get_throttled")."""
MOST = 3
"""Times as many rounds as are wanted, at most, are measured for them."""
ROUND_SECONDS = 120.0
"""How long a round may take."""


@dataclass(frozen=True)
class Timing:
    """How long sides are timed."""

    rounds: int = 9
    settle: float = 7e-2
    """Seconds at the beginning of a turn that are not counted (`pipelines.benching.rounds`)."""
    turn: float = 2e-2
    """Seconds of a turn that are, at least."""


@dataclass(frozen=True)
class _Round:
    seconds: tuple[float, ...]
    khz: tuple[float, ...]
    throttled: int


def timed(
    session: Session, sides: Sequence[int], timing: Timing, *, threads: int = 1, far_bytes: int = 0
) -> list[tuple[float, ...]]:
    """Return the seconds of each side in every round that counts; the sides are defined already.

    BoardError if so many rounds had to be thrown away that less than half of those wanted are left.
    """
    found: list[_Round] = []
    good: list[_Round] = []
    while len(good) < timing.rounds and len(found) < MOST * timing.rounds:
        wanted = replace(timing, rounds=timing.rounds - len(good))
        found += _measured(session, sides, wanted, threads, far_bytes)
        fastest = max((khz for each in found for khz in each.khz), default=0.0)
        good = [each for each in found if not _fault(each, fastest)]
    if (thrown := len(found) - len(good)) > 0:
        fastest = max((khz for each in found for khz in each.khz), default=0.0)
        why = next(fault for each in found if (fault := _fault(each, fastest)))
        said = f"{session.board.name}: {thrown} of {len(found)} rounds were thrown away: {why}"
        if 2 * len(good) < timing.rounds:
            raise BoardError(f"{said}; cool it, or give it a better power supply")
        session.told(said)
    return [each.seconds for each in good]


def _fault(each: _Round, fastest: float) -> str:
    """Why a round does not count, or nothing."""
    if each.throttled & THROTTLED_NOW:
        return f"the firmware throttled (get_throttled says {each.throttled:#x})"
    if each.khz and min(each.khz) < SLOWER * fastest:
        slow, fast = min(each.khz) / 1000, fastest / 1000
        return f"the clock was {slow:.0f} MHz, in others {fast:.0f} MHz"
    return ""


def _measured(
    session: Session, sides: Sequence[int], timing: Timing, threads: int, far_bytes: int
) -> list[_Round]:
    settle, turn = (round(1e6 * seconds) for seconds in (timing.settle, timing.turn))
    numbers = " ".join(map(str, sides))
    session.send(
        f"time {threads} {timing.rounds} {settle} {turn} {far_bytes} {len(sides)} {numbers}"
    )
    return [
        _round(session, session.answer(ROUND_SECONDS), len(sides)) for _ in range(timing.rounds)
    ]


def _round(session: Session, said: Mapping[str, Any], count: int) -> _Round:
    seconds, after = said.get("seconds"), said.get("after")
    are_times = isinstance(seconds, list) and len(seconds) == count and all(map(is_time, seconds))
    if not are_times or not isinstance(after, dict):
        raise session.garbage(said)
    states = (said, after)
    khz = tuple(float(s["khz"]) for s in states if is_time(s.get("khz")))
    bits = [s["throttled"] for s in states if isinstance(s.get("throttled"), int)]
    return _Round(tuple(map(float, seconds or ())), khz, bits[0] | bits[-1] if bits else 0)


def is_time(value: object) -> bool:
    """Whether an answer is a number that can be a time."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]
