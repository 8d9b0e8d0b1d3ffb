"""Runs an ARM package's shared library in unicorn, without an operating system, on one thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from pipelines.errors import UserError
from pipelines.runners.emulated_processor import LIBRARY, EmulatedProcessor
from pipelines.runners.library_image import RELOCATIONS, read_library
from pipelines.runners.package import ABI_VERSION, Package


class EmulatedRunner:
    """One package in one emulated processor; outputs are exact, times mean nothing."""

    how = "emulated"

    def __init__(self, package: Package) -> None:
        if package.architecture not in RELOCATIONS:
            raise UserError(
                f"{package.name} is for {package.architecture}; the emulator runs "
                f"{' and '.join(RELOCATIONS)}"
            )
        self.package = package
        self._machine = EmulatedProcessor(package.architecture)
        self._symbols = self._load()
        version = self._call("abi_version")
        if version != ABI_VERSION:
            raise UserError(
                f"{package.name} has ABI version {version}, this bitkiln runs {ABI_VERSION}; "
                "build it again"
            )
        size = self._call("context_size")
        self._context = self._machine.allocate(size)
        self._machine.write(self._context, b"\0" * size)
        arena = self._machine.allocate(self._call("arena_size", 1))
        self._check(self._call("init", self._context, arena, 1))
        self._in = [self._machine.allocate(item.nbytes) for item in package.inputs]
        self._out = [self._machine.allocate(item.nbytes) for item in package.outputs]
        self._in_array = self._machine.allocate_pointers(self._in)
        self._out_array = self._machine.allocate_pointers(self._out)

    def run(self, inputs: Mapping[str, np.ndarray], threads: int = 1) -> dict[str, np.ndarray]:
        """Run one inference; inputs and outputs by name, in the package's shapes and dtypes."""
        if threads != 1:
            raise UserError(f"the emulator has one thread, not {threads}; use threads=1")
        for address, array in zip(self._in, self.package.check_inputs(inputs), strict=True):
            self._machine.write(address, array.tobytes())
        self._check(self._call("run", self._context, self._in_array, self._out_array))
        return {
            item.name: np.frombuffer(self._machine.read(address, item.nbytes), item.dtype)
            .reshape(item.shape)
            .copy()
            for address, item in zip(self._out, self.package.outputs, strict=True)
        }

    def count_blocks(
        self, inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], Counter[tuple[int, int]]]:
        """Run one inference; also return how often each basic block ran.

        A block is (offset in the library, bytes); the emulator may split a compiler's block.
        """
        with self._machine.counting() as counts:
            outputs = self.run(inputs)
        shifted = {(address - LIBRARY, size): n for (address, size), n in counts.items()}
        return outputs, Counter(shifted)

    def close(self) -> None:
        """Nothing to end: the emulated processor has no threads."""

    def __enter__(self) -> EmulatedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> dict[str, int]:
        image = read_library(self.package)
        self._machine.map(LIBRARY, len(image.data))
        self._machine.write(LIBRARY, image.data)
        self._machine.protect(LIBRARY, len(image.data))
        self._machine.imports = image.imports
        return image.symbols

    def _call(self, function: str, *arguments: int) -> int:
        name = f"{self.package.name}_{function}"
        if name not in self._symbols:
            raise UserError(f"{self.package.library()} does not define {name}; build it again")
        return self._machine.call(self._symbols[name], arguments)

    def _check(self, error: int) -> None:
        if error:
            text = self._machine.read_string(self._call("error", error))
            raise UserError(f"{self.package.name}: {text}")
