"""Networks with quantizers, how they are packed, and cases of them in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import shape_of
from stages.kinds import Model
from stages.layer_options import Algorithm, LayerAlgorithm
from stages.numerics import qonnx_operators
from stages.options import LegalizeOptions
from tests.stages.networks import SourceNet

Array = np.ndarray[Any, Any]


def options(**algorithms: Algorithm) -> LegalizeOptions:
    """Algorithms by layer name; `every` stands for all others."""
    layers = [LayerAlgorithm(match="*", algorithm=algorithms.pop("every"))]
    layers += [LayerAlgorithm(match=name, algorithm=a) for name, a in algorithms.items()]
    return LegalizeOptions(layers=tuple(layers))


BIT, MAC = options(every="bitserial"), options(every="mac8")


@dataclass(frozen=True)
class Case:
    """A model, its input (random where None), and packed operators that must occur in it."""

    model: Model
    options: LegalizeOptions = field(default_factory=LegalizeOptions)
    x: Array | None = None
    expects: tuple[str, ...] = ()

    def inputs(self) -> dict[str, Array]:
        """The input, by name."""
        if self.x is not None:
            return {"x": self.x.astype(np.float32)}
        shape = shape_of(self.model.module["main"].params[0].ty)
        return {"x": (np.random.default_rng(5).normal(size=shape) * 2).astype(np.float32)}


class Net(SourceNet):
    """A source network with the operators that the cases need."""

    def op(self, call: Any, name: str) -> Any:
        return self.builder.emit(call, name)

    def by(
        self, op: Callable[..., Any], x: Any, name: str, value: Any, reverse: bool = False
    ) -> Any:
        """An operator with a constant: one value, or one per channel."""
        array = np.asarray(value, np.float32)
        if array.ndim == 1 and len(x.ty.shape) == 4:
            array = array.reshape(1, -1, 1, 1)
        constant = self.constant(name, array)
        return self.op(op(constant, x) if reverse else op(x, constant), f"{name}.of")

    def quantized(self, x: Any, name: str, bits: int, scale: float, **attrs: Any) -> Any:
        """A Quant with any rounding and range."""
        operands = self.constant(f"{name}.s", scale), self.constant(f"{name}.z", 0.0)
        kind = {"signed": True, "narrow": False, "rounding": "ROUND", **attrs}
        return self.op(qonnx_operators.quant(x, *operands, bits=bits, **kind), name)

    def dense(self, x: Any, name: str, outputs: int, bits: int, encoding: str) -> Any:
        shape = (int(x.ty.shape[1]), outputs)
        return self.op(relax.op.matmul(x, self.weights(name, shape, bits, encoding)), name)


Cases = dict[str, Callable[[], Case]]


def registering(table: Cases) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """A decorator that puts what builds a case into a table, by its name."""

    def register(build: Callable[[], Case]) -> Callable[[], Case]:
        table[build.__name__] = build
        return build

    return register
