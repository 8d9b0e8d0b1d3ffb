"""Words of a command line that are no command: what was meant, as a line that can be run."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from pipelines import command_words, menu
from pipelines.errors import UserError, cut, nearest

MODEL_FILES = (".onnx", ".tflite", ".pt2", ".json")
_HELP = "`doit help` says which there are"


def check(argv: Sequence[str], variables: Collection[str]) -> None:
    """Raise UserError for the first word that is no command, where doit would speak of tasks."""
    found = command_words.bare(argv)
    if not found:
        _alone(argv)
        return
    is_doits = found[0] in ("clean", "forget", "info")
    if found[0] in (*command_words.OF_DOIT, *command_words.DATABASE) and not is_doits:
        return
    for index, word in enumerate(found):
        command = menu.BY_NAME.get(word.partition(":")[0])
        if command is None and not (index == 0 and is_doits) and "*" not in word:
            raise UserError(_hint(list(argv), word, found[:index], variables))
        if command is not None and command.positional:
            return


def _alone(argv: Sequence[str]) -> None:
    """Refuse variables without a command."""
    given = [word for word in argv if "=" in word and not word.startswith("-")]
    if given:
        line = _line(["build", *argv])
        raise UserError(f"{cut(given[0])}: say what to do with it, for example: {line}; {_HELP}")


def _hint(argv: list[str], word: str, before: Sequence[str], variables: Collection[str]) -> str:
    """Return one sentence on a word that is no command: `before` are the words that stand there."""
    from pipelines.documents.fields import dotted
    from pipelines.recipe import load
    from pipelines.recipe.recipe import Recipe

    place = argv.index(word)
    shown = cut(word)
    if word in variables or word in dotted(Recipe):
        return _of_variable(argv, place, before)
    verb = [] if before else ["build"]
    recipes = [name for name, _description in load.list_recipes()]
    if word in recipes or word.endswith((".yaml", ".yml")):
        right = [*verb, *argv[:place], f"recipe={word}", *argv[place + 1 :]]
        return f"'{shown}' is a recipe; say: {_line(right)}"
    if word.endswith(MODEL_FILES) and not before and Path(word).exists():
        return f"'{shown}' is a model file; say: {_line(['import', word])}"
    near = nearest(word, (*menu.COMMAND_NAMES, *command_words.OF_DOIT))
    if near and not before:
        return f"no command '{shown}'; did you mean: {_line([near, *argv[place + 1 :]])}"
    if any(argument.startswith("recipe=") for argument in argv):
        return f"'{shown}' is no command; {_HELP}"
    if near := nearest(word, recipes):
        right = [*verb, *argv[:place], f"recipe={near}", *argv[place + 1 :]]
        return f"no command and no recipe '{shown}'; did you mean: {_line(right)}"
    if before:
        return f"no recipe '{shown}'; `doit recipes` says which there are"
    return f"no command '{shown}'; {_HELP}"


def _of_variable(argv: list[str], place: int, before: Sequence[str]) -> str:
    """Of a variable's name that has no `=` on it: the value may be the next word, or `= value`."""
    name, rest = argv[place], argv[place + 1 :]
    if rest[:1] == ["="]:
        rest = rest[1:]
    is_value = (
        bool(rest) and not rest[0].startswith("-") and ("=" not in rest[0] or rest[0][0] == "=")
    )
    value = rest.pop(0).removeprefix("=") if is_value else "NAME" if name == "recipe" else "VALUE"
    right = [*([] if before else ["build"]), *argv[:place], f"{name}={value}", *rest]
    return f"'{name}' is a variable; say: {_line(right)}"


def _line(arguments: Sequence[str]) -> str:
    return cut(f"`doit {shlex.join(arguments)}`")
