"""The linear layers of `main`: convolutions and matrix products whose sums a micro-kernel takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from stages.bitpacking.layouts import nhwc
from stages.kinds import Model
from stages.options import Algorithm, LegalizeOptions, Packing
from stages.qnn.builder import bindings_of, calls_of, variables_in
from stages.qnn.composites import (
    PLAIN,
    calls_in,
    has_own,
    is_apart,
    is_batched,
    is_product,
)
from stages.qnn.methods import BYTE_LIMIT, WORD_BYTES
from stages.qnn.registry import dtype_of, shape_of
from stages.qnn.signature import BLOCK

Array = np.ndarray[Any, Any]
LINEAR = tuple(
    f"{algorithm}{name}"
    for algorithm in ("", "bitserial_", "lookup_")
    for name in ("conv2d", "dense")
)
ELEMENTWISE = "elementwise"
"""The attribute `composite` of a function of levels without a main operator."""
FUSED = {"relax.permute_dims", "relax.qnn.quantize"}
"""Operators that a pass over an input picture may consist of."""


@dataclass(frozen=True)
class Caller:
    """A call of a composite in `main`."""

    variable: Any
    """What the call gives."""
    function: Any
    actual: Mapping[Any, Any]
    """The composite's parameter → what `main` hands in."""

    @property
    def name(self) -> str:
        """That of the layer."""
        return str(self.variable.name)

    @property
    def in_blocks(self) -> bool:
        """Whether its results are finished by whole blocks of channels, however few there are, and
        lie as readers want them; else also as the user sees them."""
        return not is_apart(self.function)

    def around(self, inner: Any, weights: Array, **more: Any) -> Layer:
        """The same as a layer around the binding of a linear operator."""
        return Layer(self.variable, self.function, self.actual, inner, weights, **more)

    def readers(self, variable: Any) -> list[Any]:
        """The operators inside that read a variable of `main`."""
        inside = [p for p, a in self.actual.items() if a.same_as(variable)]
        values = [b.value for b in bindings_of(self.function)]
        return [v for v in values if any(p in variables_in(v) for p in inside)]


@dataclass(frozen=True)
class Layer(Caller):
    """A call of a composite that has a linear operator."""

    inner: Any
    """The binding of that operator, in the composite."""
    weights: Array
    """Levels [O, KH, KW, C / groups]; where weights are computed, any that may be."""
    unit: int = BLOCK
    """Bytes of its data are padded to a multiple of so many channels."""
    algorithm: Algorithm | None = None
    """How the recipe says that it multiplies."""
    packing: Packing | None = None
    """How the recipe says that its bits are packed."""

    @property
    def call(self) -> Any:
        """The linear operator."""
        return self.inner.value

    @property
    def data(self) -> Any:
        """The variable of `main` whose values are multiplied."""
        return self.actual[self.call.args[0]]

    @property
    def reads_once(self) -> bool:
        """Whether nothing else in the composite reads its data."""
        data = self.call.args[0]
        return sum(data in variables_in(b.value) for b in bindings_of(self.function)) == 1


def callers_of(model: Model) -> dict[Any, Caller]:
    """Variable of `main` → the call of a composite that gives it."""
    return {
        b.var: Caller(b.var, f, dict(zip(f.params, b.value.args, strict=True)))
        for b, f in calls_of(model)
    }


def layers_of(model: Model, options: LegalizeOptions) -> dict[Any, Layer]:
    """Variable of `main` → the linear layer that gives it, if a kernel is chosen for it."""
    fused, found = _fused(model), {}
    for variable, caller in callers_of(model).items():
        inner = linear_in(caller.function)
        if inner is None:
            continue
        data, weight = (caller.actual[argument] for argument in inner.value.args)
        found[variable] = caller.around(
            inner,
            _weights(model, inner.value, weight),
            unit=WORD_BYTES if not caller.in_blocks or data in fused else BLOCK,
            algorithm=options.algorithm_of(caller.name),
            packing=options.packing_of(caller.name),
        )
    return found


def linear_in(function: Any) -> Any:
    """The binding of a composite's linear operator; None if no kernel is chosen for one."""
    if str(function.attrs["composite"]) == PLAIN:
        return None
    return next((b for b in bindings_of(function) if _is_linear(b.value)), None)


def _is_linear(call: Any) -> bool:
    """Whether a kernel is chosen for an operator: a product, but of each channel on its own."""
    return is_product(call) or (bool(linear_name(call)) and not has_own(call))


def linear_name(call: Any) -> str:
    """The name of a convolution or matrix product in the dialect, else nothing."""
    name = str(getattr(getattr(call, "op", None), "name", "")).removeprefix("relax.qnn.")
    return name if name in LINEAR else ""


def _weights(model: Model, call: Any, variable: Any) -> Array:
    if is_batched(call):
        _, outputs, depth = shape_of(variable.ty)
        any_byte = np.arange(-BYTE_LIMIT, BYTE_LIMIT, dtype=np.int8)
        return np.resize(any_byte, (outputs, 1, 1, depth))
    q = model.params[str(variable.name)]
    return q.reshape(q.shape[0], 1, 1, -1) if q.ndim == 2 else q


def _fused(model: Model) -> set[Any]:
    """Pictures of few channels, from a float input to one linear layer, that a pass of their own
    makes: their rows can be stacked."""
    bindings = bindings_of(model.module["main"])
    readers = Counter(v for b in bindings for v in variables_in(b.value))
    callers = callers_of(model)
    made = {v for v, caller in callers.items() if _makes_picture(caller)}
    found = set()
    for caller in callers.values():
        inner = linear_in(caller.function)
        data = None if inner is None else caller.actual[inner.value.args[0]]
        if data in made and readers[data] == 1 and len(caller.readers(data)) == 1:
            found.add(data)
    return found


def _makes_picture(caller: Caller) -> bool:
    """Whether a composite does nothing but quantize a float picture of few channels."""
    kind, source = caller.variable.ty, caller.function.params[0].ty
    if str(caller.function.attrs["composite"]) != ELEMENTWISE or isinstance(kind, relax.TupleType):
        return False
    is_picture = dtype_of(source) == "float32" and len(shape_of(source)) == 4
    is_narrow = "float" not in dtype_of(kind) and nhwc(kind)[2] < BLOCK
    names = {str(call.op.name) for call in calls_in(caller.function)}
    return is_picture and is_narrow and names <= FUSED
