"""Convolutions and pools of one dimension between images that are one pixel high.

Importing has each of them read `reshape(x, [N, C, 1, W])` and gives `[N, C, W]` back. What lies
between two of them computes position by position, so it can as well be done on the image:

    reshape(reshape(conv, [N, C, W]) -> quant -> relu, [N, C, 1, W])  ->  relu(quant(conv))
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE
from stages.graph.bindings import bindings_of, remap, variables_in
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Call, Expr, Function, Var, VarBinding
from stages.numerics import rule_names

_QUANTIZERS = (rule_names.QNN_QUANT, rule_names.QNN_BIPOLAR_QUANT)
_BY_CHANNEL = (rule_names.QNN_BATCH_NORM, rule_names.QNN_MULTI_THRESHOLD)
"""Operators whose first operand alone is by position; the others are vectors of channels."""


def is_row(variable: Var) -> bool:
    """Whether a variable is of rank 3."""
    return len(shape_of(variable.ty)) == 3


def _image(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1, shape[-1])


def _is_opening(call: Call) -> bool:
    return is_op(call, names.RESHAPE) and shape_of(call.ty) == _image(shape_of(call.args[0].ty))


def _is_closing(call: Call) -> bool:
    return is_op(call, names.RESHAPE) and shape_of(call.args[0].ty) == _image(shape_of(call.ty))


def _by_position(binding: VarBinding) -> list[Var]:
    """The operands that an operator reads position by position; none if it is another one."""
    call = binding.value
    name = str(getattr(getattr(call, "op", None), "name", ""))
    if not isinstance(binding.var.ty, relax.TensorType) or not is_row(binding.var):
        return []
    if name in _BY_CHANNEL:
        is_second = int(attributes(call).get("channel_axis", 1)) == 1
        return [call.args[0]] if is_second else []
    if name in ELEMENTWISE or name in _QUANTIZERS:
        return [variable for variable in variables_in(call) if len(shape_of(variable.ty)) > 1]
    return []


def rows_of(main: Function) -> set[Var]:
    """Rows that are read as images, or made of them, or computed from such by position."""
    found: set[Var] = set()
    for binding in bindings_of(main):
        if _is_opening(binding.value) and is_row(binding.value.args[0]):
            found.add(binding.value.args[0])
        elif _is_closing(binding.value) and is_row(binding.var):
            found.add(binding.var)
    together = [
        {binding.var, *(each for each in _by_position(binding) if is_row(each))}
        for binding in bindings_of(main)
        if _by_position(binding)
    ]
    before = -1
    while len(found) != before:
        before = len(found)
        for group in together:
            if found & group:
                found |= group
    return found


class LiftRows(Pass):
    """Computes on images of one row what computes on rows between them.

    A row is made of its image when something else reads it.
    """

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self._rows = rows_of(self.main)
        self._images: dict[Var, Var] = {}

    def is_needed(self) -> bool:
        """Whether there are rows that are read as images, or made of them."""
        return bool(self._rows)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """An image in place of its row, or an operator on images."""
        variable, value = binding.var, binding.value
        if _is_opening(value) and value.args[0] in self._rows:
            return self._image(value.args[0])
        if _is_closing(value) and variable in self._rows:
            self._keep(variable, self.read(value.args[0]))
        elif variable in self._rows and _by_position(binding):
            self._keep(variable, self.builder.emit(self._opened(binding), str(variable.name)))
        elif is_op(value, names.RESHAPE) and value.args[0] in self._images:
            return relax.op.reshape(self._images[value.args[0]], shape_of(value.ty))
        return None

    def _keep(self, variable: Var, image: Var) -> None:
        """Keep a row as an image."""
        self._images[variable] = image

        def row() -> Var:
            call = relax.op.reshape(image, shape_of(variable.ty))
            return self.builder.emit(call, f"{variable.name}.line")

        self.defer(variable, row)

    def _image(self, variable: Var) -> Var:
        """A row as an image, a constant as another constant."""
        shape = _image(shape_of(variable.ty))
        if variable in self.constants:
            value = np.reshape(self.constants[variable], shape)
            return self.builder.tensor(f"{variable.name}.image", value)
        if variable not in self._images:
            call = relax.op.reshape(self.read(variable), shape)
            self._images[variable] = self.builder.emit(call, f"{variable.name}.image")
        return self._images[variable]

    def _opened(self, binding: VarBinding) -> Expr:
        """An operator on images."""
        opened = {variable: self._image(variable) for variable in _by_position(binding)}
        rest = {v: self.read(v) for v in variables_in(binding.value) if v not in opened}
        return remap(binding.value, {**opened, **rest})
