"""How a process ends: exit statuses of one meaning, where doit knows failures and errors alone.

doit ends with 1 for every failed task and 2 for every exception. A failure therefore says what it
is by its class, which `doit -n` hands from process to process, and the reporter, which sees all
failures in doit's own process, ends that process with the gravest.
"""

from __future__ import annotations

from doit.exceptions import BaseFail, TaskFailed, UnmetDependency

DONE = 0
NO = 1
"""A check said no: something was examined and is not as it should be."""
FAULT = 2
"""A fault of bitkiln's."""
MISTAKE = 3
"""What the user can put right: a command line, a file, a disk, a board that does not answer."""
_GRAVEST_LAST = (DONE, NO, MISTAKE, FAULT)
SENTENCE = "this is a fault of bitkiln, not of your recipe; please report it with the lines above"


class CheckFailed(TaskFailed):
    """A task that found something not as it should be."""


class MistakeFailed(TaskFailed):
    """A task that something of the user's stood in the way of."""


def status(fail: BaseFail) -> int:
    """Return the exit status that a failure asks for; none for a task that was not tried."""
    if isinstance(fail, UnmetDependency):
        return DONE
    if isinstance(fail, CheckFailed):
        return NO
    return MISTAKE if isinstance(fail, MistakeFailed) else FAULT


def graver(one: int, other: int) -> int:
    """Return the graver of two exit statuses: one fault hides what else was wrong."""
    return max(one, other, key=_GRAVEST_LAST.index)
