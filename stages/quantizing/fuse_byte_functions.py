"""Operators of several operands, or of floats, that all depend on the same byte: one table.

    multiply(x, table(x)) -> table'(x)
    quantize(f(dequantize(x))) -> table'(x)

So SiLU, GELU and their like, which importers find as functions of a byte and products of bytes,
become one function of a byte. Its values are those of the operators, for all 256 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import BYTES, dtype_of, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.graph import interpret
from stages.graph.bindings import variables_in
from stages.graph.passes import Pass
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Op, Var, VarBinding
from stages.numerics.quantization import every_byte
from stages.numerics.rescale import table


@dataclass(frozen=True)
class ByteFunction:
    """What a tensor is of a byte at the same position: its 256 values, in the order of bytes."""

    source: Any
    """The old variable of that byte."""
    values: Array
    """256 values of any type, in the order of bytes."""


class FuseByteFunctions(Pass):
    """Puts one table in place of what several operands make of the same byte."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.functions: dict[Var, ByteFunction] = {}

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A table, at the end of what depends on one byte."""
        found = self._function(binding.value)
        if found is None:
            return None
        self.functions[binding.var] = found
        if dtype_of(binding.value.ty) not in BYTES or not self._is_joined(binding.value):
            return None
        values = self.builder.tensor(f"{binding.var.name}.table", found.values)
        return table(self.read(found.source), values)

    def _function(self, call: Call) -> ByteFunction | None:
        """What an operator gives as a function of one byte, if it is."""
        name = str(call.op.name) if isinstance(call, Call) and isinstance(call.op, Op) else ""
        if name not in ELEMENTWISE or not isinstance(call.ty, relax.TensorType):
            return None
        whole, operands, roots = WHOLE.get(name, ()), list[Array](), set[Var]()
        for position, argument in enumerate(call.args):
            constant = self.constants.get(argument)
            if constant is not None and (constant.size == 1 or position in whole):
                operands.append(constant if position in whole else constant.reshape(()))
                continue
            read = self._read(argument)
            if read is None or position in whole or shape_of(argument.ty) != shape_of(call.ty):
                return None
            roots.add(read.source)
            operands.append(read.values)
        if len(roots) != 1:
            return None
        return ByteFunction(roots.pop(), np.ascontiguousarray(interpret.by_element(call, operands)))

    def _read(self, variable: Var) -> ByteFunction | None:
        """An operand as a function of a byte: of itself, if it is no other's."""
        if variable in self.functions:
            return self.functions[variable]
        if not isinstance(variable.ty, relax.TensorType) or dtype_of(variable.ty) not in BYTES:
            return None
        return ByteFunction(variable, every_byte(dtype_of(variable.ty)))

    def _is_joined(self, call: Call) -> bool:
        """Whether an operator reads several tensors, each a function of the same byte, or floats.

        What integers alone make of a byte is cheap, and fused into what reads it.
        """
        read = [each for each in variables_in(call) if each not in self.constants]
        return len(read) > 1 or dtype_of(read[0].ty) == "float32"
