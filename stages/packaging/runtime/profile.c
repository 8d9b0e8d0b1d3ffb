/* Notes calls, and tells how much time each layer took. */
#define _GNU_SOURCE
#include <time.h>

#include "profile.h"

/* Only called once a context was armed without a clock of the caller's: else nothing here calls
 * libc. */
static uint64_t monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void rt_note(const struct rt_at *at, uint64_t begin, int32_t thread, int32_t layer)
{
    struct rt_log *log = at->log;
    uint64_t end = log->clock();
    uint32_t place = atomic_fetch_add_explicit(&log->count, 1, memory_order_relaxed);
    struct rt_span *span = &log->spans[place];
    span->begin = begin;
    span->end = end;
    span->layer = layer;
    span->picture = at->picture;
    span->thread = at->thread + thread;
    span->reserved = 0;
}

void rt_disarm(struct rt_at *at, struct rt_log *log)
{
    at->log = NULL;
    at->thread = 0;
    at->picture = 0;
    log->spans = NULL;
    log->clock = NULL;
    atomic_init(&log->count, 0);
}

void rt_arm(struct rt_at *at, struct rt_log *log, struct rt_span *spans, uint64_t (*clock)(void))
{
    log->spans = spans;
    log->clock = clock != NULL ? clock : monotonic;
    atomic_store_explicit(&log->count, 0, memory_order_relaxed);
    at->log = spans != NULL ? log : NULL;
}

/* The next span of a thread from `place` on; `n` if there is none. */
static uint32_t next_of(const struct rt_log *log, uint32_t n, uint32_t place, int32_t thread)
{
    while (place < n && log->spans[place].thread != thread)
        place++;
    return place;
}

void rt_layer_times(const struct rt_log *log, int32_t threads, int32_t layers, double *times)
{
    uint32_t at[RT_MAX_THREADS]; /* each thread's span: the one it is in, or the next one */
    uint32_t n = atomic_load_explicit(&log->count, memory_order_relaxed);
    for (int32_t layer = 0; layer < layers; layer++)
        times[layer] = 0;
    for (int32_t thread = 0; thread < threads; thread++)
        at[thread] = next_of(log, n, 0, thread);
    /* From one moment to the next at which a span begins or ends. */
    for (uint64_t now = 0, then;; now = then) {
        int32_t inside = 0, left = 0;
        then = UINT64_MAX;
        for (int32_t thread = 0; thread < threads; thread++) {
            if (at[thread] == n)
                continue;
            const struct rt_span *span = &log->spans[at[thread]];
            int is_inside = span->begin <= now;
            uint64_t event = is_inside ? span->end : span->begin;
            inside += is_inside;
            left++;
            if (event < then)
                then = event;
        }
        if (left == 0)
            return;
        if (then < now) /* of a clock that went back */
            then = now;
        for (int32_t thread = 0; thread < threads; thread++) {
            if (at[thread] == n || log->spans[at[thread]].begin > now)
                continue;
            const struct rt_span *span = &log->spans[at[thread]];
            times[span->layer] += (double)(then - now) / inside;
            if (span->end <= then)
                at[thread] = next_of(log, n, at[thread] + 1, thread);
        }
    }
}
