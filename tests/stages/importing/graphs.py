"""Small ONNX graphs for the tests, and the executors of others to compare with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from stages.layer_options import Encoding, LayerOverride, TensorQuantization
from stages.options import ZooOptions

Array = np.ndarray[Any, Any]

TFC = "fastmachinelearning+qonnx_model_zoo/models/MNIST/Brevitas_FINN_TFC/TFC"
FINN = "Xilinx+finn/src/finn/qnn-data/build_dataflow"


def real_data(path: str) -> Path:
    """A file of the real data; skips the test where there is none."""
    root = os.environ.get("BITKILN_REALDATA")
    if not root:
        pytest.skip("BITKILN_REALDATA is not set")
    found = Path(root) / path
    if not found.exists():
        pytest.skip(f"the real data has no {path}")
    return found


def graph(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    shape: Sequence[int | str | None],
    *,
    output: str = "y",
    rank: int | None = None,
    opset: int = 13,
    dtype: int = TensorProto.FLOAT,
    domains: Sequence[str] = (),
) -> bytes:
    """The bytes of a graph from input `x` to `output`, of the input's rank unless `rank` says.

    `domains` are those of operators that it says it is written with, beside ONNX's own.
    """
    extents = [f"d{axis}" for axis in range(len(shape) if rank is None else rank)]
    model = helper.make_model(
        helper.make_graph(
            list(nodes),
            "test",
            [helper.make_tensor_value_info("x", dtype, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, extents)],
            [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[
            helper.make_opsetid("", opset),
            *(helper.make_opsetid(name, 1) for name in domains),
        ],
        ir_version=8,
    )
    return bytes(model.SerializeToString())


def node(op: str, inputs: Sequence[str], output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], name=f"{op}_{output}", **attributes)


def quantization(bits: int, encoding: Encoding) -> TensorQuantization:
    return TensorQuantization(bits=bits, encoding=encoding)


def block(
    activations: TensorQuantization,
    weights: TensorQuantization,
    *,
    layers: tuple[LayerOverride, ...] = (),
    seed: int = 0,
    image_size: int = 16,
) -> ZooOptions:
    return ZooOptions(
        name="residual_block",
        activations=activations,
        weights=weights,
        layers=layers,
        seed=seed,
        image_size=image_size,
    )


def qonnx_executor(
    source: bytes, *, full: bool = False, **shapes: list[int]
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The executor of the qonnx package; `full` gives every tensor, `shapes` resizes inputs."""
    execution = pytest.importorskip("qonnx.core.onnx_exec")
    wrapper = pytest.importorskip("qonnx.core.modelwrapper")
    infer = pytest.importorskip("qonnx.transformation.infer_shapes")
    make = execution.qonnx_make_model

    def older(*args: Any, **kwargs: Any) -> Any:
        """qonnx writes the newest IR version, which onnxruntime may not read yet."""
        model = make(*args, **kwargs)
        model.ir_version = 8
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "qonnx_make_model", older)
        model = wrapper.ModelWrapper(onnx.load_model_from_string(source))
        for name, shape in shapes.items():
            model.set_tensor_shape(name, shape)
        model = model.transform(infer.InferShapes())

    def execute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execution, "qonnx_make_model", older)
            results = execution.execute_onnx(model, dict(inputs), return_full_exec_context=full)
        return {str(name): np.asarray(value) for name, value in results.items()}

    return execute


def execute_qonnx(source: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the executor of the qonnx package computes."""
    return qonnx_executor(source)(inputs)
