"""How far long work of several named parts is: a bar on a terminal, elsewhere a line a part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Done = Callable[[str, str], None]
"""Takes a part that is done, and a word on what came of it."""


@contextmanager
def shown(names: Sequence[str], at_a_time: int = 1) -> Iterator[Done]:
    """Show parts that are worked on in their order, some at a time; lines go beside the output."""
    count, left = len(names), list(names)
    if not sys.stdout.isatty():

        def line(name: str, said: str) -> None:
            left.remove(name)
            print(f"{count - len(left)}/{count}  {name}  {said}", file=sys.stderr, flush=True)

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
        task = progress.add_task(", ".join(left[:at_a_time]), total=count)

        def advance(name: str, said: str) -> None:
            del said
            left.remove(name)
            progress.update(task, advance=1, description=", ".join(left[:at_a_time]))

        yield advance
