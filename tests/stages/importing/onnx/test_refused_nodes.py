"""Nodes that cannot be imported: each is told in one line, with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from stages.importing.onnx.onnx_reader import QONNX
from tests.stages.importing.graphs import graph, node
from tests.stages.importing.onnx.test_onnx_importer import (
    IMAGE,
    qonnx,
    quant,
    refusal,
)
from tests.stages.importing.onnx.test_oracle import NORM, W

BAD: dict[str, tuple[onnx.NodeProto, dict[str, Any], str]] = {
    "weights": (
        node("Conv", ["x", "w"]),
        {"w": W[:, :4]},
        "has weights of shape [4, 4, 3, 3] and 1 groups for data of shape [1, 6, 9, 11]",
    ),
    "kernel": (
        node("Conv", ["x", "w"]),
        {"w": np.zeros((4, 6, 30, 3), np.float32)},
        "has a 30x3 kernel larger than its padded input",
    ),
    "pads": (
        node("Conv", ["x", "w"], pads=[-1, 0, 0, 0]),
        {"w": W},
        "has pads [-1, 0, 0, 0]; four values of at least 0 are accepted",
    ),
    "huge": (
        node("Conv", ["x", "w"], pads=[1 << 20, 1 << 20, 0, 0]),
        {"w": W},
        "and the whole at most 268,435,456 elements",
    ),
    "absurd": (
        node("Conv", ["x", "w"], strides=[1 << 40, 1]),
        {"w": W},
        "has a kernel, stride, dilation or pad above 1,048,576",
    ),
    "bits": (*quant(2.5), "has the bit width 2.5; 1 to 32 are accepted"),
    "rounding": (*quant(rounding_mode="SIDEWAYS"), "rounds by 'SIDEWAYS'; CEIL, DOWN, FLOOR"),
    "scale": (
        *qonnx("BipolarQuant", {"s": np.array(-1, np.float32)}),
        "has the scale 's', which is not positive everywhere",
    ),
    "nan": (
        node("Add", ["x", "w"]),
        {"w": np.array(np.nan, np.float32)},
        "reads 'w', which holds NaN",
    ),
    "dtype": (
        node("Reshape", ["x", "x"]),
        {},
        "needs 'x' to be constant; the graph computes it",
    ),
    "variance": (
        node("BatchNormalization", ["x", "g", "b", "m", "v"]),
        {**NORM, "v": -NORM["v"]},
        "has a variance that is not positive",
    ),
    "thresholds": (
        *qonnx("MultiThreshold", {"t": np.zeros((4, 3), np.float32)}, out_dtype="UINT2"),
        "has thresholds of shape [4, 3] for 6 channels",
    ),
    "broadcast": (
        node("Add", ["x", "w"]),
        {"w": np.zeros((5, 1, 1), np.float32)},
        "has operands float32 [1, 6, 9, 11] and float32 [5, 1, 1], which do not fit together",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_a_node_is_one_line(case: str) -> None:
    operator, constants, wanted = BAD[case]
    message = refusal(graph([operator], constants, IMAGE.shape, domains=[QONNX]))
    assert wanted in message
    assert message.count("\n") == 1


def test_everything_unsupported_is_told_at_once() -> None:
    nodes = [
        node("Mish", ["x"], "a"),
        node("BipolarQuant", ["x", "one"], "q", domain=QONNX),
        node("ArgMax", ["a"], "i"),
        node("DepthToSpace", ["a"], "c", blocksize=2),
        node("Mish", ["c"], "d"),
        node("Gather", ["d", "i"]),
    ]
    one = {"one": np.ones((), np.float32)}
    assert refusal(graph([nodes[0], *nodes[2:]], {}, IMAGE.shape, opset=18)) == (
        "these operators cannot be imported:\n"
        "  Mish (2x: Mish_a, Mish_d): there is no converter for it"
    )
    last = node("Add", ["y", "q"], "z")
    assert refusal(graph([*nodes, last], one, IMAGE.shape, output="z", opset=18)) == (
        "these operators cannot be imported:\n"
        "  Mish (2x: Mish_a, Mish_d): there is no converter for it\n"
        "  ArgMax (1x: ArgMax_i): it is supported only as the last operator behind others, "
        "where it is left to the caller\n"
        "  Gather (1x: Gather_y): there is no converter for it"
    )
    pool = node("MaxPool", ["q"], "b", kernel_shape=[2, 2], ceil_mode=1)
    assert "MaxPool (1x: MaxPool_b): rounds its output size up (ceil_mode)" in refusal(
        graph([nodes[1], pool, node("Relu", ["b"])], one, IMAGE.shape)
    )
