"""Layers by products of matrices of bytes (I8MM): pairs of pixels in images of every width."""

from __future__ import annotations

from typing import Any

import pytest

from hw.profile import Hardware
from stages.dialect.calls import attributes
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels.packed_conv2d import is_convolution
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model, Table
from tests.stages import pipeline
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import I8MM, skip_unless_runnable

WIDTHS = (1, 2, 3, 5, 8, 13)
CANDIDATES = pipeline.candidates_of


def kernels(packed: Model) -> list[KernelSignature]:
    """Of all products."""
    calls = [b.value for _, f in calls_of(packed) for b in bindings_of(f)]
    return [parse_signature(attributes(c)["signature"]) for c in calls if is_convolution(c)]


@pytest.mark.parametrize("width", WIDTHS)
def test_images_of_every_width(width: int) -> None:
    """Rows that pairs divide and do not; single pixels, and few of an odd number, take USDOT."""
    skip_unless_runnable(I8MM)
    net = Net((1, 5 if width > 1 else 1, width, 24), "uint8")
    x = net.conv(net.x, "window", 40)
    y = net.conv(x, "apart", 17, strides=[2, 2])
    z = net.conv(x, "points", 70, kernel=1)
    packed, _ = assert_exact(net.model(y, z), net.inputs(), I8MM)
    kinds = [signature.products.kind for signature in kernels(packed) if signature.products]
    assert ("matrix_dots" in kinds) == (width > 1)


@pytest.mark.parametrize("width", [2, 7])
def test_signed_bytes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SMMLA, which takes levels less 128: as they come, and from images that are stored so."""
    skip_unless_runnable(I8MM)
    monkeypatch.setattr(pipeline, "candidates_of", signed_ones)
    net = Net((1, 3, width, 32), "uint8")
    x = net.conv(net.x, "first", 32, dtype="uint8")
    packed, _ = assert_exact(
        net.model(net.conv(x, "second", 48, kernel=1, zero_point=123)), net.inputs(), I8MM
    )
    found = kernels(packed)
    assert {signature.name.split("_")[1] for signature in found} == {"smatrix8"}
    assert sorted(signature.is_rebased for signature in found) == [False, True]


def signed_ones(quantized: Model, hardware: Hardware) -> Table:
    """Candidates without what multiplies unsigned bytes by signed ones, four or more at a time."""
    table = CANDIDATES(quantized, hardware)
    return {name: [o for o in candidates if not is_mixed(o)] for name, candidates in table.items()}


def is_mixed(candidate: Any) -> bool:
    products = candidate["signature"]["products"] or {"kind": "", "group": 0}
    return products["kind"] in ("dots", "matrix_dots") and products["group"] >= 4
