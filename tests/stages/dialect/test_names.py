"""Names of operators are those that TVM knows."""

from __future__ import annotations

from tvm.ir import Op

from stages.dialect import integer, names
from stages.dialect.operators import OPERATORS
from stages.kernels import operator_names
from stages.numerics import rule_names
from tests.stages.dialect.examples import ALL

CONSTANTS = {
    name: value
    for file in (names, operator_names, rule_names)
    for name, value in vars(file).items()
    if name.isupper() and isinstance(value, str) and name != "PREFIX"
}


def test_every_name_is_an_operator() -> None:
    known = {str(name) for name in Op.list_op_names()}
    assert not set(CONSTANTS.values()) - known
    own = {value for name, value in CONSTANTS.items() if name.startswith("QNN_")}
    assert ALL and own <= OPERATORS.keys()  # examples have imported every operator
    assert len(set(CONSTANTS.values())) == len(CONSTANTS)


def test_groups_are_made_of_names() -> None:
    groups = [each for each in vars(names).values() if isinstance(each, (tuple, frozenset))]
    assert groups and set().union(*groups) <= set(CONSTANTS.values())


def test_a_builder_says_its_operators_name() -> None:
    assert integer.conv2d.name == names.QNN_CONV2D
