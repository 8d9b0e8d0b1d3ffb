"""Convolutions and pools of one dimension between pictures that are one pixel high.

Importing has each of them read `reshape(x, [N, C, 1, W])` and gives `[N, C, W]` back. What lies
between two of them computes position by position, so it can as well be done on the picture:

    reshape(reshape(conv, [N, C, W]) -> quant -> relu, [N, C, 1, W])  ->  relu(quant(conv))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.rewriting import Rewriting
from stages.kinds import Model

_QUANTIZERS = ("relax.qnn.quant", "relax.qnn.bipolar_quant")
_BY_CHANNEL = ("relax.qnn.batch_norm", "relax.qnn.multi_threshold")
"""Operators whose first operand alone is by position; the others are vectors of channels."""


def opened(model: Model) -> Model:
    """The model with lines as pictures wherever that saves reshapes; itself if it has no lines."""
    main = model.module["main"]
    lines = _lines(main)
    return _Walk(model, lines).run() if lines else model


def is_line(variable: Any) -> bool:
    """Whether a variable is of rank 3."""
    return len(shape_of(variable.ty)) == 3


def _picture(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1, shape[-1])


def _is_opening(call: Any) -> bool:
    return is_op(call, "relax.reshape") and shape_of(call.ty) == _picture(shape_of(call.args[0].ty))


def _is_closing(call: Any) -> bool:
    return is_op(call, "relax.reshape") and shape_of(call.args[0].ty) == _picture(shape_of(call.ty))


def _by_position(binding: Any) -> list[Any]:
    """The operands that an operator reads position by position; none if it is another one."""
    call = binding.value
    name = str(getattr(getattr(call, "op", None), "name", ""))
    if not isinstance(binding.var.ty, relax.TensorType) or not is_line(binding.var):
        return []
    if name in _BY_CHANNEL:
        is_second = int(attributes(call).get("channel_axis", 1)) == 1
        return [call.args[0]] if is_second else []
    if name in ELEMENTWISE or name in _QUANTIZERS:
        return [variable for variable in variables_in(call) if len(shape_of(variable.ty)) > 1]
    return []


def _lines(main: Any) -> set[Any]:
    """Lines that are read as pictures, or made of them, or computed from such by position."""
    found: set[Any] = set()
    for binding in bindings_of(main):
        if _is_opening(binding.value) and is_line(binding.value.args[0]):
            found.add(binding.value.args[0])
        elif _is_closing(binding.value) and is_line(binding.var):
            found.add(binding.var)
    together = [
        {binding.var, *(each for each in _by_position(binding) if is_line(each))}
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


class _Walk(Rewriting):
    """One pass over `main`; lines are made of their pictures when something else reads them."""

    def __init__(self, source: Model, lines: set[Any]) -> None:
        super().__init__(source)
        self._lines = lines
        self._pictures: dict[Any, Any] = {}

    def run(self) -> Model:
        """Walk, and build the model anew."""
        for binding in bindings_of(self.main):
            value, name = binding.value, str(binding.var.name)
            if isinstance(value, relax.Var):
                self.mapping[binding.var] = self.read(value)
            elif _is_opening(value) and value.args[0] in self._lines:
                self.mapping[binding.var] = self._picture(value.args[0])
            elif _is_closing(value) and binding.var in self._lines:
                self._pictures[binding.var] = self.read(value.args[0])
            elif binding.var in self._lines and _by_position(binding):
                self._pictures[binding.var] = self.builder.emit(self._opened(binding), name)
            elif is_op(value, "relax.reshape") and value.args[0] in self._pictures:
                call = relax.op.reshape(self._pictures[value.args[0]], shape_of(value.ty))
                self.mapping[binding.var] = self.builder.emit(call, name)
            else:
                self.copy(binding)
        return self.builder.model_after(
            self.source, [self.read(output) for output in outputs_of(self.main)]
        )

    def read(self, variable: Any) -> Any:
        """The new variable for an old one, a line made of its picture."""
        if variable in self._pictures and variable not in self.mapping:
            call = relax.op.reshape(self._pictures[variable], shape_of(variable.ty))
            self.mapping[variable] = self.builder.emit(call, f"{variable.name}.line")
        return super().read(variable)

    def _picture(self, variable: Any) -> Any:
        """A line as a picture, a constant as another constant."""
        shape = _picture(shape_of(variable.ty))
        if variable in self.constants:
            value = np.reshape(self.constants[variable], shape)
            return self.builder.tensor(f"{variable.name}.picture", value)
        if variable not in self._pictures:
            call = relax.op.reshape(self.read(variable), shape)
            self._pictures[variable] = self.builder.emit(call, f"{variable.name}.picture")
        return self._pictures[variable]

    def _opened(self, binding: Any) -> Any:
        """An operator on pictures."""
        opened = {variable: self._picture(variable) for variable in _by_position(binding)}
        rest = {v: self.read(v) for v in variables_in(binding.value) if v not in opened}
        return remap(binding.value, {**opened, **rest})
