/* Layer times, in packages that are built with them (package.profile in the recipe): which thread
 * was in which call of the graph, from when to when.
 *
 * A context that is not armed pays two branches for each call and thread. */
#ifndef PROFILE_H
#define PROFILE_H

#include "runtime.h"

/* A thread's part of a call; users know it as NAME_span. */
struct rt_span {
    uint64_t begin, end; /* by the clock of the log */
    int32_t layer;       /* the call's number */
    int32_t picture;     /* of a batch, -1 where all are computed at once */
    int32_t thread;
    int32_t reserved; /* 0 */
};

/* The spans of the last run, those of each thread in order. */
struct rt_log {
    struct rt_span *spans;
    uint64_t (*clock)(void);
    _Atomic uint32_t count;
};

/* What a call is noted with. */
struct rt_at {
    struct rt_log *log; /* NULL unless the context is armed */
    int32_t thread;     /* the one that a context of its own (rt_init_own) runs on, else 0 */
    int32_t picture;
};

/* Note a call that ends now. */
void rt_note(const struct rt_at *at, uint64_t begin, int32_t thread, int32_t layer);

static inline uint64_t rt_begin(const struct rt_at *at)
{
    return __builtin_expect(at->log != NULL, 0) ? at->log->clock() : 0;
}

static inline void rt_end(const struct rt_at *at, uint64_t begin, int32_t thread, int32_t layer)
{
    if (__builtin_expect(at->log != NULL, 0))
        rt_note(at, begin, thread, layer);
}

/* Disarm, of a context that is new. */
void rt_disarm(struct rt_at *at, struct rt_log *log);

/* Note the runs that follow in `spans`, or none any more if it is NULL. A clock that is NULL is the
 * operating system's. */
void rt_arm(struct rt_at *at, struct rt_log *log, struct rt_span *spans, uint64_t (*clock)(void));

/* Forget the run before. */
static inline void rt_restart(const struct rt_at *at)
{
    if (__builtin_expect(at->log != NULL, 0))
        atomic_store_explicit(&at->log->count, 0, memory_order_relaxed);
}

/* The time of each layer in the last run. Every moment counts for the layers that threads are in at
 * that moment, in equal parts for every thread that is in any. So the sum is the time in which at
 * least one thread was in a layer. */
void rt_layer_times(const struct rt_log *log, int32_t threads, int32_t layers, double *times);

/* The package's own functions, as package.h has the others. */
int32_t package_layers(void);
const char *package_layer_name(int32_t layer);
const char *package_layer_kernel(const void *context, int32_t layer);
size_t package_most_spans(int32_t n_threads);
int package_profile(void *context, struct rt_span *spans, uint64_t (*clock)(void));
size_t package_spans(const void *context);
void package_layer_times(const void *context, double *times);

#endif
