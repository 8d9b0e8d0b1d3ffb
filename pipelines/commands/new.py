"""`doit new FOLDER`: a folder of one's own for recipes, models and boards, with all they need."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pipelines import paths, work_folder
from pipelines.errors import UserError, shown
from pipelines.new_folder import folder_files, requirement
from pipelines.recipe.overrides import Variables

_IMPORT = "from pipelines.dodo import *"


def run(*, variables: Variables, files: Sequence[str]) -> None:
    """Write what is not there yet, say what is, and what to do next."""
    del variables
    target = _target(files)
    line, doubts = requirement.line()
    made = dict(folder_files.write(target, folder_files.files(line)))
    for word, is_new in (("written", True), ("kept", False)):
        names = [name for name, was_written in made.items() if was_written == is_new]
        if names:
            print(f"{word}: {', '.join(names)} in {shown(target)}")
    dodo = target / work_folder.DODO
    if not made[work_folder.DODO] and _IMPORT not in dodo.read_text("utf-8", "replace"):
        print(f"note: {work_folder.DODO} lacks bitkiln's commands; add the line: {_IMPORT}")
    for doubt in doubts:
        print(f"note: {doubt}")
    print(
        f"next: cd {shlex.quote(str(target))}; python3 -m venv .venv && . .venv/bin/activate && "
        "pip install -r requirements.txt && doit build recipe=digits"
    )


def _target(files: Sequence[str]) -> Path:
    if len(files) != 1:
        found = f"found {len(files)}: {', '.join(files)}" if files else "found none"
        raise UserError(f"new takes one folder, {found}; for example: doit new ~/networks")
    target = paths.expanded(files[0]).absolute()
    whole = target.resolve()
    if whole.is_relative_to(work_folder.CODE):
        raise UserError(
            f"{shown(target)} lies in bitkiln's own folder, where nothing of yours belongs; name "
            "another one, for example: doit new ~/networks"
        )
    above = next(path for path in (whole, *whole.parents) if path.exists())
    if not above.is_dir():
        raise UserError(f"{shown(above)} is a file; new takes a folder, there or yet to be made")
    return target
