"""What a build heeds of the ledger: for each workload, the kernel that was measured best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.tuning import ledger
from pipelines.tuning.ledger import Trial

MARGIN = 0.98
"""A kernel must take at most so much of the predicted one's time: less is within the noise."""

Choices = dict[str, Any]
"""Name of a workload → the kernel chosen, its order, and beside which it was measured
(`stages.qnn.measured`)."""


@dataclass(frozen=True)
class Snapshot:
    """The measured choices of a build. Without trials there are none, whatever the ledger holds."""

    trials: int = 0
    core: str = ""
    isa: str = ""
    architecture: str = ""
    stated: Mapping[str, Any] | None = None
    """Choices to make in any case, instead of measured ones."""

    def choices(self) -> Choices:
        """Return the choices as they are now."""
        if self.stated is not None:
            return dict(self.stated)
        if self.trials == 0:
            return {}
        machine = ledger.machine_for(self.core, self.isa, self.architecture)
        return choices_of(ledger.trials(machine))


PREDICTED = Snapshot()
"""Nothing is measured."""


def choices_of(trials: Iterable[Trial]) -> Choices:
    """Return the best choice for every workload that was measured."""
    by_workload: dict[str, list[Trial]] = {}
    for trial in trials:
        by_workload.setdefault(trial.workloads[0], []).append(trial)
    chosen: Choices = {}
    others: Choices = {}
    for name, found in sorted(by_workload.items()):
        best = best_of(found)
        if best is None:
            continue
        choice = {"kernel": best.against, "order": None, "against": best.against}
        if (better := better_of(found)) is not None:
            choice |= {"kernel": better.kernel, "order": better.order}
        chosen[name] = choice
        others |= dict.fromkeys(best.workloads[1:], choice)
    # What a layer is known by counts more than what it is called on the way.
    return others | chosen


def better_of(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial whose kernel a build takes; None if it stays with the predicted one."""
    best = best_of(trials)
    return best if best is not None and best.ratio is not None and best.ratio <= MARGIN else None


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """Return the fastest of a workload's trials that ran beside the kernel now predicted best."""
    measured = [trial for trial in trials if trial.ratio is not None]
    if not measured:
        return None
    latest = {(t.kernel, t.order): t for t in measured if t.against == measured[-1].against}
    return min(latest.values(), key=lambda t: (t.ratio, t.kernel, t.order or ""))
