"""FINN's graphs, and quantizers over float inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from stages.dialect.calls import dtype_of
from stages.numerics import qonnx_operators
from tests.stages.networks import SourceNet
from tests.stages.test_quantizing_chains import (
    CHANNELS,
    Quantizer,
    assert_exact,
    quantize,
)


@pytest.mark.parametrize("datatype", ["UINT8", "INT8"])
def test_finn_graphs(datatype: str) -> None:
    """Integer weights without a quantizer, and an input annotated as integers."""
    net = SourceNet((1, 12))
    first = net.constant("w1", net.rng.choice([-1.0, 1.0], (12, 9)))
    hidden = net.op(relax.op.matmul(net.x, first), "fc1")
    thresholds = np.sort(net.rng.integers(-400, 400, (9, 3)), axis=1)
    hidden = net.op(
        qonnx_operators.multi_threshold(
            hidden, net.constant("t", thresholds), out_scale=1.0, out_bias=-1.0, channel_axis=1
        ),
        "act",
    )
    second = net.constant("w2", net.rng.integers(-1, 2, (9, 4)))
    output = net.op(relax.op.matmul(hidden, second), "fc2")
    model = net.model(output)
    main = model.module["main"].with_attr("finn_datatypes", {"x": datatype})
    module = type(model.module)({relax.GlobalVar("main"): main})
    low = 0 if datatype == "UINT8" else -128
    x = np.random.default_rng(0).integers(low, low + 256, (1, 12)).astype(np.float32)
    result = assert_exact(replace(model, module=module), {"x": x})
    dtypes = {str(p.name): dtype_of(p.ty) for p in result.module["main"].params}
    assert dtypes["fc1.weight"] == "uint1"
    assert dtypes["fc2.weight"] == "int2"


def test_a_quantizer_over_a_float_input_keeps_its_arithmetic() -> None:
    """Steps before the first quantizer run in float32, per channel, and are not folded."""
    net = SourceNet((1, 3, 6, 6))
    value = net.batch_norm(net.x, "norm", 1.7)
    value = net.op(relax.op.nn.max_pool2d(net.op(relax.op.nn.relu(value), "relu"), 2, 2), "pool")
    # A falling channel forbids pooling; this network has none.
    model = net.model(net.quant(value, "q", 8, 0.1))
    model.params["norm.gamma"][:] = np.abs(model.params["norm.gamma"])
    assert_exact(model)


@pytest.mark.parametrize("kind", ["bipolar", "thresholds"])
def test_other_quantizers_over_a_float_input(kind: str) -> None:
    net = SourceNet((1, CHANNELS, 6, 6))
    thresholds = np.sort(net.rng.normal(size=(CHANNELS, 3)))
    value = quantize(net, net.x, Quantizer(kind, 3, 1.0, thresholds=thresholds))
    assert_exact(net.model(net.conv(value, "conv", 4), value))
