"""Small networks quantized by PT2E: at most one step from PyTorch at every output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")

from stages.errors import StageError  # noqa: E402
from stages.importing import torch_export  # noqa: E402
from stages.options import ImportOptions  # noqa: E402
from tests.stages.importing.torch_export.exporting import (  # noqa: E402
    differences,
    exported,
    quantize,
)

pytestmark = pytest.mark.slow
nn: Any = torch.nn
Module: Any = nn.Module


class Inverted(Module):
    """MobileNet v2's block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * 4
        self.residual = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.residual else self.body(x)


class Residual(Module):
    """ResNet's basic block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.side: Any = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.side = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.body(x) + self.side(x))


class Classifier(Module):
    def __init__(self, *blocks: Any, stem: Any, width: int) -> None:
        super().__init__()
        self.stem, self.blocks = stem, nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(width, 10))

    def forward(self, x: Any) -> Any:
        features = self.blocks(self.stem(x))
        return self.head(nn.functional.adaptive_avg_pool2d(features, 1).flatten(1))


def mobilenet() -> Any:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    blocks = (Inverted(16, 16, 1), Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 32, 2))
    return Classifier(*blocks, stem=stem, width=32)


def resnet() -> Any:
    stem = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    blocks = (Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 32, 1))
    return Classifier(*blocks, stem=stem, width=32)


def _quantizer(name: str) -> Any:
    if name == "x86":
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        return x86.X86InductorQuantizer().set_global(
            x86.get_default_x86_inductor_quantization_config()
        )
    xnnpack = pytest.importorskip("torchao.testing.pt2e._xnnpack_quantizer")
    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    return xnnpack.XNNPACKQuantizer().set_global(config)


@pytest.mark.parametrize("quantizer", ["x86", "xnnpack"])
@pytest.mark.parametrize("make", [mobilenet, resnet])
def test_networks_are_one_step_from_torch(make: Any, quantizer: str) -> None:
    from torchao.quantization.pt2e import quantize_pt2e

    torch.manual_seed(0)
    network, shape = make(), (2, 3, 48, 48)
    network.train()
    with torch.no_grad():
        for _ in range(8):  # running statistics as a trained network has them
            network(torch.randn(shape))
    network.eval()
    samples = [(torch.randn(shape),) for _ in range(4)]
    observed = quantize_pt2e.prepare_pt2e(
        torch.export.export(network, samples[0]).module(), _quantizer(quantizer)
    )
    for _ in range(4):
        observed(torch.randn(shape))
    quantized = quantize_pt2e.convert_pt2e(observed)
    with torch.no_grad():
        largest = max(float(quantized(*sample).abs().max()) for sample in samples)
    program, source = _exported(quantized, float(np.float32(largest / 127)), samples[0])
    _, found = differences(program, source, samples)
    assert max(np.abs(each).max() for each in found) <= 1
    different = sum(np.count_nonzero(each) for each in found)
    assert different <= 4, f"{different} of {sum(each.size for each in found)} outputs differ"


def _exported(module: Any, scale: float, example: Any) -> tuple[Any, bytes]:
    """A quantized module whose result is quantized too: what differs then counts in steps."""

    class Wrapped(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any) -> Any:
            return quantize(self.inner(x), scale)

        def eval(self) -> Any:  # PT2E's modules refuse to change their mode
            return self

    return exported(Wrapped(), example)


def test_torchaos_packed_weights_are_named_and_accepted_once_they_are_unwrapped() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    quantization.quantize_(model, quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4))
    _, source = exported(model, (torch.randn(1, 64),))
    with pytest.raises(StageError, match=r"packed tensor subclass.*unwrap_tensor_subclass\(model"):
        torch_export.convert_file(source, ImportOptions())
    pytest.importorskip("torchao.utils").unwrap_tensor_subclass(model)
    program, source = exported(model, (torch.randn(1, 64),))
    _, found = differences(program, source, [(torch.randn(1, 64),) for _ in range(4)])
    assert max(np.abs(each).max() for each in found) < 1e-6
