"""What stands around doit's actions: known errors become messages, the rest stays a traceback."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pipelines import exit_status
from pipelines.errors import CheckError, UserError, of_disk
from pipelines.exit_status import CheckFailed, MistakeFailed
from stages.errors import StageError

P = ParamSpec("P")
R = TypeVar("R")


def plain_errors(action: Callable[P, R]) -> Callable[P, R | CheckFailed | MistakeFailed | None]:
    """Turn what is worded already into a failure of the task; the rest stays a traceback."""

    @functools.wraps(action)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | CheckFailed | MistakeFailed | None:
        try:
            return action(*args, **kwargs)
        except CheckError as error:
            return CheckFailed(str(error))
        except (UserError, StageError) as error:
            return MistakeFailed(str(error))
        except BrokenPipeError:
            # Whoever read the output, `head` perhaps, has seen enough; nothing more is written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return None
        except OSError as error:
            said = of_disk(error)
            if said is None:
                raise
            return MistakeFailed(said)

    return run


def asked(question: Callable[P, bool]) -> Callable[P, bool]:
    """Answer no where a file cannot be read: the task then runs into the same, and says it."""

    @functools.wraps(question)
    def answer(*args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            return question(*args, **kwargs)
        except UserError:
            return False
        except OSError as error:
            if of_disk(error) is None:
                raise
            return False

    return answer


def cleaning(action: Callable[P, None]) -> Callable[P, None]:
    """End with one sentence where the disk refuses: what cleans has no reporter."""

    @functools.wraps(action)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            action(*args, **kwargs)
        except OSError as error:
            said = of_disk(error)
            if said is None:
                raise
            # doit keeps what an action writes to sys.stderr.
            print(f"ERROR: {said}", file=sys.__stderr__)
            sys.exit(exit_status.MISTAKE)

    return run
