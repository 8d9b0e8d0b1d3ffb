"""The part of graph.c that calls kernels: graph() and, for a batch, together()."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from stages.packaging.emitting.kernel import TASKS, TASKS_OF_TILES
from stages.packaging.program.arena import Arena
from stages.packaging.program.kernel_program import Call, Fallback, Program, Slot


def functions(
    program: Program, arena: Arena, constants: Mapping[str, int], profile: bool = False
) -> list[str]:
    """The functions that all threads run; `constants` are their offsets among all."""
    per_image = program.calls_per_image
    first = 0 if profile else None
    lines = _Writer(program, arena, constants, program.collected, first).function(
        "graph", per_image, arena.buffer_bytes
    )
    if program.batch_call_count:
        first = len(per_image) if profile else None
        lines += ["", "/* What is computed once, for all images. */"]
        lines += _Writer(program, arena, constants, {}, first).function(
            "together", program.calls_per_batch, arena.together_bytes
        )
    return lines


@dataclass(frozen=True)
class _Writer:
    """Writes functions in which calls see one image of the buffers in `shares`, of so many
    bytes."""

    program: Program
    arena: Arena
    constants: Mapping[str, int]
    shares: Mapping[str, int]
    first: int | None
    """The number of a function's first call among all, where they are to be noted."""

    def function(self, name: str, calls: Sequence[Call], scratch: int) -> list[str]:
        """The calls in order; scratch of all threads begins `scratch` bytes into the arena."""
        lines = [
            f"static void {name}(struct rt_context *runtime, int32_t thread)",
            "{",
            "    const struct context *context = (const struct context *)runtime;",
            "    uint8_t *const arena = runtime->arena;",
            f"    uint8_t *const scratch ="
            f" arena + {scratch} + (size_t){self.arena.scratch_bytes} * (size_t)thread;",
            "    (void)context;",
        ]
        if self.first is not None:
            lines.append("    uint64_t begin;")
        if is_single_threaded(calls):
            return [*lines, "", *self._in_order(0, calls), "}"]
        lines.append("    int32_t n_tasks;" if self.first is None else "    int32_t n_tasks, ran;")
        index = 0
        for part in _parts(calls):
            if index:
                lines.append("    rt_sync(runtime, thread);")
            lines += ["", *self._part(index, part)]
            index += len(part)
        return [*lines, "}"]

    def _part(self, index: int, calls: Sequence[Call]) -> list[str]:
        """Calls between which threads need not wait for each other."""
        if not calls[0].is_alone:
            return self._shared(index, *calls)
        first = "    if (rt_take(runtime, thread, 1) == 0) {"
        return [first, *self._in_order(index, calls), "    }"]

    def _in_order(self, index: int, calls: Sequence[Call]) -> list[str]:
        """Calls by the one thread that comes here."""
        lines: list[str] = []
        for number, call in enumerate(calls, index):
            lines += [
                f"        /* {number}: {comment(call.layer)} */",
                *self._begin("        "),
                *self._call(call, "0, 1"),
                *self._end("        ", number),
            ]
        return lines

    def _begin(self, indent: str) -> list[str]:
        """Where a call that is to be noted begins."""
        return [] if self.first is None else [f"{indent}begin = rt_begin(&context->at);"]

    def _end(self, indent: str, index: int) -> list[str]:
        if self.first is None:
            return []
        return [f"{indent}rt_end(&context->at, begin, thread, {self.first + index});"]

    def _shared(self, index: int, call: Call) -> list[str]:
        """A call whose tasks all threads take."""
        tasks = _tasks(call, TASKS)
        if other := call.fallback:
            tasks = f"context->tiles ? {_tasks(call, TASKS_OF_TILES)}"
            tasks += f"\n                             : {_tasks(other, TASKS)}"
        take = "    for (int32_t task; (task = rt_take(runtime, thread, n_tasks)) < n_tasks;"
        lines = [f"    /* {index}: {comment(call.layer)} */", f"    n_tasks = {tasks};"]
        if self.first is None:
            return [*lines, f"{take})", *self._call(call, "task, n_tasks")]
        return [
            *lines,
            "    ran = 0;",
            *self._begin("    "),
            f"{take} ran = 1)",
            *self._call(call, "task, n_tasks"),
            "    if (ran)",
            *self._end("        ", index),
        ]

    def _call(self, call: Call, task: str) -> list[str]:
        symbol = call.symbol
        if other := call.fallback:
            symbol = f"(context->tiles ? {symbol} : {other.symbol})"
        return [
            f"        {symbol}(",
            *(
                f"            {self._pointer(slot)}, /* {comment(f'{slot.kind} {slot.name}')} */"
                for slot in (*call.reads, *call.writes)
            ),
            f"            scratch, {task});",
        ]

    def _pointer(self, slot: Slot) -> str:
        if slot.kind == "constant":
            return f"graph_constants + {self.constants[slot.name] + slot.offset}"
        if slot.kind == "buffer":
            offset = self.arena.offsets["buffer", slot.name] + slot.offset
            if share := self.shares.get(slot.name):
                return f"context->all + {offset} + (size_t){share} * (size_t)context->image"
            return f"arena + {offset}"
        is_input = slot.kind == "input"
        specs = self.program.inputs if is_input else self.program.outputs
        at = [spec.name for spec in specs].index(slot.name)
        base = f"context->{'in' if is_input else 'out'}[{at}]"
        return f"{base} + {slot.offset}" if slot.offset else base


def _tasks(call: Call | Fallback, each: int) -> str:
    """The C expression of the tasks that a call is split into, `each` for a thread."""
    most = str(call.max_tasks)
    if few := call.few:
        most = f"rt_threads(runtime) > {few.threads} ? {most} : {few.tasks}"
    return f"rt_tasks(runtime, {most}, {each})"


def is_single_threaded(calls: Sequence[Call]) -> bool:
    """Whether a single thread makes all calls, so that no others are needed."""
    return all(call.is_alone for call in calls)


def _parts(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Calls that threads share, each by itself, and what one thread makes between two of them."""
    for is_alone, run in groupby(calls, attrgetter("is_alone")):
        if is_alone:
            yield list(run)
        else:
            yield from ([call] for call in run)


def comment(text: str) -> str:
    """Make a name from a model file safe inside a C comment: one line of plain characters."""
    return re.sub(r"[^A-Za-z0-9_.:()\[\]{}<>=+|,;!'@#$%&~^/ -]", "?", text)
