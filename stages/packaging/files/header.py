"""Writes the C header a package's users include: its functions, and each tensor in words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hw.profile import Hardware
from stages.packaging.c_source.graph_source import ABI_VERSION, refusal
from stages.packaging.c_source.kernel_calls import comment
from stages.packaging.program.kernel_program import Program, TensorSpec

_NEAREST = "to the nearest integer, halves"
ROUNDED = {
    **dict.fromkeys(("ROUND", "ROUND_HALF_EVEN", "HALF_EVEN"), f"{_NEAREST} to the even one"),
    **dict.fromkeys(("ROUND_TO_ZERO", "DOWN"), "toward zero"),
    "HALF_UP": f"{_NEAREST} away from zero",
    "HALF_DOWN": f"{_NEAREST} toward zero",
    "UP": "away from zero",
    "FLOOR": "down",
    "CEIL": "up",
}
"""Rounding modes of QONNX in words."""

_TEXT = """\
/* {name}.h: a compiled neural network for {target}. Generated; do not edit.
 *
{tensors}
 *
 * The caller owns all memory. Once:
 *
 *     void *context = aligned_alloc(64, {name}_context_size());
 *     memset(context, 0, {name}_context_size());
 *     void *arena = aligned_alloc(64, {name}_arena_size(n_threads));
 *     int error = {name}_init(context, arena, n_threads);
 *     if (error) puts({name}_error(error));
 *
 * Then, as often as wanted:
 *
 *     const void *in[] = {{ {ins} }};
 *     void *out[] = {{ {outs} }};
 *     error = {name}_run(context, in, out);
 *
 * Tensors are row-major without padding, in the byte order of the processor. Any alignment works;
 * 64-byte aligned ones are usually used in place, others are copied. No output may overlap another
 * tensor. One context runs one inference at a time; any number of contexts may run side by side.
 * Nothing is allocated after init, and with n_threads = 1 neither init nor run calls libc. */
#ifndef {guard}
#define {guard}

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ABI_VERSION {abi}
{sizes}

/* The library's own ABI version; it must equal {upper}_ABI_VERSION. */
int32_t {name}_abi_version(void);

/* Bytes of arena and context; the arena grows with n_threads (1..256, else 0 is returned). */
size_t {name}_arena_size(int32_t n_threads);
size_t {name}_context_size(void);

/* 0, or an error code if this processor lacks a feature. It may call libc.
 * {supported} */
int {name}_supported(void);

/* Each returns 0 or an error code.
 *
 * init starts n_threads - 1 threads, which sleep between runs. The context must be zeroed before
 * its first init, so that init can tell one that is still running, which it refuses. The threads
 * are not in a forked child: there run refuses a context of several threads, and finish and init
 * make it one of the child's. With n_threads = 1 a child goes on with its copy. */
int {name}_init(void *context, void *arena, int32_t n_threads);
int {name}_run(void *context, const void *const in[], void *const out[]);

/* Ends the threads; afterwards context and arena may be freed, or given to init again. */
void {name}_finish(void *context);

/* One sentence for an error code. For an unsupported processor it is:
{refusal} */
const char *{name}_error(int code);
{profile}
#ifdef __cplusplus
}}
#endif

#endif
"""


_PROFILE = """
/* Layer times; this package was built with them.
 *
 * Once a context is armed, each of its runs writes into `spans` which thread was in which layer,
 * from when to when:
 *
 *     struct {name}_span *spans = malloc({name}_most_spans(n_threads) * sizeof *spans);
 *     error = {name}_profile(context, spans, NULL);
 *     error = {name}_run(context, in, out);
 *     double ns[{upper}_LAYERS];
 *     {name}_layer_times(context, ns);
 *
 * Times are the clock's: any function that never goes back and that all threads may call. Without
 * one it is clock_gettime(CLOCK_MONOTONIC), in nanoseconds; with one of the caller's and
 * n_threads = 1 nothing here calls libc. */
#define {upper}_LAYERS {layers}

struct {name}_span {{
    uint64_t begin, end;
    int32_t layer;    /* 0..{upper}_LAYERS - 1 */
    int32_t picture;  /* of a batch; -1 in a layer that computes all of them at once, else 0 */
    int32_t thread;   /* 0..n_threads - 1 */
    int32_t reserved;
}};

/* How many layers there are, and what each is called; NULL if there is no such layer. A kernel may
 * depend on what init found the processor to have. */
int32_t {name}_layers(void);
const char *{name}_layer_name(int32_t layer);
const char *{name}_layer_kernel(const void *context, int32_t layer);

/* How many spans a run writes at most. */
size_t {name}_most_spans(int32_t n_threads);

/* Arms a context between two runs, or disarms it where spans is NULL; 0 or an error code. init
 * leaves a context disarmed. */
int {name}_profile(void *context, struct {name}_span *spans, uint64_t (*clock)(void));

/* How many spans the last run wrote; those of each thread are in order. */
size_t {name}_spans(const void *context);

/* The time of each layer in the last run. Every moment counts for the layers that threads are in,
 * in equal parts for each thread that is in one: so times add up to no more than the run took. */
void {name}_layer_times(const void *context, double *times);
"""


def header_source(program: Program, name: str, hardware: Hardware, profile: bool = False) -> str:
    """Return NAME.h, with what tells layer times if `profile`."""
    upper = name.upper()
    asks_system = hardware.architecture == "armv7"
    return _TEXT.format(
        name=name,
        upper=upper,
        guard=f"{upper}_H",
        abi=ABI_VERSION,
        target=f"{hardware.architecture} ({hardware.cpu})",
        tensors="\n".join(
            f" * {line}".rstrip()
            for line in (
                *_tensors("in", program.inputs),
                *_tensors("out", program.outputs),
            )
        ),
        ins=", ".join(f"in_{index}" for index in range(len(program.inputs))) or "NULL",
        outs=", ".join(f"out_{index}" for index in range(len(program.outputs))),
        sizes="\n".join(
            f"#define {upper}_{kind}_{index}_BYTES {spec.nbytes}"
            for kind, specs in (("IN", program.inputs), ("OUT", program.outputs))
            for index, spec in enumerate(specs)
        ),
        supported=(
            "Call it before init: 32-bit ARM tells only the operating system, so init cannot ask."
            if asks_system
            else "init asks the same without libc."
        ),
        refusal=textwrap.fill(
            refusal(hardware) + ".", 98, initial_indent=" * ", subsequent_indent=" * "
        ),
        profile=(
            _PROFILE.format(name=name, upper=upper, layers=len(program.calls)) if profile else ""
        ),
    )


def _tensors(array: str, specs: Sequence[TensorSpec]) -> list[str]:
    lines = []
    for index, spec in enumerate(specs):
        extents = "".join(f"[{extent}]" for extent in spec.shape)
        lines.append(f"{array}[{index}]: {spec.c_type}{extents}  {comment(spec.name)}")
        if spec.dtype == "float16":
            lines.append("       each element the 16 bits of an IEEE half")
        if spec.quantization:
            lines.append(f"       {_meaning(spec.quantization)}")
    return lines


def _meaning(quantization: Mapping[str, Any]) -> str:
    """What stored numbers stand for, or how the package makes such numbers of floats."""
    scale, zero_point = np.float32(quantization["scale"]), quantization["zero_point"]
    if "rounding" not in quantization:
        stored = f"({_shifted('q', -zero_point)})" if zero_point else "q"
        return f"a stored q stands for {scale!s} * {stored}"
    mode = quantization["rounding"]
    return (
        f"the package begins with q = {_shifted(f'x / {scale!s}', zero_point)}, rounded "
        f"{ROUNDED.get(mode, mode)}, {quantization['low']} at least, {quantization['high']} at most"
    )


def _shifted(text: str, by: float) -> str:
    if not by:
        return text
    return f"{text} {'+' if by > 0 else '-'} {abs(by):g}"
