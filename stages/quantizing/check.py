"""What holds after quantizing: floats exist only between inputs and quantizers, and at outputs."""

from __future__ import annotations

from typing import Any

from stages.kinds import Model
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.registry import dtype_of


def check(model: Model) -> None:
    """Raise AssertionError if a float tensor lies between two quantized layers."""
    main = model.module["main"]
    outputs = {output.name for output in outputs_of(main)}
    descends: dict[Any, bool] = {parameter: False for parameter in main.params}
    for binding in bindings_of(main):
        arguments = getattr(binding.value, "args", [binding.value])
        from_integers = any(descends.get(argument, False) for argument in arguments)
        is_float = dtype_of(binding.var.ty) == "float32"
        descends[binding.var] = from_integers or not is_float
        for argument in arguments:
            if argument in descends and not is_float and dtype_of(argument.ty) == "float32":
                known = argument in main.params or not descends[argument]
                assert known, f"float tensor {argument.name} feeds integer layer {binding.var.name}"
    assert all(dtype_of(output.ty) == "float32" for output in outputs_of(main)), outputs
