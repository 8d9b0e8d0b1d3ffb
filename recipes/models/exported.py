"""Writes two networks as today's exporters and quantizers do, to be benchmarked.

`python -m recipes.models.exported FOLDER` writes `yolo_like.onnx`, shaped as YOLOv8n (Jocher et
al. 2023: C2f blocks of convolutions and SiLU, SPPF, a head that decodes boxes by softmax), and
`deit_like.onnx`, shaped as DeiT-tiny (Touvron et al. 2021, table 1: 12 blocks of attention with 3
heads over 197 tokens of 192 numbers). Weights are random, of a fixed seed; so outputs mean nothing,
and times are those of the real networks. ONNX Runtime's `quantize_static` quantizes them with its
defaults, signed bytes, as QDQ. Needs the extra `test`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recipes.models.exported_deit import deit
from recipes.models.exported_yolo import yolo
from recipes.models.graphs import Net

NETWORKS = {"yolo_like": yolo, "deit_like": deit}
"""Name of a file, and of the recipe that `doit import` makes of it → what builds its network."""
SAMPLES = 2
"""Random inputs that ranges are taken from."""


class _Samples:
    """A calibration reader of inputs around 0."""

    def __init__(self, shape: Sequence[int]) -> None:
        rng = np.random.default_rng(1)
        self.left = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(SAMPLES)]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def quantized(net: Net, outputs: Sequence[str], path: Path) -> None:
    """Write a network as QDQ of signed bytes, weights by output channel."""
    from onnxruntime.quantization import quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        source, whole = Path(folder) / "float.onnx", Path(folder) / "whole.onnx"
        source.write_bytes(net.model(outputs).SerializeToString())
        quant_pre_process(str(source), str(whole), skip_symbolic_shape=True)
        quantize_static(str(whole), str(path), _Samples(net.shape), per_channel=True)


def main(folder: Path) -> None:
    """Write both files, and say what comes next."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in NETWORKS.items():
        path = folder / f"{name}.onnx"
        quantized(*build(), path)
        print(f"{path}: doit import {path}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m recipes.models.exported FOLDER")
    main(Path(sys.argv[1]))
