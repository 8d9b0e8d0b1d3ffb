"""Whose instructions are whose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.emulating import layer_attribution, linked_program
from pipelines.emulating.block_costs import Cost, total
from pipelines.emulating.layer_kinds import RUNTIME, LayerOfKind
from pipelines.modelling.code_blocks import Block

CALLS = [
    {"layer": "a", "kernel": "products_1"},
    {"layer": "b", "kernel": "products_2"},
    {"layer": "c", "kernel": "products_2"},
]
LAYERS = [LayerOfKind("a", "1x1", 10), LayerOfKind("b", "1x1", 30), LayerOfKind("c", "1x1", 60)]


def test_what_is_shared_is_split_by_multiply_accumulates() -> None:
    functions = {
        "net__products_1": Cost(100, 50.0, 40.0),
        "net__tile_products_2": Cost(900),
        "net__sums_9": Cost(1000),
        "net_run": Cost(7),
    }
    users = {"net__sums_9": {"products_1", "products_2"}}
    found = layer_attribution.by_layer(functions, CALLS, LAYERS, users)
    assert found["a"] == Cost(100 + 100, 50.0, 40.0)
    assert (found["b"], found["c"]) == (Cost(300 + 300), Cost(600 + 600))
    assert found[RUNTIME] == Cost(7)


@given(
    st.dictionaries(
        st.sampled_from(["net__products_1", "net__products_2", "net__sums_9", "memset", ""]),
        st.integers(0, 10**9).map(Cost),
    ),
    st.lists(st.integers(0, 100), min_size=3, max_size=3),
)
def test_nothing_is_lost_nor_counted_twice(functions: dict[str, Cost], macs: list[int]) -> None:
    layers = [LayerOfKind(each.name, each.kind, n) for each, n in zip(LAYERS, macs, strict=True)]
    users = {"net__sums_9": {"products_2"}}
    found = layer_attribution.by_layer(functions, CALLS, layers, users)
    whole = total(functions.values()).instructions
    assert total(found.values()).instructions == pytest.approx(whole)


def test_blocks_lie_in_functions_and_behind_them_in_none() -> None:
    known = [(0x100, "f"), (0x120, "g"), (0x140, linked_program.OTHER)]
    blocks = [Block(at, 1, 1, b"") for at in (0x80, 0x100, 0x11C, 0x120, 0x140, 0x200)]
    found = linked_program.by_function(blocks, known)
    assert {name: [block.address for block in own] for name, own in found.items()} == {
        linked_program.OTHER: [0x80, 0x140, 0x200],
        "f": [0x100, 0x11C],
        "g": [0x120],
    }


def test_objects_of_an_archive() -> None:
    def member(name: str, data: bytes) -> bytes:
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
        return head + data + b"\n" * (len(data) % 2)

    first, second = b"\x7fELF1", b"\x7fELF22"
    archive = b"!<arch>\n" + member("/", b"table") + member("a.o/", first) + member("b", second)
    assert list(layer_attribution.members(archive)) == [first, second]
    with pytest.raises(ValueError, match="no archive"):
        list(layer_attribution.members(Path(__file__).read_bytes()))
