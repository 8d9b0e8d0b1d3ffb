"""What a build heeds of the ledger: for each workload, the kernel and schedule measured best.

A kernel and its loops are chosen by what they take on one thread. Then those trials count in which
this kernel ran on several threads, in fewer tasks than it could.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.tuning import ledger
from pipelines.tuning.ledger import Trial

MARGIN = 0.98
"""A kernel must take at most so much of the predicted one's time: less is within the noise."""

Choices = dict[str, Any]
"""Name of a workload → the kernel chosen, its schedule, and beside which kernel it was measured
(`stages.kernels.workloads`)."""


@dataclass(frozen=True)
class MeasuredChoices:
    """What a build heeds of the ledger as it is when asked; without trials that is nothing."""

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


NONE_MEASURED = MeasuredChoices()
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
        choice = _choice(best, better_of(found), found)
        chosen[name] = choice
        others |= dict.fromkeys(best.workloads[1:], choice)
    # What a layer is known by counts more than what it is called on the way.
    return others | chosen


def _choice(best: Trial, better: Trial | None, trials: Iterable[Trial]) -> dict[str, Any]:
    """The choice for a workload: the predicted kernel, or the one that was measured to be better,
    in as many tasks as are best for it."""
    choice = {"kernel": best.against, "order": None, "against": best.against}
    rows = None
    if better is not None:
        choice |= {"kernel": better.kernel, "order": better.order}
        rows = better.rows
    capped = capped_of(trials, str(choice["kernel"]), choice["order"], rows)
    axes = {"rows": rows, "threads": capped.max_tasks if capped is not None else None}
    return choice | {axis: value for axis, value in axes.items() if value is not None}


def better_of(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial whose kernel a build takes; None if it stays with the predicted one."""
    best = best_of(trials)
    return best if best is not None and best.ratio is not None and best.ratio <= MARGIN else None


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """Return the fastest of a workload's trials on one thread beside the kernel now predicted best.

    Of trials of one kernel and schedule the latest counts.
    """
    measured = [t for t in trials if t.ratio is not None and t.on_threads is None]
    if not measured:
        return None
    latest = {_tried(t): t for t in measured if t.against == measured[-1].against}
    return min(latest.values(), key=lambda t: (t.ratio, t.kernel, t.order or "", t.rows or 0))


def capped_of(
    trials: Iterable[Trial], kernel: str, order: str | None, rows: int | None
) -> Trial | None:
    """Return the fastest of the trials of a kernel and its loops in fewer tasks than it can use.

    Those on as many threads as the latest one; None if it had better have all tasks.
    """
    wanted = kernel, order, rows
    measured = [
        t
        for t in trials
        if t.ratio is not None and t.on_threads is not None and t.max_tasks is not None
        if (t.kernel, t.order, t.rows) == wanted and t.against == kernel
    ]
    if not measured:
        return None
    latest = {_tried(t): t for t in measured if t.on_threads == measured[-1].on_threads}
    best = min(latest.values(), key=lambda t: (t.ratio, t.max_tasks))
    return best if best.ratio is not None and best.ratio <= MARGIN else None


def _tried(trial: Trial) -> tuple[object, ...]:
    return trial.kernel, trial.order, trial.rows, trial.max_tasks
