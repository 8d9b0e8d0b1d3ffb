"""A recipe's steps: for each stage the options, hardware and inputs it gets. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pipelines.evaluation.calibration_data import Data
from pipelines.recipe import recipe_slices
from pipelines.tuning.measured_choices import NONE_MEASURED, MeasuredChoices
from stages import STAGES
from stages.stage import Stage

if TYPE_CHECKING:
    from pipelines.recipe.resolved import Resolved

SOURCE = "zoo"
"""The stage whose artifact is the model's source; a recipe with a file has the file instead."""
CALIBRATION = "calibration"
"""What stages call the user's calibration data, which no stage gives."""
MEASUREMENTS = "measurements"
"""What stages call the choices that were measured, which no stage gives either."""
CALIBRATING, IMPORTING = "calibrating", "importing"
"""A stage that only some recipes have, and the one whose model stands for its model in others."""

VERIFYING = "verifying"
"""What a build ends with, no stage: the golden vectors replayed in the package, on one machine."""


@dataclass(frozen=True)
class Step:
    """One stage with all it is told; what it is given is known once its inputs are built."""

    stage: Stage
    options: Mapping[str, Any]
    """Argument name → plain data of the options handed in under that name."""
    hardware: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.stage.name


@dataclass(frozen=True)
class Plan:
    """The steps of one recipe, in order, and where its source comes from if not from a step."""

    recipe: str
    steps: tuple[Step, ...]
    source: Path | None
    calibration: Data | None = None
    """The user's calibration data."""
    measured_choices: MeasuredChoices = NONE_MEASURED
    """The choices that were measured."""
    package: str = ""
    """The folder of the package."""
    arguments: str = ""
    """What names the recipe in a command, `recipe=ci/NAME field=value`."""

    def step(self, name: str) -> Step:
        """Return a step by its stage's name."""
        return next(step for step in self.steps if step.name == name)

    def producers(self, step: Step) -> Iterator[tuple[str, Step | None]]:
        """Yield each argument of a step with the step that gives it; None stands for files."""
        for argument, stage in step.stage.takes.items():
            yield argument, None if self._is_file(stage) else self.step(self._standing(stage))

    def _is_file(self, stage: str) -> bool:
        given = (CALIBRATION, MEASUREMENTS)
        return stage in given or (stage == SOURCE and self.source is not None)

    def _standing(self, stage: str) -> str:
        is_absent = stage == CALIBRATING and self.calibration is None
        return IMPORTING if is_absent else stage


def make(
    recipe: str,
    *,
    source: Path | None,
    options: Mapping[str, Mapping[str, Any]],
    hardware: Mapping[str, Any],
    stages: Sequence[Stage] = STAGES,
    calibration: Data | None = None,
    measured_choices: MeasuredChoices = NONE_MEASURED,
    package: str | None = None,
    arguments: str | None = None,
) -> Plan:
    """Return the plan of a recipe: `options` holds plain data by class name in stages.options."""
    steps = tuple(
        Step(
            stage,
            {argument: options[model] for argument, model in stage.options.items()},
            hardware if stage.hardware else None,
        )
        for stage in stages
        if not (stage.name == SOURCE and source is not None)
        and not (stage.name == CALIBRATING and calibration is None)
    )
    return Plan(
        recipe,
        steps,
        source,
        calibration,
        measured_choices,
        package or recipe,
        arguments or f"recipe={recipe}",
    )


def of(resolved: Resolved) -> Plan:
    """Return the plan of a resolved recipe: to each stage its own slice, and no more."""
    recipe = resolved.recipe
    slices: dict[str, BaseModel | None] = {
        "ZooOptions": recipe_slices.zoo_options(recipe),
        "ImportOptions": recipe_slices.import_options(recipe),
        "CalibrateOptions": recipe_slices.calibrate_options(recipe),
        "GoldenOptions": recipe_slices.golden_options(recipe),
        "QuantizeOptions": recipe_slices.quantize_options(recipe),
        "LegalizeOptions": recipe_slices.legalize_options(recipe),
        "PackageOptions": recipe_slices.package_options(recipe, resolved.name),
    }
    return make(
        resolved.name,
        source=recipe.model.file,
        options={name: s.model_dump(mode="json") for name, s in slices.items() if s is not None},
        hardware=resolved.hardware.ingredients(),
        calibration=Data(recipe.calibration, recipe.inputs) if recipe.calibration else None,
        measured_choices=MeasuredChoices(
            recipe.schedule.trials,
            resolved.hardware.core,
            resolved.hardware.isa,
            resolved.hardware.architecture,
        ),
        package=resolved.package,
        arguments=resolved.arguments(),
    )
