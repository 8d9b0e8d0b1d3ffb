"""Why a stage will run: its ingredients beside those of the artifact this recipe had last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.builds.plan import Step
from pipelines.builds.plan_execution import PlanExecution
from pipelines.recipe.recipe import flatten
from pipelines.store import keys, roots
from pipelines.store.manifest import DamagedError

_LONGEST = 60


@dataclass(frozen=True)
class State:
    """Whether a stage is cached and, if it is not, every reason."""

    stage: str
    is_cached: bool
    artifact: str | None
    reasons: tuple[str, ...]


def states(execution: PlanExecution) -> Iterator[State]:
    """Yield the state of each stage of a recipe, in order. Nothing is built."""
    waiting: set[str] = set()
    for step in execution.plan.steps:
        state = _state(execution, step, waiting)
        if not state.is_cached:
            waiting.add(step.name)
        yield state


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence for every ingredient that differs; inputs not yet known are left out."""
    old, new = _leaves(before), _leaves(after)
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was == now or (name.startswith("inputs.") and now is None):
            continue
        group, _, rest = name.partition(".")
        if group == "code":
            verb = "is new" if was is None else "is gone" if now is None else "changed"
            yield f"{rest} {verb}"
        elif group == "inputs":
            yield f"its input '{rest}' changed"
        else:
            yield f"{name}: {_shown(was)} -> {_shown(now)}"


def _state(execution: PlanExecution, step: Step, waiting: set[str]) -> State:
    name = step.name
    takes = [stage for stage in dict.fromkeys(step.stage.takes.values()) if stage in waiting]
    try:
        if not takes and (manifest := execution.current(step)) is not None:
            folder = execution.store.folder(name, manifest.key)
            return State(name, True, str(folder.relative_to(execution.store.root)), ())
        found = execution.ingredients(step)
    except DamagedError as damage:
        return State(name, False, None, (f"damaged: {damage}",))
    reasons = list(_compared(execution, step, found))
    if takes and not reasons:
        reasons = [f"follows {', '.join(takes)}; runs only if what comes from there differs"]
    return State(name, False, None, tuple(reasons) or ("its artifact was removed",))


def _compared(execution: PlanExecution, step: Step, found: Mapping[str, Any]) -> Iterator[str]:
    for key in roots.of(execution.store, execution.plan.recipe).get(step.name, []):
        try:
            manifest = execution.store.manifest(step.name, key)
        except DamagedError as damage:
            yield f"damaged: {damage}"
            return
        if manifest is not None:
            yield from differences(manifest.ingredients, found)
            return
    if not execution.store.root.joinpath("roots", f"{execution.plan.recipe}.json").exists():
        yield "never built for this recipe"


def _leaves(ingredients: Mapping[str, Any]) -> dict[str, Any]:
    """Return ingredients by dotted name; code is by file, whose name has dots of its own."""
    leaves: dict[str, Any] = {}
    for group, value in ingredients.items():
        if group == "code":
            leaves |= {f"code.{path}": text for path, text in value.items()}
        else:
            leaves |= {f"{group}.{path}": leaf for path, leaf in flatten(value)}
    return leaves


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else keys.canonical(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
