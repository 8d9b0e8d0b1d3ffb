"""The stages, in order: what each takes, what it gives, and which part of a recipe it sees."""

from __future__ import annotations

from stages import without_torch
from stages.stage import Stage

without_torch.hide()

_TVM = ("apache-tvm", "apache-tvm-ffi")

# `calibration` and `measurements` are no stages: the user's samples, and what was measured.
STAGES: tuple[Stage, ...] = (
    # A recipe that names a file has no zoo step: the file's bytes are the source.
    Stage(
        "zoo",
        "stages.importing.zoo:build",
        "source",
        options={"options": "ZooOptions"},
        tools=("onnx",),
    ),
    Stage(
        "importing",
        "stages.importing:run",
        "model",
        takes={"source": "zoo"},
        options={"options": "ImportOptions"},
        tools=("onnx", *_TVM),
    ),
    # Only a recipe that says how to calibrate has this step; else what takes its model takes the
    # imported one. Its samples are files of the user's.
    Stage(
        "calibrating",
        "stages.calibrating:run",
        "model",
        takes={"model": "importing", "samples": "calibration"},
        options={"options": "CalibrateOptions"},
        tools=("numpy", *_TVM),
    ),
    Stage(
        "golden",
        "stages.importing:golden",
        "golden",
        takes={"source": "zoo", "model": "calibrating"},
        options={"options": "GoldenOptions"},
        tools=("onnx", "numpy", *_TVM),
    ),
    Stage(
        "quantizing",
        "stages.quantizing:run",
        "model",
        takes={"model": "calibrating"},
        options={"options": "QuantizeOptions"},
        has_passes=True,
        tools=_TVM,
    ),
    Stage(
        "enumerating",
        "stages.synthesizing:enumerate_kernels",
        "table",
        takes={"model": "quantizing"},
        hardware=True,
        items=True,
        tools=_TVM,
    ),
    Stage(
        "legalizing",
        "stages.legalizing:run",
        "model",
        takes={"model": "quantizing", "candidates": "enumerating", "choices": "measurements"},
        options={"options": "LegalizeOptions"},
        hardware=True,
        has_passes=True,
        tools=_TVM,
    ),
    Stage(
        "canonicalizing",
        "stages.canonicalizing:run",
        "model",
        takes={"model": "legalizing"},
        has_passes=True,
        tools=_TVM,
    ),
    Stage(
        "bitpacking",
        "stages.bitpacking:run",
        "model",
        takes={"model": "canonicalizing", "candidates": "enumerating", "choices": "measurements"},
        options={"options": "LegalizeOptions"},
        hardware=True,
        has_passes=True,
        tools=_TVM,
    ),
    Stage(
        "synthesizing",
        "stages.synthesizing:run",
        "table",
        takes={"model": "bitpacking"},
        hardware=True,
        items=True,
        tools=_TVM,
    ),
    Stage(
        "scheduling",
        "stages.scheduling:run",
        "table",
        takes={"model": "bitpacking", "choices": "measurements"},
        hardware=True,
        tools=_TVM,
    ),
    Stage(
        "packaging",
        "stages.packaging:run",
        "files",
        takes={
            "model": "bitpacking",
            "bodies": "synthesizing",
            "schedules": "scheduling",
            "golden": "golden",
        },
        options={"options": "PackageOptions"},
        hardware=True,
        items=True,
        tools=(*_TVM, "ziglang"),
    ),
)
