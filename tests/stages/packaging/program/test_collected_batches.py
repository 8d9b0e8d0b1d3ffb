"""Batches that are cut anywhere: for each image up to there, for all of them from there on."""

from __future__ import annotations

import numpy as np
import pytest

from hw.profile import Hardware
from stages import importing
from stages.graph.collecting import images_of
from stages.graph.simplify_graph import simplify
from stages.importing.zoo import build
from stages.kinds import Model
from stages.options import ImportOptions, ZooOptions
from stages.quantizing import split_batch
from stages.quantizing.batch_cuts import Cuts
from stages.quantizing.move_channels_last import MoveChannelsLast
from tests.stages.packaging.programs import assert_exact
from tests.targets import AARCH64, AVX2, skip_unless_runnable

BATCH = 3


def block() -> Model:
    options = ZooOptions(name="residual_block", format="qdq", image_size=16, batch=BATCH)
    return importing.run(source=build(options=options), options=ImportOptions())


def cuts() -> list[int]:
    """Where the block may be cut."""
    model = simplify(MoveChannelsLast(simplify(block())).run())
    found = Cuts(model, BATCH)
    places = range(1, len(found.bindings))
    return [at for at in places if found.is_possible(at) and found.collected_bytes(at)]


@pytest.mark.parametrize("hardware", (AVX2, AARCH64), ids=lambda profile: profile.name)
@pytest.mark.parametrize("place", range(6))
def test_images_that_are_collected_anywhere_give_the_same(
    place: int, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_runnable(hardware)
    first = cuts()[place]
    monkeypatch.setattr(split_batch, "first_together", lambda *_: first)
    given = np.random.default_rng(0).integers(0, 256, (BATCH, 3, 16, 16)).astype(np.float32) / 256
    packed, program = assert_exact(block(), {"data": given}, hardware)
    assert images_of(packed) == program.images == BATCH
    assert len(program.calls) > program.batch_call_count > 0
    assert program.collected
