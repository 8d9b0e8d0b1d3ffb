"""Every operator of the dialect, compiled at sizes on both sides of what code generation has.

Several rows are one network, whose kernels are compiled together, or this would take minutes.
"""

from __future__ import annotations

from itertools import chain, product

import pytest

from hw.profile import Hardware
from stages.dialect.names import PREFIX
from stages.dialect.operators import OPERATORS
from tests.stages.packaging.sized import SIZES, TARGETS, algorithms, differences, network
from tests.stages.packaging.sized_rows import COLLECTED, EVERY, LEVELS, PRODUCTS, ROWS, SINGLE
from tests.targets import I8MM, skip_unless_runnable

SHARE = 15
"""Rows of operators that are one network."""
NAMES = list(ROWS)
_SHARES = [list(SINGLE)[at : at + SHARE] for at in range(0, len(SINGLE), SHARE)]
GROUPS = {f"{share[0]} to {share[-1]}": share for share in _SHARES}
GROUPS |= {"products": list(PRODUCTS), "collected": list(COLLECTED), "levels": list(LEVELS)}
MATRICES = ["convolved", "dense", "batched"]
"""Rows that multiply bytes, for a processor that multiplies matrices of them."""


def test_every_operator_has_a_row() -> None:
    named = {operator for row in ROWS.values() for operator in row.operators}
    missing = {name.removeprefix(PREFIX) for name in OPERATORS} - named
    assert not missing, f"add a row to sized_rows.py for {sorted(missing)}"


def test_rows_meet_every_size() -> None:
    """On one of the targets; those that share their loops do so together, on each of them."""
    met: dict[str, set[int]] = {hardware.name: set() for hardware in TARGETS}
    for number, row in enumerate(ROWS.values()):
        sizes = [row.sizes(number, hardware) for hardware in TARGETS]
        for hardware, some in zip(TARGETS, sizes, strict=True):
            met[hardware.name].update(some if row.turns > EVERY else ())
        assert row.turns > EVERY or sorted(chain(*sizes)) == list(SIZES)
    assert all(sizes == set(SIZES) for sizes in met.values())


@pytest.mark.parametrize(
    ("hardware", "group"),
    [*product(TARGETS, GROUPS), (I8MM, "matrices")],
    ids=lambda item: getattr(item, "name", item),
)
def test_compiled_kernels_compute_the_meaning(hardware: Hardware, group: str) -> None:
    skip_unless_runnable(hardware)
    rows = {name: ROWS[name] for name in GROUPS.get(group, MATRICES)}
    sized = network(rows, [NAMES.index(name) for name in rows], hardware)
    wrong, occurred = differences(sized, hardware, algorithms(rows))
    assert not wrong, "; ".join(wrong)
    wanted = {operator for row in rows.values() for operator in row.operators}
    assert wanted <= occurred, f"no row has {sorted(wanted - occurred)}"
