"""`doit accuracy layer=PATTERN`: what each layer quantized here costs in accuracy.

One layer at a time computes in float32 and rounds nothing, neither its constants nor what it
gives; all others stay quantized. What the rate gains is what that layer costs. It runs in NumPy,
with the quantizers as calibration put them into the float model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pipelines.builds import publication
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.commands import arguments
from pipelines.errors import UserError
from pipelines.evaluation import input_samples, labelled_data, layer_errors
from pipelines.output import printed_tables
from pipelines.recipe.layer_patterns import matching
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.recipe.sections import CLASSES, Evaluation
from pipelines.runners.package import open_package

Counted = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Shows how far a count of so many is: name and number → what is called for each."""
_QUANTIZED, _FLOAT = "all layers quantized", "the float model"


def run(
    plan: Plan,
    resolved: Resolved,
    variables: Variables,
    evaluation: Evaluation,
    pattern: str,
    counted: Counted,
) -> None:
    """Print the rate with each layer in float32, and write all to json=FILE."""
    data = labelled_data.read(resolved.require_data("evaluation.data", evaluation.data))
    count = min(len(data), arguments.samples(variables) or len(data))
    if count == 0:
        raise UserError(f"{evaluation.data}: holds no samples")
    right = _right(plan, resolved, evaluation, data, count, pattern, counted)
    base = right[_QUANTIZED]
    rows = [
        {
            "in float32": name,
            evaluation.metric: f"{100 * found / count:.2f} %",
            "right": found,
            "points": f"{100 * (found - base) / count:+.2f}",
        }
        for name, found in right.items()
    ]
    printed_tables.show(f"{resolved.name}, {count} samples", rows, list(rows[0]))
    printed_tables.write_json(
        variables.command.get("json"),
        {
            "recipe": resolved.name,
            "metric": evaluation.metric,
            "samples": count,
            "quantized": {"right": base, "rate": base / count},
            "float": {"right": right[_FLOAT], "rate": right[_FLOAT] / count},
            "layers": [
                {"layer": name, "right": found, "rate": found / count}
                for name, found in right.items()
                if name not in (_QUANTIZED, _FLOAT)
            ],
        },
    )


def _right(
    plan: Plan,
    resolved: Resolved,
    evaluation: Evaluation,
    data: labelled_data.Labelled,
    count: int,
    pattern: str,
    counted: Counted,
) -> dict[str, int]:
    """Samples answered right: quantized, in float32, and with each layer in float32."""
    from stages.graph import interpret

    package = open_package(publication.package_folder_of(plan))
    if len(package.inputs) != 1 or len(package.outputs) != 1:
        raise UserError(f"{resolved.name} has several inputs or outputs; accuracy needs one")
    (tensor,), (output,) = package.inputs, package.outputs
    both = layer_errors.pair(PlanExecution(plan))
    if both is None:
        raise UserError(
            f"layer={pattern}: no layer of {resolved.name} was quantized here; this is for float "
            "models that `calibration` quantizes"
        )
    named = {layer.name: layer for layer in both.layers}
    layers = [named[name] for name in matching(pattern, list(named), "quantized layer")]
    spec, most = resolved.recipe.inputs.get(tensor.name), CLASSES[evaluation.metric]
    right = dict.fromkeys([_QUANTIZED, _FLOAT, *(layer.name for layer in layers)], 0)

    def rate(name: str, index: int, outputs: Any) -> None:
        best = input_samples.ranking(outputs[output.name], most, output)
        right[name] += data.labels[index] + evaluation.first_class in best

    with counted("layers in float32", count * (len(layers) + 2)) as advance:
        for index in range(count):
            sample = {tensor.name: data.read(index, tensor, spec)}
            rate(_FLOAT, index, interpret.run(both.in_float, sample))
            advance()
            values = both.values(sample)
            rate(_QUANTIZED, index, both.outputs(values))
            advance()
            for layer in layers:
                rate(layer.name, index, both.outputs({**values, **both.without(layer, values)}))
                advance()
    return right
