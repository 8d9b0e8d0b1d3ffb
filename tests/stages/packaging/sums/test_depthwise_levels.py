"""Convolutions of every channel on its own in networks with quantizers, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import relax

from hw.profile import Hardware
from stages import legalizing
from stages.dialect.calls import attributes, is_op
from stages.errors import StageError
from stages.graph.bindings import bindings_of
from stages.kernels import operator_names
from tests.stages.networks import SourceNet
from tests.stages.packaging.programs import assert_exact
from tests.stages.pipeline import algorithm, random_inputs, stages
from tests.targets import AARCH64, ARMV7, AVX2, AVX512VBMI, SSE2, VNNI_256, skip_unless_runnable

PROFILES = [
    SSE2,
    AVX2,
    VNNI_256,
    AVX512VBMI,
    pytest.param(AARCH64, marks=pytest.mark.slow),
    pytest.param(ARMV7, marks=pytest.mark.slow),
]
Build = Callable[[SourceNet], Any]


def depthwise(
    net: SourceNet, x: Any, name: str, *, kernel: int = 3, stride: int = 1, bits: int = 4,
    encoding: str = "signed", padding: int | None = None,
) -> Any:  # fmt: skip
    """A convolution of each channel with weights of its own."""
    channels = int(x.ty.shape[1])
    weight = net.weights(name, (channels, 1, kernel, kernel), bits, encoding)
    pad = kernel // 2 if padding is None else padding
    return net.op(relax.op.nn.conv2d(x, weight, stride, pad, groups=channels), name)


def separable(net: SourceNet) -> Any:
    """Two of MobileNet's blocks: bits in, bits between, bits out."""
    x = net.quant(net.x, "data", 4, 0.25)
    for number, stride in enumerate((1, 2)):
        x = net.batch_norm(depthwise(net, x, f"dw{number}", stride=stride), f"bn{number}", 0.5)
        x = net.quant(net.op(relax.op.nn.relu(x), f"relu{number}"), f"mid{number}", 2, 0.5)
        x = net.quant(net.conv(x, f"pw{number}", 40, kernel=1), f"q{number}", 2, 0.5)
    return x


def from_pixels(net: SourceNet) -> Any:
    """On few channels, as they come, with a zero point, and its sums as they are."""
    data = net.quant(net.x, "data", 8, 0.125, signed=True)
    return depthwise(net, data, "dw", kernel=5, stride=2, bits=8)


def with_others(net: SourceNet) -> Any:
    """Of levels that a larger window reads, too, and a maximum pool."""
    data = net.quant(net.x, "data", 3, 0.25)
    wide = net.quant(net.conv(data, "conv", 8, kernel=5, bits=2, encoding="signed"), "a", 2, 1.0)
    own = net.quant(depthwise(net, data, "dw"), "b", 2, 0.5)
    pooled = net.op(relax.op.nn.max_pool2d(data, (2, 2), (1, 1), (0, 0, 1, 1)), "pool")
    last = net.quant(net.conv(pooled, "last", 8, kernel=1), "c", 2, 1.0)
    own = net.quant(net.conv(own, "mix", 8, kernel=1, bits=2, encoding="signed"), "d", 2, 1.0)
    return net.op(relax.op.add(net.op(relax.op.add(wide, last), "sum"), own), "all")


def of_rows(net: SourceNet) -> Any:
    """Without padding, of single bits by bipolar weights."""
    data = net.quant(net.x, "data", 1, 1.0)
    return net.quant(depthwise(net, data, "dw", bits=1, encoding="bipolar", padding=0), "q", 1, 1.0)


NETWORKS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "separable": (separable, (1, 33, 9, 11)),
    "from_pixels": (from_pixels, (1, 3, 14, 10)),
    "with_others": (with_others, (1, 6, 8, 8)),
    "of_rows": (of_rows, (1, 64, 5, 17)),
}


@pytest.mark.parametrize("hardware", PROFILES, ids=lambda item: item.name)
@pytest.mark.parametrize("name", NETWORKS)
def test_compiled(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    build, shape = NETWORKS[name]
    net = SourceNet(shape)
    model = net.model(build(net))
    assert_exact(model, random_inputs(model), hardware)


def test_channels_are_not_multiplied_by_each_other() -> None:
    net = SourceNet((1, 33, 9, 11))
    packed = stages(net.model(separable(net)), "icelake")["bitpacking"]
    calls = [b.value for f in packed.module.functions.values() for b in bindings_of(f)]
    windows = [
        attributes(c)["window"] for c in calls if is_op(c, operator_names.QNN_PACKED_DEPTHWISE)
    ]
    assert windows == [[3, 3], [3, 3]]


@pytest.mark.parametrize("wish", ["bitserial", "winograd"])
def test_there_is_one_way(wish: Any) -> None:
    net = SourceNet((1, 4, 6, 6))
    model = net.model(depthwise(net, net.quant(net.x, "data", 2, 0.5), "dw"))
    assert not legalizing.kernels_by_layer(
        model=stages(model)["quantizing"], options=algorithm("mac8"), candidates={}
    )
    with pytest.raises(StageError, match=f"cannot choose {wish}: it is a depthwise"):
        stages(model, options=algorithm(wish))
