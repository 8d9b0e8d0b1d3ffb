"""`doit completion`: a script by which bash, zsh or fish complete command lines of doit."""

from __future__ import annotations

from pipelines import board, completing, load
from pipelines.errors import UserError, did_you_mean
from pipelines.overrides import Variables
from pipelines.spreading import address


def run(*, variables: Variables) -> None:
    """Print the script of a shell; it is the same wherever the recipes and boards are the same."""
    shell = variables.command.get("shell", "")
    if shell not in completing.SCRIPTS:
        raise UserError(f"shell={shell}: no such shell{did_you_mean(shell, completing.SHELLS)}")
    values = {
        "recipe": sorted(name for name, _description in load.list_recipes()),
        "hardware": sorted(board.list_boards()),
        "shell": list(completing.SHELLS),
        "executor": list(address.EXECUTORS),
    }
    print(completing.SCRIPTS[shell](values), end="")
