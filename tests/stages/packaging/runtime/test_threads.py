"""The thread pool: who does which tasks of a call."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from tests.stages.packaging.support import copy_runtime, zig

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="runs natively"
)

PROGRAM = r"""
#include "runtime.h"
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 6, RUNS = 200, MOST = 100 };
static const int32_t most[CALLS] = {1, 3, MOST, 7, MOST, 2};
static struct rt_context context;
static _Atomic int32_t times[CALLS][MOST], done[CALLS];
static int threads, held;

static void graph(struct rt_context *c, int32_t thread)
{
    for (int call = 0; call < CALLS; call++) {
        int32_t n = rt_tasks(c, most[call], 4), first = 1;
        for (int32_t task; (task = rt_take(c, thread, n)) < n; first = 0) {
            atomic_fetch_add(&times[call][task], 1);
            /* Held up in its first task, until whatever else there is to do is done. */
            while (held && first && thread == 0 && atomic_load(&done[call]) < n - 1) {}
            atomic_fetch_add(&done[call], 1);
        }
        rt_sync(c, thread);
        if (atomic_load(&done[call]) != n)
            exit(1);
        rt_sync(c, thread);
        if (thread == 0)
            atomic_store(&done[call], 0);
        rt_sync(c, thread);
    }
}

int main(int count, char **arguments)
{
    threads = atoi(arguments[1]);
    held = count > 2;
    if (rt_init(&context, NULL, threads) != RT_OK)
        return 2;
    for (int run = 0; run < RUNS; run++)
        rt_run(&context, graph);
    for (int call = 0; call < CALLS; call++)
        for (int32_t task = 0; task < rt_tasks(&context, most[call], 4); task++)
            if (times[call][task] != RUNS)
                return 3;
    rt_finish(&context);
    return 0;
}
"""


FAILING = r"""
#include "runtime.h"
#include <errno.h>
#include <stdlib.h>

static int32_t left;

int create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *argument)
{
    return left-- > 0 ? pthread_create(thread, with, run, argument) : EAGAIN;
}

int main(int count, char **arguments)
{
    static struct rt_context context;
    left = atoi(arguments[count - 1]);
    return rt_init(&context, NULL, 13) == RT_NO_THREAD ? 0 : 1;
}
"""
"""A system that gives a process so many threads."""


FORKED = r"""
#include "runtime.h"
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

int advise(void *at, size_t bytes, int what)
{
    (void)at, (void)bytes, (void)what;
    errno = EINVAL;
    return -1;
}

int main(void)
{
    static struct rt_context context;
    int status;
    if (rt_init(&context, NULL, 3) != RT_OK || rt_is_forked(&context))
        return 1;
    if (fork() == 0) {
        int forked = rt_is_forked(&context);
        rt_finish(&context);
        return forked && !rt_is_ready(&context) ? 0 : 2;
    }
    if (wait(&status) < 0 || status != 0)
        return 3;
    rt_finish(&context);
    return 0;
}
"""
"""A system that cannot empty a page in a fork, as Linux before 4.14."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    copy_runtime(folder, "runtime.h", "pool.c")
    (folder / "main.c").write_text(PROGRAM)
    zig(folder, "cc", "-O2", "main.c", "pool.c", "-lpthread", "-o", "main")
    return folder / "main"


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 5, 8, 13])
def test_every_task_is_done_once(pool: Path, threads: int) -> None:
    assert subprocess.run([pool, str(threads)], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("threads", [2, 3])
def test_others_do_the_tasks_of_a_thread_that_is_held_up(pool: Path, threads: int) -> None:
    """Else it would wait for them for ever."""
    assert subprocess.run([pool, str(threads), "held"], timeout=60, check=False).returncode == 0


def test_old_systems_say_which_process_it_is(tmp_path: Path) -> None:
    copy_runtime(tmp_path, "runtime.h", "pool.c")
    (tmp_path / "main.c").write_text(FORKED)
    zig(tmp_path, "cc", "-O2", "-Dmadvise=advise", "-c", "pool.c", "-o", "pool.o")
    zig(tmp_path, "cc", "-O2", "main.c", "pool.o", "-lpthread", "-o", "main")
    assert subprocess.run([tmp_path / "main"], timeout=60, check=False).returncode == 0


def test_threads_that_began_end_if_there_are_too_few(tmp_path: Path) -> None:
    copy_runtime(tmp_path, "runtime.h", "pool.c")
    (tmp_path / "main.c").write_text(FAILING)
    zig(tmp_path, "cc", "-O2", "-Dpthread_create=create", "-c", "pool.c", "-o", "pool.o")
    zig(tmp_path, "cc", "-O2", "main.c", "pool.o", "-lpthread", "-o", "main")
    for made in range(12):
        done = subprocess.run([tmp_path / "main", str(made)], timeout=60, check=False)
        assert done.returncode == 0, made
