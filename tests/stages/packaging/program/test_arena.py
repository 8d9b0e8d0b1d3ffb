"""The arena plan: nothing that lives at the same time shares a byte, and little is wasted."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from stages.kernels.signature import ALIGNMENT
from stages.packaging.program.arena import SLACK, Item, align, lifetimes, place, plan
from stages.packaging.program.kernel_program import Call, Program, Slot, TensorSpec


@st.composite
def item_lists(draw: st.DrawFn) -> list[Item]:
    items = []
    for index in range(draw(st.integers(0, 12))):
        first = draw(st.integers(-1, 10))
        last = first + draw(st.integers(0, 6))
        items.append(Item(("buffer", f"b{index}"), draw(st.integers(1, 1000)), first, last))
    return items


@given(item_lists())
def test_items_alive_together_never_overlap(items: list[Item]) -> None:
    offsets = place(items)
    assert all(offset % ALIGNMENT == 0 and offset >= 0 for offset in offsets.values())
    for a, b in combinations(items, 2):
        if a.first <= b.last and b.first <= a.last:
            start_a, start_b = offsets[a.key], offsets[b.key]
            assert start_a + a.size <= start_b or start_b + b.size <= start_a


@given(item_lists(), st.randoms())
def test_the_order_of_items_does_not_matter(items: list[Item], random: object) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place(shuffled) == place(items)


@given(item_lists())
def test_an_arena_is_never_larger_than_without_sharing(items: list[Item]) -> None:
    offsets = place(items)
    end = max((offsets[item.key] + item.size for item in items), default=0)
    assert end <= sum(align(item.size) for item in items)


def chain(length: int) -> Program:
    names = [f"b{index}" for index in range(length - 1)]
    slots = [Slot("input", "x"), *(Slot("buffer", name) for name in names), Slot("output", "y")]
    return Program(
        inputs=(TensorSpec("x", "uint8", (100,)),),
        outputs=(TensorSpec("y", "uint8", (100,)),),
        buffers=dict.fromkeys(names, 1000),
        constants={},
        calls=tuple(
            Call("f", f"layer {index}", (slots[index],), (slots[index + 1],), 10 * index, 4)
            for index in range(length)
        ),
        objects={},
    )


def test_a_chain_needs_two_buffers() -> None:
    assert plan(chain(20)).buffer_bytes == 2 * align(1000)


def test_a_call_never_reads_and_writes_the_same_memory() -> None:
    program = chain(6)
    offsets = plan(program).offsets
    for call in program.calls:
        read, written = call.reads[0], call.writes[0]
        a, b = offsets[read.kind, read.name], offsets[written.kind, written.name]
        assert a + program.size(read) <= b or b + program.size(written) <= a


def test_lifetimes_hold_inputs_and_outputs() -> None:
    spans = {item.key: (item.first, item.last) for item in lifetimes(chain(3))}
    assert spans["input", "x"] == (-1, 0)
    assert spans["output", "y"] == (2, 3)
    assert spans["buffer", "b0"] == (0, 1)


def test_each_thread_adds_one_slice_of_scratch() -> None:
    arena = plan(chain(20))
    assert arena.scratch_bytes == align(190)
    assert arena.size(1) == arena.buffer_bytes + arena.scratch_bytes + SLACK
    assert arena.size(5) - arena.size(4) == arena.scratch_bytes


@given(st.integers(2, 12), st.data())
def test_what_is_collected_outlasts_the_buffers_of_single_images(
    length: int, data: st.DataObject
) -> None:
    one, together = chain(length), data.draw(st.integers(1, length - 1))
    collected = f"b{length - 1 - together}"
    program = replace(
        one,
        inputs=(TensorSpec("x", "uint8", (3, 100)),),
        buffers={**one.buffers, collected: 3 * 960},
        images=3,
        batch_call_count=together,
    )
    arena = plan(program)
    first = arena.offsets["buffer", collected]
    behind = first + 3 * 960
    for call in program.calls_per_image:
        for slot in (*call.reads, *call.writes):
            if slot.name != collected:
                assert arena.offsets[slot.kind, slot.name] >= arena.begin >= behind
    for call in program.calls_per_batch:
        ends = [
            arena.offsets[slot.kind, slot.name] + program.size(slot)
            for slot in (*call.reads, *call.writes)
        ]
        assert max(ends) <= arena.together_bytes <= arena.size(1) - arena.scratch_bytes - SLACK
    assert arena.size(3) - arena.size(2) <= arena.own_bytes + arena.scratch_bytes
