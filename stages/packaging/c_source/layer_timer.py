"""The part of graph.c that tells layer times, in packages that are built with them."""

from __future__ import annotations

from collections.abc import Sequence

from stages.packaging.program.kernel_program import Call, Program

PUBLIC = (
    "layers",
    "layer_name",
    "layer_kernel",
    "most_spans",
    "profile",
    "spans",
    "layer_times",
)
"""The functions that such a package has besides the others."""
TOGETHER = -1
"""What stands for the image in calls that are run once for a batch."""
_ESCAPED = b'"\\?'
_PRINTABLE = range(0x20, 0x7F)


def members() -> list[str]:
    """What the context holds for layer times: fields of its struct, in C."""
    return ["    struct rt_log log;", "    struct rt_at at;"]


def functions(program: Program) -> list[str]:
    """The functions of the package that tell layer times, in C."""
    return [
        *_names(program),
        "",
        *_most_spans(program),
        "",
        "int package_profile(void *opaque, struct rt_span *spans, uint64_t (*clock)(void))",
        "{",
        "    struct context *context = opaque;",
        "    if (context == NULL)",
        "        return RT_NULL_POINTER;",
        "    if (!rt_is_ready(&context->runtime))",
        "        return RT_NOT_READY;",
        "    rt_arm(&context->at, &context->log, spans, clock);",
        "    return RT_OK;",
        "}",
        "",
        "size_t package_spans(const void *opaque)",
        "{",
        "    return ((const struct context *)opaque)->log.count;",
        "}",
        "",
        "void package_layer_times(const void *opaque, double *times)",
        "{",
        "    const struct context *context = opaque;",
        "    rt_layer_times(",
        f"        &context->log, rt_threads(&context->runtime), {len(program.calls)}, times);",
        "}",
    ]


def _names(program: Program) -> list[str]:
    count = len(program.calls)
    kernels = []
    for index, call in enumerate(program.calls):
        kernel = f'"{call.symbol}"'
        if other := call.fallback:
            kernel = f'((const struct context *)context)->tiles ? {kernel} : "{other.symbol}"'
        kernels.append(f"    case {index}: return {kernel};")
    return [
        "int32_t package_layers(void)",
        "{",
        f"    return {count};",
        "}",
        "",
        "const char *package_layer_name(int32_t layer)",
        "{",
        "    switch (layer) {",
        *(
            f"    case {index}: return {c_string(call.layer)};"
            for index, call in enumerate(program.calls)
        ),
        "    default: return NULL;",
        "    }",
        "}",
        "",
        "const char *package_layer_kernel(const void *context, int32_t layer)",
        "{",
        "    (void)context;",
        "    switch (layer) {",
        *kernels,
        "    default: return NULL;",
        "    }",
        "}",
    ]


def _most_spans(program: Program) -> list[str]:
    """A call has a span of every thread that had a part in it; images that threads take in whole
    have one of each call."""
    once = _spans(program.calls_per_batch)
    each = _spans(program.calls_per_image)
    if program.images > 1:
        whole = f"{len(program.calls_per_image)}"
        each = f"{program.images} * (n <= {program.images} ? {whole} : {each})"
    return [
        "size_t package_most_spans(int32_t n_threads)",
        "{",
        "    if (n_threads < 1 || n_threads > RT_MAX_THREADS)",
        "        return 0;",
        "    const size_t n = (size_t)n_threads;",
        f"    return {each} + {once};",
        "}",
    ]


def _spans(calls: Sequence[Call]) -> str:
    alone = sum(call.is_alone for call in calls)
    return f"({alone} + {len(calls) - alone} * n)"


def c_string(text: str) -> str:
    """A name from a model file as a C string of UTF-8, on one line; a NUL would end it."""
    data = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    return '"' + "".join(_character(byte) for byte in data) + '"'


def _character(byte: int) -> str:
    return chr(byte) if byte in _PRINTABLE and byte not in _ESCAPED else f"\\{byte:03o}"
