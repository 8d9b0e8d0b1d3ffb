"""Batches in the C runtime: threads take an image each, or share the work of every one."""

from __future__ import annotations

import platform

import pytest

from stages.kinds import Golden
from stages.options import PackageOptions
from stages.packaging.program.arena import plan
from stages.packaging.program.kernel_program import Program
from tests.stages.packaging.runtime.loaded import (
    Loaded,
    memory,
    of_three_images,
    with_a_last_call_for_all,
)
from tests.stages.packaging.support import (
    X86_64,
    assembled,
    make_golden,
    meaning,
    write,
)

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)


@pytest.fixture(scope="module", params=["apart", "collected"])
def program_of_batch(request: pytest.FixtureRequest) -> Program:
    """The toy, run for each of three images; its last call for each or for all at once."""
    return of_three_images() if request.param == "apart" else with_a_last_call_for_all()


@pytest.fixture(scope="module")
def batch(program_of_batch: Program, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Its package; an image's share of the caller's tensors is nowhere aligned."""
    golden = make_golden()
    files = assembled(
        program=program_of_batch,
        golden=Golden(
            {name: value.swapaxes(0, 1) for name, value in golden.inputs.items()},
            {name: value.swapaxes(0, 1) for name, value in golden.outputs.items()},
        ),
        options=PackageOptions(name="toy"),
        hardware=X86_64,
        provenance={},
    )
    return Loaded(write(tmp_path_factory.mktemp("batch"), files), "toy")


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 9])
def test_threads_take_images_or_share_the_work_of_each(batch: Loaded, threads: int) -> None:
    image = make_golden().inputs["image"]
    expected = meaning(image)
    context = batch.open(threads)
    for offset in (0, 0, 7):
        source = memory(image.nbytes, offset)
        source[:] = image.ravel()
        outs = [memory(value.nbytes, offset) for value in expected.values()]
        assert batch.run(context, [source], outs) == 0
        for out, value in zip(outs, expected.values(), strict=True):
            assert out.tobytes() == value.tobytes()
    batch.finish(context)


def test_threads_have_arenas_of_their_own_while_there_are_images(
    batch: Loaded, program_of_batch: Program
) -> None:
    sizes = [int(batch.entry("arena_size")(threads)) for threads in (1, 2, 3, 4, 5)]
    planned = plan(program_of_batch)
    assert sizes == [planned.size(threads) for threads in (1, 2, 3, 4, 5)]
    several, shared = sizes[2] - sizes[1], sizes[4] - sizes[3]
    assert several >= shared >= 65536  # its scratch
    # Otherwise there is room where the last call has its output.
    if not program_of_batch.batch_call_count:
        assert sizes[1] - sizes[0] == several > shared
        assert sizes[3] < sizes[2] + several
