"""Which commands a command line names, and whether they heed the variables it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.errors import Fault, UserError
from pipelines.menu import BUILD, BY_NAME, Command
from pipelines.recipe.overrides import Variables, span

OF_DOIT = ("list", "info", "help", "clean", "forget", "auto", "strace", "tabcompletion")
DATABASE = ("ignore", "dumpdb", "reset-dep")
"""Words of doit's about its database, which is not kept."""
_WITH_VALUE = ("-f", "-d", "-n", "-v", "-o", "-r", "-P", "--file", "--dir", "--process",
               "--verbosity", "--output-file", "--reporter", "--parallel-type",
               "--failure-verbosity", "--template", "--sort", "--db-file", "--backend")  # fmt: skip
"""Flags of doit's behind which a word of their own may stand."""


def bare(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line that are neither variables nor flags, nor flags' own."""
    before = ("", *argv)
    return tuple(
        word
        for flag, word in zip(before, argv, strict=False)
        if not word.startswith("-") and "=" not in word and flag not in _WITH_VALUE
    )


def named(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the commands among the words of a command line; one of doit's own stands alone.

    None where no word is known. The words behind a command that takes files are files, and `run`
    with other tasks behind it is doit's word for doing them.
    """
    known: list[str] = []
    for word in bare(argv):
        name = word.partition(":")[0]
        if not known and name in (*OF_DOIT, *DATABASE):
            return (name,)
        if name in BY_NAME:
            known.append(name)
            if BY_NAME[name].positional:
                break
    return tuple(known[1:] if known[:1] == ["run"] and known[1:] else known)


def check(names: Sequence[str], variables: Variables) -> None:
    """Raise one UserError with every variable that none of the commands heeds."""
    if not names:
        return
    if names[0] in DATABASE:
        raise UserError(
            f"doit {names[0]} is about doit's database, and bitkiln keeps none: what lies in "
            "artifacts/ says what is built"
        )
    commands = [BY_NAME.get(name, BUILD) for name in names]
    said = " and ".join(f"`doit {name}`" for name in names)
    heeded = {name for command in commands for name in _heeded(command, variables)}
    ignored = {name: text for name, text in variables.command.items() if name not in heeded}
    if not any(command.recipe for command in commands):
        ignored |= {name: text for name, text in variables.fields.items() if name not in heeded}
    accepted = f"{said} does not heed it; accepted: {', '.join(_all(commands)) or 'no variable'}"
    ways = [name for each in commands for name in each.instead if name in variables.command]
    one_way = f"{said} takes {'= or '.join(ways)}=, not both"
    if ignored:
        raise UserError.of(
            Fault(span(name, f"{name}={text}"), name, one_way if name in ways else accepted)
            for name, text in ignored.items()
        )


def _heeded(command: Command, variables: Variables) -> Iterator[str]:
    yield from ("recipe",) if command.recipe else ()
    for name, more in command.instead.items():
        if name in variables.command:
            yield from (name, *more)
            return
    yield from command.takes


def _all(commands: Sequence[Command]) -> Iterator[str]:
    """Yield all that commands heed."""
    if any(command.recipe for command in commands):
        yield from ("recipe", "a recipe's fields")
    yield from dict.fromkeys(name for command in commands for name in command.takes)
    for command in commands:
        for name, more in command.instead.items():
            yield f"{name} (with {' and '.join(more)})" if more else name
