"""A float network that reads digits: fixed random filters, and a classifier fitted to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from recipes import models
from stages.importing import evaluate
from stages.kinds import Array, Golden

FITTED = 240
"""How many of the 360 digits the classifier is fitted to; the others judge it."""


def digits() -> tuple[Array, Array]:
    """Images float32 [360, 1, 8, 8] in 0 .. 1, and labels."""
    data = np.load(Path(models.__path__[0]) / "digits_test.npz")
    return data["images"], data["labels"]


def calibration(count: int = 64, name: str = "x") -> Golden:
    images, _ = digits()
    return Golden(inputs={name: images[:count, np.newaxis]}, outputs={})


def network() -> bytes:
    """Conv, batch norm, ReLU6; depthwise and pointwise conv; a residual; pool; classifier."""
    rng = np.random.default_rng(7)
    constants: dict[str, Array] = {}
    nodes = []

    def tensor(name: str, value: Array) -> str:
        constants[name] = value.astype(np.float32)
        return name

    def add(op: str, name: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def conv(name: str, x: str, shape: tuple[int, ...], **attributes: Any) -> str:
        fan_in = np.prod(shape[1:])
        values = rng.normal(0, np.sqrt(2 / fan_in), shape)
        bias = rng.normal(0, 0.1, shape[0])
        inputs = (x, tensor(f"{name}.w", values), tensor(f"{name}.b", bias))
        pads = [shape[2] // 2] * 4
        return add("Conv", name, *inputs, pads=pads, kernel_shape=list(shape[2:]), **attributes)

    x = conv("conv1", "x", (16, 1, 3, 3))
    statistics = [rng.uniform(0.5, 2, 16), rng.normal(0, 0.3, 16), rng.normal(0, 0.2, 16),
                  rng.uniform(0.1, 1, 16)]  # fmt: skip
    names = [tensor(f"bn.{i}", value) for i, value in enumerate(statistics)]
    x = add("BatchNormalization", "bn", x, *names, epsilon=1e-3)
    bounds = tensor("zero", np.array(0)), tensor("six", np.array(6))
    entry = add("Clip", "relu6", x, *bounds)
    x = conv("depthwise", entry, (16, 1, 3, 3), group=16)
    x = add("Relu", "relu", x)
    x = conv("pointwise", x, (16, 16, 1, 1))
    x = add("Relu", "relu2", add("Add", "residual", x, entry))
    x = conv("conv2", x, (48, 16, 3, 3), strides=[2, 2])
    x = add("MaxPool", "pool", add("Relu", "relu3", x), kernel_shape=[2, 2], strides=[2, 2])
    add("Flatten", "flatten", x, axis=1)
    nodes[-1].output[0] = "features"

    def file(outputs: list[str], shape: list[int]) -> bytes:
        model = helper.make_model(
            helper.make_graph(
                nodes, "digits",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 8, 8])],
                [helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, shape)],
                [numpy_helper.from_array(value, name) for name, value in constants.items()],
            ),
            opset_imports=[helper.make_opsetid("", 13)],
            ir_version=8,
        )  # fmt: skip
        return bytes(model.SerializeToString())

    images, labels = digits()
    source = file(["features"], [1, 192])
    rows = [evaluate(source=source, inputs={"x": image[np.newaxis]})["features"][0]
            for image in images[:FITTED]]  # fmt: skip
    features = np.hstack([np.stack(rows), np.ones((FITTED, 1))]).astype(np.float64)
    wanted = np.eye(10)[labels[:FITTED]]
    gram = features.T @ features + 3 * np.eye(features.shape[1])
    fitted = np.linalg.solve(gram, features.T @ wanted)
    gemm = ("features", tensor("fc.w", fitted[:-1].T), tensor("fc.b", fitted[-1]))
    nodes.append(helper.make_node("Gemm", list(gemm), ["out"], name="fc", transB=1))
    return file(["out"], [1, 10])
