"""An example of an operator: one call of it, with operands to run it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.dialect.dtypes import parse
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Model

RNG = np.random.default_rng(7)
IMAGE = RNG.normal(size=(1, 3, 4, 4)).astype(np.float32), "float32"
"""A tensor NCHW."""


@dataclass(frozen=True)
class Example:
    """A call: its builder, operands as (value, dialect dtype), and attributes."""

    build: Callable[..., Any]
    operands: tuple[tuple[Array, str], ...]
    attrs: Mapping[str, Any]

    def model(self) -> Model:
        """A `main` of this one call; the first operand is the graph input `a0`."""
        builder = ModelBuilder()
        first, dtype = self.operands[0]
        variables = [builder.input("a0", first.shape, dtype)]
        for number, (value, kind) in enumerate(self.operands[1:], 1):
            variables.append(builder.tensor(f"a{number}", value, kind))
        result = builder.emit(self.build(*variables, **self.attrs), "y")
        return builder.model([result], ["y"])


def integers(low: int, high: int, shape: tuple[int, ...], dtype: str) -> tuple[Array, str]:
    """Random integers low..high, stored in bytes where the dialect dtype is narrower."""
    return RNG.integers(low, high + 1, shape).astype(parse(dtype).storage), dtype


def floats(*values: float) -> tuple[Array, str]:
    """A float32 vector."""
    return np.array(values, np.float32), "float32"
