"""Work that boards share: nothing is lost, nothing is done twice, and nobody waits for the dead."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from pipelines.errors import UserError
from pipelines.remote.deployment import BoardError
from pipelines.remote.dialogue import FaultError, LostError
from pipelines.remote.runner_session import Session
from pipelines.remote.worker_pool import Failed, WorkerPool

SECONDS = 20


class FakeSession:
    """A session of a simulated board."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    def ready(self, told: Callable[[str], None]) -> None:
        """Nobody else wants it."""

    def ask(self, line: str) -> dict[str, bool]:
        """Who is idle says that it lives, also if another takes the work that woke it."""
        assert line == "ping"
        return {"pong": True}

    def close(self) -> None:
        self.is_closed = True


def board(name: str, made: list[FakeSession] | None = None) -> tuple[str, Callable[[], Session]]:
    def connect() -> Session:
        session = FakeSession(name)
        if made is not None:
            made.append(session)
        return cast(Session, session)

    return name, connect


def name_of(session: Session) -> str:
    return cast(Any, session).name


def join(pool: WorkerPool[int, int]) -> None:
    for thread in pool._threads:
        thread.join(SECONDS)


def results(pool: WorkerPool[int, int], count: int) -> dict[int, int | Failed]:
    pool.submit(range(count))
    return dict(pool.next() for _ in range(count))


def test_three_boards_work_at_a_time() -> None:
    """Each round of three ends only if all three boards are at work in it."""
    together = threading.Barrier(3)
    done: Counter[str] = Counter()

    def work(session: Session, item: int) -> int:
        together.wait(SECONDS)
        done[name_of(session)] += 1
        return item * item

    with WorkerPool([board(name) for name in "abc"], work, pytest.fail) as pool:
        assert results(pool, 30) == {n: n * n for n in range(30)}
        assert pool.open == 0
    assert done == {"a": 10, "b": 10, "c": 10}


def test_a_board_that_dies_leaves_its_share_to_others() -> None:
    """The one that lives does its first item only when the other one has died."""
    said: list[str] = []
    tries: Counter[int] = Counter()
    made: list[FakeSession] = []
    is_dead = threading.Event()

    def told(text: str) -> None:
        said.append(text)
        if text.endswith("share"):
            is_dead.set()

    def connect_once() -> Session:
        if made:
            raise BoardError("dying: no route to host")
        return board("dying", made)[1]()

    def work(session: Session, item: int) -> int:
        tries[item] += 1
        if name_of(session) == "dying":
            raise LostError("dying: the connection ended")
        assert is_dead.wait(SECONDS)
        return item

    boards = [("dying", connect_once), board("living")]
    with WorkerPool(boards, work, told, waits=(0.0, 0.0)) as pool:
        assert results(pool, 20) == {n: n for n in range(20)}
    join(pool)
    assert sorted(tries.values()) == [1] * 19 + [2]
    assert said == [
        "dying: the connection ended; trying to reach it again",
        "dying: no route to host; the other boards take its share",
    ]


def test_a_board_that_comes_back_goes_on() -> None:
    said: list[str] = []
    made: list[FakeSession] = []
    lost = [LostError("pi: broken pipe"), LostError("pi: broken pipe")]
    done: Counter[int] = Counter()

    def work(session: Session, item: int) -> int:
        if item in (3, 7) and lost:
            raise lost.pop()
        done[item] += 1
        return item

    with WorkerPool([board("pi", made)], work, said.append, waits=(0.0,)) as pool:
        assert results(pool, 10) == {n: n for n in range(10)}
    join(pool)
    assert set(done.values()) == {1} and len(made) == 3
    assert said == ["pi: broken pipe; trying to reach it again"] * 2
    assert all(session.is_closed for session in made)


def test_an_item_that_boards_do_not_survive_is_given_up() -> None:
    said: list[str] = []

    def work(session: Session, item: int) -> int:
        if item == 1:
            raise LostError("pi: it ended")
        return item

    with WorkerPool([board("pi")], work, said.append, waits=(0.0,)) as pool:
        found = results(pool, 3)
    assert found == {0: 0, 1: Failed("boards were lost 3 times during it", is_known=False), 2: 2}


def test_what_is_a_fault_of_an_item() -> None:
    made: list[FakeSession] = []

    def work(session: Session, item: int) -> int | Failed:
        if item == 1:
            raise FaultError("it divided by zero")
        return Failed("other outputs") if item == 2 else item

    with WorkerPool([board("pi", made)], work, pytest.fail) as pool:
        found = results(pool, 4)
    assert found == {0: 0, 1: Failed("it divided by zero"), 2: Failed("other outputs"), 3: 3}
    assert len(made) == 2 and made[0].is_closed


def test_nobody_is_left() -> None:
    said: list[str] = []

    def work(session: Session, item: int) -> int:
        if item == 1:
            raise BoardError("pi answers what no runner says: '?'")
        return item

    with WorkerPool([board("pi")], work, said.append) as pool:
        pool.submit(range(3))
        assert pool.next() == (0, 0)
        for _ in range(2):
            with pytest.raises(UserError) as error:
                pool.next()
    assert error.value.message == (
        "no board is left: pi answers what no runner says: '?'; what was measured is kept, and the "
        "same command goes on there"
    )
    assert said == ["pi answers what no runner says: '?'; nobody is left"]


def test_a_fault_of_ours_ends_one_board_and_is_said() -> None:
    said: list[str] = []

    def work(session: Session, item: int) -> int:
        if name_of(session) == "odd":
            raise ZeroDivisionError("oh")
        return item

    with WorkerPool([board("odd"), board("even")], work, said.append) as pool:
        assert results(pool, 20) == {n: n for n in range(20)}
    assert set(said) <= {"odd: ZeroDivisionError: oh; the other boards take its share"}
