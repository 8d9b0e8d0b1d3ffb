"""graph.c: the functions of a package, and the calls of its kernels in order."""

from __future__ import annotations

from collections.abc import Sequence

from hw.profile import Hardware
from stages.packaging.c_source import batch_runs, features, kernel_calls, layer_timer
from stages.packaging.c_source.kernel_calls import comment
from stages.packaging.program.arena import Arena
from stages.packaging.program.kernel_program import Program, TensorSpec
from stages.packaging.program.packed_constants import CONSTANTS, Constants

ABI_VERSION = 2

PUBLIC = (
    "abi_version",
    "arena_size",
    "context_size",
    "supported",
    "init",
    "run",
    "finish",
    "error",
)
"""The functions of a package; graph.c defines package_f, which the packager names NAME_f."""


def graph_source(
    program: Program,
    arena: Arena,
    constants: Constants,
    hardware: Hardware,
    profile: bool = False,
) -> str:
    """Return graph.c: the context, the kernel calls in order, and the package's functions, those
    that tell layer times too if `profile`."""
    return "\n".join(
        (
            "/* The graph: which kernel runs when, on what memory. Generated; do not edit. */",
            '#include "package.h"',
            '#include "runtime.h"',
            *(['#include "profile.h"'] if profile else []),
            "",
            *_prototypes(program),
            "",
            f"extern const uint8_t {CONSTANTS}[];",
            "",
            *_context(program, profile),
            "",
            *kernel_calls.functions(program, arena, constants.offsets, profile),
            "",
            *_processor(hardware),
            "",
            *batch_runs.functions(program, arena, profile),
            "",
            *_package(program, arena, profile),
            *(["", *layer_timer.functions(program)] if profile else []),
            "",
            *_tensor_sizes("input", program.inputs),
            "",
            *_tensor_sizes("output", program.outputs),
            "",
        )
    )


def _prototypes(program: Program) -> list[str]:
    lines = {}
    for call in program.calls:
        arguments = ["const void *"] * len(call.reads) + ["void *"] * len(call.writes)
        text = ", ".join([*arguments, "void *", "int32_t", "int32_t"])
        for symbol in (call.symbol, *([call.fallback.symbol] if call.fallback else [])):
            lines[symbol] = f"void {symbol}({text});"
    return list(lines.values())


def _context(program: Program, profile: bool) -> list[str]:
    return [
        "struct context {",
        "    struct rt_context runtime;",
        "    /* Where kernels find the tensors of this run: the caller's memory or the arena. */",
        f"    const uint8_t *in[{max(1, len(program.inputs))}];",
        f"    uint8_t *out[{len(program.outputs)}];",
        *(["    int tiles; /* whether kernels may use them */"] if program.uses_tiles else []),
        *batch_runs.members(program),
        *(layer_timer.members() if profile else []),
        "};",
    ]


def _processor(hardware: Hardware) -> list[str]:
    needed_features = features.needed_features(hardware)
    rows = [
        f"    {{{{{', '.join(f'{word:#x}u' for word in check)}}}}}, /* {name} */"
        for name in needed_features
        for check in [features.check_of(hardware.architecture, name)]
    ]
    return [
        "static const struct rt_feature needed[] = {",
        *rows,
        "};",
        f"enum {{ N_NEEDED = {len(needed_features)} }};",
        "",
        "const char *package_error(int code)",
        "{",
        "    return rt_error_text(",
        f'        code, "{refusal(hardware)}");',
        "}",
        "",
        "int package_supported(void)",
        "{",
        "    return rt_system_has_features(needed, N_NEEDED) ? RT_OK : RT_PROCESSOR;",
        "}",
    ]


def refusal(hardware: Hardware) -> str:
    """Return the sentence with which the package refuses a processor."""
    names = ", ".join(features.needed_features(hardware))
    return (
        f"this package needs a processor with {names}, and an operating system that lets "
        "programs use them; this one lacks at least one"
    )


def _package(program: Program, arena: Arena, profile: bool) -> list[str]:
    own = "((struct context *)context)"
    return [
        "int32_t package_abi_version(void)",
        "{",
        f"    return {ABI_VERSION};",
        "}",
        "",
        "size_t package_context_size(void)",
        "{",
        "    return sizeof(struct context);",
        "}",
        "",
        "size_t package_arena_size(int32_t n_threads)",
        "{",
        "    if (n_threads < 1 || n_threads > RT_MAX_THREADS)",
        "        return 0;",
        f"    return {batch_runs.arena_bytes(program, arena)} + RT_SLACK;",
        "}",
        "",
        "int package_init(void *context, void *arena, int32_t n_threads)",
        "{",
        "    if (context == NULL || arena == NULL)",
        "        return RT_NULL_POINTER;",
        "    if ((uintptr_t)context % RT_ALIGNMENT != 0 || (uintptr_t)arena % RT_ALIGNMENT != 0)",
        "        return RT_MISALIGNED;",
        "    if (n_threads < 1 || n_threads > RT_MAX_THREADS)",
        "        return RT_BAD_THREADS;",
        "    if (!rt_has_features(needed, N_NEEDED))",
        "        return RT_PROCESSOR;",
        "    if (rt_is_ready(&((struct context *)context)->runtime))",
        "        return RT_RUNNING;",
        *([f"    {own}->tiles = rt_may_use_tiles();"] if program.uses_tiles else []),
        *([f"    rt_disarm(&{own}->at, &{own}->log);"] if profile else []),
        "    return rt_init(&((struct context *)context)->runtime, arena, n_threads);",
        "}",
        "",
        "int package_run(void *opaque, const void *const in[], void *const out[])",
        "{",
        "    struct context *context = opaque;",
        "    if (context == NULL || in == NULL || out == NULL)",
        "        return RT_NULL_POINTER;",
        "    if (!rt_is_ready(&context->runtime))",
        "        return RT_NOT_READY;",
        "    if (rt_is_forked(&context->runtime))",
        "        return RT_FORKED;",
        f"    for (int i = 0; i < {len(program.inputs)}; i++)",
        "        if (in[i] == NULL)",
        "            return RT_NULL_POINTER;",
        f"    for (int i = 0; i < {len(program.outputs)}; i++)",
        "        if (out[i] == NULL)",
        "            return RT_NULL_POINTER;",
        *(["    rt_restart(&context->at);"] if profile else []),
        "    run_all(context, in, out);",
        "    return RT_OK;",
        "}",
        "",
        "void package_finish(void *opaque)",
        "{",
        "    struct context *context = opaque;",
        "    if (context != NULL && rt_is_ready(&context->runtime))",
        "        rt_finish(&context->runtime);",
        "}",
    ]


def _tensor_sizes(kind: str, specs: Sequence[TensorSpec]) -> list[str]:
    return [
        f"int32_t graph_{kind}s(void)",
        "{",
        f"    return {len(specs)};",
        "}",
        "",
        f"uint64_t graph_{kind}_bytes(int32_t index)",
        "{",
        "    switch (index) {",
        *(
            f"    case {index}: /* {comment(spec.name)} */ return {spec.nbytes};"
            for index, spec in enumerate(specs)
        ),
        "    default: return 0;",
        "    }",
        "}",
    ]
