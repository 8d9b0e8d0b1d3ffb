"""Groups of channels: what tiles read of them, and weights as they are stored for that."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.dialect.convolve import convolve
from stages.kernels.channel_groups import Groups, dense, first_read, groups_of, put_back, taken
from tests.stages.kernels.signatures import mac8

GROUPS = st.builds(Groups, st.integers(2, 14), st.integers(2, 12), st.integers(1, 20))


@given(GROUPS, st.sampled_from([8, 16, 32]))
def test_a_tile_reads_all_that_its_outputs_do(groups: Groups, channels: int) -> None:
    """The fewest whole groups, as many words, and nothing behind the last channel."""
    reads = groups.reads(mac8(4, channels=channels))
    total = groups.count * groups.inputs
    if not reads:
        return
    inputs, outputs = reads
    assert outputs % channels == 0 and inputs % 4 == 0
    assert inputs * groups.outputs == outputs * groups.inputs < total * groups.outputs
    for output in range(groups.count * groups.outputs):
        first = first_read(output, reads, total, min)
        own = output // groups.outputs * groups.inputs
        assert 0 <= first <= own and own + groups.inputs <= first + inputs <= total
        assert first == first_read(output // channels * channels, reads, total, min)


def test_neighbours_are_merged() -> None:
    tile = mac8(4, channels=16)
    assert groups_of(32, (128, 128)).reads(tile) == (16, 16)
    assert groups_of(10, (160, 160)).reads(tile) == (16, 16)
    assert groups_of(13, (104, 104)).reads(tile) == (16, 16)
    assert groups_of(4, (96, 96)).reads(tile) == (48, 48)
    assert groups_of(2, (24, 40)).reads(tile) == ()
    assert groups_of(1, (24, 40)).reads(tile) == ()


@given(GROUPS, st.integers(0, 99))
def test_zeros_stand_between_groups(groups: Groups, seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, outputs = groups.count * groups.inputs, groups.count * groups.outputs
    data = rng.integers(-9, 10, (1, 3, 4, channels))
    weight = rng.integers(-9, 10, (outputs, 2, 2, groups.inputs))
    expected = convolve(data, weight, (1, 1), groups.count)
    whole = dense(weight, groups.count)
    np.testing.assert_array_equal(convolve(data, whole, (1, 1), 1), expected)
    if reads := groups.reads(mac8(4, channels=16)):
        stored = taken(whole, reads)
        assert stored.shape[3] == reads[0]
        np.testing.assert_array_equal(put_back(stored, reads, channels), whole)
