"""The frame of a kernel around sums: its composite, its buffers and the LLVM IR that it imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import dtype_of, shape_of, storage_dtype
from stages.kernels.signature import BLOCK
from stages.nodes import Buffer, Index, Scalar, Var
from stages.packaging.emitting.addressing import divided
from stages.packaging.emitting.composite import LoweringInput
from stages.packaging.emitting.kernel import Helper


class KernelFrame:
    """What all parts of one kernel share, whichever they are."""

    task: Scalar
    tasks: Scalar
    arguments: dict[str, Buffer]
    """The buffers of the composite's parameters, by name."""
    results: list[Buffer]
    """The buffers of the composite's outputs."""

    def __init__(self, layer: LoweringInput, symbol: str) -> None:
        self.composite, self.symbol, self.schedule = layer.composite, symbol, layer.schedule
        self.hardware, self.isa = layer.hardware, layer.isa
        self.height, self.width, self.channels = self.composite.extent
        self.all_rows = self.composite.images * self.height
        """Rows of all images of a batch."""
        self.blocks = -(-self.channels // BLOCK)
        self.pixels = self.composite.pixels_per_block
        self.texts: dict[str, None] = {}
        """LLVM IR that the kernel imports, in order."""
        self.helpers: list[Helper] = []
        self._scratch: Buffer | None = None

    @property
    def scratch(self) -> Buffer:
        """The buffer in which the sums of a tile are."""
        assert self._scratch is not None, "no sums yet"
        return self._scratch

    @contextmanager
    def sums_in(self, buffer: Buffer) -> Iterator[None]:
        """Where what follows finds sums in another buffer, from its first element on."""
        before, self._scratch = self._scratch, buffer
        yield
        self._scratch = before

    def include(self, text: str, declarations: Sequence[str]) -> None:
        """Import LLVM IR text once, its declarations in front."""
        for line in (*declarations, text):
            self.texts[str(line)] = None

    def declare(self, scratch_words: int, scratch_dtype: str) -> None:
        """Declare all parameters of the kernel."""
        self.declare_tensors()
        words = max(1, scratch_words)  # no buffer is empty
        self._scratch = T.arg("scratch", T.Buffer((words,), scratch_dtype))
        self.task = T.arg("task", tirx.Var("task", "int32"))
        self.tasks = T.arg("n_tasks", tirx.Var("n_tasks", "int32"))

    def declare_tensors(self) -> None:
        """Declare what is read and written, in the order in which callers pass it."""

        def buffer(variable: Var) -> Buffer:
            dtype = str(storage_dtype(dtype_of(variable.ty)))
            return T.Buffer((prod(shape_of(variable.ty)),), dtype)

        self.arguments = {p.name: T.arg(str(p.name), buffer(p)) for p in self.composite.parameters}
        outputs = enumerate(self.composite.outputs)
        self.results = [T.arg(f"o{number}", buffer(output)) for number, output in outputs]

    def image_row(self, y: Index) -> tuple[Index, Index]:
        """Image of a batch, and row in it, of a row among all of them."""
        if self.all_rows == self.height:
            return 0, y
        return divided(y, self.height)
