/* A package by its own functions: opened with so many threads, run, and timed run by run. */
#define _GNU_SOURCE
#include "runner.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 256, MAX_RUNS = 100000 };

static struct {
    int ready;
    void *context, *arena;
    int (*run)(void *, const void *const *, void *const *);
    void (*finish)(void *);
    const char *(*error)(int);
    const void *in[MAX_TENSORS];
    void *out[MAX_TENSORS];
    size_t bytes[MAX_TENSORS];
    int outputs;
} package;

static void *function(const char *name, const char *which)
{
    char symbol[300];
    snprintf(symbol, sizeof symbol, "%s_%s", name, which);
    void *found = symbol_of(symbol);
    if (found == NULL)
        fail("the package has no such function", symbol);
    return found;
}

static void check(int error)
{
    if (error)
        fail("the package refuses", package.error(error));
}

void close_package(void)
{
    if (!package.ready)
        return;
    package.finish(package.context);
    free(package.context);
    free(package.arena);
    for (int i = 0; i < package.outputs; i++)
        free(package.out[i]);
    memset(&package, 0, sizeof package);
}

/* package NAME THREADS INPUTS KEY... OUTPUTS BYTES...: of the library, and one inference */
void open_package(void)
{
    close_package();
    const char *name = word();
    double begin = now();
    *(void **)&package.run = function(name, "run");
    *(void **)&package.finish = function(name, "finish");
    *(void **)&package.error = function(name, "error");
    int (*supported)(void), (*init)(void *, void *, int32_t);
    size_t (*context_size)(void), (*arena_size)(int32_t);
    *(void **)&supported = function(name, "supported");
    *(void **)&init = function(name, "init");
    *(void **)&context_size = function(name, "context_size");
    *(void **)&arena_size = function(name, "arena_size");
    int32_t threads = (int32_t)number(MAX_THREADS);
    check(supported());
    int inputs = (int)number(MAX_TENSORS);
    for (int i = 0; i < inputs; i++)
        package.in[i] = blob_of(word())->data;
    package.outputs = (int)number(MAX_TENSORS);
    for (int i = 0; i < package.outputs; i++) {
        package.bytes[i] = number((uint64_t)1 << 30);
        package.out[i] = allocate(package.bytes[i]);
    }
    package.context = allocate(context_size());
    package.arena = allocate(arena_size(threads));
    check(init(package.context, package.arena, threads));
    package.ready = 1;
    check(package.run(package.context, package.in, package.out));
    fprintf(answers, "{\"first\": %.9g, \"arena\": %zu, \"peak_kib\": %ld}\n", now() - begin,
            arena_size(threads), peak_kib());
}

/* infer COUNT: seconds of each */
void infer(void)
{
    int count = (int)number(MAX_RUNS);
    double *taken = allocate(sizeof *taken * (size_t)count), before = energy();
    if (!package.ready)
        fail("no package is open", "");
    for (int i = 0; i < count; i++) {
        double begin = now();
        int error = package.run(package.context, package.in, package.out);
        taken[i] = now() - begin;
        check(error);
    }
    double used = energy() - before;
    fputs("{\"seconds\": [", answers);
    for (int i = 0; i < count; i++)
        fprintf(answers, "%s%.9g", i ? ", " : "", taken[i]);
    fprintf(answers, "], \"peak_kib\": %ld", peak_kib());
    if (before >= 0 && used >= 0)
        fprintf(answers, ", \"microjoules\": %.0f", used);
    print_state();
    fputs("}\n", answers);
    free(taken);
}

/* output NUMBER: the bytes of the last inference */
void read_output(void)
{
    if (!package.ready)
        fail("no package is open", "");
    int which = (int)number(MAX_TENSORS - 1);
    if (which >= package.outputs)
        fail("the package has no such output", "");
    send_bytes(package.out[which], package.bytes[which]);
}
