"""Which kernel a layer gets, and what readers of one edge agree on."""

from __future__ import annotations

import numpy as np
import pytest

from stages.kernels.geometry import Geometry
from stages.kernels.kernel_candidates import from_table
from stages.kernels.signature import Flush, stored_by
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model
from tests.stages.networks import SourceNet, residual_block
from tests.stages.pipeline import (
    algorithm,
    assert_stages_agree,
    board,
    candidates_of,
    stages,
)
from tests.stages.test_bitpacking import BOARDS, calls, signatures


@pytest.mark.parametrize("name", [*BOARDS, "rpi4"])
@pytest.mark.parametrize(
    ("bits", "encoding"),
    [((2, 1), "bipolar"), ((1, 1), "bipolar"), ((3, 2), "unipolar"), ((2, 3), "signed")],
)
def test_the_cheapest_candidate(name: str, bits: tuple[int, int], encoding: str) -> None:
    hardware = board(name)
    source_model = residual_block(*bits, channels=8, size=6, encoding=encoding)
    models = stages(source_model, hardware, algorithm("bitserial"))
    (table,) = candidates_of(models["quantizing"], hardware).values()
    candidates = {o.signature: o for o in from_table(table) if o.algorithm == "bitserial"}
    for attrs in calls(models["bitpacking"], "packed_conv2d"):
        signature = parse_signature(attrs["signature"])
        assert signature.isa == hardware.isa
        assert signature.plan is not None
        assert (signature.plan.activation_bits, signature.plan.weight_bits) == bits
        assert signature.plan.weights == encoding
        height, width = attrs["output"]
        strides = tuple(attrs["strides"])
        geometry = Geometry(tuple(attrs["window"]), attrs["channels"][0], width, height, strides)
        flush: Flush = "window" if signature.flush_period else "none"
        candidate = candidates[signature.reading(stored_by(signature.plan)).flushed(flush)]
        fitting = [o for o in candidates.values() if geometry.takes(o.signature)]
        assert candidate.cycles(geometry) == min(o.cycles(geometry) for o in fitting)


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("bits", [2, 8])
def test_products_fit_their_lanes(name: str, bits: int) -> None:
    """Narrow lanes take no larger levels and weights; bytes are added up in 32 bits."""
    net = SourceNet((1, 40, 6, 6))
    data = net.quant(net.x, "data", bits, 0.5)
    model = net.model(net.conv(data, "conv", 33, bits=bits, encoding="signed"))
    models = assert_stages_agree(model, name, algorithm("mac8"))
    (signature,) = signatures(models["bitpacking"])
    assert signature.products is not None
    weights = models["legalizing"].params["conv.weight"].astype(int)
    assert signature.products.activation_bits >= bits
    assert signature.products.weight_limit >= np.abs(weights).max()
    if bits == 8:
        wanted = "wide_dot2" if name == "x86_64" else "pairs4"
        assert signature.products.name.startswith(wanted)
        assert signature.flush == "none"


@pytest.mark.parametrize("depth", [32, 512, 1024, 4096])
def test_when_counters_are_emptied(depth: int) -> None:
    """A window, a row of it, or part of a row, whichever fits into a byte."""
    net = SourceNet((1, depth, 3, 3))
    data = net.quant(net.x, "data", 1, 0.5)
    source_model = net.model(net.conv(data, "conv", 2, padding=0))
    packed = assert_stages_agree(source_model, options=algorithm("bitserial"))["bitpacking"]
    (signature,) = signatures(packed)
    row = 3 * depth // 32
    fits = {"window": 3 * row, "row": row, "chunk": 1}
    chosen = next(name for name, words in fits.items() if words <= signature.flush_period)
    assert signature.flush == chosen


def forked(activation_bits: int, first: tuple[int, str], second: tuple[int, str]) -> Model:
    """One activation behind a layer, read by products with weights of two precisions."""
    net = SourceNet((1, 40, 5, 6))
    start = net.quant(net.x, "start", activation_bits, 0.5)
    middle = net.conv(start, "middle", 40, bits=first[0], encoding=first[1])
    levels = net.quant(net.batch_norm(middle, "bn", 8.0), "levels", activation_bits, 0.5)
    one = net.conv(levels, "one", 9, bits=first[0], encoding=first[1])
    other = net.conv(levels, "other", 35, 1, bits=second[0], encoding=second[1])
    return net.model(one, other)


@pytest.mark.parametrize(
    ("activation_bits", "first", "second"),
    [
        (2, (1, "bipolar"), (2, "bipolar")),
        (2, (2, "signed"), (1, "unipolar")),
        (3, (1, "unipolar"), (3, "bipolar")),
        (3, (3, "signed"), (1, "bipolar")),
        (1, (1, "bipolar"), (3, "unipolar")),
    ],
)
@pytest.mark.parametrize("name", ["rpi3", "rpi4", "x86_64"])
def test_readers_of_different_precisions_share_an_edge(
    name: str, activation_bits: int, first: tuple[int, str], second: tuple[int, str]
) -> None:
    """It holds the planes and sums of both, each once, and each reads its own."""
    model = forked(activation_bits, first, second)
    packed = assert_stages_agree(model, name, algorithm("bitserial"))["bitpacking"]
    _, one, other = signatures(packed)
    assert one.stored == other.stored
    assert one.stored is not None and one.plan is not None and other.plan is not None
    wanted = [stored_by(plan) for plan in (one.plan, other.plan)]
    assert set(one.stored.planes) == {*wanted[0].planes, *wanted[1].planes}
    assert set(one.stored.sums) == {*wanted[0].sums, *wanted[1].sums}
    assert one.stored.words == len({*wanted[0].planes, *wanted[1].planes}) + len(one.stored.sums)


def test_planes_of_a_fork_are_joined() -> None:
    """Bipolar weights of one bit want digits, those of two bits want ternary digits and sums."""
    model = forked(2, (1, "bipolar"), (2, "bipolar"))
    packed = assert_stages_agree(model, "rpi4", algorithm("bitserial"))["bitpacking"]
    _, one, other = signatures(packed)
    assert one.plan is not None and one.plan.kind == "xor2"
    assert other.plan is not None and other.plan.kind == "mix3"
    own = {stored_by(plan) for plan in (one.plan, other.plan)}
    assert one.stored == other.stored and one.stored not in own
    stored = [attrs["planes"] for attrs in calls(packed, "bitpack")]
    assert list(one.stored.planes if one.stored else ()) in stored
