"""Building the imported function of a framework whose tensors have many types.

Whatever an operator gives is checked as it is emitted: its shape is static, holds at least one
element in every direction and is small enough for memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of, shape_of
from stages.graph.builder import ModelBuilder
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.unsupported import UnsupportedError
from stages.kinds import Model

Array = np.ndarray[Any, Any]


class Emitter:
    """One `main` under construction; tensors become parameters when they are first read."""

    def __init__(self) -> None:
        self._builder = ModelBuilder()
        self._tensors: dict[tuple[str, tuple[int, ...], str], tuple[Array, Any]] = {}

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Any:
        """Declare a graph input."""
        return self._builder.input(name, shape, dtype)

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Any:
        """The parameter that holds `value`; the same name and value give the same parameter.

        `dtype` is the dialect dtype where it is below 8 bits.
        """
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise UnsupportedError(f"reads '{name}', which holds infinities or NaN")
        key = (name, value.shape, dtype or str(value.dtype))
        if key in self._tensors and np.array_equal(self._tensors[key][0], value):
            return self._tensors[key][1]
        variable = self._builder.tensor(name, value, dtype)
        self._tensors[key] = (value, variable)
        return variable

    def emit(self, call: Any, name: str) -> Any:
        """Bind a Relax call to a variable called `name`; infers and checks its type."""
        try:
            variable = self._builder.emit(call, name)
            shape = shape_of(variable.ty)
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            shapes = " and ".join(
                f"{dtype_of(argument.ty)} {list(shape_of(argument.ty))}"
                for argument in call.args
                if isinstance(getattr(argument, "ty", None), relax.TensorType)
            )
            raise UnsupportedError(
                f"has operands {shapes or 'of several shapes'}, which do not fit together"
            ) from error
        if not all(extent > 0 for extent in shape) or prod(shape) > MAX_ELEMENTS:
            raise UnsupportedError(
                f"gives the shape {list(shape)}; every extent must be at least 1 and the whole "
                f"at most {MAX_ELEMENTS:,} elements"
            )
        return variable

    def to_nhwc(self, x: Any, name: str) -> Any:
        """[N, C, H, W] as [N, H, W, C]."""
        return self.emit(relax.op.permute_dims(x, [0, 2, 3, 1]), f"{name}.nhwc")

    def to_nchw(self, x: Any, name: str) -> Any:
        """[N, H, W, C] as [N, C, H, W]."""
        return self.emit(relax.op.permute_dims(x, [0, 3, 1, 2]), name)

    def finish(
        self, outputs: Sequence[Any], names: Sequence[str], attributes: Mapping[str, Any]
    ) -> Model:
        """The model whose `main` gives these values under these names."""
        return self._builder.model(outputs, names, attrs=attributes)
