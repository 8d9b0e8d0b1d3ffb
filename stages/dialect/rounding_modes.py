"""The rounding modes of QONNX, written once over `Numbers`: floats to whole floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stages.dialect.numbers import Numbers, Value, clip

Mode = Callable[[Numbers, Value], Value]
NEAREST_EVEN = ("ROUND", "ROUND_HALF_EVEN", "HALF_EVEN")
"""Modes that take the nearest integer, of two the even one."""


def _by_magnitude(rounded: Mode) -> Mode:
    """A rounding of magnitudes that keeps the sign."""

    def mode(m: Numbers, x: Value) -> Value:
        magnitude = rounded(m, m.absolute(x))
        return m.where(x < 0, -magnitude, magnitude)

    return mode


MODES: Mapping[str, Mode] = {
    **dict.fromkeys(NEAREST_EVEN, lambda m, x: m.round_even(x)),
    "CEIL": lambda m, x: m.ceil(x),
    "FLOOR": lambda m, x: m.floor(x),
    "ROUND_TO_ZERO": lambda m, x: m.truncated(x),
    "UP": _by_magnitude(lambda m, x: m.ceil(x)),
    "DOWN": lambda m, x: m.truncated(x),
    "HALF_UP": _by_magnitude(lambda m, x: m.floor(x + m.constant(0.5, "float32"))),
    "HALF_DOWN": _by_magnitude(lambda m, x: m.ceil(x - m.constant(0.5, "float32"))),
}
"""Name of a mode → what it makes of floats."""


def within(m: Numbers, mode: str, x: Value, low: int, high: int) -> Value:
    """A float32, bounded to `low` and `high`, rounded to an int32."""
    if mode in NEAREST_EVEN:
        return m.saturated(x, 0, low, high)
    return m.cast(MODES[mode](m, clip(m, x, low, high, "float32")), "int32")
