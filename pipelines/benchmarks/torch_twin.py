"""The PyTorch twin of an ONNX QDQ network in 8 bits: PyTorch's own quantized operators.

They are those that PyTorch's static quantization lowers a network to: a convolution with its bias,
activation and requantization is one operator, and weights are packed for PyTorch's default engine.
On x86-64 that is its "x86", which takes oneDNN's kernels where the processor has AVX512-VNNI, and
FBGEMM's where it has not and for convolutions of more than 100 groups. Scales, levels and weights
are the file's own.

FBGEMM adds two products in 16 bits, without VNNI in all layers, with it in depthwise ones. There
sums saturate if activations and weights use all of their 8 bits, which is why PyTorch calibrates
activations to 7 bits for it. A file that does not heed this gets other outputs, in the same time.

A convolution of PyTorch pads both sides alike. Where ONNX pads them unevenly the twin by default
pads more on the lesser side, as PyTorch's own networks do: that is the network's work on windows
one pixel off, and FBGEMM has fast depthwise kernels for that padding alone. `exact` pads apart
instead, and computes the network's own values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from pipelines.benchmarks.qdq_pairs import Constant, NoTwinError, Pairs, ends_below_6
from pipelines.benchmarks.torch_windows import evened, pool_windows, rounded_up
from stages.importing.onnx.onnx_reader import Node, read
from stages.importing.sliding_windows import Windows, windows_of
from stages.numerics.quantization import Quantization

_OPS = torch.ops.quantized


@dataclass(frozen=True)
class Twin:
    """A module from float32 inputs to a tuple of float32 outputs."""

    module: Any
    is_exact: bool
    """Whether no window is off."""


def twin(source: bytes, exact: bool = False) -> Twin:
    """Return an ONNX QDQ file's twin; NoTwinError names the node that it cannot have."""
    with warnings.catch_warnings():
        # Quantized tensors, and TorchScript, are to leave PyTorch some day.
        warnings.simplefilter("ignore")
        return _Builder(source, exact).build()


def loaded(source: bytes, tensors: Sequence[Any]) -> tuple[Any, Any]:
    """Return what gives an ONNX QDQ file's outputs, and what takes the time of a user's network."""
    try:
        found = twin(source)
        module = _traced(found.module, tensors)
        return module if found.is_exact else twin(source, exact=True).module, module
    except NoTwinError as error:
        raise NoTwinError(f"it has no PyTorch twin: {error.message}") from error


def _traced(module: Any, tensors: Sequence[Any]) -> Any:
    """Return a module without Python between its operators: in TorchScript, frozen.

    The same operators called from Python were never faster.
    """
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(module.eval(), tuple(tensors), check_trace=False)
        return torch.jit.freeze(script)


@dataclass(frozen=True)
class _Value:
    """A tensor of the twin; `quantization` is None of floats."""

    node: fx.Node
    shape: tuple[int, ...]
    quantization: Quantization | None = None

    @property
    def extents(self) -> tuple[int, ...]:
        """Height and width."""
        return self.shape[2:]


class _Builder:
    """Names in the module are numbers: PyTorch evaluates it as Python that it writes itself."""

    def __init__(self, source: bytes, exact: bool) -> None:
        self._source, self._exact, self._is_shifted = read(source), exact, False
        self._pairs = Pairs(self._source)
        self._graph = fx.Graph()
        self._packed: dict[str, Any] = {}
        self._values: dict[str, _Value] = {}

    def build(self) -> Twin:
        for position, item in enumerate(self._source.inputs):
            if None in item.shape[1:] or item.dtype != "float32":
                raise NoTwinError(f"input '{item.name}' is {item.dtype} {list(item.shape)}")
            shape = tuple(extent or 1 for extent in item.shape)
            self._values[item.name] = _Value(self._graph.placeholder(f"input_{position}"), shape)
        for node in self._source.nodes:
            # Activations and the quantizers behind them belong to the operator before them.
            if node.op in _HANDLERS and not node.domain:
                _HANDLERS[node.op](self, node)
            elif node.op not in ("Relu", "Clip"):
                raise NoTwinError(f"'{node.layer}' is {node.kind}")
        outputs = (self._quantized(name) for name in self._source.outputs)
        self._graph.output(tuple(map(self._dequantized, outputs)))
        return Twin(fx.GraphModule(self._packed, self._graph), not self._is_shifted)

    # -- operators ----------------------------------------------------------------------------

    def _quantize(self, node: Node) -> None:
        x = self._values.get(node.inputs[0])
        if x is None or node.outputs[0] in self._values:
            return
        of = self._pairs.quantization(node)
        if x.quantization is None:
            self._give(node.outputs[0], self._requantized(x.node, of), x.shape, of)
        elif x.quantization == of:
            self._values[node.outputs[0]] = x
        else:
            raise NoTwinError(f"'{node.layer}' quantizes anew what is quantized")

    def _dequantize(self, node: Node) -> None:
        if self._pairs.is_of_constant(node):
            return
        x = self._quantized(node.inputs[0])
        if self._pairs.quantization(node) != x.quantization:
            raise NoTwinError(f"'{node.layer}' reads levels of another grid")
        self._values[node.outputs[0]] = x

    def _conv(self, node: Node) -> None:
        x, weight = self._quantized(node.inputs[0]), self._pairs.weight(node)
        outputs, _, *kernel = weight.values.shape
        windows = windows_of(node.attributes, kernel, x.extents)
        even, shape = evened(windows), windows.output_extents(x.extents)
        if not self._exact and windows != even and even.output_extents(x.extents) == shape:
            windows, self._is_shifted = even, True
        placed, padding = self._placed(x, windows, 0.0)
        groups = int(node.attributes.get("group", 1))
        packed = _OPS.conv2d_prepack(
            _weight(weight), self._bias(node), windows.strides, padding, windows.dilations, groups
        )
        operands = (placed, self._stored(packed))
        self._fused(node, _OPS.conv2d, _OPS.conv2d_relu, operands, (x.shape[0], outputs, *shape))

    def _gemm(self, node: Node) -> None:
        x, weight = self._quantized(node.inputs[0]), self._pairs.weight(node)
        wanted = {"transA": 0, "transB": 1, "alpha": 1.0, "beta": 1.0}
        if {**wanted, "transB": 0, **node.attributes} != wanted:
            raise NoTwinError(f"'{node.layer}' is no plain product with transposed weights")
        packed = _OPS.linear_prepack(_weight(weight), self._bias(node))
        flat = self._call(torch.flatten, x.node, 1)
        shape = (x.shape[0], len(weight.values))
        self._fused(node, _OPS.linear, _OPS.linear_relu, (flat, self._stored(packed)), shape)

    def _sum(self, node: Node) -> None:
        left, right = (self._quantized(name) for name in node.inputs)
        if left.shape != right.shape:
            raise NoTwinError(f"'{node.layer}' adds {list(left.shape)} and {list(right.shape)}")
        self._fused(node, _OPS.add, _OPS.add_relu, (left.node, right.node), left.shape)

    def _concat(self, node: Node) -> None:
        values = [self._quantized(name) for name in node.inputs]
        if node.attributes.get("axis") != 1:
            raise NoTwinError(f"'{node.layer}' does not concatenate channels")
        first = values[0].shape
        shape = (first[0], sum(each.shape[1] for each in values), *first[2:])
        self._fused(node, _OPS.cat, _OPS.cat_relu, ([each.node for each in values], 1), shape)

    def _max_pool(self, node: Node) -> None:
        x = self._quantized(node.inputs[0])
        windows = pool_windows(node, x.extents)
        shape = (*x.shape[:2], *windows.output_extents(x.extents))
        # Beyond the end nothing counts: windows that reach over it are what ceil_mode is for.
        begins = windows.pads[:2]
        is_over = windows.pads[2:] != begins and rounded_up(windows, x.extents) == shape[2:]
        scale, zero = (1.0, 0) if x.quantization is None else x.quantization.stated
        placed, padding = (x.node, begins) if is_over else self._placed(x, windows, -zero * scale)
        arguments = (windows.kernel, windows.strides, padding, windows.dilations, is_over)
        self._give(
            node.outputs[0], self._call(_OPS.max_pool2d, placed, *arguments), shape, x.quantization
        )

    def _average_pool(self, node: Node) -> None:
        x = self._quantized(node.inputs[0])
        windows = pool_windows(node, x.extents)
        if windows.pads[:2] != windows.pads[2:] or windows.dilations != (1, 1):
            raise NoTwinError(f"'{node.layer}' averages windows with uneven pads or dilations")
        counts_pads = bool(node.attributes.get("count_include_pad", 0))
        arguments = (windows.kernel, windows.strides, windows.pads[:2], False, counts_pads)
        shape = (*x.shape[:2], *windows.output_extents(x.extents))
        self._mean(node, torch.nn.functional.avg_pool2d, x, arguments, shape)

    def _global_average_pool(self, node: Node) -> None:
        x = self._quantized(node.inputs[0])
        pool = torch.nn.functional.adaptive_avg_pool2d
        self._mean(node, pool, x, ((1, 1),), (*x.shape[:2], 1, 1))

    def _mean(
        self, node: Node, op: Any, x: _Value, arguments: Sequence[Any], shape: tuple[int, ...]
    ) -> None:
        """PyTorch's means keep their input's grid; one with another grid is taken of floats."""
        quantizer, activation = self._pairs.behind(node)
        of = self._pairs.quantization(quantizer)
        if activation != "none":
            raise NoTwinError(f"'{node.layer}' has an activation behind it")
        if of == x.quantization:
            result = self._call(op, x.node, *arguments)
        else:
            result = self._requantized(self._call(op, self._dequantized(x), *arguments), of)
        self._give(quantizer.outputs[0], result, shape, of)

    def _flatten(self, node: Node) -> None:
        """Only dense layers tell what is flat from what is not, and they flatten it themselves."""
        if node.attributes.get("axis", 1) != 1:
            raise NoTwinError(f"'{node.layer}' flattens more than one picture")
        if node.inputs[0] in self._values:
            self._values[node.outputs[0]] = self._quantized(node.inputs[0])

    # -- tensors ------------------------------------------------------------------------------

    def _fused(
        self, node: Node, plain: Any, relu: Any, operands: Sequence[Any], shape: tuple[int, ...]
    ) -> None:
        """An operator with the activation and the quantizer behind it."""
        quantizer, activation = self._pairs.behind(node)
        of = self._pairs.quantization(quantizer)
        if activation == "relu6" and not ends_below_6(of):
            raise NoTwinError(f"'{node.layer}' has levels above 6 behind a ReLU6")
        op = plain if activation == "none" else relu
        self._give(quantizer.outputs[0], self._call(op, *operands, *of.stated), shape, of)

    def _placed(self, x: _Value, windows: Windows, border: float) -> tuple[fx.Node, Any]:
        """An operator's input and its padding, after an operator that pads what is uneven."""
        top, left, bottom, right = windows.pads
        if (top, left) == (bottom, right):
            return x.node, (top, left)
        pads = (left, right, top, bottom)
        return self._call(torch.nn.functional.pad, x.node, pads, "constant", border), (0, 0)

    def _bias(self, node: Node) -> Any:
        if len(node.inputs) < 3:
            return None
        bias = self._pairs.constant(node, 2)
        return torch.from_numpy((bias.values * bias.scale.astype(np.float64)).astype(np.float32))

    def _stored(self, packed: Any) -> fx.Node:
        name = f"packed_{len(self._packed)}"
        self._packed[name] = packed
        return self._graph.get_attr(name)

    def _call(self, op: Callable[..., Any], *arguments: Any) -> fx.Node:
        return self._graph.call_function(op, arguments)

    def _requantized(self, x: fx.Node, of: Quantization) -> fx.Node:
        return self._call(torch.quantize_per_tensor, x, *of.stated, torch.quint8)

    def _dequantized(self, x: _Value) -> fx.Node:
        return self._call(torch.dequantize, x.node)

    def _give(
        self, name: str, node: fx.Node, shape: tuple[int, ...], of: Quantization | None
    ) -> None:
        self._values[name] = _Value(node, shape, of)

    def _quantized(self, name: str) -> _Value:
        found = self._values.get(name)
        if found is None or found.quantization is None:
            raise NoTwinError(f"'{name}' is not quantized")
        return found


def _weight(stored: Constant) -> Any:
    values = torch.from_numpy(np.array(stored.values))
    scales = np.broadcast_to(stored.scale, len(values)).astype(np.float64)
    return torch._make_per_channel_quantized_tensor(
        values, torch.from_numpy(scales), torch.zeros(len(values), dtype=torch.int64), 0
    )


_HANDLERS: Mapping[str, Callable[[_Builder, Node], None]] = {
    "QuantizeLinear": _Builder._quantize,
    "DequantizeLinear": _Builder._dequantize,
    "Conv": _Builder._conv,
    "Gemm": _Builder._gemm,
    "Add": _Builder._sum,
    "Concat": _Builder._concat,
    "MaxPool": _Builder._max_pool,
    "AveragePool": _Builder._average_pool,
    "GlobalAveragePool": _Builder._global_average_pool,
    "Flatten": _Builder._flatten,
}
