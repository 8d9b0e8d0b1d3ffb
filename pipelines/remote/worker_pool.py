"""Work shared among boards: one worker a board, and what one board leaves the others do."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipelines.errors import UserError
from pipelines.remote.deployment import BoardError
from pipelines.remote.dialogue import FaultError, LostError
from pipelines.remote.runner_session import Session, Told

Item = TypeVar("Item")
Result = TypeVar("Result")
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each try to reach a board again."""
PING_SECONDS = 20.0
MOST_LOSSES = 3
"""An item during which so many boards were lost is not tried again."""


@dataclass(frozen=True)
class Failed:
    """Why an item has no result."""

    why: str
    is_known: bool = True
    """Whether it is a fact about the item, and not perhaps about the boards."""


@dataclass
class _Given(Generic[Item]):
    """An item that waits for a worker, and how many boards were lost with it."""

    item: Item
    losses: int = 0


@dataclass
class _Shared(Generic[Item, Result]):
    """What workers and their caller share."""

    waiting: deque[_Given[Item]] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    done: queue.Queue[tuple[Item, Result | Failed] | None] = field(default_factory=queue.Queue)
    is_over: bool = False


class WorkerPool(Generic[Item, Result]):
    """Workers, each with a board of its own; as a context it ends them.

    `boards` are functions that give a session, by the board's name; the first sessions may be there
    already. `work` does one item on a board that nobody else uses. `told` gets a sentence when
    something happens to a board.
    """

    def __init__(
        self,
        boards: Sequence[tuple[str, Callable[[], Session]]],
        work: Callable[[Session, Item], Result | Failed],
        told: Told,
        waits: Sequence[float] = WAITS,
    ) -> None:
        self._shared: _Shared[Item, Result] = _Shared()
        self._work, self._told, self._waits = work, told, waits
        self._is_ready = threading.Event()
        self._open = 0
        self._reasons: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(name, connect), daemon=True)
            for name, connect in boards
        ]
        self._alive = len(self._threads)
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until one of the boards is ready, which others may use now; or none is left."""
        self._is_ready.wait()

    @property
    def open(self) -> int:
        """Items that were submitted and whose results were not taken."""
        return self._open

    def submit(self, items: Sequence[Item]) -> None:
        """Give work; who is free takes it in this order."""
        with self._shared.changed:
            self._shared.waiting.extend(_Given(item) for item in items)
            self._open += len(items)
            self._shared.changed.notify_all()

    def next(self) -> tuple[Item, Result | Failed]:
        """Wait for a result, of whichever item comes first; UserError if no board is left."""
        while True:
            found = self._shared.done.get()
            if found is not None:
                self._open -= 1
                return found
            if self._alive == 0 and self._shared.done.empty():
                self._shared.done.put(None)
                raise UserError(
                    f"no board is left: {'; '.join(self._reasons)}; what was measured is kept, and "
                    "the same command goes on there"
                )

    def close(self) -> None:
        """End the workers as soon as each has done what it is at."""
        with self._shared.changed:
            self._shared.is_over = True
            self._shared.waiting.clear()
            self._shared.changed.notify_all()

    def __enter__(self) -> WorkerPool[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- one worker --------------------------------------------------------------------------

    def _run(self, name: str, connect: Callable[[], Session]) -> None:
        session: Session | None = None
        try:
            session = connect()
            session.ready(self._told)
            self._is_ready.set()
            while (given := self._taken(session)) is not None:
                session = self._done(given, session, connect)
        except UserError as error:
            self._leave(name, error.message)
        except Exception as error:  # whatever it is, the others go on
            self._leave(name, f"{name}: {type(error).__name__}: {error}")
        else:
            self._leave(name, "")
        finally:
            if session is not None:
                session.close()

    def _taken(self, session: Session) -> _Given[Item] | None:
        """The next item, as soon as there is one; the runner is told meanwhile that we live."""
        while True:
            with self._shared.changed:
                if self._shared.is_over:
                    return None
                if self._shared.waiting:
                    return self._shared.waiting.popleft()
                self._shared.changed.wait(PING_SECONDS)
                is_idle = not self._shared.waiting and not self._shared.is_over
            if is_idle:
                session.ask("ping")

    def _done(
        self, given: _Given[Item], session: Session, connect: Callable[[], Session]
    ) -> Session:
        """Do one item; return the session to go on with."""
        try:
            self._shared.done.put((given.item, self._work(session, given.item)))
        except FaultError as error:
            self._shared.done.put((given.item, Failed(error.message)))
            return self._again(session, connect, "")
        except LostError as error:
            self._give_back(given)
            return self._again(session, connect, error.message)
        except BaseException:
            self._give_back(given)
            raise
        return session

    def _give_back(self, given: _Given[Item]) -> None:
        """Let others do an item, unless it may be what boards do not survive."""
        given.losses += 1
        if given.losses >= MOST_LOSSES:
            why = f"boards were lost {given.losses} times during it"
            self._shared.done.put((given.item, Failed(why, is_known=False)))
            return
        with self._shared.changed:
            self._shared.waiting.appendleft(given)
            self._shared.changed.notify_all()

    def _again(self, session: Session, connect: Callable[[], Session], why: str) -> Session:
        """Reach the board once more, which may take a while; UserError if it does not come back."""
        session.close()
        if why:
            self._told(f"{why}; trying to reach it again")
        last: UserError = BoardError(why)
        for wait in (0.0, *self._waits):
            with self._shared.changed:
                if self._shared.changed.wait_for(lambda: self._shared.is_over, wait):
                    break
            try:
                made = connect()
                made.ready(self._told)
            except UserError as error:
                last = error
            else:
                return made
        raise last

    def _leave(self, name: str, why: str) -> None:
        """Be gone; `why` is a sentence if others have to do what was left."""
        with self._shared.changed:
            self._alive -= 1
            if why:
                self._reasons.append(why)
            is_last = self._alive == 0
        if is_last:
            self._is_ready.set()
        if why and not self._shared.is_over:
            rest = "nobody is left" if is_last else "the other boards take its share"
            self._told(f"{why}; {rest}")
        self._shared.done.put(None)
