"""What a recipe asks of layers that are left in float, and what float16 cannot hold of them."""

from __future__ import annotations

from typing import Any

from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution

GOLDEN, QUANTIZING = "golden", "quantizing"


def float_type_of(plan: Plan) -> str:
    """Return the type of numbers that layers left in float multiply."""
    stated = [data.get("floats") for step in plan.steps for data in step.options.values()]
    return next((one for one in stated if one), "float32")


def count_float16_layers(execution: PlanExecution) -> int:
    """Return how many layers of a recipe's network are added up in float16."""
    from stages.dialect.calls import dtype_of, is_op
    from stages.graph.bindings import bindings_of
    from stages.graph.composites import is_float_product
    from stages.kernels import operator_names

    model = execution.load(execution.plan.step(QUANTIZING))
    values = [binding.value for binding in bindings_of(model.module["main"])]
    products = [
        v for v in values if is_float_product(v) or is_op(v, operator_names.QNN_DIRECT_CONV2D)
    ]
    return sum(dtype_of(product.args[0].ty) == "float16" for product in products)


def overflowing(execution: PlanExecution, is_infinite: bool = False) -> str:
    """A sentence on what of golden samples float16 is too small for; empty if nothing is.

    Tensors are looked at. Of sums nothing is known but that they must be where outputs alone are
    infinite.
    """
    if float_type_of(execution.plan) != "float16":
        return ""
    import numpy as np

    from stages.dialect.float_linear import FLOAT16_TERMS, LARGEST_FLOAT16
    from stages.graph import interpret

    golden = execution.load(execution.plan.step(GOLDEN))
    model = execution.load(execution.plan.step(QUANTIZING))
    found: dict[str, None] = {}

    def observe(name: str, value: Any) -> None:
        if getattr(value, "dtype", None) == np.float16 and np.isinf(value).any():
            found[name.removesuffix(".float16")] = None

    for index in range(len(next(iter(golden.inputs.values())))):
        sample = {name: array[index] for name, array in golden.inputs.items()}
        interpret.run(model, sample, observe=observe)
    if not found and not is_infinite:
        return ""
    others = f" and {len(found) - 1} others" if len(found) > 1 else ""
    what = (
        f"values of '{next(iter(found))}'{others}" if found else f"sums of {FLOAT16_TERMS} products"
    )
    return (
        f"{what} are beyond {LARGEST_FLOAT16}, where float16 ends, and count as infinite; write "
        "floats: bfloat16, or float32"
    )
