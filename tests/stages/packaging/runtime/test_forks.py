"""A context of the C runtime in a forked child, and under valgrind."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.stages.packaging.support import (
    X86_64,
    package,
    write,
    zig,
)

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)


FORKED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "toy.h"
static unsigned char x[1003], levels[1003];
static int scores[1003];
static const void *in[] = {x};
static void *out[] = {scores, levels};
int main(int count, char **arguments)
{
    int threads = atoi(arguments[count - 1]), status;
    void *context = aligned_alloc(64, toy_context_size());
    void *arena = aligned_alloc(64, toy_arena_size(threads));
    memset(context, 0, toy_context_size());
    if (toy_init(context, arena, threads) || toy_run(context, in, out))
        return 1;
    if (fork() == 0) {
        puts(toy_error(toy_run(context, in, out)));
        if (threads > 1)
            puts(toy_error(toy_init(context, arena, threads)));
        toy_finish(context);
        puts(toy_error(toy_init(context, arena, threads)));
        puts(toy_error(toy_run(context, in, out)));
        toy_finish(context);
        free(arena);
        free(context);
        return 0;
    }
    if (wait(&status) < 0 || status || toy_run(context, in, out))
        return 1;
    toy_finish(context);
    free(arena);
    free(context);
    return 0;
}
"""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("forked"), package(X86_64))
    (folder / "main.c").write_text(FORKED)
    zig(folder, "cc", "main.c", "libtoy.a", "-lpthread", "-o", "main")
    return folder / "main"


FINE = ["no error"] * 2


def test_one_thread_goes_on_in_a_forked_child(forked: Path) -> None:
    done = subprocess.run([forked, "1"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["no error", *FINE]


def test_several_threads_are_refused_in_a_forked_child(forked: Path) -> None:
    """It has none of them; with its own it goes on."""
    done = subprocess.run([forked, "3"], capture_output=True, text=True, check=True, timeout=60)
    refused, running, *rest = done.stdout.splitlines()
    assert refused.startswith("the context's threads are not in this process")
    assert running.startswith("the context is initialised already")
    assert rest == FINE


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_memcheck_finds_nothing(forked: Path, threads: str) -> None:
    command = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9", str(forked), threads]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
