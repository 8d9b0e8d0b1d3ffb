"""`doit help`, `doit help COMMAND`, `doit COMMAND --help` and `doit` alone, out of the menu."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from doit.cmd_base import DodoTaskLoader
from doit.cmd_help import Help as HelpOfDoit

from pipelines import command_words, exit_status, menu
from pipelines.errors import cut, nearest

_WIDTH = 20
_FIRST = ("import", "build", "run", "accuracy", "doctor")
_FLAGS = ("--help", "-h")
OF_DOIT = "doit"
"""The word behind `help` that asks for doit's own options and commands."""


class Help(HelpOfDoit):
    """doit's command of that name: it knows bitkiln's commands, and leaves doit's own to doit."""

    doc_purpose = "what bitkiln's commands do: doit help, doit help build"
    doc_usage = "[COMMAND]"

    def execute(self, params: Mapping[str, object], args: Sequence[str]) -> int:
        """Print a page; the exit status."""
        if not args:
            print(start_page())
        elif args[0] == OF_DOIT:
            print(self.cmds["run"](cmds=self._cmds, **self.init_kwargs).help())
            self.print_usage(self.cmds)
        elif args[0] in menu.BY_NAME:
            print(page(menu.BY_NAME[args[0]]))
        elif args[0] in self.cmds or args[0] == "task":
            return int(super().execute(params, args))
        else:
            near = nearest(args[0], menu.COMMAND_NAMES)
            advice = (
                f"did you mean: `doit help {near}`" if near else "`doit help` says which there are"
            )
            print(f"ERROR: no command '{cut(args[0])}'; {advice}", file=sys.stderr)
            return exit_status.MISTAKE
        return exit_status.DONE


class Loader(DodoTaskLoader):
    """doit's own reader of dodo.py, which first prints what a command line asks for.

    doit answers `--help` itself and refuses `-h`, both before it reads dodo.py; it makes its loader
    before that.
    """

    def __init__(self) -> None:
        super().__init__()
        if (page := asked(sys.argv[1:])) is not None:
            _say(page)
            sys.exit(exit_status.DONE)


def _say(page: str) -> None:
    """Print a page; whoever reads its first lines alone, as `head` does, gets no traceback."""
    try:
        print(page, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def asked(argv: Sequence[str]) -> str | None:
    """Return the page that a command line asks for without doit's own `help`, or None."""
    if "--version" in argv:
        return None
    if any(flag in argv for flag in _FLAGS):
        named = command_words.named(argv)
        return page(menu.BY_NAME[named[0]]) if named and named[0] in menu.BY_NAME else start_page()
    is_empty = not command_words.bare(argv) and not any("=" in word for word in argv)
    return start_page() if is_empty else None


def start_page() -> str:
    """Return what someone needs first, on one screen."""
    first = [menu.BY_NAME[name] for name in _FIRST]
    rest = [command for command in menu.ALL if command not in first]
    return "\n".join(
        [
            "bitkiln turns a quantized neural network into a C library for a CPU.",
            "",
            "First:",
            *(line for command in first for line in (f"  doit {command.examples[0]}",
                                                     f"      {command.doc}")),
            "",
            "Then:",
            *_table({command.name: _sentence(command) for command in rest}),
            "",
            "`doit recipes` lists the recipes. `doit help COMMAND` says what a command heeds.",
            "`doit help doit` prints doit's own options and commands, as -n and list.",
            "README.md leads through a first build, pipelines/commands/README.md through all.",
        ]
    )  # fmt: skip


def page(command: menu.Command) -> str:
    """Return what a command does, what it heeds, and two examples."""
    lines = [f"doit {command.name}: {_sentence(command)}", ""]
    meanings = {f"{name}=": menu.MEANINGS[name] for name in command.heeds}
    if command.positional:
        meanings = {command.operand: command.operand_is} | meanings
    if meanings:
        lines += ["It heeds", *_table(meanings), ""]
    if command.recipe:
        lines += ["and the recipe's fields, most often", *_table(_fields()), ""]
    if command.instead:
        some = ", ".join(f"{name}=" for name in command.instead)
        lines += [f"With {some} it does something else, by other variables.", ""]
    return "\n".join([*lines, "Examples", *(f"  doit {line}" for line in command.examples)])


def _sentence(command: menu.Command) -> str:
    """What a command does, without the variables that its line in `doit list` ends with."""
    return command.doc.partition(": [")[0]


def _fields() -> dict[str, str]:
    return {f"{name}=": meaning for name, meaning in menu.FIELDS.items()}


def _table(rows: Mapping[str, str]) -> list[str]:
    return [f"  {name:<{_WIDTH}}{meaning}" for name, meaning in rows.items()]
