/* The thread pool: every thread runs the whole graph and meets the others at a barrier after each
 * call. Between runs the workers wait at that same barrier.
 *
 * Threads are seldom equally fast: another process, or the other half of a core, holds one up. So a
 * call is split into more tasks than there are threads, and who is done with its own takes others'.
 * Every run begins with the same ones, whose weights a thread's cache may still hold. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

static const uint64_t MAGIC = 0x6e6c696b746962ull; /* "bitkiln" */

static uint64_t mark_of(const struct rt_context *c)
{
    return MAGIC ^ (uint64_t)(uintptr_t)c;
}

enum { SPINS = 2000 }; /* some tens of microseconds: as long as a short kernel takes */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#elif __ARM_ARCH >= 7 /* compilers for the first Raspberry Pi make code for ARMv6 */
    __asm__ volatile("yield" ::: "memory");
#endif
}

enum { GROUP = 4 }; /* threads that count on a line of their own, which is passed on but so often */

/* Whether all of so many have arrived at a counter, which begins anew then. */
static int are_all(_Atomic int32_t *arrived, int32_t all)
{
    if (atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel) + 1 < all)
        return 0;
    atomic_store_explicit(arrived, 0, memory_order_relaxed);
    return 1;
}

/* Whether a thread is the last one to arrive: of its group, and that of all groups. */
static int is_last(struct rt_context *c, int32_t thread)
{
    int32_t threads = rt_threads(c), group = thread / GROUP;
    int32_t groups = (threads + GROUP - 1) / GROUP;
    int32_t members = group + 1 < groups ? GROUP : threads - GROUP * group;
    return are_all(&c->shares[group].arrived, members)
        && (groups == 1 || are_all(&c->arrived, groups));
}

void rt_sync(struct rt_context *c, int32_t thread)
{
    /* Nobody can open the next generation before this thread has arrived, and nobody takes tasks of
     * the last one any more. */
    uint32_t generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
    atomic_store_explicit(
        &c->shares[thread].taken[(generation + 1) % 2], 0, memory_order_relaxed);

    if (is_last(c, thread)) {
        /* Sequentially consistent, here and below: either the sleeper sees the new generation or
         * we see the sleeper. */
        atomic_store(&c->generation, generation + 1);
#if !defined(__x86_64__)
        /* Processors keep this order; QEMU 7.2 lets what acquires (LDAR) pass what releases (STLR),
         * so that 6 of 150 runs slept for ever under it. */
        atomic_thread_fence(memory_order_seq_cst);
#endif
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
    /* Held until it is known how many there are. */
    pthread_mutex_lock(&c->mutex);
    pthread_mutex_unlock(&c->mutex);
    for (;;) {
        rt_sync(c, thread);
        if (c->stop)
            return NULL;
        c->graph(c, thread);
        rt_sync(c, thread);
    }
}

enum { PAGE = 4096 }; /* of any processor the least: the system rounds up */

/* Have this process known from its forks: asking the system which one it is takes longer than a
 * short inference may. */
static void know_process(struct rt_context *c)
{
    c->process = getpid();
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    if (madvise(page, PAGE, MADV_WIPEONFORK) != 0) {
        munmap(page, PAGE);
        return;
    }
    *(uint8_t *)page = 1;
    c->page = page;
}

static void forget_process(struct rt_context *c)
{
    if (c->page != NULL)
        munmap((void *)c->page, PAGE);
    c->page = NULL;
}

int rt_is_forked(const struct rt_context *c)
{
    if (c->page != NULL)
        return *c->page == 0;
    return rt_threads(c) > 1 && c->process != getpid();
}

/* Let the workers go and wait for them. */
static void stop(struct rt_context *c)
{
    int32_t n = rt_threads(c) - 1;
    c->stop = 1;
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
    int32_t made = 0;
    pthread_mutex_lock(&c->mutex);
    while (made < n_threads - 1 && pthread_create(&c->threads[made], NULL, work, c) == 0)
        made++;
    atomic_store(&c->n_threads, made + 1);
    pthread_mutex_unlock(&c->mutex);
    if (made == n_threads - 1)
        return RT_OK;
    stop(c);
    return RT_NO_THREAD;
}

static void clear(struct rt_context *c, void *arena, int32_t n_threads)
{
    c->mark = 0;
    c->arena = arena;
    c->page = NULL;
    c->stop = 0;
    atomic_init(&c->n_threads, n_threads);
    atomic_init(&c->numbered, 1);
    atomic_init(&c->arrived, 0);
    atomic_init(&c->generation, 0);
    atomic_init(&c->sleepers, 0);
    for (int32_t i = 0; i < n_threads; i++) {
        atomic_init(&c->shares[i].arrived, 0);
        for (int32_t which = 0; which < 2; which++)
            atomic_init(&c->shares[i].taken[which], 0);
    }
}

void rt_init_own(struct rt_context *c, void *arena)
{
    clear(c, arena, 1);
}

int rt_init(struct rt_context *c, void *arena, int32_t n_threads)
{
    clear(c, arena, n_threads);
    if (n_threads > 1) {
        int error = start(c, n_threads);
        if (error != RT_OK)
            return error;
        know_process(c);
    }
    c->mark = mark_of(c);
    return RT_OK;
}

int rt_is_ready(const struct rt_context *c)
{
    return c->mark == mark_of(c);
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
    /* A fork has none of the threads, and may have been made while one held the mutex. */
    if (rt_threads(c) > 1 && !rt_is_forked(c))
        stop(c);
    forget_process(c);
    c->mark = 0;
}
