/* Threads that share the tasks of a call, as those of a package do; they spin while they wait. */
#define _GNU_SOURCE
#include "runner.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { SPINS = 10000 }; /* before others may have the core */

static struct {
    pthread_t thread[MAX_THREADS];
    int threads;
    const struct call *call;
    _Atomic int32_t task;
    _Atomic unsigned generation;
    _Atomic int busy, stop;
} pool = {.threads = 1};

static void take_tasks(const struct call *call, int thread)
{
    void *own[MAX_ARGUMENTS];
    memcpy(own, call->arguments, sizeof *own * (size_t)call->count);
    own[call->count] = (uint8_t *)call->arguments[call->count] + call->scratch * (size_t)thread;
    for (int32_t task; (task = atomic_fetch_add(&pool.task, 1)) < call->tasks;)
        call->run(own, task, call->tasks);
}

static void wait_for(unsigned seen)
{
    for (int spins = 0; atomic_load(&pool.generation) == seen;)
        if (spins == SPINS)
            sched_yield();
        else
            spins++;
}

static void *work(void *number)
{
    for (unsigned seen = 0;; seen++) {
        wait_for(seen);
        if (atomic_load(&pool.stop))
            return NULL;
        take_tasks(pool.call, (int)(intptr_t)number);
        atomic_fetch_sub(&pool.busy, 1);
    }
}

void use_threads(int threads)
{
    atomic_store(&pool.stop, 1);
    atomic_fetch_add(&pool.generation, 1);
    for (int i = 1; i < pool.threads; i++)
        pthread_join(pool.thread[i], NULL);
    atomic_store(&pool.stop, 0);
    atomic_store(&pool.generation, 0);
    pool.threads = 1;
    for (int i = 1; i < threads; i++, pool.threads++)
        if (pthread_create(&pool.thread[i], NULL, work, (void *)(intptr_t)i) != 0)
            fail("a thread cannot be started", "");
}

void run_call(const struct call *call)
{
    if (pool.threads == 1 && call->tasks == 1) {
        call->run(call->arguments, 0, 1);
        return;
    }
    pool.call = call;
    atomic_store(&pool.task, 0);
    atomic_store(&pool.busy, pool.threads - 1);
    atomic_fetch_add(&pool.generation, 1);
    take_tasks(call, 0);
    for (int spins = 0; atomic_load(&pool.busy) != 0;)
        if (spins == SPINS)
            sched_yield();
        else
            spins++;
}
