/* The thread pool: every thread runs the whole graph and meets the others at a barrier after each
 * call. Between runs the workers wait at that same barrier.
 *
 * Threads are seldom equally fast: another process, or the other half of a core, holds one up. So a
 * call is split into more tasks than there are threads, and who is done with its own takes others'.
 * Every run begins with the same ones, whose weights a thread's cache may still hold. */
#include "runtime.h"

static const uint64_t MAGIC = 0x6e6c696b746962ull; /* "bitkiln" */

enum { SPINS = 2000 }; /* some tens of microseconds: as long as a short kernel takes */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

void rt_sync(struct rt_context *c, int32_t thread)
{
    /* Nobody can open the next generation before this thread has arrived, and nobody takes tasks of
     * the last one any more. */
    uint32_t generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
    atomic_store_explicit(
        &c->shares[thread].taken[(generation + 1) % 2], 0, memory_order_relaxed);
    int32_t arrived = atomic_fetch_add_explicit(&c->arrived, 1, memory_order_acq_rel) + 1;

    if (arrived == rt_threads(c)) {
        atomic_store_explicit(&c->arrived, 0, memory_order_relaxed);
        /* Sequentially consistent, here and below: either the sleeper sees the new generation or
         * we see the sleeper. */
        atomic_store(&c->generation, generation + 1);
        if (atomic_load(&c->sleepers) != 0) {
            pthread_mutex_lock(&c->mutex);
            pthread_cond_broadcast(&c->woken);
            pthread_mutex_unlock(&c->mutex);
        }
        return;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&c->generation, memory_order_acquire) != generation)
            return;
        relax();
    }
    pthread_mutex_lock(&c->mutex);
    atomic_fetch_add(&c->sleepers, 1);
    while (atomic_load(&c->generation) == generation)
        pthread_cond_wait(&c->woken, &c->mutex);
    atomic_fetch_sub(&c->sleepers, 1);
    pthread_mutex_unlock(&c->mutex);
}

int32_t rt_take(struct rt_context *c, int32_t thread, int32_t n)
{
    int32_t threads = rt_threads(c);
    uint32_t now = atomic_load_explicit(&c->generation, memory_order_relaxed) % 2;
    for (int32_t i = 0; i < threads; i++) {
        int32_t owner = (thread + i) % threads;
        int32_t first = n * owner / threads, end = n * (owner + 1) / threads;
        _Atomic int32_t *taken = &c->shares[owner].taken[now];
        /* Only looked at where nothing is left, lest threads in search of work fight for lines. */
        if (atomic_load_explicit(taken, memory_order_relaxed) >= end - first)
            continue;
        int32_t task = first + atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
        if (task < end)
            return task;
    }
    return n;
}

static void *work(void *argument)
{
    struct rt_context *c = argument;
    int32_t thread = atomic_fetch_add(&c->numbered, 1);
    for (;;) {
        rt_sync(c, thread);
        if (c->stop)
            return NULL;
        c->graph(c, thread);
        rt_sync(c, thread);
    }
}

/* Let the first `n` workers go and wait for them. */
static void stop(struct rt_context *c, int32_t n)
{
    c->stop = 1;
    atomic_store(&c->n_threads, n + 1);
    if (n > 0)
        rt_sync(c, 0);
    for (int32_t i = 0; i < n; i++)
        pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->woken);
    pthread_mutex_destroy(&c->mutex);
}

static int start(struct rt_context *c, int32_t n_threads)
{
    if (pthread_mutex_init(&c->mutex, NULL) != 0)
        return RT_NO_THREAD;
    if (pthread_cond_init(&c->woken, NULL) != 0) {
        pthread_mutex_destroy(&c->mutex);
        return RT_NO_THREAD;
    }
    for (int32_t i = 0; i < n_threads - 1; i++)
        if (pthread_create(&c->threads[i], NULL, work, c) != 0) {
            stop(c, i);
            return RT_NO_THREAD;
        }
    return RT_OK;
}

int rt_init(struct rt_context *c, void *arena, int32_t n_threads)
{
    c->magic = 0;
    c->arena = arena;
    c->stop = 0;
    atomic_init(&c->n_threads, n_threads);
    atomic_init(&c->numbered, 1);
    atomic_init(&c->arrived, 0);
    atomic_init(&c->generation, 0);
    atomic_init(&c->sleepers, 0);
    for (int32_t i = 0; i < n_threads; i++)
        for (int32_t which = 0; which < 2; which++)
            atomic_init(&c->shares[i].taken[which], 0);
    if (n_threads > 1) {
        int error = start(c, n_threads);
        if (error != RT_OK)
            return error;
    }
    c->magic = MAGIC;
    return RT_OK;
}

int rt_is_ready(const struct rt_context *c)
{
    return c->magic == MAGIC;
}

void rt_run(struct rt_context *c, rt_graph graph)
{
    c->graph = graph;
    rt_sync(c, 0);
    graph(c, 0);
    rt_sync(c, 0);
}

void rt_finish(struct rt_context *c)
{
    int32_t n_threads = rt_threads(c);
    if (n_threads > 1)
        stop(c, n_threads - 1);
    c->magic = 0;
}
