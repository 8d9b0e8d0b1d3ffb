"""The part of graph.c between its interface and graph(): the caller's tensors, picture by picture.

A batch that was taken apart runs once for each picture. Threads take a picture each, in an arena of
their own, as long as there are not more threads than pictures; else they share the work of every
kernel, as they do for a single one.
"""

from __future__ import annotations

from stages.packaging.arena import Arena
from stages.packaging.program import Program


def arena_bytes(program: Program, arena: Arena) -> str:
    """The C expression of an arena's bytes for `n_threads`, without the slack behind it."""
    copies = f" * (size_t)({_has_own(program)} ? n_threads : 1)" if program.pictures > 1 else ""
    scratch = f"(size_t){arena.scratch_bytes} * (size_t)n_threads"
    return f"(size_t){arena.buffer_bytes}{copies} + {scratch}"


def entry(program: Program) -> str:
    """The C expression of the function that all of `n_threads` threads run."""
    return f"{_has_own(program)} ? pictures : graph" if program.pictures > 1 else "graph"


def members(program: Program) -> list[str]:
    """What the context holds for it."""
    if program.pictures == 1:
        return []
    return [
        "    /* The caller's tensors, of all pictures. */",
        "    const void *const *all_in;",
        "    void *const *all_out;",
    ]


def functions(program: Program, arena: Arena) -> list[str]:
    """The functions behind `run_all(context, in, out)`, and that itself."""
    one = _run_picture(program, arena)
    head = "static void run_all(struct context *context, const void *const in[], void *const out[])"
    if program.pictures == 1:
        return [*one, "", head, "{", "    run_picture(context, in, out, 0);", "}"]
    return [
        *one,
        "",
        *_pictures(program, arena),
        "",
        head,
        "{",
        "    if (context->runtime.graph == pictures) {",
        "        context->all_in = in;",
        "        context->all_out = out;",
        "        rt_run(&context->runtime);",
        "        return;",
        "    }",
        f"    for (int32_t picture = 0; picture < {program.pictures}; picture++)",
        "        run_picture(context, in, out, picture);",
        "}",
    ]


def _has_own(program: Program) -> str:
    """The C condition under which each thread has pictures, and an arena, of its own."""
    return f"n_threads <= {program.pictures}"


def _pictures(program: Program, arena: Arena) -> list[str]:
    return [
        "/* A thread's part of a batch: pictures that nobody has taken yet. */",
        "static void pictures(struct rt_context *runtime, int32_t thread)",
        "{",
        "    const struct context *all = (const struct context *)runtime;",
        "    struct context own;",
        f"    const size_t bytes = {arena.buffer_bytes + arena.scratch_bytes};",
        "    rt_init(&own.runtime, runtime->arena + bytes * (size_t)thread, 1, graph);",
        *(["    own.tiles = all->tiles;"] if program.uses_tiles else []),
        "    int32_t picture;",
        f"    while ((picture = rt_take(runtime, thread, {program.pictures}))"
        f" < {program.pictures})",
        "        run_picture(&own, all->all_in, all->all_out, picture);",
        "}",
    ]


def _run_picture(program: Program, arena: Arena) -> list[str]:
    """The graph on one picture's share of the caller's tensors, copied where they lie badly."""
    shares, place, copy_out = [], [], []
    for index, spec in enumerate(program.inputs):
        size, own = program.share(spec), f"in{index}"
        offset = arena.offsets.get(("input", spec.name))
        if offset is not None:
            shares.append(
                f"    const uint8_t *const {own} = {_share('const ', 'in', index, size)};"
            )
            place += [
                f"    context->in[{index}] = {own};",
                f"    if (!rt_in_place({own}, {size})) {{",
                f"        rt_copy(arena + {offset}, {own}, {size});",
                f"        context->in[{index}] = arena + {offset};",
                "    }",
            ]
    for index, spec in enumerate(program.outputs):
        size, own = program.share(spec), f"out{index}"
        offset = arena.offsets["output", spec.name]
        shares.append(f"    uint8_t *const {own} = {_share('', 'out', index, size)};")
        place.append(
            f"    context->out[{index}] = rt_in_place({own}, {size}) ? {own} : arena + {offset};"
        )
        copy_out += [
            f"    if (context->out[{index}] != {own})",
            f"        rt_copy({own}, context->out[{index}], {size});",
        ]
    return [
        "static void run_picture(",
        "    struct context *context, const void *const in[], void *const out[], int32_t picture)",
        "{",
        "    uint8_t *const arena = context->runtime.arena;",
        "    (void)in;",
        *shares,
        *place,
        "    rt_run(&context->runtime);",
        *copy_out,
        "}",
    ]


def _share(const: str, array: str, index: int, size: int) -> str:
    return f"({const}uint8_t *){array}[{index}] + (size_t)picture * {size}"
