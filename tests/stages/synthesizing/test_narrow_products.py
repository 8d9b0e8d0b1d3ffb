"""Kernels that add up small products in lanes of 8 or 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hw.profile import Hardware
from tests.stages.synthesizing.bodies import (
    FLUSHES,
    Case,
    filled,
)
from tests.stages.synthesizing.plans import (
    PROBLEMS,
    WIDER,
    narrow,
)
from tests.stages.synthesizing.test_microkernel import (
    LONG_PERIODS,
    SHORT,
    SHORT_PERIODS,
    check,
    tiles,
)
from tests.targets import (
    EVERY,
    skip_unless_runnable,
)


def narrow_cases(hardware: Hardware, periods: range) -> Iterator[Case]:
    """Narrow products of every problem, of some periods, whose lanes reach their limit."""
    done = set()
    for number, problem in enumerate([*PROBLEMS, *WIDER]):
        vectors = tiles(hardware)[number % len(tiles(hardware))]
        for signature in narrow(hardware, problem, 1 + number % 3, vectors):
            if signature.products in done or signature.flush_period not in periods:
                continue
            done.add(signature.products)
            flushes = FLUSHES if signature.flush_period <= SHORT else FLUSHES[:1]
            yield from (filled(signature, flush) for flush in flushes)


@EVERY
def test_narrow_products(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    cases = list(narrow_cases(hardware, SHORT_PERIODS))
    if not cases:
        assert not any(narrow(hardware, problem) for problem in (*PROBLEMS, *WIDER))
        pytest.skip("has no narrow products")
    check(cases, hardware)


@pytest.mark.slow
@EVERY
def test_narrow_products_of_every_problem(hardware: Hardware) -> None:
    """All that the test above leaves out."""
    skip_unless_runnable(hardware)
    check(list(narrow_cases(hardware, LONG_PERIODS)), hardware)
