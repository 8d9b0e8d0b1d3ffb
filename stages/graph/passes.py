"""The base of all passes, which rewrite a model's `main` binding by binding.

A pass derives from `Pass` and says in `rewrite` what becomes of one binding. All else is done here:
the walk, the copies, inputs, tensors, and what nothing reads any more. The page of this room
(`stages/graph/README.md`) has the steps: the table, the test, and how a broken pass is found.

A pass changes no result but where its row says so, keeps the names of layers, and gives the same
model for the same model. One that finds nothing to do copies, or says so (`is_needed`).

TVM's own infrastructure serves none of this. Its module passes see an `IRModule`, and the tensors
of a model lie beside that (`stages.kinds.Model`), where they keep their dtypes below 8 bits. Its
pattern language finds forms of calls, while what passes ask for depends on the values of tensors
and on what became of operands before. Each pattern is also a walk of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.builder import ModelBuilder
from stages.kinds import Array, Model
from stages.nodes import Expr, Function, Var, VarBinding


class Pass:
    """The old model, the new one under construction, and what each old variable is in the new one.

    Graph inputs are declared at once, in order; a tensor becomes a parameter when something reads
    it, so that one that nothing reads any more is left out.
    """

    def __init__(self, source: Model) -> None:
        self.source = source
        self.main: Function = source.module["main"]
        self.builder = ModelBuilder()
        self.rewrites = 0
        """How many bindings did not stay as they were."""
        self.redefined: set[str] = set()
        """Names of layers whose value means something else now, such as sums without an offset."""
        self.mapping: dict[Var, Var] = {}
        """Old variable → new variable."""
        self._deferred: dict[Var, Callable[[], Var]] = {}
        self._left_out: set[Var] = set()
        count = int(self.main.attrs["num_input"])
        for parameter in self.main.params[:count]:
            self.mapping[parameter] = self.builder.input(
                str(parameter.name), self.input_shape(parameter), dtype_of(parameter.ty)
            )
        self.constants: dict[Var, Array] = {
            parameter: source.params[str(parameter.name)] for parameter in self.main.params[count:]
        }
        """Old variables whose value is known."""

    # -- what a pass says ---------------------------------------------------------------------

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """What takes the place of a binding's expression, over new variables; None to copy it.

        A variable stands for itself; any other expression is bound to one of the old name. A pass
        may enter the binding's variable in `mapping` or `constants` itself, `defer` it, or
        `leave_out` it.
        """
        raise NotImplementedError

    def is_needed(self) -> bool:
        """Whether there is anything to do; the model stays the very same otherwise."""
        return True

    def input_shape(self, variable: Var) -> tuple[int, ...]:
        """The shape of a graph input in the new model."""
        return shape_of(variable.ty)

    def bindings(self) -> Sequence[VarBinding]:
        """The bindings to walk over, in order."""
        return bindings_of(self.main)

    def finish(self, results: Sequence[Var]) -> Model:
        """The new model, which gives these variables."""
        return self.builder.model_after(self.source, results)

    # -- what a pass uses ---------------------------------------------------------------------

    def read(self, variable: Var) -> Var:
        """The new variable for an old one."""
        if variable not in self.mapping:
            if variable in self._deferred:
                self.mapping[variable] = self._deferred.pop(variable)()
            else:
                self.mapping[variable] = self.builder.tensor(
                    str(variable.name), self.constants[variable], dtype_of(variable.ty)
                )
        return self.mapping[variable]

    def remapped(self, expr: Expr) -> Any:
        """An expression over new variables."""
        return remap(expr, {variable: self.read(variable) for variable in variables_in(expr)})

    def defer(self, variable: Var, make: Callable[[], Var]) -> None:
        """Have an old variable's new one made only when something reads it."""
        self._deferred[variable] = make

    def leave_out(self, variable: Var) -> None:
        """Have no new variable for an old one, which nothing reads any more."""
        self._left_out.add(variable)

    def copy(self, binding: VarBinding) -> None:
        """Keep a binding as it is."""
        value = self.remapped(binding.value)
        self.mapping[binding.var] = self.builder.emit(value, str(binding.var.name))

    # -- the walk -----------------------------------------------------------------------------

    def run(self) -> Model:
        """The model with every binding rewritten or copied, and nothing in it that is not read."""
        if not self.is_needed():
            return self.source
        for binding in self.bindings():
            if isinstance(binding.value, Var):  # an output's own variable
                self.mapping[binding.var] = self.read(binding.value)
            elif not self._is_made(binding.var):
                self._visit(binding)
        results = [self.read(output) for output in outputs_of(self.main)]
        self.builder.prune(results)
        return self.finish(results)

    def _visit(self, binding: VarBinding) -> None:
        value = self.rewrite(binding)
        if value is None and not self._is_made(binding.var):
            self.copy(binding)
            return
        self.rewrites += 1
        if isinstance(value, Var):
            self.mapping[binding.var] = value
        elif value is not None:
            self.mapping[binding.var] = self.builder.emit(value, str(binding.var.name))

    def _is_made(self, variable: Var) -> bool:
        """Whether a pass has already said what a variable is."""
        made = (self.mapping, self.constants, self._deferred, self._left_out)
        return any(variable in each for each in made)
