"""`doit verify`: golden vectors after every stage and in the package; which departs first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipelines import packages, tables, verifying
from pipelines.commands import arguments
from pipelines.errors import UserError
from pipelines.execute import Workshop
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.plan import Plan


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print one line an output and stage; fail if any departs from the source graph."""
    threads = arguments.threads(variables, default=1)
    workshop = Workshop(plan)
    rows: list[dict[str, Any]] = []
    for stage, found, seconds in verifying.after_stages(workshop):
        rows += _rows(stage, found, round(seconds, 3))
        _tell(rows[-len(found) :])
    try:
        found, how = verifying.in_package(workshop, threads)
    except packages.UnavailableError as why:
        print(f"{'package':<15} not run: {why}")
        rows.append({"stage": "package", "verdict": "not run", "why": str(why)})
    else:
        threaded = f", {threads} thread{'s' if threads > 1 else ''}"
        rows += _rows(f"package ({how}{threaded})", found, None)
        _tell(rows[-len(found) :])
    tables.write_json(variables.command.get("json"), {"recipe": resolved.name, "rows": rows})
    departed = [row for row in rows if row["verdict"] == "departs"]
    if departed:
        first = departed[0]
        raise UserError(
            f"{first['stage']} is the first to depart from the source graph: output "
            f"'{first['output']}' differs in {first['differing']} of {first['values']} values, "
            f"by at most {first['largest_difference']:g}"
        )


def _rows(
    stage: str, found: list[verifying.Comparison], seconds: float | None
) -> list[dict[str, Any]]:
    return [
        {"stage": stage, "verdict": item.verdict, "seconds": seconds, **asdict(item)}
        for item in found
    ]


def _tell(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        detail = ""
        if row["differing"]:
            detail = (
                f"  {row['differing']} of {row['values']} values differ, "
                f"by at most {row['largest_difference']:g}"
            )
        print(
            f"{row['stage']:<15} {row['verdict']:<8} {row['output']}, "
            f"{row['samples']} samples{detail}",
            flush=True,
        )
