"""Whether a recipe had its trials: what they depend on, and the ledger's mark of it."""

from __future__ import annotations

from dataclasses import replace

from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.guards import asked
from pipelines.tuning import ledger
from pipelines.tuning.measured_choices import NONE_MEASURED


@asked
def is_measured(plan: Plan) -> bool:
    """Whether the ledger holds all the trials that a recipe wants."""
    base = PlanExecution(replace(plan, measured_choices=NONE_MEASURED))
    key = key_of(base)
    return key is not None and ledger.is_finished(key, plan.measured_choices.trials)


def key_of(base: PlanExecution) -> str | None:
    """Return what a recipe's trials depend on: a stage's key, of a build that measured nothing.

    None while what comes before the stage is not built.
    """
    address = base.address(base.plan.step("scheduling"))
    return address.key if address is not None else None
