"""Layer by layer: what every layer computes after each stage, beside where it was first computed.

A layer keeps its name from stage to stage while what is bound to it may become another value: a
composite is called as its main operator and gives what the last operator in it gave. So a value is
compared with those, of its name or of the operators that followed it, that have its element type
and its shape up to layout; packed or padded values have none and are not compared.

With passes each stage is looked at once for each of its passes that rewrote anything, so that what
departs is named by stage and pass. A pass may say that a layer's value means something else now.

A pass that makes other values of all layers leaves nothing to compare with those before. So the
network's outputs are compared with the golden ones after every module, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.builds import pass_runs
from pipelines.builds.plan_execution import PlanExecution
from pipelines.evaluation.comparison import CLOSE, Comparison, compare
from pipelines.evaluation.verification import GOLDEN, in_float, tolerance
from pipelines.recipe.layer_patterns import matching

if TYPE_CHECKING:
    import numpy as np

    from stages.kinds import Model

    Array = np.ndarray[Any, Any]
    from pipelines.evaluation.comparison import Execute

_ALIAS = ".out"
"""How an output's own variable ends, which is a layer's once more."""
_FOLLOWING = 8
"""Most operators behind a layer that a composite may have taken in."""


@dataclass
class ComparedLayer:
    """One layer after one stage beside where its value was first computed, over all samples."""

    stage: str
    layer: str
    after_pass: str = ""
    """The pass of the stage after which this is, `Name 2` where it has run for a second time; empty
    for after all of them."""
    like: str = ""
    """The layer, as it was called there, with whose value it was compared."""
    since: str = ""
    """The stage that computed that value first, and the pass."""
    values: int = 0
    differing: int = 0
    largest_difference: float = 0.0
    largest_value: float = 0.0
    """Of floats; 0 for integers, which are equal or not."""
    tolerance: float = CLOSE

    @property
    def verdict(self) -> str:
        """exact, close, departs, or new where there is nothing of the same meaning before."""
        if not self.like:
            return "new"
        if not self.differing:
            return "exact"
        is_close = self.largest_difference <= self.tolerance * self.largest_value
        return "close" if is_close else "departs"

    def __str__(self) -> str:
        if not self.like:
            return "nothing before has its type and shape"
        said = f"'{self.like}' of {self.since}"
        if not self.differing:
            return f"equals {said}"
        return (
            f"differs from {said} in {self.differing} of {self.values} values, by at most "
            f"{self.largest_difference:g}"
        )


@dataclass
class _Known:
    """Values computed so far for one sample: by layer, where first, and what followed what."""

    values: dict[str, list[tuple[str, Array]]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)

    def candidates(self, layer: str, value: Array) -> Iterator[tuple[str, str, Array]]:
        """Yield stage, layer and value of all that may mean the same, in the layout of `value`."""
        for name in self._line(layer):
            for stage, known in self.values.get(name, []):
                same = _as(known, value)
                if same is not None:
                    yield stage, name, same

    def _line(self, layer: str) -> list[str]:
        """Return a layer and those that follow it one by one, each the only reader of the last."""
        line = [layer]
        while len(line) <= _FOLLOWING:
            readers = self.after.get(line[-1], [])
            if len(readers) != 1 or readers[0] in line:
                break
            line.append(readers[0])
        return line


@dataclass(frozen=True)
class _Module:
    """A module on its way: after a stage, or after a pass of it."""

    stage: str
    after_pass: str
    model: Model
    redefined: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """How it is called where it is compared with."""
        return f"{self.stage}, {self.after_pass}" if self.after_pass else self.stage


@dataclass(frozen=True)
class Found:
    """What layers, and what outputs gave, in the order of stages and passes."""

    layers: list[ComparedLayer]
    outputs: list[tuple[str, str, list[Comparison]]]
    """By stage and pass; no comparison of what is in float before it is calibrated."""


def _modules(execution: PlanExecution, passes: str | None) -> list[_Module]:
    """Return the module after every stage or, with passes, after each that rewrote anything."""
    found: list[_Module] = []
    for step in (step for step in execution.plan.steps if step.stage.gives == "model"):
        applied = [] if passes is None else pass_runs.of_stage(execution, step.name)
        times: Counter[str] = Counter()
        for each in applied:
            times[each.name] += 1
            name = each.name if times[each.name] == 1 else f"{each.name} {times[each.name]}"
            if each.rewrites:
                found.append(_Module(step.name, name, each.model, each.redefined))
        if not applied:
            found.append(_Module(step.name, "", execution.load(step)))
    return found


def by_layer(execution: PlanExecution, pattern: str, passes: str | None = None) -> Found:
    """Return every layer that matches `pattern` (`all` for all) after every stage, and the outputs.

    With `passes`, after each pass of these names (`all` for all); values are compared with those
    of any pass before. Raises UserError if a pattern matches nothing.
    """
    from stages.graph import interpret

    golden, close = execution.load(execution.plan.step(GOLDEN)), tolerance(execution.plan)
    modules = _modules(execution, passes)
    asked = _asked(modules, passes)
    found: dict[tuple[int, str], ComparedLayer] = {}
    given: list[list[Mapping[str, Array]]] = [[] for _ in modules]
    for index in range(len(next(iter(golden.inputs.values())))):
        sample = {name: values[index] for name, values in golden.inputs.items()}
        known = _Known()
        for number, module in enumerate(modules):
            values: dict[str, Any] = {}
            given[number].append(interpret.run(module.model, sample, observe=values.__setitem__))
            arrays = {
                name: value
                for name, value in values.items()
                if not isinstance(value, tuple) and not name.endswith(_ALIAS)
            }
            for layer in module.redefined:
                known.values.pop(layer, None)
            for layer, value in arrays.items():
                row = found.setdefault(
                    (number, layer),
                    ComparedLayer(module.stage, layer, module.after_pass, tolerance=close),
                )
                if layer not in module.redefined:
                    _compare(row, value, known)
            _learn(known, module.label, module.model, arrays)
    names = list(dict.fromkeys(layer for _, layer in found))
    matched = set(matching(pattern, names, "layer"))
    shown = [row for (number, name), row in found.items() if number in asked and name in matched]
    outputs = []
    for number in asked:
        module = modules[number]
        is_float = in_float(execution.plan, module.stage)
        compared = [] if is_float else compare(golden, _given(given[number]), close)
        outputs.append((module.stage, module.after_pass, compared))
    return Found(shown, outputs)


def _given(outputs: list[Mapping[str, Array]]) -> Execute:
    """What gives the outputs of one sample after the other, as if the network ran again."""
    samples = iter(outputs)
    return lambda _inputs: next(samples)


def _asked(modules: list[_Module], passes: str | None) -> list[int]:
    """Return the numbers of the modules that are to be shown; UserError for an unknown pass."""
    if passes is None:
        return list(range(len(modules)))
    own = [module.after_pass.partition(" ")[0] for module in modules]
    known = list(dict.fromkeys(name for name in own if name))
    after = {"", *matching(passes, known, "pass that rewrites anything", "passes")}
    return [number for number, name in enumerate(own) if name in after]


def _compare(row: ComparedLayer, value: Array, known: _Known) -> None:
    """Compare one value with the one it is nearest to, of all that may mean the same."""
    import numpy as np

    best: tuple[int, float, str, str] | None = None
    for stage, name, wanted in known.candidates(row.layer, value):
        ours, theirs = value.astype(np.float64), wanted.astype(np.float64)
        differs = ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
        with np.errstate(invalid="ignore"):
            largest = float(np.abs(ours - theirs)[differs].max(initial=0.0))
        one = (int(differs.sum()), largest, stage, name)
        best = one if best is None or one[0] < best[0] else best
    if best is not None:
        row.values += value.size
        row.differing += best[0]
        row.largest_difference = max(row.largest_difference, best[1])
        if value.dtype.kind == "f":
            row.largest_value = max(row.largest_value, float(np.abs(value).max(initial=0.0)))
        row.since, row.like = best[2:]


def _learn(known: _Known, stage: str, model: Any, values: Mapping[str, Array]) -> None:
    """Keep what a stage computed that nothing before it did, and who reads whom."""
    from tvm import relax

    from stages.graph.bindings import bindings_of

    readers: dict[str, list[str]] = {}
    for binding in bindings_of(model.module["main"]):
        for argument in getattr(binding.value, "args", [binding.value]):
            if isinstance(argument, relax.Var):
                readers.setdefault(argument.name, []).append(binding.var.name)
    for name, value in values.items():
        entries = known.values.setdefault(name, [])
        if all(_as(entry, value) is None for _, entry in entries):
            entries.append((stage, value))
            known.after.setdefault(name, readers.get(name, []))


def _as(known: Array, value: Array) -> Array | None:
    """Return a value in the layout of another: channels moved, axes of 1 dropped; None if not."""
    import numpy as np

    if known.dtype != value.dtype or known.size != value.size:
        return None
    ours, theirs = (tuple(e for e in a.shape if e != 1) for a in (value, known))
    if ours == theirs:
        return known.reshape(value.shape)
    squeezed = known.reshape(theirs)
    first = squeezed.ndim - 3  # the axis of channels, behind that of a batch
    for source, target in ((first, -1), (-1, first)):
        if first in (0, 1):
            moved = np.moveaxis(squeezed, source, target)
            if moved.shape == ours:
                return moved.reshape(value.shape)
    return None
