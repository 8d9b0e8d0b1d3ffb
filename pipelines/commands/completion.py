"""`doit completion`: a script by which bash, zsh or fish complete command lines of doit."""

from __future__ import annotations

from pipelines import completion_scripts
from pipelines.cluster import scheduler_address
from pipelines.documents import board_files
from pipelines.errors import UserError, did_you_mean
from pipelines.recipe import load
from pipelines.recipe.overrides import Variables


def run(*, variables: Variables) -> None:
    """Print the script of a shell; it is the same wherever the recipes and boards are the same."""
    shell = variables.command.get("shell", "")
    if shell not in completion_scripts.SCRIPTS:
        raise UserError(
            f"shell={shell}: no such shell{did_you_mean(shell, completion_scripts.SHELLS)}"
        )
    values = {
        "recipe": sorted(name for name, _description in load.list_recipes()),
        "hardware": sorted(board_files.list_boards()),
        "shell": list(completion_scripts.SHELLS),
        "executor": list(scheduler_address.EXECUTORS),
    }
    print(completion_scripts.SCRIPTS[shell](values), end="")
