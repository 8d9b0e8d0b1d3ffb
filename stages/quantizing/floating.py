"""Fixed-point operators of TensorFlow Lite in float32, where that is exact.

Their reference kernels rescale by products of 64 bits. What comes out is a byte all the same, for
which float32 is precise enough: for each layer a line is looked for (`stages.quantizing.lines`)
that gives the reference's result for every sum the layer can have, and for each addition two ratios
and an offset that do so for every pair of bytes. Operators for which there are none stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from tvm import relax

from stages.kinds import Model
from stages.qnn import onnx, tflite
from stages.qnn.algebra import factor, numerators, offset
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.elementwise import ARITHMETIC
from stages.qnn.infer import limits
from stages.qnn.numbers import NUMPY
from stages.qnn.registry import attributes, dtype_of, is_op
from stages.qnn.rescale import BYTES, LINES
from stages.qnn.rewriting import Rewriting
from stages.quantizing.lines import Line, fitted, nearby, stairs

Array = np.ndarray[Any, Any]

PRODUCTS = ("relax.qnn.conv2d", "relax.qnn.dense")
ADD = "relax.qnn.tflite_add"
SUM = "relax.qnn.qlinear_add"
MOST = 1 << 30
"""What is rounded is known to fit if it is at most this in size."""
CENTRE = 128
"""What uint8 has to lose to be int8, the byte that is nowhere far from 0."""
TRIES = 4
"""How often sums are moved to find a line."""
NUDGES = (0, 1, -1, 2, -2, 4, -4, 8, -8)
"""How far the offset of an addition may be from what it should be, in units of `NUDGE`."""
NUDGE = 2.0**-20


def floated(model: Model) -> Model:
    """The model with float32 in place of fixed point, wherever that gives the same bytes."""
    return _Walk(model).run()


@dataclass(frozen=True)
class _Sums:
    """Sums that are rescaled: `product` and a constant `bias`, between `low` and `high`; int64 [C].

    `product` is a variable of the source.
    """

    product: Any
    bias: Array
    low: Array
    high: Array


class _Walk(Rewriting):
    """One pass over `main`."""

    def run(self) -> Model:
        """Walk, and build the model anew."""
        self.calls = {binding.var: binding.value for binding in bindings_of(self.main)}
        for binding in bindings_of(self.main):
            if isinstance(binding.value, relax.Var):
                self.mapping[binding.var] = self.read(binding.value)
            elif (found := self._found(binding.value, str(binding.var.name))) is not None:
                self.mapping[binding.var] = self.builder.emit(found, str(binding.var.name))
            else:
                self.copy(binding)
        results = [self.mapping[output] for output in outputs_of(self.main)]
        self.builder.prune(results)
        return self.builder.model_after(self.source, results)

    def _found(self, call: Any, name: str) -> Any:
        """An operator in float32; None where it stays."""
        if is_op(call, ADD):
            return self._addition(call, name)
        rescaling = RESCALINGS.get(str(getattr(getattr(call, "op", None), "name", "")))
        if rescaling is None or attributes(call)["dtype"] not in BYTES:
            return None
        sums = self._sums(call.args[0])
        factors = [self.constants[each] for each in call.args[1:] if each in self.constants]
        if sums is None or len(factors) < len(call.args) - 1:
            return None
        found = rescaling(factors, sums)
        return None if found is None else self._line(call, sums, *found, name)

    def _line(
        self, call: Any, sums: _Sums, rescale: Callable[[Array], Array], slope: Array, name: str
    ) -> Any:
        """Sums rescaled by a function of about a slope [C], as a line."""
        attrs = attributes(call)
        zero, low, high = attrs["zero_point"], attrs["low"], attrs["high"]
        # What has both signs is rounded alike for both, about the zero point.
        is_odd = low < zero
        centre = zero if is_odd else CENTRE if attrs["dtype"] == "uint8" else 0
        moved, line = _moved(sums, slope, 0 if is_odd else centre - zero, is_odd), None
        for _ in range(1 if is_odd else TRIES):
            function = stairs(
                partial(_rebased, rescale, moved, zero - centre),
                sums.low - moved, sums.high - moved, (low - centre, high - centre), is_odd,
            )  # fmt: skip
            line = fitted(function, slope)
            if line is not None:
                break
            moved = moved + 1  # the last places of offsets are others then
        if line is None:
            return None
        tensor = self.builder.tensor
        bias = tensor(f"{name}.bias", (sums.bias - moved).astype(np.int32))
        data = self.builder.emit(relax.op.add(self.read(sums.product), bias), f"{name}.moved")
        parts = (line.scale, line.offset, *line.low, *line.high)
        operands = [tensor(f"{name}.line{i}", part) for i, part in enumerate(parts)]
        return LINES[len(operands) - 2](
            data, *operands, low_misses=len(line.low), is_odd=is_odd, zero_point=centre,
            low=low, high=high, dtype=attrs["dtype"], fits=_fits(line, sums, moved),
        )  # fmt: skip

    def _sums(self, variable: Any) -> _Sums | None:
        """Sums of products with constants, plus a constant; None for what is not that."""
        call: Any = self.calls.get(variable)
        bias: Array = np.zeros((), np.int64)
        if is_op(call, "relax.add"):
            left, right = (self.constants.get(operand) for operand in call.args)
            if (left is None) == (right is None):
                return None
            bias = np.asarray(right if left is None else left, np.int64)
            variable = call.args[0 if left is None else 1]
            call = self.calls.get(variable)
        if not any(is_op(call, name) for name in PRODUCTS):
            return None
        weight = self.constants.get(call.args[1])
        if weight is None or dtype_of(call.ty) != "int32" or bias.ndim > 1:
            return None
        low, high = (end + bias for end in _bounds(call, weight))
        is_whole = max(-low.min(), high.max()) <= np.iinfo(np.int32).max
        return _Sums(variable, np.broadcast_to(bias, low.shape), low, high) if is_whole else None

    def _addition(self, call: Any, name: str) -> Any:
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
        return onnx.qlinear_add(*operands, **_bounds_of_sum(attrs), fits=True)


Rescaling = tuple[Callable[[Array], Array], Array]
"""A function of int64 [K, C] and about how much it rises, [C]."""


def _rebased(rescale: Callable[[Array], Array], moved: Array, levels: int, x: Array) -> Array:
    """A function of sums that have moved, so many levels higher."""
    return rescale(x + moved) + levels


def _requantize(factors: Sequence[Array], sums: _Sums) -> Rescaling | None:
    """`tflite_requantize` before its zero point; None if it may overflow."""
    factor, places = (each.astype(np.int64) for each in factors)
    largest = max(-sums.low.min(), sums.high.max())
    if factor.min() < 0 or largest << max(0, int(places.max())) > np.iinfo(np.int32).max:
        return None
    slope = np.broadcast_to(factor * 2.0 ** (places - 31), sums.low.shape)
    return lambda x: tflite.multiply(NUMPY, x, factor, places), slope


def _rescale(factors: Sequence[Array], sums: _Sums) -> Rescaling | None:
    """`tflite_rescale` before its zero point; None if it falls."""
    (scale,) = factors
    if not (scale.min() >= 0 and np.isfinite(scale).all()):
        return None
    slope = np.broadcast_to(scale, sums.low.shape)
    return lambda x: tflite.round_away(NUMPY, x * scale), slope


RESCALINGS: Mapping[str, Callable[[Sequence[Array], _Sums], Rescaling | None]] = {
    "relax.qnn.tflite_requantize": _requantize,
    "relax.qnn.tflite_rescale": _rescale,
}
"""Full name of an operator that rescales sums → what it computes."""


def _bounds(call: Any, weight: Array) -> tuple[Array, Array]:
    """The least and the largest sum of a product's channels, int64 [C]."""
    attrs = attributes(call)
    point = attrs["data_zero_point_x2"]
    ends = [factor(point) * end - offset(point) for end in limits(dtype_of(call.args[0].ty))]
    least, most = (f(*ends, attrs.get("pad_value", 0)) for f in (min, max))
    q = numerators(weight, attrs["weight_zero_point_x2"]).astype(np.int64)
    q = q.reshape(len(q), -1)
    up, down = np.maximum(q, 0).sum(axis=1), np.minimum(q, 0).sum(axis=1)
    return up * least + down * most, up * most + down * least


def _moved(sums: _Sums, slope: Array, level: int, is_odd: bool) -> Array:
    """What to take from the sums, int64 [C], to have them as near to 0 as can be, where float32 is
    most precise, and results too: those of a `level` become 0, if there are any.

    An odd function needs the signs of its sums.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.nan_to_num(np.rint(level / slope), nan=0.0)
    ends = (sums.low - 1, sums.high + 1) if is_odd else (sums.low, sums.high)
    middle = np.clip(steps, *(end.astype(np.float64) for end in ends)).astype(np.int64)
    keeps_sign = (sums.low > 0) | (sums.high < 0)
    return np.where(keeps_sign, middle, 0) if is_odd else middle


def _fits(line: Line, sums: _Sums, moved: Array) -> bool:
    """Whether what a line rounds fits 31 bits."""
    largest = np.maximum(np.abs(sums.low - moved), np.abs(sums.high - moved))
    return bool(np.all(largest * line.scale.astype(np.float64) + np.abs(line.offset) <= MOST))


def _bounds_of_sum(attrs: Mapping[str, Any]) -> dict[str, int]:
    """The attributes of `qlinear_add` that say what an addition is clipped to."""
    return {
        "low": attrs["low"],
        "high": attrs["high"],
        "offset": -CENTRE if attrs["dtype"] == "uint8" else 0,
    }


def _ratios(attrs: Mapping[str, Any]) -> tuple[Array, Array, Array] | None:
    """What `qlinear_add` takes to be `tflite_add` for all pairs of bytes; None if it cannot be."""
    first, last = limits(attrs["dtype"])
    lhs, rhs = np.ix_(*2 * [np.arange(first, last + 1).astype(attrs["dtype"])])
    wanted = ARITHMETIC[ADD](NUMPY, lhs, rhs, **attrs)
    bounds = _bounds_of_sum(attrs)
    for candidate in _candidates(attrs, bounds["offset"]):
        found = ARITHMETIC[SUM](NUMPY, lhs, rhs, *candidate, **bounds)
        if np.array_equal(found, wanted):
            return candidate
    return None


def _candidates(attrs: Mapping[str, Any], moved: int) -> Iterator[tuple[Array, Array, Array]]:
    """Ratios and offsets close to what an addition's factors say, the closest first."""

    def real(side: str) -> float:
        return float(attrs[f"{side}multiplier"]) * 2.0 ** (attrs[f"{side}shift"] - 31)

    common = real("") * 2.0 ** attrs["left_shift"]
    left, right = real("lhs_") * common, real("rhs_") * common
    lhs, rhs, result = (attrs[f"{side}zero_point"] + moved for side in ("lhs_", "rhs_", ""))
    for nudge, (a, b) in product(NUDGES, product((0, 1, -1), repeat=2)):
        first, second = nearby(np.array(left), a), nearby(np.array(right), b)
        fixed = result - lhs * float(first) - rhs * float(second) + nudge * NUDGE
        yield first, second, np.asarray(fixed, np.float32)
