"""`doit ci`: many recipes built and verified, one table, and files for what runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from pipelines.builds import ci_builds
from pipelines.builds.ci_builds import Built
from pipelines.cluster import scheduler_address
from pipelines.commands import arguments
from pipelines.documents.trees import is_path_like
from pipelines.errors import CheckError, UserError, cut, nearest
from pipelines.output import junit, out_files, part_progress, printed_tables
from pipelines.recipe import load
from pipelines.recipe.overrides import Variables

WATCHING = "ci/*"
"""The recipes of the work folder that are meant, where there are such; else all are."""
COLUMNS = ("recipe", "board", "package", "seconds", "verified")


def run(*, variables: Variables) -> None:
    """Build and verify each recipe, print and write what came of it; CheckError for a fault."""
    scheduler = scheduler_address.scheduler(
        variables.command.get("executor"), variables.command.get("scheduler")
    )
    for variable in ("json", "junit"):
        out_files.check(variable, variables.command.get(variable))
    recipes = chosen(variables.command.get("recipes"))
    jobs = arguments.jobs(variables) or (1 if scheduler is None else os.cpu_count() or 1)
    found: list[Built] = []
    with part_progress.shown(recipes, jobs) as done:
        for result in _results(recipes, jobs, scheduler):
            found.append(result)
            state = result.package if result.is_fine else "FAILED"
            done(result.recipe, f"{state}  {result.seconds:.1f} s")
    found.sort(key=lambda result: recipes.index(result.recipe))
    printed_tables.show("ci", [_row(result) for result in found], COLUMNS)
    print(_sum(found))
    rows = [{"is_fine": each.is_fine, **asdict(each)} for each in found]
    printed_tables.write_json(variables.command.get("json"), rows)
    if (name := variables.command.get("junit")) is not None:
        out_files.write("junit", name, junit.text(found))
    wrong = [result.recipe for result in found if not result.is_fine]
    if wrong:
        raise CheckError(f"ci: {len(wrong)} of {len(found)} recipes failed: {', '.join(wrong)}")


def chosen(text: str | None) -> list[str]:
    """The recipes that names, patterns and paths mean, each once; UserError for one of none."""
    if text is None:
        here = [name for name, _ in load.list_recipes(own=True)]
        if not here:
            raise UserError("no recipes yet; doit import FILE writes one")
        return [name for name in here if fnmatchcase(name, WATCHING)] or here
    known = [name for name, _ in load.list_recipes()]
    result: dict[str, None] = {}
    for pattern in filter(None, (part.strip() for part in text.split(","))):
        if is_path_like(pattern):
            load.find_recipe(pattern)
            result[pattern] = None
            continue
        matched = [name for name in known if fnmatchcase(name, pattern)]
        if not matched:
            near = nearest(pattern, known)
            advice = f"did you mean '{near}'?" if near else "`doit recipes` lists them"
            raise UserError(f"recipes={cut(pattern)}: matches no recipe; {advice}")
        result |= dict.fromkeys(matched)
    if not result:
        raise UserError("recipes= names none; for example: recipes='ci/*_rpi3,digits_a2w2_host'")
    return list(result)


def _results(recipes: Sequence[str], jobs: int, scheduler: str | None) -> Iterator[Built]:
    """Build here, or on the workers of a scheduler."""
    if scheduler is None:
        return ci_builds.build_all(recipes, jobs)
    from pipelines.cluster import many_recipes

    return many_recipes.build_all(recipes, jobs, scheduler)


def _row(result: Built) -> dict[str, Any]:
    said = (result.verified or "").partition(";")[0]
    if result.verified is None:
        said = f"not run: {result.why}" if result.is_fine else f"FAULT: {result.why}"
    seconds = f"{result.seconds:.1f}"
    return {**asdict(result), "verified": said, "seconds": seconds}


def _sum(results: Sequence[Built]) -> str:
    verified = sum(result.verified is not None for result in results)
    faults = sum(not result.is_fine for result in results)
    unverified = len(results) - verified - faults
    return f"{verified} verified, {unverified} built and not run, {faults} failed"
