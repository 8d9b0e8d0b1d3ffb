"""Networks of operators at many sizes, compiled together: what the rows of `sized_rows` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hw.profile import Hardware
from stages.codegen import compile_object
from stages.dialect.names import PREFIX
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.kinds import Model
from stages.layer_options import Algorithm, LayerAlgorithm
from stages.options import LegalizeOptions
from stages.packaging.compiling.kernel_objects import ITEM
from tests.kept import kept
from tests.stages.packaging.integer_net import Net as Integers
from tests.stages.packaging.level_net import Net as Levels
from tests.stages.packaging.programs import Executor, compile_program
from tests.stages.pipeline import stages
from tests.targets import AARCH64, AVX2, AVX512BW

Array = np.ndarray[Any, Any]
SIZES = (1, 7, 8, 15, 16, 17, 31, 33, 63, 65, 255, 256, 257, 400, 1000, 4096)
"""Both sides of what code generation has: lanes, blocks, rows that take turns, tiles, the stack."""
TARGETS = (AVX2, AARCH64, AVX512BW)


class Sized:
    """A network of many inputs and outputs, whose rows build into `net`."""

    def __init__(self, is_integer: bool) -> None:
        self.net: Any = Integers((1,)) if is_integer else Levels((1,))
        self.net.builder = type(self.net.builder)()
        self.attrs: dict[str, Any] = {"numerics": "onnx"} if is_integer else {}
        self.rng = self.net.rng
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Any] = {}

    def input(self, name: str, value: Array, dtype: str | None = None) -> Any:
        """An input, with what it will be."""
        self.inputs[name] = np.ascontiguousarray(value)
        return self.net.builder.input(name, value.shape, dtype or str(value.dtype))

    def bytes(self, name: str, *shape: int) -> Any:
        """An input of int8."""
        return self.input(name, self.rng.integers(-128, 128, shape).astype(np.int8))

    def reals(self, name: str, *shape: int) -> Any:
        """An input of any floats."""
        return self.input(name, (self.rng.normal(size=shape) * 2).astype(np.float32))

    def whole(self, *shape: int) -> Array:
        """Floats whose sums of products are exact in any order."""
        return self.rng.integers(-9, 10, shape).astype(np.float32)

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Any:
        """A constant."""
        return self.net.builder.tensor(name, value, dtype)

    def emit(self, call: Any, name: str) -> Any:
        """Bind an operator's result."""
        return self.net.builder.emit(call, name)

    def model(self) -> Model:
        """The whole of it."""
        results = list(self.outputs.values())
        return self.net.builder.model(results, list(self.outputs), attrs=self.attrs)


@dataclass(frozen=True)
class Row:
    """Operators, and what builds a network of them: from the network so far, a name of its own and
    the size."""

    operators: tuple[str, ...]
    build: Callable[[Sized, str, int], Any]
    turns: int
    """A target has one of so many sizes in a row, and the next target the next one."""
    algorithm: Algorithm | None = None
    is_integer: bool = True

    def sizes(self, number: int, hardware: Hardware) -> list[int]:
        """Those that row `number` of a table has on a target; all on other processors."""
        if hardware not in TARGETS:
            return list(SIZES)
        first = number + TARGETS.index(hardware)
        return [size for i, size in enumerate(SIZES) if (i + first) % self.turns == 0]


def partner(size: int) -> int:
    """A size for the other axis of weights, of which there are some thousand then."""
    return SIZES[-1 - SIZES.index(size)]


def network(rows: Mapping[str, Row], numbers: Sequence[int], hardware: Hardware) -> Sized:
    """Rows at their sizes, given their numbers in the table."""
    sized = Sized(all(row.is_integer for row in rows.values()))
    for number, (name, row) in zip(numbers, rows.items(), strict=True):
        for size in row.sizes(number, hardware):
            key = f"{name}_{size}"
            sized.outputs[f"{key}.out"] = row.build(sized, key, size)
    return sized


def algorithms(rows: Mapping[str, Row]) -> LegalizeOptions:
    """The algorithms that rows ask for."""
    wanted = {name: row.algorithm for name, row in rows.items() if row.algorithm}
    layers = (LayerAlgorithm(match=f"{n}_*", algorithm=wish) for n, wish in wanted.items())
    return LegalizeOptions(layers=tuple(layers))


def differences(
    sized: Sized, hardware: Hardware, options: LegalizeOptions
) -> tuple[list[str], set[str]]:
    """What compiled kernels compute otherwise than NumPy, on one task and several; and operators of
    the dialect that the network has, in any stage."""
    model = sized.model()
    models = stages(model, hardware, options)
    executor = _executor(models["bitpacking"], hardware)
    expected, wrong = interpret.run(model, sized.inputs), []
    for tasks in (1, 3):
        for name, found in executor.run(sized.inputs, tasks).items():
            value = expected[name]
            assert (found.shape, found.dtype) == (value.shape, value.dtype), name
            different = np.flatnonzero(found.reshape(-1) != value.reshape(-1))
            if different.size:
                wrong.append(
                    f"{name} on {tasks} tasks: {different.size} of {value.size} values differ, the "
                    f"first at {different[0]}"
                )
    return wrong, operators_in((model, *models.values()))


def operators_in(models: Iterable[Model]) -> set[str]:
    """Operators of the dialect that occur, without their prefix."""
    functions = [function for model in models for function in model.module.functions.values()]
    calls = [binding.value for function in functions for binding in bindings_of(function)]
    names = {str(getattr(getattr(call, "op", None), "name", "")) for call in calls}
    return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}


def _executor(packed: Model, hardware: Hardware) -> Executor:
    """The compiled program. Its kernels are one object, but for those that import LLVM's text: what
    they import may have one name in several."""
    alike: dict[str, Any] = {}

    def memo(kind: str, problem: Mapping[str, object], build: Any) -> bytes:
        (functions, _) = build.args if kind == ITEM else ({}, None)
        is_alike = functions and not any("import_llvm" in f.script() for f in functions.values())
        if not is_alike:
            return kept(kind, problem, build)
        alike.update(functions)
        return b""

    program = compile_program(packed, hardware, memo)
    objects = {name: data for name, data in program.objects.items() if data}
    if alike:
        objects["alike.o"] = compile_object(alike, hardware)
    return Executor(replace(program, objects=objects), hardware)
