"""The source model as it came, executed over many samples in NumPy or by its framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import UserError
from stages.errors import StageError

if TYPE_CHECKING:
    from stages.options import ImportOptions

Array = np.ndarray[Any, Any]
Chunk = list[Array]
"""Samples that are executed together, or their outputs."""
Execute = Callable[[Mapping[str, Array]], Mapping[str, Array]]

BATCH_BYTES = 1 << 22
"""Most bytes of input that are executed at once."""
BATCH = 256
"""Most samples that are executed at once."""
_TRIED = 2


SOURCE = "source model"


class Reference:
    """One output of a source graph of one input, sample by sample or in batches."""

    def __init__(self, name: str, execute: Execute, input_name: str, output: str) -> None:
        self.name, self.execute = name, execute
        self._input, self._output = input_name, output
        self.source: bytes | None = None
        """The model file, where it is all that another process needs to do the same."""
        self._options: ImportOptions | None = None

    @classmethod
    def of_source(
        cls, source: bytes, input_name: str, output: str, options: ImportOptions | None = None
    ) -> Reference:
        """Return the source graph executed in NumPy."""
        from stages import importing

        execute = importing.executor(source=source, options=options, also=(output,))
        reference = cls(SOURCE, execute, input_name, output)
        reference.source, reference._options = source, options
        return reference

    @classmethod
    def as_told(cls, told: Mapping[str, Any], source: bytes) -> Reference:
        """Return the reference that another process has `told` of, with its model file."""
        from stages.options import ImportOptions

        options = None if told["options"] is None else ImportOptions.model_validate(told["options"])
        return cls.of_source(source, told["input"], told["output"], options)

    def to_plain(self) -> dict[str, Any]:
        """Return as plain data what makes it the same in another process, but its model file."""
        options = None if self._options is None else self._options.model_dump(mode="json")
        return {"input": self._input, "output": self._output, "options": options}

    @classmethod
    def of_framework(
        cls, source: bytes, input_name: str, output: str, options: ImportOptions | None = None
    ) -> Reference:
        """Return the source graph executed by the framework it came from, one sample at a time.

        Raises runtime.MissingError or runtime.RefusedError where that cannot be.
        """
        from pipelines.reference_runtimes import runtime

        reference = runtime.open_runtime(*runtime.asked_of(source, options))
        return cls(reference.name, reference.run, input_name, output)

    def one(self, sample: Array) -> Array:
        """Return the output of one sample, as in the graph."""
        return np.asarray(self.execute({self._input: sample})[self._output])

    def batch_size(self, samples: list[Array], most: int) -> int:
        """Return how many samples, at most `most`, the graph takes at once, found out by trying.

        A graph takes batches if its leading axis is the batch and two samples together give what
        each gives alone. Constants in reshapes are what most often stands against it.
        """
        first = samples[:_TRIED]
        if len(first) < _TRIED or first[0].ndim < 2 or first[0].shape[0] != 1:
            return 1
        alone = [self.one(sample) for sample in first]
        try:
            together = self.one(np.concatenate(first))
        except (StageError, UserError):
            return 1
        if together.shape != (_TRIED, *alone[0].shape[1:]):
            return 1
        largest = max(float(np.abs(values).max(initial=0)) for values in alone)
        if not np.allclose(together, np.concatenate(alone), rtol=0, atol=1e-3 * largest):
            return 1
        return max(1, min(most, BATCH_BYTES // max(1, first[0].nbytes)))

    def batches(self, samples: Iterator[Array], most: int = BATCH) -> Iterator[Array]:
        """Yield the output of every sample, in the samples' order.

        A batch may round float sums in another order than one sample alone: whoever finds a
        difference asks `one`.
        """
        for chunk in self.chunks(samples, most):
            yield from self.together(chunk)

    def chunks(self, samples: Iterator[Array], most: int = BATCH) -> Iterator[Chunk]:
        """Yield the samples in the batches in which they are executed."""
        waiting: list[Array] = []
        size = 0
        for sample in samples:
            waiting.append(sample)
            if not size and len(waiting) == _TRIED:
                size = self.batch_size(waiting, most)
            while size and len(waiting) >= size:
                now, waiting = waiting[:size], waiting[size:]
                yield now
        if size > 1 and waiting:
            yield waiting
        else:
            yield from ([sample] for sample in waiting)

    def together(self, chunk: Chunk) -> Chunk:
        """Return the output of each sample of one batch."""
        if len(chunk) == 1:
            return [self.one(chunk[0])]
        outputs = self.one(np.concatenate(chunk))
        return [outputs[index : index + 1] for index in range(len(chunk))]
