"""A package on disk, as its manifest describes it, and its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import UserError, shown
from pipelines.runners.source_builder import builder
from pipelines.store import keys

MANIFEST_VERSION = 1
ABI_VERSION = 2


@dataclass(frozen=True)
class Tensor:
    """A graph input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Mapping[str, Any] | None

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(str(extent) for extent in self.shape)}]"


@dataclass(frozen=True)
class Package:
    """A package folder; `architecture` is one of Hardware's."""

    folder: Path
    name: str
    architecture: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    manifest: Mapping[str, Any]

    def file(self, name: str) -> Path:
        """Return the path of one of its files, built of its text if need be, or say how to get
        it."""
        path = self.folder / name
        if not path.is_file():
            if "source" in self.manifest.get("formats", []) and (built := self._built(name)):
                return built
            raise UserError(
                f"{shown(self.folder)} has no {name}; it was built with formats: "
                f"{', '.join(self.manifest.get('formats', []))}; add the one that holds {name} to "
                "package.formats and build again"
            )
        return path

    def library(self) -> Path:
        """Return the path of the shared library."""
        return self.file(f"lib{self.name}.so")

    def _built(self, name: str) -> Path | None:
        digest = keys.digest(keys.canonical(self.manifest["files"]))
        target = self.manifest["target"]
        wanted = (target["system"], target["system_cpu"], digest)
        return builder(self.folder, self.name, *wanted).file(name)

    def golden(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return golden inputs and outputs by name, each (samples, *shape)."""
        from stages.packaging.files.golden_file import read_golden
        from stages.packaging.program.kernel_program import TensorSpec

        inputs, outputs = (
            tuple(TensorSpec(item.name, item.dtype, item.shape) for item in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        try:
            golden = read_golden(self.file("golden.bin").read_bytes(), inputs, outputs)
        except ValueError as error:
            raise UserError(f"{shown(self.folder)}: {error}; build the package again") from error
        return golden.inputs, golden.outputs

    def check_inputs(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the inputs in the package's order, contiguous, or say what does not fit."""
        wanted = {item.name: item for item in self.inputs}
        faults = [f"no input is named {name!r}" for name in inputs if name not in wanted]
        faults += [f"input {name!r} is missing" for name in wanted if name not in inputs]
        for name, array in inputs.items():
            item = wanted.get(name)
            if item and (array.dtype != np.dtype(item.dtype) or array.shape != item.shape):
                faults.append(f"{name!r} is {array.dtype}{list(array.shape)}")
        if faults:
            expected = ", ".join(str(item) for item in self.inputs)
            raise UserError(f"{'; '.join(faults)}; {self.name} takes {expected}")
        return [np.ascontiguousarray(inputs[item.name]) for item in self.inputs]


def open_package(folder: Path) -> Package:
    """Read the manifest in `folder`."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["manifest_version"] != MANIFEST_VERSION:
            raise UserError(
                f"{shown(path)} has version {manifest['manifest_version']}, this bitkiln reads "
                f"{MANIFEST_VERSION}; build the package again"
            )
        return Package(
            folder=folder,
            name=manifest["name"],
            architecture=manifest["target"]["architecture"],
            inputs=tuple(_tensor(item) for item in manifest["inputs"]),
            outputs=tuple(_tensor(item) for item in manifest["outputs"]),
            manifest=manifest,
        )
    except FileNotFoundError as error:
        raise UserError(f"{shown(folder)} is no package: it has no manifest.json") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{shown(path)} is damaged ({error}); build the package again") from error


def _tensor(item: Mapping[str, Any]) -> Tensor:
    return Tensor(item["name"], item["dtype"], tuple(item["shape"]), item["quantization"])
