"""`doit accuracy`: what share of the evaluation data package and source model get right."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.builds import agreement, opened_package
from pipelines.builds.plan import Plan
from pipelines.commands import arguments
from pipelines.errors import UserError
from pipelines.evaluation import input_samples, labelled_data, reference_workers
from pipelines.evaluation.labelled_data import Labelled
from pipelines.evaluation.reference_model import Reference
from pipelines.output import printed_tables
from pipelines.recipe import recipe_slices
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.recipe.sections import CLASSES, Evaluation
from pipelines.runners.package import Tensor

Array = np.ndarray[Any, Any]
Advance = Callable[[], None]
_SHOWN = 5


@dataclass(frozen=True)
class Answers:
    """The classes found for each sample, best first, and how many samples that makes right."""

    ranked: list[list[int]]
    right: int

    @property
    def first(self) -> list[int]:
        """The best class of each sample."""
        return [best[0] for best in self.ranked]

    @property
    def rate(self) -> float:
        """The share of samples answered right, 0 to 1."""
        return self.right / len(self.ranked)


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print both rates and fail if they are further apart than the recipe tolerates; with layer=,
    print what each layer quantized here costs."""
    evaluation = resolved.recipe.evaluation
    if evaluation is None:
        raise resolved.error("evaluation", "is missing: this command needs it")
    if (pattern := variables.command.get("layer")) is not None:
        from pipelines.commands import layer_accuracy

        layer_accuracy.run(plan, resolved, variables, evaluation, pattern, _counted)
        return
    path = resolved.require_data("evaluation.data", evaluation.data)
    data = labelled_data.read(path)
    count = min(len(data), arguments.samples(variables) or len(data))
    if count == 0:
        raise UserError(f"{path}: holds no samples")
    threads = arguments.threads(variables) or 1
    most = CLASSES[evaluation.metric]
    with opened_package.opened(plan) as opened:
        if len(opened.package.inputs) != 1 or len(opened.package.outputs) != 1:
            raise UserError(f"{resolved.name} has several inputs or outputs; accuracy needs one")
        (tensor,), (output,) = opened.package.inputs, opened.package.outputs
        how, name = opened.how, output.name
        asked = _Asked(data, most, evaluation.first_class, output)
        spec = resolved.recipe.inputs.get(tensor.name)

        def in_package(sample: Array) -> Array:
            return opened.run({tensor.name: sample}, threads)[name]

        def inputs() -> Iterator[Array]:
            return (data.read(index, tensor, spec) for index in range(count))

        with _counted(f"package, {how}", count) as advance:
            ours = _answers(map(in_package, inputs()), asked, advance)
    reference = _reference(variables, plan, resolved, tensor, name)
    with _counted(reference.name, count) as advance:
        theirs = _answers(reference_workers.outputs(reference, inputs(), count), asked, advance)
    theirs = _asked_again(reference, ours, theirs, asked, lambda at: data.read(at, tensor, spec))
    _tell(resolved, evaluation, ours, theirs, how, reference.name)
    result = _result(resolved, evaluation, asked, ours, theirs, reference.name)
    printed_tables.write_json(variables.command.get("json"), result)
    _enforce(resolved, evaluation, result["difference"])


def _reference(
    variables: Variables, plan: Plan, resolved: Resolved, tensor: Tensor, output: str
) -> Reference:
    """Return what the package is compared with: reference=source, or reference=framework."""
    wanted = variables.command.get("reference", "source")
    source, options = agreement.source(plan), recipe_slices.import_options(resolved.recipe)
    if wanted == "source":
        return Reference.of_source(source, tensor.name, output, options)
    if wanted == "framework":
        return Reference.of_framework(source, tensor.name, output, options)
    raise UserError(f"reference={wanted}: accepted: source, framework")


@dataclass(frozen=True)
class _Asked:
    """The data, how many classes count as an answer, and the output that they are read from."""

    data: Labelled
    most: int
    first_class: int
    output: Tensor

    def label(self, index: int) -> int:
        """Return the output that a sample's label means."""
        return self.data.labels[index] + self.first_class

    def ranking(self, values: Array) -> list[int]:
        """Return the classes an output answers with, best first."""
        return input_samples.ranking(values, self.most, self.output)


def _answers(outputs: Iterator[Array], asked: _Asked, advance: Advance) -> Answers:
    ranked: list[list[int]] = []
    right = 0
    for index, output in enumerate(outputs):
        label = asked.label(index)
        if not input_samples.is_class(output, asked.output) and not 0 <= label < output.size:
            raise UserError(
                f"{asked.data.name(index)}: its label is {label}, and the output has {output.size} "
                "classes, counted from 0"
            )
        ranked.append(asked.ranking(output))
        right += label in ranked[-1]
        advance()
    return Answers(ranked, right)


def _asked_again(
    reference: Reference,
    ours: Answers,
    theirs: Answers,
    asked: _Asked,
    sample: Callable[[int], Array],
) -> Answers:
    """Return the source model's answers, those that differ from ours found sample by sample."""
    ranked = list(theirs.ranked)
    for index, best in enumerate(ours.ranked):
        if best != ranked[index]:
            ranked[index] = asked.ranking(reference.one(sample(index)))
    right = sum(asked.label(index) in best for index, best in enumerate(ranked))
    return Answers(ranked, right)


def _differing(ours: Answers, theirs: Answers) -> list[int]:
    pairs = enumerate(zip(ours.first, theirs.first, strict=True))
    return [index for index, (mine, other) in pairs if mine != other]


def _tell(
    resolved: Resolved, evaluation: Evaluation, ours: Answers, theirs: Answers, how: str, other: str
) -> None:
    count = len(ours.ranked)
    print(
        f"{resolved.name}: {evaluation.metric} {100 * ours.rate:.2f} % "
        f"({ours.right} of {count}), {how}"
    )
    differing = _differing(ours, theirs)
    said = "all predictions equal the package's"
    if differing:
        some = ", ".join(map(str, differing[:_SHOWN])) + (", ..." if differing[_SHOWN:] else "")
        said = f"{len(differing)} of {count} predictions differ from the package's: sample {some}"
    print(
        f"{other}: {evaluation.metric} {100 * theirs.rate:.2f} % "
        f"({theirs.right} of {count}); {said}"
    )


def _result(
    resolved: Resolved,
    evaluation: Evaluation,
    asked: _Asked,
    ours: Answers,
    theirs: Answers,
    other: str,
) -> dict[str, Any]:
    count = len(ours.ranked)
    return {
        "recipe": resolved.name,
        "metric": evaluation.metric,
        "tolerance": evaluation.tolerance,
        "samples": count,
        "rate": ours.rate,
        "right": ours.right,
        "predictions": ours.first,
        "reference": other,
        "source": {"rate": theirs.rate, "right": theirs.right, "predictions": theirs.first},
        "labels": list(asked.data.labels[:count]),
        "differing": _differing(ours, theirs),
        # Of whole samples, so that a difference of none is exactly 0.
        "difference": 100 * abs(ours.right - theirs.right) / count,
    }


def _enforce(resolved: Resolved, evaluation: Evaluation, difference: float) -> None:
    if difference > evaluation.tolerance:
        raise resolved.refusal(
            "evaluation.tolerance",
            f"package and source model differ by {difference:.2f} points of {evaluation.metric}, "
            f"and {evaluation.tolerance:g} are tolerated; `doit verify {resolved.arguments()}` "
            "says which stage departs",
        )


@contextlib.contextmanager
def _counted(what: str, count: int) -> Iterator[Advance]:
    """Show how far a count is, where someone is looking."""
    if not sys.stdout.isatty():
        yield lambda: None
        return
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns: Sequence[Any] = (*Progress.get_default_columns()[:2], MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), transient=True) as progress:
        task = progress.add_task(what, total=count)
        yield lambda: progress.advance(task)
