"""The oracle: the source graph as it came, executed node by node in float32 NumPy.

Sums of products are taken in float64 and rounded once, as no order of float32 ones is the graph's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from stages.errors import StageError
from stages.importing.onnx import source_arithmetic as arithmetic
from stages.importing.onnx.onnx_reader import SourceGraph, read
from stages.importing.onnx.oracle_quantizers import (
    BipolarQuant,
    IntQuant,
    MultiThreshold,
    Quant,
    Trunc,
)
from stages.importing.sliding_windows import Windows, image_windows

Array = np.ndarray[Any, Any]


class _Replacement(OpRun):
    """An ONNX operator of our own where onnx's reference is slow or wrong; it may defer to it."""

    op_domain = ""

    def _elsewhere(self, *args: Any, **attributes: Any) -> Any:
        reference = load_op("", type(self).__name__, self.run_params["opsets"][""])
        return reference(self.onnx_node, self.run_params)._run(*args, **attributes)


class BatchNormalization(_Replacement):
    """ONNX BatchNormalization at inference.

    onnx's reference of opsets 7 to 13 blends in the statistics of the batch when the node states
    a momentum, which the operator does only in training.
    """

    def _run(self, *tensors: Array, epsilon: float = 1e-5, **attributes: Any) -> tuple[Array, ...]:
        if attributes.get("training_mode"):
            return self._elsewhere(*tensors, epsilon=epsilon, **attributes)
        x, gamma, beta, mean, variance = tensors
        return (arithmetic.batch_norm(x, gamma, beta, mean, variance, epsilon),)


def opened(x: Array, attributes: Mapping[str, Any]) -> tuple[Array, Windows]:
    """Data [N, C, W] as [N, C, 1, W], and its windows with a height of 1; images as they are."""
    windows = image_windows(attributes, attributes["kernel_shape"], x.shape[2:])
    return x if x.ndim == 4 else x[:, :, np.newaxis], windows


class Conv(_Replacement):
    """ONNX Conv by matrix products."""

    def _run(
        self, x: Array, weight: Array, bias: Array | None = None, **attributes: Any
    ) -> tuple[Array]:
        if x.ndim not in (3, 4):
            return self._elsewhere(x, weight, bias, **attributes)
        attributes["kernel_shape"] = weight.shape[2:]
        image, windows = opened(x, attributes)
        spatial = weight.reshape(*weight.shape[:2], *windows.kernel)
        result = arithmetic.conv2d(image, spatial, windows, attributes.get("group") or 1)
        result = result.reshape(*result.shape[:2], *result.shape[-(x.ndim - 2) :])
        return (result if bias is None else result + bias.reshape(-1, *[1] * (x.ndim - 2)),)


class Gemm(_Replacement):
    """ONNX Gemm."""

    def _run(
        self, x: Array, weight: Array, bias: Array | None = None, **attributes: Any
    ) -> tuple[Array]:
        left, right = (
            matrix.T if attributes.get(name) else matrix
            for name, matrix in (("transA", x), ("transB", weight))
        )
        given = {name: value for name, value in attributes.items() if value is not None}
        result = np.float32(given.get("alpha", 1)) * arithmetic.matmul(left, right)
        if bias is None:
            return (result,)
        return (result + np.float32(given.get("beta", 1)) * bias,)


class MatMul(_Replacement):
    """ONNX MatMul; of shapes, which are integers, too."""

    def _run(self, left: Array, right: Array) -> tuple[Array]:
        if left.dtype != np.float32:
            return self._elsewhere(left, right)
        return (arithmetic.matmul(left, right),)


class MaxPool(_Replacement):
    """ONNX MaxPool without Python loops."""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        is_plain = x.ndim in (3, 4) and len(self.onnx_node.output) == 1
        if not is_plain or attributes.get("ceil_mode"):
            return self._elsewhere(x, **attributes)
        image, windows = opened(x, attributes)
        result = arithmetic.max_pool2d(image, windows)
        return (result.reshape(*result.shape[:2], *result.shape[-(x.ndim - 2) :]),)


class AveragePool(_Replacement):
    """ONNX AveragePool without Python loops."""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        if x.ndim not in (3, 4) or attributes.get("ceil_mode"):
            return self._elsewhere(x, **attributes)
        image, windows = opened(x, attributes)
        include = bool(attributes.get("count_include_pad"))
        result = arithmetic.average_pool2d(image, windows, include)
        return (result.reshape(*result.shape[:2], *result.shape[-(x.ndim - 2) :]),)


class Resize(_Replacement):
    """ONNX Resize by the nearest without Python loops."""

    def _run(self, x: Array, *rest: Any, **attributes: Any) -> tuple[Array]:
        given = {name: value for name, value in attributes.items() if value is not None}
        place = str(given.get("coordinate_transformation_mode", "half_pixel"))
        rule = str(given.get("nearest_mode", "round_prefer_floor"))
        is_known = place in arithmetic.PLACES and rule in arithmetic.NEAREST and len(rest) > 1
        if str(given.get("mode", "nearest")) != "nearest" or "axes" in given or not is_known:
            (result,) = self._elsewhere(x, *rest, **attributes)
            return (result,)
        scales, sizes = rest[1], rest[2] if len(rest) > 2 else None
        if sizes is not None and np.size(sizes):
            scales = np.asarray(sizes) / np.array(x.shape)
        else:
            sizes = np.floor(np.array(x.shape) * np.asarray(scales, np.float64))
        extents = [int(each) for each in sizes]
        return (arithmetic.resize_nearest(x, extents, list(scales), place, rule),)


OPERATORS = (
    Resize,
    Trunc,
    Quant,
    IntQuant,
    BipolarQuant,
    MultiThreshold,
    BatchNormalization,
    Conv,
    Gemm,
    MatMul,
    MaxPool,
    AveragePool,
)


class Oracle:
    """A source graph made ready to execute any number of times.

    Calling it maps inputs, by name and in the graph's own shapes, to the graph's outputs and to
    the tensors named in `also`.
    """

    def __init__(self, graph: SourceGraph, also: tuple[str, ...] = ()) -> None:
        self.graph = graph
        model = graph.model
        extra = [name for name in also if name not in graph.outputs]
        if extra:
            model = onnx.ModelProto()
            model.CopyFrom(graph.model)
            model.graph.output.extend(
                onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
                for name in extra
            )
        self.names = (*graph.outputs, *extra)
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=list(OPERATORS))
        except (NotImplementedError, RuntimeError, TypeError) as error:
            raise StageError(
                f"the source graph cannot be executed: {_first_line(error)}"
            ) from error

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Execute the graph on one set of inputs."""
        wanted = {item.name for item in self.graph.inputs}
        if set(inputs) != wanted:
            raise StageError(f"the graph takes the inputs {sorted(wanted)}, not {sorted(inputs)}")
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                results = self._evaluator.run(list(self.names), dict(inputs))
        except Exception as error:
            # onnx's reference operators raise whatever NumPy raises on shapes that do not fit.
            raise StageError(
                f"the source graph cannot be executed: {_first_line(error)}"
            ) from error
        return dict(zip(self.names, results, strict=True))


def evaluate(*, source: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Execute an ONNX file on `inputs` (source names, shapes and dtypes) exactly as it came."""
    return Oracle(read(source))(inputs)


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
