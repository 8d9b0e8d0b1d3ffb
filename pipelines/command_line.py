"""What doit's command line says, turned into a plan, tasks and doit's settings."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from hw.profile import Hardware
from pipelines import actions, command_words, doit_tasks, hints, menu
from pipelines.builds import plan
from pipelines.errors import UserError
from pipelines.output.build_progress import Progress

DATABASE = os.devnull
"""doit notes what it ran in a database, which nobody reads: the store holds the truth."""
VARIABLES = ("recipe", *menu.VARIABLES)
INTERRUPTED = "interrupted; what was finished is kept, and the same command goes on there"


class Codec:
    """What doit's database is read as and written as: nothing."""

    def encode(self, data: object) -> str:
        """Return no text."""
        del data
        return ""

    def decode(self, data: str) -> Any:
        """Return an empty database."""
        del data
        return {}


@dataclass(frozen=True)
class Session:
    """One call of doit."""

    plan: plan.Plan | None
    arguments: doit_tasks.Given
    config: dict[str, Any]

    def tasks(self) -> Iterator[doit_tasks.Task]:
        """Yield every task."""
        yield from doit_tasks.tasks(self.plan, self.arguments)


def open_session(argv: Sequence[str]) -> Session:
    """Return what a command line asks for, or raise UserError."""
    from pipelines.recipe import load, overrides

    hints.check(argv, VARIABLES)
    variables = overrides.parse(argv, VARIABLES)
    names = command_words.named(argv)
    command_words.check(names, variables)
    word = names[0] if names else ""
    sys.excepthook = _quiet_interrupt
    # Infinities and NaN are found where they matter, and said in a sentence with the layer's name.
    warnings.filterwarnings("ignore", r".* encountered in ", RuntimeWarning)
    resolved = None
    if variables.recipe is not None:
        resolved = load.load_recipe(variables.recipe, variables.fields)
    elif word in ("clean", "forget") and _is_bare(argv):
        raise UserError(f"doit {word} works on one recipe\n{actions.without_recipe(word)}")
    if resolved is not None and word != "doctor":
        _check_boards(variables.command.get("board"), resolved.hardware)
        if word == "build" and "board" in variables.command and not resolved.recipe.schedule.trials:
            raise UserError(
                f"board={variables.command['board']}: a build measures nothing without trials; add "
                "schedule.trials=16, or leave it out"
            )
    made = plan.of(resolved) if resolved else None
    return Session(made, {"variables": variables, "resolved": resolved}, _config(word))


def _check_boards(text: str | None, hardware: Hardware) -> None:
    """Raise UserError for a `board=` that names none, before anything is built for it."""
    if text is not None:
        from pipelines.remote.transport import reached

        reached(text, hardware)


def _config(word: str) -> dict[str, Any]:
    # `run`, `clean` and `forget` are words of doit's own, which then does the default tasks.
    default = {"run": ["run"], "clean": ["build"], "forget": ["build"]}.get(word, ["recipes"])
    return {
        "reporter": Progress,
        "default_tasks": default,
        "backend": "json",
        "codec_cls": Codec,
        "dep_file": DATABASE,
        "verbosity": 2,
    }


def _is_bare(argv: Sequence[str]) -> bool:
    """Whether a doit command got neither tasks nor flags, so that it takes the default tasks."""
    return len([a for a in argv if "=" not in a]) == 1


def _quiet_interrupt(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Say one sentence for Ctrl-C; the process still ends as one that was interrupted."""
    if issubclass(kind, KeyboardInterrupt):
        print(f"\n{INTERRUPTED}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
