/* What every package shares: a pool of threads around one barrier, and the processor check.
 *
 * Names here carry no prefix; the packager prefixes and hides every symbol of every object, so
 * several packages live in one process. Nothing here is writable outside the caller's memory, and
 * with one thread nothing here calls libc. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RT_ALIGNMENT = 64,     /* of the arena, the context and every tensor a kernel sees, bytes */
    RT_SLACK = 64,         /* a kernel may read this far past the end of a tensor, bytes */
    RT_MAX_THREADS = 256,
};

enum rt_error {
    RT_OK = 0,
    RT_NULL_POINTER = 1,
    RT_MISALIGNED = 2,
    RT_BAD_THREADS = 3,
    RT_PROCESSOR = 4,
    RT_NO_THREAD = 5,
    RT_NOT_READY = 6,
    RT_RUNNING = 7,
    RT_FORKED = 8,
};

struct rt_context;
typedef void (*rt_graph)(struct rt_context *context, int32_t thread);

struct rt_share {
    /* How many of a thread's tasks are taken: of this call and, still none, of the next one. */
    _Alignas(64) _Atomic int32_t taken[2];
    /* Of the group of threads with this number, those that are at the barrier. */
    _Alignas(64) _Atomic int32_t arrived;
};

/* Begins every package's context. The members that threads hammer on sit in lines of their own. */
struct rt_context {
    uint64_t mark; /* of a live context alone, and none other's: its own address is in it */
    uint8_t *arena;
    /* A page that a forked child finds empty; NULL with one thread, and before Linux 4.14, where
     * the process is asked for instead. */
    const volatile uint8_t *page;
    int64_t process;
    rt_graph graph;
    int32_t stop;
    _Atomic int32_t n_threads;
    _Atomic int32_t numbered;     /* threads that have taken a number so far */
    _Alignas(64) _Atomic int32_t arrived; /* groups that are at the barrier */
    _Alignas(64) _Atomic uint32_t generation;
    _Atomic int32_t sleepers;
    _Alignas(64) pthread_mutex_t mutex;
    pthread_cond_t woken;
    pthread_t threads[RT_MAX_THREADS];
    struct rt_share shares[RT_MAX_THREADS];
};

int rt_init(struct rt_context *context, void *arena, int32_t n_threads);
void rt_finish(struct rt_context *context);

/* Whether a context is live, of memory that was zeroed before its first init. */
int rt_is_ready(const struct rt_context *context);

/* Whether the threads of a live context are another process's, of which this one is a fork. */
int rt_is_forked(const struct rt_context *context);

/* A context of this thread alone, which nobody sees: it is neither live nor finished. */
void rt_init_own(struct rt_context *context, void *arena);

/* Let every thread run `graph`, and wait for them. */
void rt_run(struct rt_context *context, rt_graph graph);

/* Wait until every thread of the context has come here. */
void rt_sync(struct rt_context *context, int32_t thread);

/* The threads of a context. */
static inline int32_t rt_threads(const struct rt_context *context)
{
    return atomic_load_explicit(&context->n_threads, memory_order_relaxed);
}

/* The number of tasks a call that can use `most` is split into, `each` for a thread: as many for
 * every thread, if there are so many. */
static inline int32_t rt_tasks(const struct rt_context *context, int32_t most, int32_t each)
{
    int32_t threads = rt_threads(context);
    int32_t n = threads > 1 ? each * threads : 1;
    if (n < most)
        return n;
    return most > threads ? most - most % threads : most;
}

/* One of a call's `n` tasks that nobody has taken yet, of the thread's own while there are any; `n`
 * if none is left. */
int32_t rt_take(struct rt_context *context, int32_t thread, int32_t n);

static inline size_t rt_larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Whether kernels may use the caller's tensor in place: aligned, and the slack behind its end
 * lies in its last page. */
static inline int rt_in_place(const void *tensor, size_t bytes)
{
    uintptr_t first = (uintptr_t)tensor, last = first + bytes - 1;
    return first % RT_ALIGNMENT == 0 && last % 4096 + RT_SLACK < 4096;
}

/* One sentence for an error code; `refusal` is the one for RT_PROCESSOR. */
const char *rt_error_text(int code, const char *refusal);

void rt_copy(void *to, const void *from, size_t bytes);

/* One feature of a processor, in the words of its own architecture:
 * x86-64: CPUID leaf, subleaf, register 0-3 = eax-edx, bit, and the bits of XCR0 that the
 *         operating system must have set;
 * aarch64: the ID register's op2 + 8 * CRm, the field's lowest bit, the least value, 0, 0;
 * armv7: 0 = AT_HWCAP or 1 = AT_HWCAP2, the bit, 0, 0, 0. */
struct rt_feature {
    uint32_t what[5];
};

/* Whether the processor has all `n` features, as far as can be told without an operating system:
 * always true on 32-bit ARM. */
int rt_has_features(const struct rt_feature *features, int32_t n);

/* Whether the process may use tiles (AMX), for which it asks the operating system. */
int rt_may_use_tiles(void);

/* The same as rt_has_features with the operating system's help; may call libc. */
int rt_system_has_features(const struct rt_feature *features, int32_t n);

#endif
