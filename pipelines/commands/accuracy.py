"""`doit accuracy`: the share of the recipe's evaluation data that the package gets right."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pipelines import packages, samples, tables
from pipelines.commands import arguments
from pipelines.errors import UserError
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.plan import Plan

_CLASSES = {"top1": 1, "top5": 5}


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print the rate; json=FILE also keeps every prediction."""
    evaluation = resolved.recipe.evaluation
    path = resolved.require_file("evaluation", evaluation.data if evaluation else None)
    assert evaluation is not None
    images, labels = samples.read_labelled(path)
    count = min(len(images), arguments.samples(variables) or len(images))
    predictions: list[int] = []
    right = 0
    threads = arguments.threads(variables) or 1
    with packages.opened(plan) as opened:
        if len(opened.package.inputs) != 1 or len(opened.package.outputs) != 1:
            raise UserError(f"{resolved.name} has several inputs or outputs; accuracy needs one")
        tensor, name = opened.package.inputs[0], opened.package.outputs[0].name
        spec = resolved.recipe.inputs.get(tensor.name)
        for index in _counted(count):
            prepared = samples.prepare(images[index], tensor, spec)
            output = opened.run({tensor.name: prepared}, threads)[name]
            best = samples.ranking(output, _CLASSES[evaluation.metric])
            predictions.append(best[0])
            right += int(labels[index]) in best
    rate = right / count
    print(
        f"{resolved.name}: {evaluation.metric} {100 * rate:.2f} % ({right} of {count}), "
        f"{opened.how}"
    )
    result = {
        "recipe": resolved.name,
        "metric": evaluation.metric,
        "rate": rate,
        "right": right,
        "samples": count,
        "predictions": predictions,
    }
    tables.write_json(variables.command.get("json"), result)


def _counted(count: int) -> Iterator[int]:
    if not sys.stdout.isatty():
        yield from range(count)
        return
    from rich.progress import track

    yield from track(range(count), description="classifying", transient=True)
