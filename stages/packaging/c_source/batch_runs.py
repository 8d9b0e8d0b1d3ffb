"""The part of graph.c between its interface and graph(): the caller's tensors, image by image.

A batch that is split runs once for each image. Threads take an image each, in an arena of
their own, as long as there are not more threads than images; else they share the work of every
kernel, as they do for a single one. Calls that are run once for all images follow at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stages.packaging.c_source.kernel_calls import is_single_threaded
from stages.packaging.c_source.layer_timer import TOGETHER
from stages.packaging.program.arena import Arena
from stages.packaging.program.kernel_program import Call, Program


def arena_bytes(program: Program, arena: Arena) -> str:
    """The C expression of an arena's bytes for `n_threads`, without the slack behind it."""
    buffers = f"(size_t){arena.buffer_bytes}"
    if program.images > 1:
        others = f"(n_threads <= {program.images} ? n_threads - 1 : 0)"
        buffers += f" + (size_t){arena.own_bytes} * (size_t){others}"
    if program.batch_call_count:
        buffers = f"rt_larger({buffers}, {arena.together_bytes})"
    return f"{buffers} + (size_t){arena.scratch_bytes} * (size_t)n_threads"


def members(program: Program) -> list[str]:
    """What the context holds for runs over a batch: fields of its struct, in C."""
    if program.images == 1:
        return []
    lines = [
        "    /* The caller's tensors, of all images. */",
        "    const void *const *all_in;",
        "    void *const *all_out;",
    ]
    if program.batch_call_count:
        lines += [
            "    /* The arena in which images are collected, and the one at hand. */",
            "    uint8_t *all;",
            "    int32_t image;",
        ]
    return lines


def functions(program: Program, arena: Arena, profile: bool = False) -> list[str]:
    """`run_all(context, in, out)` and the functions that it calls, in C."""
    one = _run_image(program, arena, profile)
    head = "static void run_all(struct context *context, const void *const in[], void *const out[])"
    if program.images == 1:
        return [*one, "", head, "{", "    run_image(context, in, out, 0);", "}"]
    lines = [
        *one,
        "",
        *_images(program, arena, profile),
        "",
        *_run_together(program, arena, profile),
        head,
        "{",
        f"    if (rt_threads(&context->runtime) <= {program.images}) {{",
        "        context->all_in = in;",
        "        context->all_out = out;",
        "        rt_run(&context->runtime, images);",
        "    } else {",
    ]
    if program.batch_call_count:
        lines.append("        context->all = context->runtime.arena;")
    lines += [
        f"        for (int32_t image = 0; image < {program.images}; image++)",
        "            run_image(context, in, out, image);",
        "    }",
    ]
    if program.batch_call_count:
        lines.append("    run_together(context, out);")
    return [*lines, "}"]


def _images(program: Program, arena: Arena, profile: bool) -> list[str]:
    return [
        "/* A thread's part of a batch: images that nobody has taken yet. */",
        "static void images(struct rt_context *runtime, int32_t thread)",
        "{",
        "    const struct context *all = (const struct context *)runtime;",
        "    struct context own;",
        f"    const size_t bytes = {arena.own_bytes + arena.scratch_bytes};",
        "    rt_init_own(&own.runtime, runtime->arena + bytes * (size_t)thread);",
        *(["    own.tiles = all->tiles;"] if program.uses_tiles else []),
        *(["    own.all = runtime->arena;"] if program.batch_call_count else []),
        *(["    own.at.log = all->at.log;", "    own.at.thread = thread;"] if profile else []),
        "    int32_t image;",
        f"    while ((image = rt_take(runtime, thread, {program.images})) < {program.images})",
        "        run_image(&own, all->all_in, all->all_out, image);",
        "}",
    ]


def _run_image(program: Program, arena: Arena, profile: bool) -> list[str]:
    """The graph on one image's share of the caller's tensors, copied where they lie badly."""
    shares, place = [], []
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
    whole = program.outputs_per_batch
    written = [index for index, spec in enumerate(program.outputs) if spec.name not in whole]
    for index in written:
        size = program.share(program.outputs[index])
        shares.append(f"    uint8_t *const out{index} = {_share('', 'out', index, size)};")
    sizes = [program.share(spec) for spec in program.outputs]
    return [
        "static void run_image(",
        "    struct context *context, const void *const in[], void *const out[], int32_t image)",
        "{",
        "    uint8_t *const arena = context->runtime.arena;",
        "    (void)in;",
        *(["    (void)out;"] if program.batch_call_count else []),
        *shares,
        *place,
        *_place_outputs(program, arena, written, sizes),
        *(["    context->image = image;"] if program.batch_call_count else []),
        *(["    context->at.picture = image;"] if profile else []),
        _run("graph", program.calls_per_image),
        *_copy_outputs(written, sizes),
        "}",
    ]


def _run_together(program: Program, arena: Arena, profile: bool) -> list[str]:
    """What follows the images, on the caller's whole tensors."""
    if not program.batch_call_count:
        return []
    whole = program.outputs_per_batch
    written = [index for index, spec in enumerate(program.outputs) if spec.name in whole]
    sizes = [spec.nbytes for spec in program.outputs]
    return [
        "static void run_together(struct context *context, void *const out[])",
        "{",
        "    uint8_t *const arena = context->runtime.arena;",
        *(f"    uint8_t *const out{index} = (uint8_t *)out[{index}];" for index in written),
        *_place_outputs(program, arena, written, sizes),
        *([f"    context->at.picture = {TOGETHER};"] if profile else []),
        _run("together", program.calls_per_batch),
        *_copy_outputs(written, sizes),
        "}",
        "",
    ]


def _run(function: str, calls: Sequence[Call]) -> str:
    """Let all threads run a function, if they share any of its calls."""
    if is_single_threaded(calls):
        return f"    {function}(&context->runtime, 0);"
    return f"    rt_run(&context->runtime, {function});"


def _place_outputs(
    program: Program, arena: Arena, indices: Iterable[int], sizes: list[int]
) -> list[str]:
    lines = []
    for index in indices:
        own, offset = f"out{index}", arena.offsets["output", program.outputs[index].name]
        lines.append(
            f"    context->out[{index}] ="
            f" rt_in_place({own}, {sizes[index]}) ? {own} : arena + {offset};"
        )
    return lines


def _copy_outputs(indices: Iterable[int], sizes: list[int]) -> list[str]:
    lines = []
    for index in indices:
        lines += [
            f"    if (context->out[{index}] != out{index})",
            f"        rt_copy(out{index}, context->out[{index}], {sizes[index]});",
        ]
    return lines


def _share(const: str, array: str, index: int, size: int) -> str:
    return f"({const}uint8_t *){array}[{index}] + (size_t)image * {size}"
