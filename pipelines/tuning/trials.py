"""Tuning a recipe: every layer's kernels tried on boards, in turns with the predicted one.

A trial is a layer with one other kernel, made by a whole dry build: it goes through the same
stages, is proved as all kernels are, and must give the outputs that NumPy computes. Only then is it
timed, by a runner on the board (`pipelines.remote`), which may be this machine. Boards with the
same processor share the trials; each other kind of processor has all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hw.profile import Hardware
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.machine import check_runs
from pipelines.remote.board_addresses import LOCAL, Board
from pipelines.remote.runner_session import Session, Told
from pipelines.remote.timed_turns import TurnLengths
from pipelines.remote.transport import Transport, transport
from pipelines.remote.worker_pool import WAITS, Failed, WorkerPool
from pipelines.tuning import finished_trials, ledger, ranking
from pipelines.tuning.candidates import Candidate, TunedWorkload, layers_of
from pipelines.tuning.ledger import Finished, Machine, Trial
from pipelines.tuning.measured_choices import NONE_MEASURED, best_of, better_of
from pipelines.tuning.trial_libraries import Prepared, Preparing
from pipelines.tuning.trial_timing import Times, measure

HERE = Board(name=LOCAL, address=LOCAL)
AHEAD = 2
"""Kernels a layer that are made ready while boards are at others."""
_REASON = 200


@dataclass
class Group:
    """Boards with the same processor, which share the trials of a recipe."""

    machine: Machine
    sessions: list[tuple[Transport, Session]]
    layers: list[TunedWorkload]

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


class Tuner:
    """The trials of one recipe, on this machine or on boards.

    UserError if what is built cannot run there, or none of the boards can be reached.
    """

    def __init__(
        self,
        plan: Plan,
        hardware: Hardware,
        told: Told,
        boards: Sequence[Transport] = (),
        timing: TurnLengths = TurnLengths(),  # noqa: B008 - it is immutable
        waits: Sequence[float] = WAITS,
        shown: Told = lambda _: None,
    ) -> None:
        """`told` gets sentences to keep, `shown` how far it is."""
        if not boards:
            check_runs(
                hardware,
                "measuring",
                "name a board to measure on: board=user@host, or leave out schedule.trials",
            )
            boards = (transport(HERE),)
        self.hardware, self.told, self.timing, self.waits = hardware, told, timing, waits
        self.shown = shown
        self._connect = partial(_session, hardware=hardware)
        sessions = self._sessions(boards)
        self.base = PlanExecution(replace(plan, measured_choices=NONE_MEASURED))
        self.base.produce(self.base.plan.step("packaging"))
        self.preparing = Preparing(self.base, hardware)
        self.groups = list(self._grouped(sessions))

    def run(self, count: int) -> None:
        """Try up to `count` kernels a layer, then the best one by other loops.

        What the ledger holds is not measured again; what is measured is kept at once.
        """
        try:
            for group in self.groups:
                self._tune(group, count)
        finally:
            for group in self.groups:
                for _, session in group.sessions:
                    session.close()
        key = finished_trials.key_of(self.base)
        assert key is not None, "the recipe was just built"
        processors = (group.machine.processor for group in self.groups)
        ledger.append(Finished(finished=key, trials=count, processor=p) for p in processors)

    # -- boards ------------------------------------------------------------------------------

    def _sessions(self, boards: Sequence[Transport]) -> list[tuple[Transport, Session]]:
        """Reach all boards at once; what is wrong with one is told if others are there."""
        with ThreadPoolExecutor(len(boards)) as pool:
            found = list(pool.map(partial(_reached, self._connect), boards))
        reached = [(to, s) for to, s in zip(boards, found, strict=True) if isinstance(s, Session)]
        for error in found:
            if isinstance(error, UserError):
                if not reached:
                    raise error
                self.told(f"{error.message}; the other boards take its share")
        return reached

    def _grouped(self, sessions: list[tuple[Transport, Session]]) -> list[Group]:
        by_processor: dict[str, list[tuple[Transport, Session]]] = {}
        for to, session in sessions:
            by_processor.setdefault(session.hello.processor, []).append((to, session))
        groups = []
        for processor, found in by_processor.items():
            machine = ledger.machine(self.hardware.core, self.hardware.isa, processor)
            layers = list(layers_of(self.base, ledger.trials(machine)))
            groups.append(Group(machine, found, layers))
        return groups

    # -- trials ------------------------------------------------------------------------------

    def _tune(self, group: Group, count: int) -> None:
        boards = [
            (to.board.name, _first_then(session, partial(self._connect, to)))
            for to, session in group.sessions
        ]
        work = partial(measure, timing=self.timing)
        with WorkerPool[Prepared, Times](boards, work, self.told, self.waits) as pool:
            pool.wait()
            # Whoever had the board until now may have measured the same.
            known = ledger.trials(group.machine)
            for layer in group.layers:
                layer.trials = [t for t in known if t.workloads[0] == layer.kernels.workload.name]
            trying = _Trying(self, group, pool)
            for number in range(count):
                if number and ranking.is_time(number):
                    trying.finish()
                    by = ranking.learned(ledger.trials(group.machine), self.hardware)
                    for layer in group.layers:
                        layer.rank(by)
                wanted = {
                    layer.name: candidates[number]
                    for layer in group.layers
                    if number < len(candidates := layer.candidates(count))
                }
                trying.submit(wanted, f"kernel {number + 1} of {count}")
            trying.finish()
            schedules = {layer.name: layer.schedules() for layer in group.layers}
            most = max(map(len, schedules.values()), default=0)
            for number in range(most):
                wanted = {
                    name: found[number] for name, found in schedules.items() if found[number:]
                }
                trying.submit(wanted, f"loops {number + 1} of {most}")
            trying.finish()
            self._limit(group, trying)

    def _limit(self, group: Group, trying: _Trying) -> None:
        """Try short layers in fewer tasks than all threads could share."""
        threads = min((len(s.hello.cores) for _, s in group.sessions), default=1)
        if threads == 1:
            return
        limits = {layer.name: layer.capped(threads) for layer in group.layers if layer.is_short}
        most = max(map(len, limits.values()), default=0)
        for number in range(most):
            wanted = {name: found[number] for name, found in limits.items()}
            trying.submit(wanted, f"{threads} threads, limit {number + 1} of {most}", threads)
        trying.finish()

    def record(
        self, group: Group, layer: TunedWorkload, tried: Candidate, threads: int = 1, **found: Any
    ) -> None:
        """Keep how a trial came out on so many threads."""
        trial = Trial(
            machine=group.machine,
            workloads=tuple(workload.name for workload in layer.kernels.workloads),
            kernel=tried.kernel,
            against=layer.default.kernel if threads == 1 else tried.kernel,
            on_threads=None if threads == 1 else threads,
            predicted=layer.predicted(tried),
            recipe=self.base.plan.recipe,
            layer=layer.name,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            **tried.axes,
            **found,
        )
        ledger.append([trial])
        layer.trials.append(trial)


class _Trying:
    """Trials that are made ready, given to boards, and recorded as they come back."""

    def __init__(self, tuner: Tuner, group: Group, pool: WorkerPool[Prepared, Times]) -> None:
        self.tuner, self.group, self.pool = tuner, group, pool
        self.left: Counter[str] = Counter()
        """Title → trials of it that are not back yet."""
        self.counts: dict[str, tuple[int, int]] = {}
        """Title → trials, and how many failed."""
        self.titles: dict[int, str] = {}

    def submit(self, wanted: Mapping[str, Candidate], title: str, threads: int = 1) -> None:
        """Give out one candidate a layer, but those that were tried before."""
        on = None if threads == 1 else threads
        tried = {
            layer.name: (layer, wanted[layer.name])
            for layer in self.group.layers
            if layer.name in wanted and not layer.is_tried(wanted[layer.name], on)
        }
        if not tried:
            return
        self.tuner.shown(f"{title}: {len(tried)} layers")
        self.left[title] = len(tried)
        self.counts[title] = (len(tried), 0)
        try:
            prepared = self.tuner.preparing.trial(tried, threads)
        except Exception as error:
            # Whatever stands in one kernel's way is a fact about it, and the rest goes on.
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:_REASON]
            prepared = [reason] * len(tried)
        ready = []
        for (layer, candidate), each in zip(tried.values(), prepared, strict=True):
            if isinstance(each, str):
                self._keep(layer, candidate, title, threads, failed=each)
            else:
                ready.append(each)
                self.titles[id(each)] = title
        self.pool.submit(ready)
        self._collect(AHEAD * len(self.group.layers))

    def finish(self) -> None:
        """Wait for all that was given out."""
        self._collect(0)

    def _collect(self, most: int) -> None:
        while self.pool.open > most:
            item, result = self.pool.next()
            tried = item.layer, item.candidate, self.titles.pop(id(item)), item.threads
            if isinstance(result, Failed) and not result.is_known:
                self.tuner.told(f"{item.layer.name}: {item.candidate.kernel}: {result.why}")
                self._count(tried[2], is_failed=True)
            elif isinstance(result, Failed):
                self._keep(*tried, failed=result.why[:_REASON])
            else:
                found = {name: getattr(result, name) for name in _MEASURED}
                self._keep(*tried, **found)

    def _keep(
        self, layer: TunedWorkload, candidate: Candidate, title: str, threads: int, **found: Any
    ) -> None:
        self.tuner.record(self.group, layer, candidate, threads, **found)
        self._count(title, "failed" in found)

    def _count(self, title: str, is_failed: bool) -> None:
        count, failed = self.counts[title]
        failed += is_failed
        self.counts[title] = count, failed
        self.left[title] -= 1
        self.tuner.shown(f"{title}: {count - self.left[title]} of {count} layers")
        if not self.left[title]:
            note = f", {failed} failed" if failed else ""
            best = f"best so far {self.group.gain():.2f} of predicted"
            self.tuner.told(f"{title}: {count} layers{note}; {best}")


_MEASURED = ("seconds", "against_seconds", "ratio")


def _session(to: Transport, hardware: Hardware) -> Session:
    return Session(to, hardware.architecture)


def _reached(connect: Callable[[Transport], Session], to: Transport) -> Session | UserError:
    try:
        return connect(to)
    except UserError as error:
        return error


def _first_then(first: Session, connect: Callable[[], Session]) -> Callable[[], Session]:
    """Give the session that is there, and from then on new ones."""
    there = [first]
    return lambda: there.pop() if there else connect()
