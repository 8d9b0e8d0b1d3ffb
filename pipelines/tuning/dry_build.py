"""Steps as they would come out with other choices; only items are kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.builds import stage_calls
from pipelines.builds.plan import MEASUREMENTS, Step
from pipelines.builds.plan_execution import PlanExecution
from pipelines.store.items import Memo
from pipelines.tuning.measured_choices import MeasuredChoices


class DryBuild:
    """A built recipe whose choices are replaced: what depends on them is made anew, in memory."""

    def __init__(self, built: PlanExecution, choices: Mapping[str, Any]) -> None:
        self.plan = replace(built.plan, measured_choices=MeasuredChoices(stated=choices))
        self._built = built
        self._changed = PlanExecution(self.plan, built.store)
        self._made: dict[str, Any] = {}

    def memo(self, step: Step) -> Memo:
        """Return the items of a step, shared with all builds."""
        return self._built.memo(step)

    def load(self, step: Step) -> Any:
        """Return what a step gives."""
        if not self._depends(step):
            return self._built.load(step)
        if step.name not in self._made:
            arguments = {
                argument: self._changed.files(step, argument) if giver is None else self.load(giver)
                for argument, giver in self.plan.producers(step)
            }
            self._made[step.name] = stage_calls.call(step, arguments, self.memo(step))
        return self._made[step.name]

    def _depends(self, step: Step) -> bool:
        givers = (giver for _, giver in self.plan.producers(step) if giver is not None)
        return MEASUREMENTS in step.stage.takes.values() or any(map(self._depends, givers))
