"""Products of floats as products of bfloat16 or float16: what one reads is rounded once.

    float_conv2d(pad(x), w), x + y -> float_conv2d(pad(to_bfloat16(x)), to_bfloat16(w)),
                                      from_bfloat16(to_bfloat16(x)) + y

What else reads such a tensor reads it rounded, so that it is stored once, in half the bytes. Sums
are float32, but where float16 multiplies each channel on its own:

    direct_conv2d(pad(x), w) -> float32(direct_conv2d(pad(to_float16(x)), to_float16(w)))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.float_linear import HALF_TERMS, HALVING, LARGEST_HALF, Half
from stages.dialect.numbers_numpy import NUMPY
from stages.errors import StageError
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.composites import is_batched, is_float_product
from stages.graph.rewriting import Rewriting
from stages.kernels.direct_operators import direct_conv2d
from stages.kinds import Model

_HINT = "leave floats out of the recipe"
PAD = "relax.nn.pad"


def halved(model: Model, half: Half) -> Model:
    """The model with floats of 16 bits between its layers; StageError for one without float
    products."""
    return _Walk(model, half).run()


def _is_rounded(expr: Any) -> bool:
    """Whether an expression is a product that may round what it reads."""
    is_rounded = is_float_product(expr) and not is_batched(expr)
    return is_rounded and not attributes(expr).get("is_direct")


def is_own(expr: Any) -> bool:
    """Whether an expression multiplies each channel on its own, by few enough weights to add their
    products up in float16."""
    if not is_op(expr, "relax.qnn.direct_conv2d") or attributes(expr)["dtype"] != "float32":
        return False
    height, width, depth, _ = shape_of(expr.args[1].ty)
    return depth == 1 and height * width <= HALF_TERMS


class _Walk(Rewriting):
    """One pass over `main`."""

    def __init__(self, source: Model, half: Half) -> None:
        super().__init__(source)
        self.half = half
        self.to, self.back = HALVING[half]
        self.bindings = {binding.var: binding for binding in bindings_of(self.main)}
        self.pads: set[Any] = set()
        """Paddings that nothing but products reads."""
        self.rounded = self._read_by_products()
        """Variables that products read, or paddings in front of them."""
        self.halves: dict[Any, Any] = {}
        """Old variable → its float of 16 bits in the new model."""

    def _takes(self, expr: Any) -> bool:
        return _is_rounded(expr) or (self.half == "float16" and is_own(expr))

    def _read_by_products(self) -> set[Any]:
        readers: dict[Any, list[Any]] = {}
        for binding in self.bindings.values():
            for variable in variables_in(binding.value):
                readers.setdefault(variable, []).append(binding.value)
        found: set[Any] = set()
        for binding in self.bindings.values():
            if self._takes(binding.value):
                variable = binding.value.args[0]
                origin: Any = self.bindings[variable].value if variable in self.bindings else None
                if is_op(origin, PAD) and all(map(self._takes, readers[variable])):
                    self.pads.add(variable)
                    variable = origin.args[0]
                found.add(variable)
        if not found:
            raise StageError(f"no layer is left in float to be rounded to {self.half}", hint=_HINT)
        return found

    def run(self) -> Model:
        """Walk, and build the model anew."""
        for variable in list(self.mapping):
            self._round(variable, str(variable.name))
        for variable, binding in self.bindings.items():
            name = str(variable.name)
            if isinstance(binding.value, relax.Var):
                self.mapping[variable] = self.read(binding.value)
            elif variable in self.pads:
                half = {binding.value.args[0]: self.halves[binding.value.args[0]]}
                self.halves[variable] = self.builder.emit(remap(binding.value, half), name)
            else:
                self.mapping[variable] = self.builder.emit(self._value(binding.value, name), name)
                self._round(variable, name)
        results = [self.mapping[output] for output in outputs_of(self.main)]
        return self.builder.model_after(self.source, results)

    def _round(self, variable: Any, name: str) -> None:
        """From here on a variable that products read is known by its rounded form."""
        if variable in self.rounded:
            half = self.to(self.mapping.pop(variable))
            self.halves[variable] = self.builder.emit(half, f"{name}.{self.half}")

    def read(self, variable: Any) -> Any:
        """The new variable for an old one; of one that is rounded anew for every reader."""
        if variable in self.halves:
            wide = self.back(self.halves[variable])
            return self.builder.emit(wide, f"{variable.name}.float32")
        return super().read(variable)

    def _value(self, expr: Any, name: str) -> Any:
        if not self._takes(expr):
            return self.remapped(expr)
        data, weight = expr.args
        rounded = ARITHMETIC[f"relax.qnn.to_{self.half}"](NUMPY, self.constants[weight])
        if self.half == "float16" and not np.isfinite(rounded).all():
            largest = np.abs(self.constants[weight]).max()
            raise StageError(
                f"its weights are up to {largest:g} in size, and float16 ends at {LARGEST_HALF}",
                layer=name,
                hint="write floats: bfloat16, or float32",
            )
        tensor = self.builder.tensor(str(weight.name), rounded, self.half)
        if not is_own(expr):
            return remap(expr, {data: self.halves[data], weight: tensor})
        attrs = {**attributes(expr), "dtype": "float16"}
        sums = direct_conv2d(self.halves[data], tensor, **attrs)
        return relax.op.astype(self.builder.emit(sums, f"{name}.sums"), "float32")
