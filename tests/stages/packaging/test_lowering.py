"""The table of how composites are lowered: which row layers take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hw.profile import Hardware
from stages import scheduling
from stages.graph.bindings import calls_of
from stages.kinds import Model
from stages.packaging.emitting.composite import LoweringInput
from stages.packaging.lowering import TABLE, described
from tests.stages.networks import SourceNet
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.kernel_cases import residual_a2w1
from tests.stages.packaging.level_net import BIT, MAC
from tests.stages.packaging.programs import pack
from tests.stages.packaging.standalone.test_weight_packing import product
from tests.stages.packaging.sums.convolution_nets import residual
from tests.stages.packaging.sums.test_depthwise_levels import separable
from tests.stages.packaging.sums.test_winograd_floats import network
from tests.targets import AMX, AVX2, AVX512VNNI


def lowered(packed: Model, hardware: Hardware) -> Iterator[dict[str, str]]:
    """How the layers of a packed model are lowered."""
    schedules = scheduling.run(model=packed, hardware=hardware, choices={})
    for binding, function in calls_of(packed):
        schedule = schedules[str(binding.value.op.name_hint)]
        yield described(LoweringInput(function, schedule, hardware))


def quantized() -> Model:
    return residual((1, 9, 5))


def depthwise() -> Model:
    net = Net((1, 9, 9, 24))
    return net.model(net.conv(net.x, "dw", 24, groups=24))


def of_levels() -> Model:
    net = SourceNet((1, 16, 9, 9))
    return net.model(separable(net))


def levels(channels: int) -> Model:
    net = SourceNet((1, 64, 9, 9))
    x = net.quant(net.x, "a", 2, 0.5)
    x = net.quant(net.batch_norm(net.conv(x, "c", channels), "bn", 8.0), "q", 2, 0.5)
    return net.model(net.conv(x, "d", channels))


KINDS: dict[str, tuple[Callable[[], Model], Hardware, dict[str, str]]] = {
    "of integers": (
        quantized,
        AVX512VNNI,
        {"row": "linear layer of bytes", "finisher": "ChannelVectors"},
    ),
    "depthwise": (
        depthwise,
        AVX512VNNI,
        {"row": "depthwise", "reads": "DepthwiseTaps", "sums": "InTileFunction"},
    ),
    "depthwise of levels": (
        of_levels,
        AVX2,
        {
            "row": "depthwise",
            "reads": "DepthwiseTaps",
            "sums": "InTileFunction",
            "finisher": "ChannelVectors",
        },
    ),
    "bits with thresholds": (
        lambda: residual_a2w1().model,
        AVX2,
        {"row": "linear layer of floats, of bits, or by LUT", "finisher": "ChannelVectors"},
    ),
    "levels by tiles": (
        lambda: levels(64),
        AMX,
        {"row": "levels by matrix tiles", "finisher": "ChannelBlocks"},
    ),
    "levels by tiles, not whole blocks": (
        lambda: levels(48),
        AMX,
        {"row": "linear layer by matrix tiles", "finisher": "ChannelVectors"},
    ),
    "tiles": (quantized, AMX, {"row": "linear layer by matrix tiles", "sums": "InMatrixTiles"}),
    "batched": (
        lambda: product((9, 64, 33)),
        AVX2,
        {"row": "batched linear layer", "work": "OutputRows", "finisher": "ChannelVectors"},
    ),
    "of floats": (
        lambda: network((1, 8, 9, 9), 8)[1],
        AVX2,
        {
            "row": "linear layer of floats, of bits, or by LUT",
            "reads": "Windows",
            "finisher": "ChannelVectors",
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_row_that_a_layer_takes(kind: str) -> None:
    make, hardware, expected = KINDS[kind]
    options = BIT if kind == "bits with thresholds" else MAC
    found = list(lowered(pack(make(), hardware, options), hardware))
    assert any(expected.items() <= each.items() for each in found), found


def test_rows_have_names_of_their_own() -> None:
    assert len({row.title for row in TABLE}) == len(TABLE)
