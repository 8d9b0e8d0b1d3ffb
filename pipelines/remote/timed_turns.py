"""Sides timed in turns on a board, and the rounds that count.

A round during which the clock was slower than in others, or the firmware throttled, is thrown away
and measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.remote.deployment import BoardError
from pipelines.remote.dialogue import is_count, is_time
from pipelines.remote.runner_session import Session, Told

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
class TurnLengths:
    """How often and how long each side is timed."""

    rounds: int = 9
    settle: float = 7e-2
    """Seconds at the beginning of a turn that are not counted: behind another's vectors of floats a
    Xeon multiplies tiles at a tenth to a fifth of its rate at first, which grows for 60 ms; and
    caches are filled anew."""
    turn: float = 2e-2
    """Seconds of a turn that are, at least."""


@dataclass(frozen=True)
class State:
    """What a board said of its clock and its firmware while something was timed."""

    khz: tuple[float, ...]
    throttled: int

    def fault(self, fastest: float) -> str:
        """Why what was timed does not count, or nothing; `fastest` is a clock in kHz."""
        if self.throttled & THROTTLED_NOW:
            return f"the firmware throttled (get_throttled says {self.throttled:#x})"
        if self.khz and min(self.khz) < SLOWER * fastest:
            slow, fast = min(self.khz) / 1000, fastest / 1000
            return f"the clock was {slow:.0f} MHz, in others {fast:.0f} MHz"
        return ""


def state(*said: Mapping[str, Any]) -> State:
    """Return what answers say of a board's state; it may be nothing."""
    khz = tuple(float(each["khz"]) for each in said if is_time(each.get("khz")))
    bits = [each["throttled"] for each in said if is_count(each.get("throttled"))]
    return State(khz, bits[0] | bits[-1] if bits else 0)


Round = tuple[tuple[float, ...], State]
"""Seconds, and the state meanwhile."""


def measure_steady_rounds(
    board: str, wanted: int, measure: Callable[[int], Sequence[Round]], told: Told
) -> list[tuple[float, ...]]:
    """Return the seconds of the rounds that count; `measure` gives so many more.

    BoardError if so many had to be thrown away that less than half of those wanted are left.
    """
    found: list[Round] = []
    good: list[Round] = []
    fastest = 0.0
    while len(good) < wanted and len(found) < MOST * wanted:
        found += measure(wanted - len(good))
        fastest = max((khz for _, each in found for khz in each.khz), default=0.0)
        good = [each for each in found if not each[1].fault(fastest)]
    if thrown := len(found) - len(good):
        why = next(fault for _, each in found if (fault := each.fault(fastest)))
        said = f"{board}: {thrown} of {len(found)} rounds were thrown away: {why}"
        if 2 * len(good) < wanted:
            raise BoardError(f"{said}; cool it, or give it a better power supply")
        told(said)
    return [seconds for seconds, _ in good]


def timed(
    session: Session,
    sides: Sequence[int],
    timing: TurnLengths,
    *,
    threads: int = 1,
    far_bytes: int = 0,
) -> list[tuple[float, ...]]:
    """Return the seconds of each side in every round that counts; the sides are defined already."""
    settle, turn = (round(1e6 * seconds) for seconds in (timing.settle, timing.turn))
    numbers = " ".join(map(str, sides))

    def measure(count: int) -> list[Round]:
        session.send(f"time {threads} {count} {settle} {turn} {far_bytes} {len(sides)} {numbers}")
        return [_round(session, session.answer(ROUND_SECONDS), len(sides)) for _ in range(count)]

    return measure_steady_rounds(session.board.name, timing.rounds, measure, session.told)


def _round(session: Session, said: Mapping[str, Any], count: int) -> Round:
    after = said.get("after")
    if not isinstance(after, dict):
        raise session.garbage(said)
    return times_of(session, said, count), state(said, after)


def times_of(session: Session, said: Mapping[str, Any], count: int) -> tuple[float, ...]:
    """Return so many times of an answer; BoardError if it has not got them."""
    found = said.get("seconds")
    if not isinstance(found, list) or len(found) != count or not all(map(is_time, found)):
        raise session.garbage(said)
    return tuple(map(float, found))
