"""Every operator between dequantizing and quantizing: at most one step from PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from stages.graph import interpret

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # defines the quantizers

from tests.stages.importing.torch_export.exporting import (  # noqa: E402
    between,
    differences,
    exported,
)

pytestmark = pytest.mark.slow

F: Any = torch.nn.functional
Module: Any = torch.nn.Module
IMAGE = (2, 4, 9, 8)


@cache
def _weights(*shape: int) -> Any:
    """The same tensor whenever it is asked for: exporting keeps it as a constant."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9)) * 0.3


@cache
def _stored(*shape: int) -> tuple[Any, Any, Any]:
    weight = _weights(*shape)
    scale = weight.flatten(1).abs().amax(1) / 127
    zero = torch.zeros(len(scale), dtype=torch.int64)
    op = torch.ops.quantized_decomposed.quantize_per_channel.default
    return op(weight, scale, zero, 0, -127, 127, torch.int8), scale, zero


def _quantized(*shape: int) -> Any:
    """Weights as PT2E stores them: int8, a scale for every output channel."""
    q, scale, zero = _stored(*shape)
    op = torch.ops.quantized_decomposed.dequantize_per_channel.default
    return op(q, scale, zero, 0, -127, 127, torch.int8)


@cache
def _variance() -> Any:
    return _weights(4).abs() + 0.5


OPERATORS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "conv2d": (lambda x: F.conv2d(x, _weights(6, 4, 3, 3), _weights(6)), (IMAGE,)),
    "conv2d strides, padding, dilation": (
        lambda x: F.conv2d(x, _weights(6, 4, 3, 3), None, (2, 1), (1, 2), (1, 2)), (IMAGE,),
    ),
    "conv2d depthwise": (
        lambda x: F.conv2d(x, _weights(8, 1, 3, 3), padding=1, groups=4), (IMAGE,),
    ),
    "conv2d groups": (lambda x: F.conv2d(x, _weights(6, 2, 3, 3), _weights(6), groups=2), (IMAGE,)),
    "conv2d same": (lambda x: F.conv2d(x, _weights(3, 4, 2, 3), padding="same"), (IMAGE,)),
    "conv2d quantized weights": (
        lambda x: F.conv2d(x, _quantized(6, 4, 3, 3), _weights(6), padding=1), (IMAGE,),
    ),
    "convolution": (
        lambda x: torch.ops.aten.convolution.default(
            x, _weights(6, 4, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        ), (IMAGE,),
    ),
    "linear": (lambda x: F.linear(x, _weights(5, 12), _weights(5)), ((3, 12),)),
    "linear quantized weights": (lambda x: F.linear(x, _quantized(5, 12)), ((3, 12),)),
    "linear of three axes": (lambda x: F.linear(x, _weights(5, 12), _weights(5)), ((2, 3, 12),)),
    "addmm": (lambda x: torch.addmm(_weights(5), x, _weights(12, 5)), ((3, 12),)),
    "mm": (lambda x: torch.mm(x, _weights(12, 5)), ((3, 12),)),
    "matmul": (torch.matmul, ((2, 3, 7), (2, 7, 4))),
    "bmm": (torch.bmm, ((2, 3, 7), (2, 7, 4))),
    "relu": (F.relu, (IMAGE,)),
    "relu_": (lambda x: F.relu(x + 0, inplace=True), (IMAGE,)),
    "hardtanh": (lambda x: F.hardtanh(x, -0.3, 0.7), (IMAGE,)),
    "relu6": (F.relu6, (IMAGE,)),
    "clamp": (lambda x: torch.clamp(x, min=-0.4), (IMAGE,)),
    "add": (torch.add, (IMAGE, IMAGE)),
    "add alpha": (lambda x, y: torch.add(x, y, alpha=0.4), (IMAGE, IMAGE)),
    "add number": (lambda x: x + 0.3, (IMAGE,)),
    "sub": (torch.sub, (IMAGE, IMAGE)),
    "mul": (torch.mul, (IMAGE, (4, 1, 1))),
    "div": (lambda x: x / 1.7, (IMAGE,)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), 1), (IMAGE,)),
    "avg_pool2d padding excluded": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,),
    ),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
    "adaptive_avg_pool2d 3x2": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (IMAGE,)),
    "mean": (lambda x: x.mean([2, 3]), (IMAGE,)),
    "mean of all": (lambda x: x.mean(), (IMAGE,)),
    "view": (lambda x: x.view(2, -1), (IMAGE,)),
    "flatten": (lambda x: x.flatten(1, 2), (IMAGE,)),
    "permute": (lambda x: x.permute(0, 2, 3, 1), (IMAGE,)),
    "transpose": (lambda x: x.transpose(1, 3).contiguous(), (IMAGE,)),
    "squeeze, unsqueeze": (lambda x: x[:, 1:2].squeeze(1).unsqueeze(-1), (IMAGE,)),
    "cat": (lambda x, y: torch.cat([x, y], 1), (IMAGE, IMAGE)),
    "slice": (lambda x: x[:, 1:3, ::2, -5:-1], (IMAGE,)),
    "select": (lambda x: x[:, 2], (IMAGE,)),
    "split": (lambda x: torch.split(x, 3, 1)[1], (IMAGE,)),
    "split sizes": (lambda x: torch.split(x, [1, 3], 1)[1], (IMAGE,)),
    "chunk": (lambda x: torch.chunk(x, 2, 1)[0], (IMAGE,)),
    "expand": (lambda x: x[:, :1].expand(-1, 5, -1, -1), (IMAGE,)),
    "batch_norm": (
        lambda x: F.batch_norm(x, _weights(4), _variance(), _weights(4), _weights(4)),
        (IMAGE,),
    ),
    "softmax": (lambda x: F.softmax(x, -1), (IMAGE,)),
    "softmax of channels": (lambda x: F.softmax(x, 1), (IMAGE,)),
    "sigmoid": (torch.sigmoid, (IMAGE,)),
    "tanh": (torch.tanh, (IMAGE,)),
    "hardswish": (F.hardswish, (IMAGE,)),
    "hardsigmoid": (F.hardsigmoid, (IMAGE,)),
    "silu": (F.silu, (IMAGE,)),
    "gelu": (F.gelu, (IMAGE,)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), (IMAGE,)),
    "layer_norm": (lambda x: F.layer_norm(x, (9, 8), _weights(9, 8), _weights(9, 8)), (IMAGE,)),
    "dropout": (lambda x: F.dropout(x, 0.5, False), (IMAGE,)),
    "clone": (lambda x: x.clone(), (IMAGE,)),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_one_step_from_torch_between_quantizers(name: str) -> None:
    function, shapes = OPERATORS[name]
    module = between(function, len(shapes))
    samples = [_draw(shapes, seed) for seed in range(3)]
    module(*samples[0])  # makes the weights
    program, source = exported(module, samples[0])
    _, found = differences(program, source, samples)
    assert max(np.abs(each).max() for each in found) <= 1
    total = sum(each.size for each in found)
    assert sum(np.count_nonzero(each) for each in found) <= max(2, total // 500)


@pytest.mark.parametrize("name", OPERATORS)
def test_float_operators_are_torchs(name: str) -> None:
    function, shapes = OPERATORS[name]

    class Bare(Module):
        def forward(self, *x: Any) -> Any:
            return function(*x)

    samples = [_draw(shapes, 5)]
    function(*samples[0])  # makes the weights
    program, source = exported(Bare(), samples[0])
    _, found = differences(program, source, samples)
    assert np.abs(found[0]).max() <= 2e-6


def _draw(shapes: tuple[tuple[int, ...], ...], seed: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator) for shape in shapes)


def test_quantizers_are_bit_exact() -> None:
    """Ties, limits, and values beyond them; every value of both types back."""
    op = torch.ops.quantized_decomposed

    class Round(Module):
        def forward(self, x: Any) -> Any:
            q = op.quantize_per_tensor.default(x, 0.1, 3, -100, 90, torch.int8)
            scale, zero_point = torch.tensor([0.07, 0.11, 0.013]), torch.tensor([0, 5, -7])
            per_channel = op.quantize_per_channel.default(
                x, scale, zero_point, 1, -128, 127, torch.int8
            )
            back = op.dequantize_per_channel.default(
                per_channel, scale, zero_point, 1, -128, 127, torch.int8
            )
            return torch.cat(
                [op.dequantize_per_tensor.default(q, 0.1, 3, -100, 90, torch.int8), back]
            )

    ties = torch.arange(-130, 131, dtype=torch.float32) * 0.05
    x = torch.stack([ties, ties * 3, ties * 0.01], 0).unsqueeze(0)
    program, source = exported(Round(), (x,))
    _, found = differences(program, source, [(x,)])
    assert not found[0].any()


def test_dynamic_quantization_is_bit_exact_up_to_the_sums() -> None:
    op = torch.ops.quantized_decomposed
    limits = (-128, 127)

    class Dynamic(Module):
        def forward(self, x: Any) -> Any:
            scale, zero_point = op.choose_qparams.tensor(x, *limits, 1e-5, torch.int8)
            q = op.quantize_per_tensor.tensor(x, scale, zero_point, *limits, torch.int8)
            back = op.dequantize_per_tensor.tensor(q, scale, zero_point, *limits, torch.int8)
            return back, F.linear(back, _quantized(5, 12), _weights(5))

    _quantized(5, 12), _weights(5)
    samples = [
        (torch.randn(3, 12, generator=torch.Generator().manual_seed(seed)) * 3**seed + seed,)
        for seed in range(4)
    ]
    program, source = exported(Dynamic(), samples[0])
    model, found = differences(program, source, samples)
    assert not any(each.any() for each in found)
    for sample in samples:
        expected = program.module()(*sample)[1].detach().numpy()
        result = list(interpret.run(model, {"x": sample[0].numpy()}).values())[1]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_torchao_affine_quantizers_are_bit_exact() -> None:
    pytest.importorskip("torchao")
    import torchao.quantization.quant_primitives  # noqa: F401

    op = torch.ops.torchao
    scale = torch.rand(6, 4, generator=torch.Generator().manual_seed(3)) * 0.05 + 0.01
    zero, one_scale, zero_point = torch.zeros(6, 4, dtype=torch.int64), scale[0, 0], torch.tensor(5)

    class Blocks(Module):
        def forward(self, x: Any) -> Any:
            q = op.quantize_affine.default(x, [1, 8], scale, zero, torch.int8, -8, 7)
            blocks = op.dequantize_affine.default(q, [1, 8], scale, zero, torch.int8, -8, 7)
            one = op.quantize_affine.default(x, [6, 32], one_scale, zero_point, torch.uint8, 0, 255)
            return blocks + op.dequantize_affine.default(
                one, [6, 32], one_scale, zero_point, torch.uint8, 0, 255
            )

    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(4))
    program, source = exported(Blocks(), (x,))
    _, found = differences(program, source, [(x,)])
    assert not found[0].any()


def test_what_only_checks_is_left_out() -> None:
    """A cast is exported with a check of its operand's type, which nothing converts or calls."""

    class Cast(Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x.to(torch.float32) * 0.5)

    x = torch.arange(-6.0, 6.0).reshape(3, 4)
    program, source = exported(Cast(), (x,))
    assert any("_assert" in str(node.target) for node in program.graph.nodes)
    _, (found,) = differences(program, source, [(x,)])
    assert not found.any()
