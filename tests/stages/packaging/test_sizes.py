"""Every operator of the dialect, compiled at sizes on both sides of what code generation has.

Several rows are one network, whose kernels are compiled together, or this would take minutes.
"""

from __future__ import annotations

import pytest

from hw.profile import Hardware
from stages.qnn.registry import OPERATORS, PREFIX
from tests.stages.packaging.sized import SIZES, TARGETS, algorithms, differences, network
from tests.stages.packaging.sized_rows import COLLECTED, DEAR, LEVELS, PLAIN, PRODUCTS, ROWS
from tests.targets import skip_unless_runnable

SHARE = 15
"""Rows of operators that are one network."""
NAMES = list(ROWS)
_SHARES = [list(PLAIN)[at : at + SHARE] for at in range(0, len(PLAIN), SHARE)]
GROUPS = {f"{share[0]} to {share[-1]}": share for share in _SHARES}
GROUPS |= {"products": list(PRODUCTS), "collected": list(COLLECTED), "levels": list(LEVELS)}


def test_every_operator_has_a_row() -> None:
    named = {operator for row in ROWS.values() for operator in row.operators}
    missing = {name.removeprefix(PREFIX) for name in OPERATORS} - named
    assert not missing, f"add a row to sized_rows.py for {sorted(missing)}"


def test_rows_have_every_size() -> None:
    """On one of the targets; the dearest ones half of them."""
    for number, (name, row) in enumerate(ROWS.items()):
        sizes = [size for hardware in TARGETS for size in row.sizes(number, hardware)]
        assert len(set(sizes)) >= len(SIZES) // (2 if name in DEAR else 1)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_compiled_kernels_compute_the_meaning(hardware: Hardware, group: str) -> None:
    skip_unless_runnable(hardware)
    rows = {name: ROWS[name] for name in GROUPS[group]}
    sized = network(rows, [NAMES.index(name) for name in rows], hardware)
    wrong, occurred = differences(sized, hardware, algorithms(rows))
    assert not wrong, "; ".join(wrong)
    wanted = {operator for row in rows.values() for operator in row.operators}
    assert wanted <= occurred, f"no row has {sorted(wanted - occurred)}"
