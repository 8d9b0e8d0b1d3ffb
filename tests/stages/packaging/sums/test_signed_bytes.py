"""Images that are stored as signed bytes, where all that read them multiply these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages.dialect import integer
from stages.dialect.calls import attributes, is_op
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels.packed_conv2d import is_convolution
from stages.kernels.signature_text import parse_signature
from stages.kinds import Model
from stages.numerics import onnx_elementwise
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import AVX2, DOTPROD, skip_unless_runnable


def conv(net: Net, x: Any, name: str, outputs: int, **more: Any) -> Any:
    """A convolution of unsigned bytes."""
    return net.conv(x, name, outputs, dtype="uint8", zero_point=123, **more)


def chain(net: Net, x: Any) -> Any:
    """A window with a halo, then points, then taps of channels alone, then points: all alone."""
    for number, kernel in enumerate((3, 1)):
        x = conv(net, x, f"c{number}", 32, kernel=kernel)
    x = conv(net, x, "taps", 32, groups=32)
    return conv(net, x, "last", 40, kernel=1)


def residual(net: Net, x: Any) -> Any:
    """A result that the next product reads, and an addition behind it."""
    x = conv(net, x, "first", 32)
    y = conv(net, x, "second", 32)
    ratios = [
        net.builder.tensor(f"r{i}", np.array(v, np.float32)) for i, v in enumerate((0.7, 0.4))
    ]
    fixed = net.builder.tensor("fixed", np.array(3.5, np.float32))
    total = net.emit(onnx_elementwise.qlinear_add(x, y, *ratios, fixed, low=0, high=255), "sum")
    return conv(net, total, "last", 32, kernel=1)


def shared(net: Net, x: Any) -> Any:
    """A result that a pool reads as it is."""
    x = conv(net, x, "first", 32)
    pool = {"kernel": [2, 2], "strides": [1, 1], "padding": [0, 0, 1, 1]}
    y = net.emit(integer.max_pool2d(x, **pool), "pool")
    both = net.emit(relax.op.concat([x, y], 3), "both")
    return conv(net, net.conv(x, "second", 32, kernel=1), "last", 8), conv(net, both, "other", 8)


@pytest.mark.parametrize(
    ("build", "rebased"),
    [(chain, ["c1", "last"]), (residual, ["second", "last"]), (shared, ["last"])],
)
@pytest.mark.parametrize("size", [(5, 7), (1, 9)])
def test_images_are_rebased_where_nothing_reads_their_levels(
    build: Any, rebased: list[str], size: tuple[int, int]
) -> None:
    skip_unless_runnable(DOTPROD)
    net = Net((1, *size, 32), "uint8")
    results = build(net, net.x)
    model = net.model(*(results if isinstance(results, tuple) else (results,)))
    packed, _ = assert_exact(model, net.inputs(), DOTPROD)
    assert sorted(on_signed_bytes(packed)) == sorted(rebased)


def test_unsigned_bytes_stay_as_they_are() -> None:
    skip_unless_runnable(AVX2)
    net = Net((1, 5, 7, 32), "uint8")
    packed, _ = assert_exact(net.model(chain(net, net.x)), net.inputs(), AVX2)
    operators = [b.value for _, function in calls_of(packed) for b in bindings_of(function)]
    assert not any(is_op(call, "relax.qnn.less_shift") for call in operators)


def on_signed_bytes(packed: Model) -> list[str]:
    """The layers whose kernels read signed bytes."""
    found = []
    for binding, function in calls_of(packed):
        for call in (b.value for b in bindings_of(function)):
            if is_convolution(call) and parse_signature(attributes(call)["signature"]).is_rebased:
                found.append(str(binding.var.name).split(".")[0])
    return found
