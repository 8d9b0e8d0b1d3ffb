"""`doit show`: every value of a recipe with its origin, and the state of every stage.

With layer=PATTERN: how these layers become kernels, and the kernels of products that they could
run, as predicted and as measured. With passes=all: the passes that rewrite the graph, in order.
"""

from __future__ import annotations

from typing import Any

from pipelines.builds import agreement, pass_runs, publication, staleness
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import shown
from pipelines.output import printed_tables
from pipelines.recipe.layer_patterns import matching
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print the tables; nothing is built."""
    if (pattern := variables.command.get("layer")) is not None:
        _layers(plan, resolved, pattern, variables)
        return
    if (pattern := variables.command.get("passes")) is not None:
        _passes(plan, resolved, pattern, variables)
        return
    if resolved.recipe.inputs or resolved.recipe.outputs:
        agreement.check_without_keeping(plan, resolved)
    values = [
        {"field": field, "value": value, "from": resolved.origins.get(field, "default")}
        for field, value in resolved.values().items()
    ]
    hardware = [
        {"field": field, "value": value}
        for field, value in resolved.hardware.model_dump(mode="json").items()
    ]
    states = [_row(state) for state in staleness.states(PlanExecution(plan))]
    printed_tables.show(f"{resolved.name}: values", values, ["field", "value", "from"])
    printed_tables.show(f"{resolved.hardware.name}: hardware", hardware, ["field", "value"])
    printed_tables.show("stages", states, ["stage", "state", "why"])
    package = publication.package_folder_of(plan)
    print(f"package: {shown(package)}{'' if package.exists() else ', not built yet'}")
    result = {
        "recipe": resolved.name,
        "package": shown(package),
        "values": values,
        "hardware": hardware,
        "stages": states,
    }
    printed_tables.write_json(variables.command.get("json"), result)


def _layers(plan: Plan, resolved: Resolved, pattern: str, variables: Variables) -> None:
    from pipelines.tuning import alternatives, lowering_rows

    execution = PlanExecution(plan)
    lowering = lowering_rows.rows(execution, resolved, pattern)
    rows = alternatives.rows(execution, resolved, pattern)
    shown = [
        {
            "layer": row["layer"],
            "": "runs" if row["chosen"] else "",
            "algorithm": row["algorithm"],
            "packing": _short(row["packing"]),
            "kernel": row["kernel"],
            "predicted kcycles": f"{row['predicted_cycles'] / 1e3:.1f}",
            "measured us": printed_tables.microseconds(row["measured_seconds"])
            or row["failed"]
            or "",
            "by": row["schedule"] or "",
        }
        for row in rows
    ]
    title = f"{resolved.name}: kernels by predicted cycles of {resolved.hardware.core}"
    printed_tables.show(
        f"{resolved.name}: how layers become kernels",
        lowering,
        ["layer", "reads", "sums", "work", "finisher", "row"],
    )
    if shown:
        printed_tables.show(f"{title}, one thread", shown, list(shown[0]))
    result = {"recipe": resolved.name, "lowering": lowering, "kernels": rows}
    printed_tables.write_json(variables.command.get("json"), result)


def _passes(plan: Plan, resolved: Resolved, pattern: str, variables: Variables) -> None:
    rows: list[dict[str, Any]] = [
        {
            "stage": stage,
            "pass": applied.name,
            "rewrites": applied.rewrites,
            "ms": round(1e3 * applied.seconds, 1),
            "does": applied.row.does,
            "because": applied.row.because,
        }
        for stage, applied in pass_runs.of_recipe(PlanExecution(plan))
    ]
    wanted = set(matching(pattern, [row["pass"] for row in rows], "pass", "passes"))
    shown = [row for row in rows if row["pass"] in wanted]
    columns = ["stage", "pass", "rewrites", "ms", "does"]
    printed_tables.show(f"{resolved.name}: passes, in order", shown, columns)
    printed_tables.write_json(
        variables.command.get("json"), {"recipe": resolved.name, "passes": shown}
    )


def _short(packing: str | None) -> str:
    """How bits are packed, for a narrow column: `32 outermost words`."""
    return " ".join(part.split()[-1] for part in packing.split(",")) if packing else ""


def _row(state: staleness.State) -> dict[str, Any]:
    return {
        "stage": state.stage,
        "state": "cached" if state.is_cached else "will run",
        "why": state.artifact if state.is_cached else "; ".join(state.reasons),
    }
