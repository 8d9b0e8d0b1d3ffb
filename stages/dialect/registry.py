"""The QNN dialect's operators: Relax operators `relax.qnn.*`, each with a NumPy meaning.

An operator is one `Operator` row: its arguments, the type of its result and what it computes.
Registering it makes it a pure Relax operator that prints and parses as `R.qnn.<name>`; the NumPy
meaning lets any module be executed after any stage and compared with the stage before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import tvm.relax.script.parser as relax_parser
from tvm.ir import _ffi_api as ir_ffi
from tvm.ir import register_op_attr
from tvm.relax import BlockBuilder

from stages.dialect.calls import Attrs, attributes, stated
from stages.dialect.names import PREFIX
from stages.nodes import Call, Expr, Op, TensorType, Type

Infer = Callable[[Sequence[TensorType], Attrs], Type]
"""Types of operands and attributes → type of the result; ValueError for what does not fit."""
Meaning = Callable[..., Any]
Legalize = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """One operator of the dialect.

    `infer` maps argument types and attributes to the result type; `meaning` maps NumPy arguments
    and attributes (as keywords) to the NumPy result. Sub-byte tensors travel in NumPy as the
    smallest integer dtype that holds them. `legalize`, where there is one, is the meaning once more
    over TE tensors, by which plain Relax can run the operator.
    """

    name: str
    arguments: tuple[str, ...]
    infer: Infer
    meaning: Meaning
    legalize: Legalize | None = None

    @property
    def full_name(self) -> str:
        """The operator's name in Relax, such as `relax.qnn.conv2d`."""
        return PREFIX + self.name


class Builder:
    """Makes calls of one operator: `conv2d(data, weight, strides=[1, 1], ...)`."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.__name__ = operator.name
        self.__doc__ = operator.meaning.__doc__

    @property
    def name(self) -> str:
        """The operator's full name, by which `calls.is_op` knows its calls."""
        return self.operator.full_name

    def __call__(self, *operands: Expr, **attrs: object) -> Call:
        """A call; TypeError for another number of operands than the operator takes."""
        wanted = self.operator.arguments
        if len(operands) != len(wanted):
            raise TypeError(
                f"qnn.{self.operator.name} takes {wanted}, got {len(operands)} arguments"
            )
        return Call(Op.get(self.name), list(operands), stated(attrs))


ROWS: dict[str, Operator] = {}
"""What was registered so far; to find operators by it is up to `operators.py`."""
_registered = {str(name) for name in Op.list_op_names()}
"""What TVM knows. It lists thousands, so it is asked once and not for each operator."""
_script_namespace = SimpleNamespace()
relax_parser.qnn = _script_namespace


def register(
    name: str, arguments: Sequence[str], infer: Infer, legalize: Legalize | None = None
) -> Callable[[Meaning], Builder]:
    """Register `qnn.<name>`; decorates the NumPy meaning and returns the Relax call builder."""

    def decorate(meaning: Meaning) -> Builder:
        operator = Operator(name, tuple(arguments), infer, meaning, legalize)
        ROWS[operator.full_name] = operator
        _register_with_tvm(operator)
        build = Builder(operator)
        setattr(_script_namespace, name, build)
        return build

    return decorate


def _register_with_tvm(operator: Operator) -> None:
    full_name = operator.full_name
    if full_name not in _registered:
        ir_ffi.RegisterOp(full_name, operator.meaning.__doc__ or operator.name)
        _registered.add(full_name)
    op = Op.get(full_name)
    op.set_num_inputs(len(operator.arguments))
    for argument in operator.arguments:
        op.add_argument(argument, "Tensor", "")

    needed, known = _keywords(operator.meaning)

    def infer_type(call: Call, _builder: object) -> Type:
        try:
            attrs = attributes(call)
            for strange in sorted(attrs.keys() - known):
                raise ValueError(f"there is no attribute '{strange}'")
            for missing in sorted(needed - attrs.keys()):
                raise ValueError(f"attribute '{missing}' is missing")
            return operator.infer([argument.ty for argument in call.args], attrs)
        except ValueError as error:
            raise ValueError(f"qnn.{operator.name}: {error}") from error

    _set(op, "FInferType", infer_type)
    _set(op, "FPurity", True)
    expression = operator.legalize
    if expression is not None:

        def legalize(builder: BlockBuilder, call: Call) -> Expr:
            attrs = attributes(call)
            # Attributes are bound here: call_te takes keywords as tensors or scalars of its own.
            return builder.call_te(
                lambda *tensors: expression(*tensors, **attrs),
                *call.args,
                primfunc_name_hint=f"qnn_{operator.name}",
            )

        _set(op, "FLegalize", legalize)


def _set(op: Op, key: str, value: object) -> None:
    """Attach an attribute, in place of an earlier one where a module is imported once more."""
    op.reset_attr(key)
    register_op_attr(op.name, key, value)


def _keywords(meaning: Meaning) -> tuple[set[str], set[str]]:
    """The attributes that a meaning needs, and all that it knows."""
    parameters = inspect.signature(meaning).parameters.values()
    keywords = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    needed = {p.name for p in keywords if p.default is inspect.Parameter.empty}
    return needed, {p.name for p in keywords}
