/* toy.h: a compiled neural network for armv7 (cortex-a53). Generated; do not edit.
 *
 * in[0]: uint8_t[1][17][59]  image
 *        a stored q stands for 0.5 * (q - 3)
 * out[0]: int32_t[1][1003]  scores ?/
 * out[1]: uint8_t[1][17][59]  levels
 *
 * The caller owns all memory. Once:
 *
 *     void *context = aligned_alloc(64, toy_context_size());
 *     memset(context, 0, toy_context_size());
 *     void *arena = aligned_alloc(64, toy_arena_size(n_threads));
 *     int error = toy_init(context, arena, n_threads);
 *     if (error) puts(toy_error(error));
 *
 * Then, as often as wanted:
 *
 *     const void *in[] = { in_0 };
 *     void *out[] = { out_0, out_1 };
 *     error = toy_run(context, in, out);
 *
 * Tensors are row-major without padding, in the byte order of the processor. Any alignment works;
 * 64-byte aligned ones are usually used in place, others are copied. No output may overlap another
 * tensor. One context runs one inference at a time; any number of contexts may run side by side.
 * Nothing is allocated after init, and with n_threads = 1 neither init nor run calls libc. */
#ifndef TOY_H
#define TOY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TOY_ABI_VERSION 2
#define TOY_IN_0_BYTES 1003
#define TOY_OUT_0_BYTES 4012
#define TOY_OUT_1_BYTES 1003

/* The library's own ABI version; it must equal TOY_ABI_VERSION. */
int32_t toy_abi_version(void);

/* Bytes of arena and context; the arena grows with n_threads (1..256, else 0 is returned). */
size_t toy_arena_size(int32_t n_threads);
size_t toy_context_size(void);

/* 0, or an error code if this processor lacks a feature. It may call libc.
 * Call it before init: 32-bit ARM tells only the operating system, so init cannot ask. */
int toy_supported(void);

/* Each returns 0 or an error code.
 *
 * init starts n_threads - 1 threads, which sleep between runs. The context must be zeroed before
 * its first init, so that init can tell one that is still running, which it refuses. The threads
 * are not in a forked child: there run refuses a context of several threads, and finish and init
 * make it one of the child's. With n_threads = 1 a child goes on with its copy. */
int toy_init(void *context, void *arena, int32_t n_threads);
int toy_run(void *context, const void *const in[], void *const out[]);

/* Ends the threads; afterwards context and arena may be freed, or given to init again. */
void toy_finish(void *context);

/* One sentence for an error code. For an unsupported processor it is:
 * this package needs a processor with crc, hwdiv-arm, neon, vfp4, and an operating system that
 * lets programs use them; this one lacks at least one. */
const char *toy_error(int code);

/* Layer times; this package was built with them.
 *
 * Once a context is armed, each of its runs writes into `spans` which thread was in which layer,
 * from when to when:
 *
 *     struct toy_span *spans = malloc(toy_most_spans(n_threads) * sizeof *spans);
 *     error = toy_profile(context, spans, NULL);
 *     error = toy_run(context, in, out);
 *     double ns[TOY_LAYERS];
 *     toy_layer_times(context, ns);
 *
 * Times are the clock's: any function that never goes back and that all threads may call. Without
 * one it is clock_gettime(CLOCK_MONOTONIC), in nanoseconds; with one of the caller's and
 * n_threads = 1 nothing here calls libc. */
#define TOY_LAYERS 4

struct toy_span {
    uint64_t begin, end;
    int32_t layer;    /* 0..TOY_LAYERS - 1 */
    int32_t picture;  /* of a batch; -1 in a layer that computes all of them at once, else 0 */
    int32_t thread;   /* 0..n_threads - 1 */
    int32_t reserved;
};

/* How many layers there are, and what each is called; NULL if there is no such layer. A kernel may
 * depend on what init found the processor to have. */
int32_t toy_layers(void);
const char *toy_layer_name(int32_t layer);
const char *toy_layer_kernel(const void *context, int32_t layer);

/* How many spans a run writes at most. */
size_t toy_most_spans(int32_t n_threads);

/* Arms a context between two runs, or disarms it where spans is NULL; 0 or an error code. init
 * leaves a context disarmed. */
int toy_profile(void *context, struct toy_span *spans, uint64_t (*clock)(void));

/* How many spans the last run wrote; those of each thread are in order. */
size_t toy_spans(const void *context);

/* The time of each layer in the last run. Every moment counts for the layers that threads are in,
 * in equal parts for each thread that is in one: so times add up to no more than the run took. */
void toy_layer_times(const void *context, double *times);

#ifdef __cplusplus
}
#endif

#endif
