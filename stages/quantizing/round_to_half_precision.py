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

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.float_linear import (
    FLOAT16_TERMS,
    HALF_PRECISION_CASTS,
    LARGEST_FLOAT16,
    HalfPrecision,
)
from stages.dialect.numbers_numpy import NUMPY
from stages.errors import StageError
from stages.graph.bindings import bindings_of, remap, variables_in
from stages.graph.composites import is_batched, is_float_product
from stages.graph.passes import Pass
from stages.kernels import operator_names
from stages.kernels.direct_operators import direct_conv2d
from stages.kinds import Model
from stages.nodes import Call, Expr, Var, VarBinding

_HINT = "leave floats out of the recipe"


def _is_rounded(expr: Expr) -> bool:
    """Whether an expression is a product that may round what it reads."""
    if not isinstance(expr, Call) or not is_float_product(expr):
        return False
    return not is_batched(expr) and not attributes(expr).get("is_direct")


def is_small_depthwise(expr: Expr) -> bool:
    """Whether an expression is a depthwise convolution of few enough weights to add their products
    up in float16."""
    if not is_op(expr, operator_names.QNN_DIRECT_CONV2D) or attributes(expr)["dtype"] != "float32":
        return False
    height, width, depth, _ = shape_of(expr.args[1].ty)
    return depth == 1 and height * width <= FLOAT16_TERMS


class RoundToHalfPrecision(Pass):
    """Keeps floats of 16 bits between layers; StageError for a model without float products."""

    def __init__(self, source: Model, half: HalfPrecision) -> None:
        super().__init__(source)
        self.half = half
        self.to, self.back = HALF_PRECISION_CASTS[half]
        self.bound = {binding.var: binding for binding in bindings_of(self.main)}
        self.pads: set[Var] = set()
        """Paddings that nothing but products reads."""
        self.rounded = self._read_by_products()
        """Variables that products read, or paddings in front of them."""
        self.halves: dict[Var, Any] = {}
        """Old variable → its float of 16 bits in the new model."""
        for variable in list(self.mapping):
            self._round(variable, str(variable.name))

    def _takes(self, expr: Expr) -> bool:
        return _is_rounded(expr) or (self.half == "float16" and is_small_depthwise(expr))

    def _read_by_products(self) -> set[Var]:
        readers: dict[Var, list[Any]] = {}
        for binding in self.bound.values():
            for variable in variables_in(binding.value):
                readers.setdefault(variable, []).append(binding.value)
        found: set[Var] = set()
        for binding in self.bound.values():
            if self._takes(binding.value):
                variable = binding.value.args[0]
                origin: Any = self.bound[variable].value if variable in self.bound else None
                if is_op(origin, names.PAD) and all(map(self._takes, readers[variable])):
                    self.pads.add(variable)
                    variable = origin.args[0]
                found.add(variable)
        if not found:
            raise StageError(f"no layer is left in float to be rounded to {self.half}", hint=_HINT)
        return found

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A product of rounded operands, and what is rounded as soon as it is computed."""
        variable, expr, name = binding.var, binding.value, str(binding.var.name)
        if variable in self.pads:
            half = {expr.args[0]: self.halves[expr.args[0]]}
            self.halves[variable] = self.builder.emit(remap(expr, half), name)
            return self.halves[variable]
        if self._takes(expr):
            product = self.builder.emit(self._product(expr, name), name)
        elif variable in self.rounded or any(v in self.halves for v in variables_in(expr)):
            product = self.builder.emit(self.remapped(expr), name)
        else:
            return None
        self.mapping[variable] = product
        self._round(variable, name)
        return product

    def _round(self, variable: Var, name: str) -> None:
        """From here on a variable that products read is known by its rounded form."""
        if variable in self.rounded:
            half = self.to(self.mapping[variable])
            self.halves[variable] = self.builder.emit(half, f"{name}.{self.half}")

    def read(self, variable: Var) -> Var:
        """The new variable for an old one; of one that is rounded anew for every reader."""
        if variable in self.halves:
            wide = self.back(self.halves[variable])
            return self.builder.emit(wide, f"{variable.name}.float32")
        return super().read(variable)

    def _product(self, expr: Call, name: str) -> Expr:
        """A product of operands that are rounded."""
        data, weight = expr.args
        rounded = ARITHMETIC[f"relax.qnn.to_{self.half}"](NUMPY, self.constants[weight])
        if self.half == "float16" and not np.isfinite(rounded).all():
            largest = np.abs(self.constants[weight]).max()
            raise StageError(
                f"its weights are up to {largest:g} in size, and float16 ends at {LARGEST_FLOAT16}",
                layer=name,
                hint="write floats: bfloat16, or float32",
            )
        tensor = self.builder.tensor(str(weight.name), rounded, self.half)
        if not is_small_depthwise(expr):
            return remap(expr, {data: self.halves[data], weight: tensor})
        attrs = {**attributes(expr), "dtype": "float16"}
        sums = direct_conv2d(self.halves[data], tensor, **attrs)
        return relax.op.astype(self.builder.emit(sums, f"{name}.sums"), "float32")
