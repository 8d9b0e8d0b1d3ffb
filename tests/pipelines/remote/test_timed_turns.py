"""Rounds that count, and those that are thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipelines.remote.deployment import BoardError
from pipelines.remote.timed_turns import Round, measure_steady_rounds, state

FAST, SLOW = {"khz": 1_500_000}, {"khz": 1_000_000}


def rounds(*states: Sequence[dict[str, Any]]) -> list[Round]:
    return [((float(number + 1),), state(*each)) for number, each in enumerate(states)]


def given(found: list[Round], asked: list[int]) -> Any:
    def measure(count: int) -> list[Round]:
        asked.append(count)
        taken, found[:] = found[:count], found[count:]
        return taken

    return measure


def test_a_board_that_tells_nothing() -> None:
    found = rounds(({}, {}), ({}, {}))
    assert measure_steady_rounds("pi", 2, given(found, []), pytest.fail) == [(1.0,), (2.0,)]


@pytest.mark.parametrize("spoilt", [(FAST, SLOW), (SLOW, FAST), (SLOW, SLOW)])
def test_a_slower_clock(spoilt: Sequence[dict[str, Any]]) -> None:
    said: list[str] = []
    asked: list[int] = []
    found = rounds((FAST, FAST), spoilt, (FAST, FAST), (FAST, FAST))
    assert measure_steady_rounds("pi", 3, given(found, asked), said.append) == [
        (1.0,),
        (3.0,),
        (4.0,),
    ]
    assert asked == [3, 1]
    assert said == [
        "pi: 1 of 4 rounds were thrown away: the clock was 1000 MHz, in others 1500 MHz"
    ]


def test_a_clock_that_was_slow_at_first() -> None:
    """Which of two clocks is the right one is known once the faster one was seen."""
    said: list[str] = []
    found = rounds((SLOW, SLOW), (FAST, FAST), (FAST, FAST))
    assert measure_steady_rounds("pi", 2, given(found, []), said.append) == [(2.0,), (3.0,)]
    assert "1 of 3 rounds" in said[0]


@pytest.mark.parametrize(("bits", "counts"), [(0x50000, True), (0x50005, False), (0x8, False)])
def test_what_the_firmware_says(bits: int, counts: bool) -> None:
    found = rounds(*[({"throttled": bits}, {"throttled": bits})] * 6)
    if counts:
        assert len(measure_steady_rounds("pi", 2, given(found, []), pytest.fail)) == 2
        return
    with pytest.raises(BoardError) as error:
        measure_steady_rounds("pi", 2, given(found, []), pytest.fail)
    assert error.value.message == (
        "pi: 6 of 6 rounds were thrown away: the firmware throttled (get_throttled says "
        f"{bits:#x}); cool it, or give it a better power supply"
    )


def test_throttling_that_begins_within_a_round() -> None:
    found = rounds(({"throttled": 0}, {"throttled": 4}), ({"throttled": 0}, {"throttled": 0}))
    said: list[str] = []
    assert measure_steady_rounds("pi", 1, given(found, []), said.append) == [(2.0,)]
    assert "get_throttled says 0x4" in said[0]


@pytest.mark.parametrize("odd", ["1500000", True, None, -1, float("nan"), [1]])
def test_states_that_no_runner_tells(odd: Any) -> None:
    found = state({"khz": odd, "throttled": odd})
    assert found.khz == () and found.throttled == 0
