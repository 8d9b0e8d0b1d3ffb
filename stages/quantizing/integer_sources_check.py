"""What holds after quantizing: quantizers alone make integers of floats, and outputs are floats."""

from __future__ import annotations

from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.kinds import Model

QUANTIZERS = (names.QNN_QUANTIZE, names.QNN_THRESHOLD)


def check(model: Model) -> None:
    """Raise AssertionError if another operator makes integers of a float activation."""
    main = model.module["main"]
    tensors = set(main.params[int(main.attrs["num_input"]) :])
    for binding in bindings_of(main):
        read = [v for v in variables_in(binding.value) if v not in tensors]
        if "float" not in dtype_of(binding.var.ty) and any("float" in dtype_of(v.ty) for v in read):
            is_quantizer = any(is_op(binding.value, name) for name in QUANTIZERS)
            assert is_quantizer, f"{binding.var.name} is computed from floats"
    outputs = outputs_of(main)
    assert all(dtype_of(o.ty) == "float32" for o in outputs), [o.name for o in outputs]
