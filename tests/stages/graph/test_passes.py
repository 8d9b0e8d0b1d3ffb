"""The base of passes, and what runs a table of them."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
from tvm import relax

from stages import bitpacking, canonicalizing, legalizing, quantizing
from stages.dialect.calls import is_op
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.graph.builder import ModelBuilder
from stages.graph.pass_table import Applied, Passes, PassRow, run_passes
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Expr, Var, VarBinding
from stages.options import LegalizeOptions, QuantizeOptions
from tests.stages.networks import residual_block
from tests.stages.pipeline import board, candidates_of


def source() -> Model:
    """y = relu(x + a) + b, and a sum that nothing reads."""
    build = ModelBuilder()
    x = build.input("x", (2, 3), "float32")
    first = build.emit(relax.op.add(x, build.tensor("a", np.ones(3, np.float32))), "first")
    relu = build.emit(relax.op.nn.relu(first), "relu")
    build.emit(relax.op.add(relu, build.tensor("c", np.ones(1, np.float32))), "unread")
    y = build.emit(relax.op.add(relu, build.tensor("b", np.full(3, 2, np.float32))), "y")
    return build.model([y], ["y"])


class SwapAddends(Pass):
    """Adds from the right, `times` times at most."""

    def __init__(self, source: Model, times: int = 9) -> None:
        super().__init__(source)
        self.times = times

    def is_needed(self) -> bool:
        """Whether any addition is swapped."""
        return self.times > 0

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """An addition of its second operand and its first."""
        if not is_op(binding.value, "relax.add") or self.rewrites >= self.times:
            return None
        left, right = map(self.read, binding.value.args)
        return relax.op.add(right, left)


class MakeLate(Pass):
    """Makes every activation when something reads it."""

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """Nothing, yet."""

        def make() -> Var:
            return self.builder.emit(self.remapped(binding.value), f"{binding.var.name}.late")

        self.defer(binding.var, make)
        return None


def names(model: Model) -> list[str]:
    return [str(binding.var.name) for binding in bindings_of(model.module["main"])]


def test_a_pass_says_what_becomes_of_a_binding_and_the_base_does_the_rest() -> None:
    model, x = source(), {"x": np.array([[-3, 0, 1], [2, -1, 5]], np.float32)}
    swap = SwapAddends(model)
    swapped = swap.run()
    assert swap.rewrites == 3 and names(swapped) == ["first", "relu", "y", "y.out"]
    assert set(swapped.params) == {"a", "b"}  # what nothing reads is gone, and so is its tensor
    first = bindings_of(swapped.module["main"])[0].value
    assert [str(argument.name) for argument in first.args] == ["a", "x"]
    for after in (swapped, MakeLate(model).run()):
        np.testing.assert_array_equal(
            interpret.run(after, x)["y"], interpret.run(model, x)["y"], strict=True
        )


def test_what_is_deferred_is_made_once_and_only_if_read() -> None:
    late = MakeLate(source()).run()
    assert names(late) == ["first.late", "relu.late", "y.late", "y.late.out"]


def test_a_table_is_run_in_order_and_observed() -> None:
    model, seen = source(), list[Applied]()
    table: Passes = (
        PassRow(partial(SwapAddends, times=1), "swaps one", "first"),
        PassRow(partial(SwapAddends, times=0), "swaps none", "then"),
        PassRow(MakeLate, "makes late", "last"),
    )
    result = run_passes(table, model, seen.append)
    assert [(each.name, each.rewrites) for each in seen] == [
        ("SwapAddends", 1),
        ("SwapAddends", 0),
        ("MakeLate", 3),
    ]
    assert seen[1].model is seen[0].model and seen[2].model is result
    assert names(run_passes(table, model)) == names(result)


def tables() -> list[Passes]:
    """Those of the stages for a network with quantizers, and those for other models."""
    model, hardware = residual_block(2, 1), board("rpi3")
    options = LegalizeOptions()
    candidates = candidates_of(quantizing.run(model=model), hardware)
    return [
        quantizing.passes(model, QuantizeOptions(floats="bfloat16")),
        quantizing.PREQUANTIZED,
        legalizing.passes(quantizing.run(model=model), options, candidates, {}, hardware),
        canonicalizing.PASSES,
        bitpacking.passes(options, candidates, {}, hardware),
    ]


def test_a_name_in_the_column_leads_to_the_file() -> None:
    """Each pass is in a file of its name, or is a variant of one that is; its lines fit."""
    rows = [row for table in tables() for row in table]
    assert len(rows) > 15
    for row in rows:
        assert max(map(len, (row.does, row.because))) <= 100
        made = row.make.func if isinstance(row.make, partial) else row.make
        assert isinstance(made, type)
        files = {re.sub(r"(?<!^)(?=[A-Z])", "_", each.__name__).lower() for each in made.__mro__}
        assert made.__module__.rpartition(".")[2] in files
