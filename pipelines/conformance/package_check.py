"""A package of a model file for this machine, by the steps that its starter recipe takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pipelines import work_folder
from pipelines.builds import extra_builds, opened_package, plan_execution, publication
from pipelines.conformance import row_verdicts
from pipelines.errors import UserError
from pipelines.recipe import model_files
from pipelines.store import atomic, keys
from stages import importing
from stages.errors import StageError
from stages.kinds import Golden

FOLDER = work_folder.ARTIFACTS / "conformance"
"""Where the starter recipes are written; their packages are removed when they were compared."""


def check_package(path: Path, golden: Golden) -> dict[str, Any]:
    """Return how the library of a model's package compares on `golden`, and the seconds it took.

    `status` is that of `row_verdicts.compared`, or refused, not run or crashed with the reason.
    """
    name = f"m{keys.digest(str(path))[:16]}"
    recipe = FOLDER / f"{name}.yaml"
    description = importing.describe(source=model_files.read(path))
    text = importing.starter_recipe(description, path.as_posix(), name)
    atomic.replace(recipe, f"{text}package: {{formats: [shared]}}\n".encode())
    started = time.monotonic()
    try:
        made = extra_builds.build_package(recipe)
    except opened_package.UnavailableError as error:
        return {"status": "not run", "why": str(error)}
    except (StageError, UserError) as error:
        return {"status": "refused", "why": str(error)}
    except Exception as error:
        # A fault of bitkiln's; that the model was imported and executed stays said.
        return {"status": "crashed", "why": f"{type(error).__name__}: {error}"[:500]}
    seconds = round(time.monotonic() - started, 3)
    try:
        with opened_package.opened(made) as opened:
            row = row_verdicts.compared(golden, lambda sample: opened.run(sample, 1))
    except UserError as error:
        return {"status": "not run", "why": str(error), "seconds": seconds}
    finally:
        plan_execution.STORE.remove(publication.package_folder_of(made))
    return {**row, "seconds": seconds}
