"""What may be tried for each layer of a recipe, and which of it is worth a trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hw.profile import Hardware
from pipelines.benchmarks.loaded_program import Steps
from pipelines.builds.stage_calls import validated
from pipelines.tuning import kernels_by_layer, ranking
from pipelines.tuning.ledger import Trial
from pipelines.tuning.measured_choices import best_of, better_of
from pipelines.tuning.ranking import BY_PREDICTION, Ranking
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.packing_choices import packing_text
from stages.kernels.workloads import AXES, LayerKernels
from stages.scheduling import ORDERS
from stages.scheduling.row_blocks import ORDER, row_blocks

SHORT_SECONDS = 1e-3
"""To share a layer takes some microseconds on every thread."""


@dataclass(frozen=True)
class Candidate:
    """A kernel to try, and its schedule; what that does not state is as predicted."""

    kernel: str
    order: str | None = None
    rows: int | None = None
    """Output rows of a row block, of the order `rows_inner`."""
    max_tasks: int | None = None
    """The most tasks that a call is split into."""

    @property
    def axes(self) -> dict[str, Any]:
        """What it states of the schedule, as fields of a trial."""
        stated = dict(zip(AXES, (self.order, self.rows, self.max_tasks), strict=True))
        return {axis: value for axis, value in stated.items() if value is not None}

    @property
    def choice(self) -> dict[str, Any]:
        """It as a choice of a build (`stages.kernels.workloads`)."""
        return {"kernel": self.kernel, "order": None, **self.axes}


@dataclass
class TunedWorkload:
    """A workload of the model: where it is, what may be chosen, and what was measured."""

    name: str
    """The first layer of its kind, which is timed."""
    count: int
    """How many layers are of its kind."""
    kernels: LayerKernels
    default: Candidate
    """What it runs without measurements, in its predicted order."""
    hardware: Hardware
    trials: list[Trial] = field(default_factory=list)
    ranking: Ranking = BY_PREDICTION
    """In which order kernels are tried."""

    def rank(self, by: Ranking) -> None:
        """Have the kernels that were not tried yet in another order."""
        self.ranking = by
        self.__dict__.pop("_kernels", None)

    def candidates(self, count: int) -> list[Candidate]:
        """So many kernels, without the default, those first that are thought to be the fastest.

        What was tried already counts among them, so that a second run goes on with the first one's.
        """
        names = [name for name in self._kernels if name != self.default.kernel]
        tried = [name for name in names if self.is_tried(Candidate(name))]
        ordered = [*tried, *(name for name in names if name not in tried)]
        return [Candidate(name) for name in self._of_every_packing(ordered, count)]

    def schedules(self) -> list[Candidate]:
        """The best kernel by other loops than are predicted for it: in the other order, and in row
        blocks. Like kernels they are timed on one thread, beside the default."""
        kernel = self._best.kernel
        orders = [Candidate(kernel, order) for order in ORDERS if order != self.default.order]
        sizes = row_blocks(self.kernels.workload, self._kernels[kernel], self.hardware)
        return [*orders, *(Candidate(kernel, ORDER, rows) for rows in sizes)]

    def capped(self, threads: int) -> list[Candidate]:
        """The best kernel and its loops in fewer tasks than so many threads could share: a power of
        two of them. Each is to be timed on all threads, beside `uncapped`."""
        best, found = self._best, 1
        kept = []
        while found < threads:
            kept.append(Candidate(best.kernel, best.order, best.rows, found))
            found *= 2
        return kept

    @property
    def is_short(self) -> bool:
        """Whether its best kernel takes so little time on one thread that fewer may be better."""
        best = best_of(self.trials)
        return best is not None and best.seconds is not None and best.seconds < SHORT_SECONDS

    @property
    def uncapped(self) -> Candidate:
        """What capped ones are timed beside."""
        return self._best

    def is_tried(self, candidate: Candidate, on_threads: int | None = None) -> bool:
        """Whether the ledger knows how a candidate came out beside the default, on one thread, or
        on several beside the same without a limit of its tasks."""
        against = self.default.kernel if on_threads is None else candidate.kernel
        return any(
            (of_trial(t), t.against, t.on_threads) == (candidate, against, on_threads)
            for t in self.trials
        )

    def predicted(self, candidate: Candidate) -> float | None:
        """Predicted cycles of a candidate's kernel / those of the default's."""
        found = [self._kernels.get(name) for name in (candidate.kernel, self.default.kernel)]
        cycles = [self.kernels.workload.cycles(kernel) for kernel in found if kernel is not None]
        return cycles[0] / cycles[1] if len(cycles) == len(found) else None

    @property
    def _best(self) -> Candidate:
        """What was measured to be better than the default, or that, in the predicted order."""
        better = better_of(self.trials)
        is_candidate = better is not None and better.kernel in self._kernels
        return of_trial(better) if better and is_candidate else Candidate(self.default.kernel)

    @cached_property
    def _kernels(self) -> dict[str, KernelCandidate]:
        """Kernel → the candidate of that name; those first that are thought to be the fastest."""
        named: dict[str, KernelCandidate] = {}
        for kernel in self.ranking.ordered(self.kernels, self.default.kernel):
            named.setdefault(self.kernels.kernel(kernel), kernel)
        return named

    def _of_every_packing(self, names: Sequence[str], count: int) -> list[str]:
        """The first `count` names, but with a kernel of every way to pack bits among them: how
        these compare is predicted the least well.

        A way that is missing gets a place from the last kernel whose own way has several. At most
        half of the places are given away so.
        """
        taken = list(names[:count])
        first: dict[str | None, str] = {}
        for name in names:
            first.setdefault(self._packing(name), name)
        missing = [name for packing, name in first.items() if packing and name not in taken]
        for name in missing[: count // 2]:
            packings = Counter(map(self._packing, taken))
            spare = next((n for n in reversed(taken) if packings[self._packing(n)] > 1), None)
            if spare is not None:
                taken.remove(spare)
                taken.append(name)
        return taken

    def _packing(self, name: str) -> str | None:
        """How a kernel of popcounts packs bits; None for others."""
        signature = self._kernels[name].signature
        return packing_text(signature) if signature.plan is not None else None


def of_trial(trial: Trial) -> Candidate:
    """What a trial tried."""
    return Candidate(trial.kernel, trial.order, trial.rows, trial.max_tasks)


def candidate_name(kernel: str) -> str:
    """Return what a kernel is called as a candidate: that its images are rebased is no choice.

    Bit-packing rebases whatever it can (`stages.bitpacking.rebasing`), and names what runs so.
    """
    return kernel.replace("_rebased", "")


def candidate_of(layer_kernels: LayerKernels, kernel: str) -> KernelCandidate | None:
    """Return the candidate that a layer runs, by its name; None if there is none of that name."""
    name = candidate_name(kernel)
    return next((one for one in layer_kernels.ranked() if layer_kernels.kernel(one) == name), None)


def layers_of(steps: Steps, known: list[Trial]) -> Iterator[TunedWorkload]:
    """Yield every workload of a built recipe once, with what is known of it.

    Kernels are ranked by what the known trials tell of this machine.
    """
    found = kernels_by_layer.of(steps)
    kernels, orders = kernels_by_layer.running(steps), kernels_by_layer.orders(steps)
    hardware: Hardware = validated("hw.profile", "Hardware", steps.plan.step("scheduling").hardware)
    learned = ranking.learned(known, hardware)
    names = {name: layer_kernels.workload.name for name, layer_kernels in found.items()}
    counts = Counter(names.values())
    for name, layer_kernels in found.items():
        workload = names[name]
        if count := counts.pop(workload, 0):
            default = Candidate(candidate_name(kernels[name]), orders[name])
            trials = [t for t in known if t.workloads[0] == workload]
            yield TunedWorkload(name, count, layer_kernels, default, hardware, trials, learned)
