"""Ranges noted down as they are asked for, so that a calibrated model tells what it was made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from stages.calibrating.calibration_methods import Range
from stages.calibrating.observe_ranges import Ranges

ATTRIBUTE = "ranges"
"""The attribute of a calibrated model's `main` that holds them, as JSON."""


class RangeLog(Mapping[str, Callable[[int, bool], Range]]):
    """Ranges of tensors by name, which notes down each range that was asked for."""

    def __init__(self, found: Ranges) -> None:
        self._found = found
        self._notes: dict[str, dict[str, Range]] = {}

    def __getitem__(self, name: str) -> Callable[[int, bool], Range]:
        def asked(levels: int, symmetric: bool) -> Range:
            given = self._found[name](levels, symmetric)
            low, high = given
            self._notes.setdefault(name, {})[_key(levels, symmetric)] = (float(low), float(high))
            return given

        return asked

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def text(self) -> str:
        """The notes as JSON, which keeps every bit of a float64."""
        return json.dumps(self._notes, sort_keys=True)


def read(text: str) -> Ranges:
    """The ranges of a note."""
    notes = json.loads(text)

    def of(known: Mapping[str, list[float]]) -> Callable[[int, bool], Range]:
        return lambda levels, symmetric: tuple(known[_key(levels, symmetric)])  # type: ignore

    return {name: of(known) for name, known in notes.items()}


def _key(levels: int, symmetric: bool) -> str:
    return f"{levels} {'around 0' if symmetric else 'levels'}"
