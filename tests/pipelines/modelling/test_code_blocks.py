"""Blocks that the emulator took apart, and those that end in a branch."""

from __future__ import annotations

from pipelines.modelling.code_blocks import Block, Events, events, executed, joined

ADD, BRANCH = bytes.fromhex("2100018b"), bytes.fromhex("21f0ff54")  # add x1, x1, x1; b.ne


def block(address: int, code: bytes, count: int, loads: int = 0) -> Block:
    return Block(address, len(code) // 4, count, code, Events(loads_l2=loads))


def test_what_follows_without_a_branch_is_one_block() -> None:
    """A loop that is cut, with what its first turn begins with."""
    first, again = block(0x100, 3 * ADD, 5, 7), block(0x104, 2 * ADD, 45, 2)
    rest = block(0x10C, ADD + BRANCH, 50, 4)
    found = joined([rest, again, first])
    assert [(one.address, one.code, one.count) for one in found] == [
        (0x100, 4 * ADD + BRANCH, 5),
        (0x104, 3 * ADD + BRANCH, 45),
    ]
    assert executed(found) == executed([first, again, rest])
    assert events(found) == events([first, again, rest])
    assert found[1].events == Events(loads_l2=6)


def test_what_others_lead_to_as_well_stays_apart() -> None:
    apart = [block(0x100, 3 * ADD, 5), block(0x10C, ADD + BRANCH, 6)]
    behind_a_branch = [block(0x100, 2 * ADD + BRANCH, 5), block(0x10C, ADD + BRANCH, 5)]
    twice = [block(0x100, 3 * ADD, 5), block(0x10C, 2 * ADD, 5), block(0x10C, ADD, 5)]
    for blocks in (apart, behind_a_branch, twice):
        assert joined(blocks) == blocks
