"""What may be tried for each layer of a recipe, and which of it is worth a trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.measuring.loaded import Steps
from pipelines.tuning import subjects
from pipelines.tuning.ledger import Trial
from pipelines.tuning.snapshot import best_of
from stages.qnn.measured import Subject
from stages.tuning import ORDERS


@dataclass(frozen=True)
class Candidate:
    """A kernel to try; without an order the predicted one."""

    kernel: str
    order: str | None = None


@dataclass
class Layer:
    """A workload of the model: where it is, what may be chosen, and what was measured."""

    name: str
    """The first layer of its kind, which is timed."""
    count: int
    """How many layers are of its kind."""
    subject: Subject
    default: Candidate
    """What it runs without measurements, in its predicted order."""
    trials: list[Trial] = field(default_factory=list)

    def candidates(self, count: int) -> list[Candidate]:
        """So many kernels, those predicted to be cheapest first, without the default."""
        names = (self.subject.kernel(offer) for offer in self.subject.ranked())
        default = as_offered(self.default.kernel)
        return [Candidate(name) for name in names if name != default][:count]

    def turned(self) -> list[Candidate]:
        """The best kernel in the order that was not predicted for it."""
        best = best_of(self.trials)
        is_better = best is not None and best.ratio is not None and best.ratio < 1
        kernel = best.kernel if best is not None and is_better else self.default.kernel
        return [Candidate(kernel, order) for order in ORDERS if order != self.default.order]

    def is_tried(self, candidate: Candidate) -> bool:
        """Whether the ledger knows how a candidate came out beside the default."""
        return any(
            (t.kernel, t.order, t.against)
            == (candidate.kernel, candidate.order, self.default.kernel)
            for t in self.trials
        )


def as_offered(kernel: str) -> str:
    """Return the name by which a kernel is offered: that its pictures are rebased is no choice.

    Bit-packing rebases whatever it can (`stages.bitpacking.rebasing`), and names what runs so.
    """
    return kernel.replace("_rebased", "")


def layers_of(steps: Steps, known: list[Trial]) -> Iterator[Layer]:
    """Yield every workload of a built recipe once, with what is known of it."""
    found = subjects.of(steps)
    kernels, orders = subjects.running(steps), subjects.orders(steps)
    names = {name: subject.workload.name for name, subject in found.items()}
    counts = Counter(names.values())
    for name, subject in found.items():
        workload = names[name]
        if count := counts.pop(workload, 0):
            default = Candidate(kernels[name], orders[name])
            trials = [t for t in known if t.workloads[0] == workload]
            yield Layer(name, count, subject, default, trials)
