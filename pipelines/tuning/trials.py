"""Tuning a recipe: every layer's kernels tried on this machine, in turns with the predicted one.

A trial is a whole build with one other kernel for every layer that has candidates left: it goes
through the same stages, is proved as all kernels are, and must give the same outputs. Only then is
each new kernel timed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.benching import rounds
from pipelines.execute import Workshop
from pipelines.machine import check_runs
from pipelines.measuring.loaded import LoadedProgram, loaded
from pipelines.plan import Plan
from pipelines.tuning import ledger, subjects
from pipelines.tuning.candidates import Candidate, Layer, layers_of
from pipelines.tuning.ledger import Finished, Trial
from pipelines.tuning.rehearsal import Rehearsal
from pipelines.tuning.snapshot import PREDICTED, best_of, better_of

Told = Callable[[str], None]
ROUNDS = 9
"""Turns that every kernel of a trial has."""
_REASON = 200


class Tuner:
    """The trials of one recipe on this machine."""

    def __init__(self, plan: Plan, hardware: Hardware, told: Told) -> None:
        """Build the recipe as predicted; UserError if what is built cannot run here."""
        check_runs(hardware, "measuring", "run it on such a machine, or leave out schedule.trials")
        self.hardware, self.told = hardware, told
        self.base = Workshop(replace(plan, snapshot=PREDICTED))
        self.machine = ledger.machine(hardware.core, hardware.isa)
        self.base.produce(self.base.plan.step("packaging"))
        golden = self.base.load(self.base.plan.step("golden"))
        self.inputs = {name: array[0] for name, array in golden.inputs.items()}
        self.layers = list(layers_of(self.base, ledger.trials(self.machine)))
        self.program: LoadedProgram | None = None

    def run(self, count: int) -> None:
        """Try up to `count` kernels a layer, then the best one by other loops.

        What the ledger holds is not measured again; what is measured is kept at once.
        """
        for number in range(count):
            wanted = {
                layer.name: candidates[number]
                for layer in self.layers
                if number < len(candidates := layer.candidates(count))
            }
            if wanted:
                self._trial(wanted, f"kernel {number + 1} of {count}")
        schedules = {layer.name: layer.schedules() for layer in self.layers}
        most = max(map(len, schedules.values()), default=0)
        for number in range(most):
            wanted = {name: found[number] for name, found in schedules.items() if found[number:]}
            self._trial(wanted, f"loops {number + 1} of {most}")
        key = ledger.key_of(self.base)
        assert key is not None, "the recipe was just built"
        ledger.append([Finished(finished=key, trials=count)])

    def gain(self) -> float:
        """Time of all chosen kernels with what was measured / as predicted."""
        predicted = best = 0.0
        for layer in self.layers:
            found, better = best_of(layer.trials), better_of(layer.trials)
            if found is not None and found.against_seconds is not None:
                seconds = layer.count * found.against_seconds
                predicted += seconds
                best += seconds * (better.ratio if better and better.ratio else 1.0)
        return best / predicted if predicted else 1.0

    # -- one trial ---------------------------------------------------------------------------

    def _trial(self, wanted: Mapping[str, Candidate], title: str) -> None:
        tried = [
            (layer, wanted[layer.name])
            for layer in self.layers
            if layer.name in wanted and not layer.is_tried(wanted[layer.name])
        ]
        if not tried:
            return
        choices = {
            workload.name: candidate.choice
            for layer, candidate in tried
            for workload in layer.subject.workloads
        }
        steps = Rehearsal(self.base, choices)
        try:
            program = loaded(steps, self.hardware, self.inputs)
            if self.program is None:
                self.program = loaded(self.base, self.hardware, self.inputs)
            if program.outputs() != self.program.outputs():
                raise ValueError("the outputs differ from those of the predicted kernels")
        except Exception as error:
            # Whatever stands in one kernel's way is a fact about it, and the rest goes on.
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:_REASON]
            found = [self._record(layer, candidate, failed=reason) for layer, candidate in tried]
        else:
            used = subjects.running(steps)
            found = [
                self._timed(layer, candidate, program, self.program, used[layer.name])
                for layer, candidate in tried
            ]
        ledger.append(found)
        for (layer, _), trial in zip(tried, found, strict=True):
            layer.trials.append(trial)
        failed = sum(trial.failed is not None for trial in found)
        note = f", {failed} failed" if failed else ""
        self.told(f"{title}: {len(found)} layers{note}; best so far {self.gain():.2f} of predicted")

    def _timed(
        self,
        layer: Layer,
        candidate: Candidate,
        program: LoadedProgram,
        base: LoadedProgram,
        used: str,
    ) -> Trial:
        if used != candidate.kernel:
            return self._record(layer, candidate, failed=f"the layer ran {used} instead")
        times = rounds.alternate(
            {
                "base": lambda count: base.seconds(layer.name, count),
                "trial": lambda count: program.seconds(layer.name, count),
            },
            ROUNDS,
            None,
        )
        ratios = np.divide(times["trial"], times["base"])
        return self._record(
            layer,
            candidate,
            seconds=float(np.median(times["trial"])),
            against_seconds=float(np.median(times["base"])),
            ratio=float(np.median(ratios)),
        )

    def _record(self, layer: Layer, candidate: Candidate, **found: Any) -> Trial:
        return Trial(
            machine=self.machine,
            workloads=tuple(workload.name for workload in layer.subject.workloads),
            kernel=candidate.kernel,
            against=layer.default.kernel,
            predicted=layer.predicted(candidate),
            recipe=self.base.plan.recipe,
            layer=layer.name,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            **candidate.axes,
            **found,
        )
