"""What the fuzzers start from: small files of every format, made here or real ones."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from pipelines.errors import UserError
from pipelines.recipe import model_files
from stages.importing.onnx.onnx_reader import QONNX
from stages.options import ImportOptions
from tests.stages.importing.graphs import graph, node

SHAPES: dict[str, tuple[int, ...]] = {"data": (1, 4, 6, 7)}
"""Of inputs whose shape a file leaves open, as MXNet's do."""
LARGEST = 70_000
"""Real files up to this size, in bytes, belong to the corpus."""


def onnx_files() -> Iterator[bytes]:
    """Yield float, QONNX and QDQ graphs."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    yield graph(
        [
            node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1]),
            node("Relu", ["c"], "r"),
            node("MaxPool", ["r"], "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("Reshape", ["p", "shape"]),
        ],
        {"w": weight, "shape": np.array([1, -1])},
        ["batch", 3, 8, 8],
        rank=2,
    )
    scale, zero, bits = (np.array(value, np.float32) for value in (0.5, 0, 4))
    quant = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    yield graph(
        [
            helper.make_node("Quant", ["x", "s", "z", "b"], ["q"], domain=QONNX, **quant),
            helper.make_node("BipolarQuant", ["w", "s"], ["v"], domain=QONNX),
            node("MatMul", ["q", "v"], "m"),
            node("Softmax", ["m"]),
        ],
        {"s": scale, "z": zero, "b": bits, "w": rng.normal(size=(6, 4)).astype(np.float32)},
        [1, 6],
    )
    step, middle = np.array(0.1, np.float32), np.array(3, np.int8)
    yield graph(
        [
            node("QuantizeLinear", ["x", "s", "z"], "q"),
            node("DequantizeLinear", ["q", "s", "z"], "d"),
            node("DequantizeLinear", ["w", "s", "z"], "v"),
            node("Gemm", ["d", "v"], "g", transB=1),
            node("QuantizeLinear", ["g", "s", "z"], "h"),
            node("DequantizeLinear", ["h", "s", "z"]),
        ],
        {"s": step, "z": middle, "w": rng.integers(-9, 9, (4, 6)).astype(np.int8)},
        [1, 6],
    )
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [1, 6])
    yield graph(
        [
            helper.make_node("Constant", [], ["k"], value=shape),
            helper.make_node("ConstantOfShape", ["k"], ["o"]),
            node("Concat", ["x", "o"], "c", axis=1),
            node("Transpose", ["c"], perm=[1, 0]),
        ],
        {},
        [1, 6],
    )


def tflite_files() -> Iterator[bytes]:
    """Yield a convolution with its pool, a sum, and a change of shape."""
    from tests.stages.importing.tflite_models import Operation, Tensor, build, constant, single

    rng = np.random.default_rng(0)
    x = Tensor((1, 6, 6, 2), "int8", 0.1, 3)
    weight = constant(
        rng.integers(-9, 9, (4, 3, 3, 2)), "int8", scale=[0.1] * 4, zero_point=[0] * 4
    )
    bias = constant(rng.integers(-99, 99, 4), "int32", scale=[0.01] * 4, zero_point=[0] * 4)
    y, z = Tensor((1, 6, 6, 4), "int8", 0.2, -4), Tensor((1, 3, 3, 4), "int8", 0.2, -4)
    conv = {"padding": 0, "stride_h": 1, "stride_w": 1}
    pool = {"padding": 1, "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    yield build(
        [
            Operation("CONV_2D", [x, weight, bias], [y], "Conv2DOptions", conv),
            Operation("AVERAGE_POOL_2D", [y], [z], "Pool2DOptions", pool),
        ],
        [x],
        [z],
    )
    a, b, c = (Tensor((2, 3), "int8", scale, 1) for scale in (0.1, 0.2, 0.3))
    yield single("ADD", [a, b], [c], "AddOptions")
    yield single("RESHAPE", [a, constant([3, 2], "int32")], [Tensor((3, 2), "int8", 0.1, 1)])
    shares = Tensor((2, 3), "int8", 1 / 256, -128)
    yield single("SOFTMAX", [a], [shares], "SoftmaxOptions", beta=1.0)


def mxnet_files() -> Iterator[bytes]:
    """Yield the networks that MXNet itself wrote, where the tests have them."""
    mxnet = pytest.importorskip("stages.importing.mxnet", reason="this version reads no MXNet")
    recorded = Path(__file__).parents[1] / "mxnet" / "recorded.npz"
    cases = np.load(recorded)
    for name in sorted({entry.rpartition("/")[0] for entry in cases.files}):
        if cases[f"{name}/data"].shape != SHAPES["data"]:
            continue
        symbol, params = (cases[f"{name}/{part}"].tobytes() for part in ("symbol", "params"))
        yield mxnet.bundle(symbol, params)


def pt2_files() -> Iterator[bytes]:
    """Yield a small program that torch itself exported."""
    torch = pytest.importorskip("torch", reason="torch writes the files")

    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(2, 3, 3, padding=1)

        def forward(self, x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return torch.relu(self.conv(x)).mean(dim=(2, 3))

    stream = io.BytesIO()
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 2, 4, 4),)), stream)
    yield stream.getvalue()


MADE: dict[str, Callable[[], Iterator[bytes]]] = {
    ".onnx": onnx_files,
    ".tflite": tflite_files,
    "-symbol.json": mxnet_files,
    ".pt2": pt2_files,
}


def options(ending: str) -> ImportOptions:
    """What the files of a format need to be told."""
    return ImportOptions(inputs=dict(SHAPES) if ending.startswith("-") else {})


def real_files(ending: str) -> Iterator[bytes]:
    """Yield the small real models of a format; none where BITKILN_REALDATA is unset."""
    root = os.environ.get("BITKILN_REALDATA")
    for path in sorted(Path(root).rglob(f"*{ending}")) if root else []:
        if path.stat().st_size > LARGEST and not ending.startswith("-"):
            continue
        try:
            yield model_files.read(path)
        except (UserError, ImportError):
            continue  # an MXNet symbol whose parameters are not clear


def write(folder: Path, ending: str, *, real: bool) -> int:
    """Write the corpus of a format, one file each; return how many files it has."""
    sources = [*MADE[ending](), *(real_files(ending) if real else ())]
    (folder / "shapes.json").write_text(json.dumps(options(ending).inputs))
    for index, source in enumerate(sources):
        (folder / f"{index:03}.model").write_bytes(source)
    return len(sources)
