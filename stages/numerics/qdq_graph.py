"""A QDQ graph that is being rewritten: what is known of the old variables, and the new function."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Model
from stages.nodes import Call, Var
from stages.numerics import linear_quantizers
from stages.numerics.onnx_islands import NOTHING_KNOWN, Island, Session
from stages.numerics.quantization_grid import Grid


@dataclass(frozen=True)
class Quantized:
    """A source variable that is `dequantize(value)`; `value` belongs to the new function."""

    value: Var
    grid: Grid


class QdqGraph:
    """The old function, the new one, and what each old variable is in the new one."""

    def __init__(self, source: Model, session: Session = NOTHING_KNOWN) -> None:
        main = source.module["main"]
        self.session = session
        self.target = ""
        """The layer of the quantizer whose operand is looked at."""
        self.islands: list[Island] = []
        """What the session fuses, in the graph's order."""
        self.builder = ModelBuilder()
        self.values: dict[Var, Var] = {}
        """Old variable to new variable."""
        self.quantized: dict[Var, Quantized] = {}
        """Old float variables that dequantize integers of the new function."""
        self.expressions = {binding.var: binding.value for binding in bindings_of(main)}
        self.positions = {variable: i for i, variable in enumerate(self.expressions)}
        self._readers = Counter(
            variable for value in self.expressions.values() for variable in variables_in(value)
        )
        self._readers.update(outputs_of(main))
        count = int(main.attrs["num_input"])
        for parameter in main.params[:count]:
            self.values[parameter] = self.builder.input(
                str(parameter.name), shape_of(parameter.ty), dtype_of(parameter.ty)
            )
        self._tensors = {
            parameter: source.params[str(parameter.name)] for parameter in main.params[count:]
        }
        self._constants = set(self._tensors)
        for variable, value in self.expressions.items():
            if all(each in self._constants for each in variables_in(value)):
                self._constants.add(variable)
        self._grids: dict[tuple[Var, Var], Grid] = {}
        self._stated: dict[int, tuple[Var, Var]] = {}

    def tensor(self, variable: Var) -> Array | None:
        """The value of an old parameter, None for other variables."""
        return self._tensors.get(variable)

    def is_constant(self, variable: Var) -> bool:
        """Whether an old variable depends on parameters alone."""
        return variable in self._constants

    def is_read_once(self, variable: Var) -> bool:
        """Whether exactly one binding (or output) reads an old variable."""
        return self._readers[variable] == 1

    def stays_signed(self, variable: Var) -> bool:
        """Whether ONNX Runtime leaves the int8 tensor behind an old float variable what it is."""
        if self.is_constant(variable):
            return True
        while (call := self.expressions.get(variable)) is not None:
            if is_op(call, linear_quantizers.dequantize_linear.name):
                return str(variable.name) in self.session.signed
            if not self.is_read_once(variable):  # it has a pair of quantizers of its own there
                return bool(self.session.signed)
            operands = variables_in(call)
            if not operands:
                return False
            variable = operands[0]
        return False

    def call_for(self, variable: Var, name: str) -> Call | None:
        """The old call of operator `name` whose result `variable` is and one binding reads."""
        call = self.expressions.get(variable)
        is_wanted = call is not None and is_op(call, name) and self.is_read_once(variable)
        return call if is_wanted else None

    def grid(self, call: Call) -> Grid | None:
        """The grid of quantize_linear or dequantize_linear, None where it is computed."""
        scale, zero_point = (self.tensor(operand) for operand in call.args[1:3])
        if scale is None or zero_point is None:
            return None
        key = (call.args[1], call.args[2])
        if key not in self._grids:
            found = Grid.of_constants(scale, zero_point, dtype_of(call.args[2].ty))
            self._grids[key] = found
            self._stated[id(found)] = key
        return self._grids[key]
