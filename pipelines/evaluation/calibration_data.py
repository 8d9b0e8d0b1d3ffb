"""Calibration data as people keep it, and what a float model's inputs are of it.

A .npz file has an array [samples, ...] by each input's name, or one called `images`; a folder has
one sample a file, pictures or .npy. Which samples are used follows from the seed alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines import paths
from pipelines.errors import UserError, shown
from pipelines.recipe.sections import Calibration, InputSpec
from pipelines.store import keys

if TYPE_CHECKING:
    import numpy as np

    from pipelines.runners.package import Tensor

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Data:
    """What a recipe says of its calibration data and of the inputs it becomes."""

    section: Calibration
    inputs: Mapping[str, InputSpec]

    def of(self, most: int | None) -> Data:
        """At most so many of these samples."""
        if most is None or most >= self.section.samples:
            return self
        return Data(self.section.model_copy(update={"samples": most}), self.inputs)

    def digest(self) -> str:
        """A digest of everything that decides the samples: the files, and how they are read."""
        files = sample_files(self.section.data)
        marks = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
        told = {
            "samples": self.section.samples,
            "seed": self.section.seed,
            "inputs": {name: spec.model_dump(mode="json") for name, spec in self.inputs.items()},
        }
        return keys.digest(keys.canonical([_digest_of(marks, self.section.data), told]))

    def read(self, tensors: Sequence[Tensor]) -> dict[str, Array]:
        """The samples by input name: [samples, *shape], as the model takes them."""
        if paths.is_folder(self.section.data):
            return self._from_folder(tensors)
        return self._from_arrays(tensors)

    def _from_folder(self, tensors: Sequence[Tensor]) -> dict[str, Array]:
        import numpy as np

        from pipelines.evaluation import input_samples

        if len(tensors) != 1:
            raise UserError(
                f"{shown(self.section.data)}: a folder is for a model of one input, and this one "
                f"has {len(tensors)}; give a .npz with an array for each"
            )
        (tensor,), files = tensors, sample_files(self.section.data)
        read = [
            input_samples.read_sample(files[index], tensor, self.inputs.get(tensor.name))
            for index in self._chosen(len(files))
        ]
        return {tensor.name: np.stack(read)}

    def _from_arrays(self, tensors: Sequence[Tensor]) -> dict[str, Array]:
        import numpy as np

        from pipelines.evaluation import input_samples, labelled_data

        arrays = input_samples.read_arrays(self.section.data)
        if len(tensors) == 1 and tensors[0].name not in arrays:
            known = [name for name in labelled_data.IMAGES if name in arrays]
            arrays = {tensors[0].name: arrays[known[0]]} if known else arrays
        missing = [tensor.name for tensor in tensors if tensor.name not in arrays]
        if missing:
            raise UserError(
                f"{shown(self.section.data)}: has no array '{missing[0]}' for that input; it holds "
                f"{', '.join(arrays) or 'nothing'}"
            )
        counts = {len(arrays[tensor.name]) for tensor in tensors}
        if len(counts) != 1:
            raise UserError(
                f"{shown(self.section.data)}: the arrays have {sorted(counts)} samples; every "
                "input needs as many"
            )
        return {
            tensor.name: np.stack(
                [
                    input_samples.prepare(
                        arrays[tensor.name][i], tensor, self.inputs.get(tensor.name)
                    )
                    for i in self._chosen(counts.copy().pop())
                ]
            )
            for tensor in tensors
        }

    def _chosen(self, count: int) -> list[int]:
        import numpy as np

        if not count:
            raise UserError(f"{shown(self.section.data)}: holds no samples to calibrate with")
        order = np.random.default_rng(self.section.seed).permutation(count)
        return sorted(int(index) for index in order[: self.section.samples])


def sample_files(data: Path) -> list[Path]:
    """The files that hold samples; UserError for what is none."""
    from pipelines.evaluation import input_samples

    accepted = tuple(suffix for suffix in input_samples.ACCEPTED if suffix != ".npz")
    if paths.is_folder(data):
        return sorted(
            p for p in data.iterdir() if p.suffix.lower() in accepted and paths.is_file(p)
        )
    if data.suffix != ".npz" or not paths.is_file(data):
        raise UserError(
            f"{shown(data)}: is not accepted as calibration data; accepted: a .npz file, or a "
            f"folder of {', '.join(accepted)} files"
        )
    return [data]


@functools.cache
def _digest_of(marks: tuple[tuple[Path, int, int], ...], data: Path) -> str:
    """A digest of files; times and sizes are only there to notice a change within one run."""
    folder = data if paths.is_folder(data) else data.parent
    found = {p.relative_to(folder).as_posix(): keys.digest(p.read_bytes()) for p, _, _ in marks}
    return keys.digest(keys.canonical(found))
