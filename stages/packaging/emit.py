"""Writes a program as C: one file for the graph, one header for its users, and its constants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hw.profile import Hardware
from stages.packaging import calling, features, profiling, running
from stages.packaging.arena import SLACK, Arena, align
from stages.packaging.calling import comment
from stages.packaging.program import Program, TensorSpec

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


CONSTANTS = "graph_constants"
"""What graph.c calls the constants."""


@dataclass(frozen=True)
class Constants:
    """All constants, as they lie in one read-only place, and where each begins there."""

    stored: tuple[tuple[int, np.ndarray], ...]
    """Where each begins, in order; equal ones are stored once."""
    offsets: dict[str, int]
    size: int
    """Bytes of all, slack included."""

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes, a constant at a time: together they are as large as the model."""
        place = 0
        for offset, value in self.stored:
            yield b"\0" * (offset - place) + _little_endian(value).tobytes()
            place = offset + value.nbytes
        yield b"\0" * (self.size - place)


def pack_constants(program: Program) -> Constants:
    """Lay out the constants 64-byte aligned in their given order, slack at the end."""
    stored, offsets, end = [], dict[str, int](), 0
    seen: dict[tuple[int, bytes], int] = {}
    for name, value in program.constants.items():
        digest = hashlib.sha256(_little_endian(value).tobytes()).digest()
        key = (value.nbytes, digest)
        if key not in seen:
            seen[key] = align(end)
            stored.append((seen[key], value))
            end = seen[key] + value.nbytes
        offsets[name] = seen[key]
    return Constants(tuple(stored), offsets, end + SLACK)


def _little_endian(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)


def constants_source(hardware: Hardware, symbol: str) -> str:
    """Return the assembler file that turns constants.bin into an aligned read-only symbol."""
    mark = "%" if hardware.architecture == "armv7" else "@"
    return "\n".join(
        (
            f'.section .rodata.constants,"a",{mark}progbits',
            ".balign 64",
            f".globl {symbol}",
            f".hidden {symbol}",
            f".type {symbol},{mark}object",
            f"{symbol}:",
            '    .incbin "constants.bin"',
            f".size {symbol}, . - {symbol}",
            f'.section .note.GNU-stack,"",{mark}progbits',
            "",
        )
    )


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
            *calling.functions(program, arena, constants.offsets, profile),
            "",
            *_processor(hardware),
            "",
            *running.functions(program, arena, profile),
            "",
            *_package(program, arena, profile),
            *(["", *profiling.functions(program)] if profile else []),
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
        *running.members(program),
        *(profiling.members() if profile else []),
        "};",
    ]


def _processor(hardware: Hardware) -> list[str]:
    needed = features.needed(hardware)
    rows = [
        f"    {{{{{', '.join(f'{word:#x}u' for word in check)}}}}}, /* {name} */"
        for name in needed
        for check in [features.check_of(hardware.architecture, name)]
    ]
    return [
        "static const struct rt_feature needed[] = {",
        *rows,
        "};",
        f"enum {{ N_NEEDED = {len(needed)} }};",
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
    names = ", ".join(features.needed(hardware))
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
        f"    return {running.arena_bytes(program, arena)} + RT_SLACK;",
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
