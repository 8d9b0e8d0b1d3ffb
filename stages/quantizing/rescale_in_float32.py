"""Fixed-point operators of TensorFlow Lite in float32, where that is exact.

Their reference kernels rescale by products of 64 bits. What comes out is a byte all the same, for
which float32 is precise enough. For each layer an affine requantization is looked for
(`affine_requantization.py`) that gives the reference's result for every sum the layer can have, and
for each addition two ratios and an offset that do so for every pair of bytes. Operators for which
there are none stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import BYTES, attributes, dtype_of, is_op
from stages.dialect.dtypes import limits
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.numbers_numpy import NUMPY
from stages.graph.bindings import bindings_of
from stages.graph.composites import is_linear
from stages.graph.passes import Pass
from stages.graph.sum_bounds import bounds_of_layer
from stages.kernels.byte_shift import SHIFT
from stages.kinds import Array, Model
from stages.nodes import Call, Expr, Var, VarBinding
from stages.numerics import onnx_elementwise, rule_names
from stages.numerics.rescale import AFFINE_RESCALES
from stages.quantizing.affine_requantization import nearby
from stages.quantizing.rescalings import (
    RESCALINGS,
    TRIES,
    RescaledSums,
    Rescaling,
    affine_fits,
    centre_of,
    has_signs,
    searched,
)

FAR = np.iinfo(np.int32).max - TRIES
"""What sums, and the distance between them, are less than."""
NUDGES = (0, 1, -1, 2, -2, 4, -4, 8, -8)
"""How far the offset of an addition may be from what it should be, in units of `NUDGE`."""
NUDGE = 2.0**-20


class RescaleInFloat32(Pass):
    """Puts float32 in place of fixed point, wherever that gives the same bytes."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.calls = {binding.var: binding.value for binding in bindings_of(self.main)}

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """An operator in float32."""
        call, name = binding.value, str(binding.var.name)
        if is_op(call, rule_names.QNN_TFLITE_ADD):
            return self._addition(call, name)
        if is_op(call, rule_names.QNN_TABLE):
            return self._shift(call, name)
        rescaling = RESCALINGS.get(str(getattr(getattr(call, "op", None), "name", "")))
        if rescaling is None or attributes(call)["dtype"] not in BYTES:
            return None
        sums = self._sums(call.args[0])
        factors = [self.constants[each] for each in call.args[1:] if each in self.constants]
        if sums is None or len(factors) < len(call.args) - 1:
            return None
        rescaled = rescaling(factors, sums)
        return None if rescaled is None else self._requantized(call, sums, rescaled, name)

    def _requantized(self, call: Call, sums: RescaledSums, rescaling: Rescaling, name: str) -> Any:
        """Rescaled sums as an affine requantization."""
        attrs = attributes(call)
        found = searched(sums, rescaling, attrs)
        if found is None:
            return None
        moved, affine = found
        tensor = self.builder.tensor
        bias = tensor(f"{name}.bias", (sums.bias - moved).astype(np.int32))
        data = self.builder.emit(relax.op.add(self.read(sums.product), bias), f"{name}.moved")
        parts = (affine.scale, affine.offset, *affine.low, *affine.high)
        operands = [tensor(f"{name}.line{i}", part) for i, part in enumerate(parts)]
        kept = {name: attrs[name] for name in ("low", "high", "dtype")}
        return AFFINE_RESCALES[len(operands) - 2](
            data, *operands, low_misses=len(affine.low), is_odd=has_signs(attrs),
            zero_point=centre_of(attrs), fits=affine_fits(affine, sums, moved), **kept,
        )  # fmt: skip

    def _sums(self, variable: Var) -> RescaledSums | None:
        """Sums of products with constants, plus a constant; None for what is not that."""
        call: Any = self.calls.get(variable)
        bias: Array = np.zeros((), np.int64)
        if is_op(call, names.ADD):
            left, right = (self.constants.get(operand) for operand in call.args)
            if (left is None) == (right is None):
                return None
            bias = np.asarray(right if left is None else left, np.int64)
            variable = call.args[0 if left is None else 1]
            call = self.calls.get(variable)
        if not is_linear(call):
            return None
        weight = self.constants.get(call.args[1])
        if weight is None or dtype_of(call.ty) != "int32" or bias.ndim > 1:
            return None
        low, high = (end + bias for end in bounds_of_layer(call, weight))
        # However they move within their range, they are int32.
        is_whole = max(-low.min(), high.max(), (high - low).max()) < FAR
        if not is_whole:
            return None
        return RescaledSums(variable, np.broadcast_to(bias, low.shape), low, high)

    def _shift(self, call: Call, name: str) -> Any:
        """A table that adds one number to all bytes, as those between types of bytes do."""
        data, values = call.args[0], self.constants.get(call.args[1])
        if values is None or dtype_of(call.ty) not in BYTES:
            return None
        first, last = limits(dtype_of(data.ty))
        shifts = values.astype(np.int32) - np.arange(first, last + 1, dtype=np.int32)
        if np.any(shifts != shifts[0]):
            return None
        wide = self.builder.emit(relax.op.astype(self.read(data), "int32"), f"{name}.wide")
        shift = self.builder.tensor(f"{name}.shift", shifts[0])
        moved = self.builder.emit(relax.op.add(wide, shift), f"{name}.moved")
        return relax.op.astype(moved, dtype_of(call.ty))

    def _addition(self, call: Call, name: str) -> Any:
        """A sum of two tensors of bytes as ratios of both."""
        attrs = attributes(call)
        dtypes = {dtype_of(operand.ty) for operand in call.args} | {attrs["dtype"]}
        if len(dtypes) > 1 or not dtypes.issubset(BYTES):
            return None
        found = _ratios(attrs)
        if found is None:
            return None
        operands = [self.read(operand) for operand in call.args]
        operands += [
            self.builder.tensor(f"{name}.{part}", value)
            for part, value in zip(("lhs_ratio", "rhs_ratio", "fixed"), found, strict=True)
        ]
        return onnx_elementwise.qlinear_add(*operands, **_bounds_of_sum(attrs), fits=True)


def _bounds_of_sum(attrs: Mapping[str, Any]) -> dict[str, int]:
    """The attributes of `qlinear_add` that say what an addition is clipped to."""
    return {
        "low": attrs["low"],
        "high": attrs["high"],
        "offset": -SHIFT if attrs["dtype"] == "uint8" else 0,
    }


def _ratios(attrs: Mapping[str, Any]) -> tuple[Array, Array, Array] | None:
    """What `qlinear_add` takes to be `tflite_add` for all pairs of bytes; None if it cannot be."""
    first, last = limits(attrs["dtype"])
    lhs, rhs = np.ix_(*2 * [np.arange(first, last + 1).astype(attrs["dtype"])])
    wanted = ARITHMETIC[rule_names.QNN_TFLITE_ADD](NUMPY, lhs, rhs, **attrs)
    bounds = _bounds_of_sum(attrs)
    for candidate in _candidates(attrs, bounds["offset"]):
        found = ARITHMETIC[rule_names.QNN_QLINEAR_ADD](NUMPY, lhs, rhs, *candidate, **bounds)
        if np.array_equal(found, wanted):
            return candidate
    return None


def _candidates(attrs: Mapping[str, Any], moved: int) -> Iterator[tuple[Array, Array, Array]]:
    """Ratios and offsets close to what an addition's factors say, the closest first."""

    def real(side: str) -> float:
        return float(attrs[f"{side}multiplier"]) * 2.0 ** (attrs[f"{side}shift"] - 31)

    common = real("") * 2.0 ** attrs["left_shift"]
    left, right = real("lhs_") * common, real("rhs_") * common
    lhs, rhs, result = (attrs[f"{side}zero_point"].whole + moved for side in ("lhs_", "rhs_", ""))
    for nudge, (a, b) in product(NUDGES, product((0, 1, -1), repeat=2)):
        first, second = nearby(np.array(left), a), nearby(np.array(right), b)
        fixed = result - lhs * float(first) - rhs * float(second) + nudge * NUDGE
        yield first, second, np.asarray(fixed, np.float32)
