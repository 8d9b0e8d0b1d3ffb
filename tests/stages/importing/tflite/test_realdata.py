"""Every published .tflite file at hand: it matches LiteRT's reference kernels, or is refused.

The files are not part of the project: BITKILN_REALDATA names their folder.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from PIL import Image

from stages.errors import StageError
from stages.graph import interpret
from stages.importing import describe, run
from stages.importing.tflite.tflite_reader import read
from stages.kinds import Model
from stages.options import ImportOptions
from tests.stages.importing.tflite_models import run_reference

Array = np.ndarray[Any, Any]
FOLDER = os.environ.get("BITKILN_REALDATA", "")
FILES = sorted(str(p.relative_to(FOLDER)) for p in Path(FOLDER).rglob("*.tflite") if FOLDER)
SAMPLES = int(os.environ.get("BITKILN_SAMPLES", "3"))
"""Random inputs for a file; one with feature maps of a million elements gets a tenth of them."""
TOLERANCE = 1e-5
"""Largest difference at float outputs, relative to the largest value: sums are in other orders."""
PICTURES = ("cat.bmp", "bird.bmp", "grace_hopper.bmp")

REFUSED = {
    "custom operators of a test of its publisher": (
        "tests/custom/custom",
        "model_with_add2/",
        "model_with_reverse_sequence2/",
        "model_with_zero_out/",
        "invalid_models/model_invoking_error",
    ),
    "custom signal processing": ("audio_preprocessor_float", "audio_preprocessor_int8"),
    "custom decoding of boxes and poses": (
        "model_with_detection_postprocess",
        "tflite_detection_post_processing",
        "posenet_mobilenet_v1_075_353_481_16_quant_decoder",
    ),
    "an output whose shape is an input": ("seanet/transpose_conv/",),
}
"""Why a file is refused → what its path contains."""


OTHER_KERNELS = {
    "tfliteModels/ceil": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "tfliteModels/round": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
}
"""Files of operators that have no reference kernel: which kernels they are compared with."""
NOT_IN_LITERT = ("larq+compute-engine/examples/example_model",)
"""Files of custom operators that are imported, but that LiteRT cannot run (see test_larq)."""


def without_oddities(source: bytes) -> bytes:
    """The file as LiteRT accepts it, its meaning unchanged.

    It refuses a bias of one dimension that states dimension 3 as the quantized one, and has no
    reference kernel registered under TILE's third version.
    """
    changed = bytearray(source)
    model = tflite.Model.GetRootAs(source)
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        if code.BuiltinCode() == tflite.BuiltinOperator.TILE and code.Version() > 2:
            struct.pack_into("<i", changed, code._tab.Pos + code._tab.Offset(8), 2)
    graph = model.Subgraphs(0)
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        found = tensor.Quantization()
        if found is not None and found.QuantizedDimension() >= max(1, tensor.ShapeLength()):
            struct.pack_into("<i", changed, found._tab.Pos + found._tab.Offset(16), 0)
    return bytes(changed)


def inputs_of(source: bytes, rng: np.random.Generator) -> list[Array]:
    """Random inputs; integers that are not quantized are 0 or 1, where they are indices 0."""
    graph = read(source)
    values = []
    for tensor in (graph.tensors[index] for index in graph.inputs):
        if tensor.dtype == "float32":
            values.append(rng.normal(size=tensor.shape).astype(np.float32))
        elif tensor.dtype == "bool" or tensor.quantization is None:
            readers = {o.kind for o in graph.operators if tensor.index in o.inputs}
            high = 1 if readers <= {"GATHER", "GATHER_ND"} else 2
            values.append(rng.integers(0, high, tensor.shape).astype(tensor.dtype))
        else:
            limits = np.iinfo(tensor.dtype)
            drawn = rng.integers(limits.min, int(limits.max) + 1, tensor.shape)
            values.append(drawn.astype(tensor.dtype))
    return values


def images_of(source: bytes) -> Iterator[list[Array]]:
    """Pictures, where the only input can be one."""
    graph = read(source)
    tensors = [graph.tensors[index] for index in graph.inputs]
    shape = tensors[0].shape
    if len(tensors) > 1 or len(shape) != 4 or shape[0] != 1 or shape[3] not in (1, 3):
        return
    if min(shape[1:3]) < 16:
        return
    for name in PICTURES:
        with Image.open(Path(FOLDER) / "google-coral+test_data" / name) as opened:
            kind = "RGB" if shape[3] == 3 else "L"
            image = np.asarray(opened.convert(kind).resize((shape[2], shape[1])))
        pixels = image.reshape(shape).astype(np.int64)
        dtype = tensors[0].dtype
        shift = {"int8": -128, "uint8": 0}.get(dtype)
        values = pixels / 127.5 - 1 if shift is None else pixels + shift
        yield [values.astype(dtype)]


def differences(model: Model, source: bytes, inputs: list[Array], kernels: str) -> list[float]:
    """Per output the largest difference from the reference; of floats relative to the largest."""
    names = [str(p.name) for p in model.module["main"].params[: len(inputs)]]
    found = interpret.run(model, dict(zip(names, inputs, strict=True)))
    apart, reference = [], run_reference(source, *inputs, kernels=kernels)
    for ours, theirs in zip(found.values(), reference, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        with np.errstate(invalid="ignore"):
            apart.append(_apart(ours.astype(np.float64), theirs.astype(np.float64)))
        if ours.dtype != np.float32:
            assert np.array_equal(ours, theirs)
    return apart


def _apart(ours: Array, theirs: Array) -> float:
    """Equal infinities and NaN do not differ."""
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    size = np.abs(theirs[np.isfinite(theirs)]).max(initial=1e-30)
    return float(np.where(same, 0, np.abs(ours - theirs)).max(initial=0) / size)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES or ["none"], ids=str)
def test_a_file_matches_or_is_refused(path: str) -> None:
    if not FOLDER:
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    source = (Path(FOLDER) / path).read_bytes()
    expected = [why for why, parts in REFUSED.items() if any(part in path for part in parts)]
    try:
        model = run(source=source, options=ImportOptions())
    except StageError as error:
        assert expected, f"refused: {error}"
        listed = describe(source=source)["unsupported"]
        assert len(str(error).splitlines()) == len(listed) + 1 > 1
        return
    assert not expected, "no longer refused"
    if any(part in path for part in NOT_IN_LITERT):
        return
    reference = without_oddities(source)
    kernels = next((k for part, k in OTHER_KERNELS.items() if part in path), "BUILTIN_REF")
    largest = max(prod(tensor.shape) for tensor in read(source).tensors)
    count = SAMPLES if largest < 1 << 20 else max(1, SAMPLES // 10)
    rng = np.random.default_rng(0)
    samples = [*images_of(source), *(inputs_of(source, rng) for _ in range(count))]
    worst = max(max(differences(model, reference, sample, kernels)) for sample in samples)
    assert worst <= TOLERANCE
