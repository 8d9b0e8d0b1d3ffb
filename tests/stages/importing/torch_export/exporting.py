"""Exports modules with PyTorch for tests, and compares them with what is imported."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.reference_runtimes.runtime import Shape
from stages import importing
from stages.graph import interpret
from stages.importing import torch_export
from stages.kinds import Model
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]


def exported(module: Any, example: Any) -> tuple[Any, bytes]:
    """A module's exported program, and the file that PyTorch saves it as."""
    import torch

    program = torch.export.export(module.eval(), example)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return program, stream.getvalue()


def differences(program: Any, source: bytes, samples: list[Any]) -> tuple[Model, list[Array]]:
    """The imported model, and `found - expected` of its first output for each sample.

    What is expected comes from PyTorch's own program; our reading of the file, run by PyTorch's
    operators, has to give the same.
    """
    import torch

    from pipelines.reference_runtimes import pytorch

    model = torch_export.convert_file(source, ImportOptions())
    main, run = model.module["main"], program.module()
    names = [str(each.name) for each in main.params[: int(main.attrs["num_input"])]]
    shape = Shape(*importing.signature(model))
    peer = pytorch.load(source, shape)
    results = []
    for sample in samples:
        with torch.no_grad():
            expected = run(*sample)
        expected = (expected[0] if isinstance(expected, (tuple, list)) else expected).numpy()
        inputs = {name: value.numpy() for name, value in zip(names, sample, strict=True)}
        np.testing.assert_array_equal(peer(inputs)[shape.outputs[0]], expected)
        found = next(iter(interpret.run(model, inputs).values()))
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        results.append(found.astype(np.float64) - expected.astype(np.float64))
    return model, results


def quantize(x: Any, scale: float, zero_point: int = 0, dtype: str = "int8") -> Any:
    """The operator PT2E puts into a graph."""
    import torch

    limits = torch.iinfo(getattr(torch, dtype))
    return torch.ops.quantized_decomposed.quantize_per_tensor.default(
        x, scale, zero_point, limits.min, limits.max, getattr(torch, dtype)
    )


def dequantize(q: Any, scale: float, zero_point: int = 0, dtype: str = "int8") -> Any:
    """Its counterpart."""
    import torch

    limits = torch.iinfo(getattr(torch, dtype))
    return torch.ops.quantized_decomposed.dequantize_per_tensor.default(
        q, scale, zero_point, limits.min, limits.max, getattr(torch, dtype)
    )


def between(function: Callable[..., Any], operands: int) -> Any:
    """A module that computes `function` between dequantizing and quantizing.

    Scales are float32 numbers, as PT2E's observers give them.
    """
    import torch

    base: Any = torch.nn.Module
    small, medium, large = (float(np.float32(scale)) for scale in (0.015, 0.02, 0.03))

    class Between(base):
        def forward(self, *x: Any) -> Any:
            grids = [(medium, 3, "int8"), (small, 100, "uint8")]
            quantized = [
                dequantize(quantize(each, *grid), *grid)
                for each, grid in zip(x, grids[:operands], strict=True)
            ]
            return quantize(function(*quantized), large, -5)

    return Between()
