"""`doit show`: every value of a recipe with its origin, and the state of every stage."""

from __future__ import annotations

from typing import Any

from pipelines import show, tables
from pipelines.execute import Workshop
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.plan import Plan


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print both tables; nothing is built."""
    values = [
        {"field": field, "value": value, "from": resolved.origins.get(field, "default")}
        for field, value in resolved.values().items()
    ]
    hardware = [
        {"field": field, "value": value}
        for field, value in resolved.hardware.model_dump(mode="json").items()
    ]
    states = [_row(state) for state in show.states(Workshop(plan))]
    tables.show(f"{resolved.name}: values", values, ["field", "value", "from"])
    tables.show(f"{resolved.hardware.name}: hardware", hardware, ["field", "value"])
    tables.show("stages", states, ["stage", "state", "why"])
    result = {"recipe": resolved.name, "values": values, "hardware": hardware, "stages": states}
    tables.write_json(variables.command.get("json"), result)


def _row(state: show.State) -> dict[str, Any]:
    return {
        "stage": state.stage,
        "state": "cached" if state.is_cached else "will run",
        "why": state.artifact if state.is_cached else "; ".join(state.reasons),
    }
