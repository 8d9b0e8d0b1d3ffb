/* The graph: which kernel runs when, on what memory. Generated; do not edit. */
#include "package.h"
#include "runtime.h"
#include "profile.h"

void look_up(const void *, const void *, void *, void *, int32_t, int32_t);
void window(const void *, void *, void *, int32_t, int32_t);
void divide(const void *, void *, void *, int32_t, int32_t);
void add(const void *, const void *, const void *, void *, void *, int32_t, int32_t);

extern const uint8_t graph_constants[];

struct context {
    struct rt_context runtime;
    /* Where kernels find the tensors of this run: the caller's memory or the arena. */
    const uint8_t *in[1];
    uint8_t *out[2];
    struct rt_log log;
    struct rt_at at;
};

static void graph(struct rt_context *runtime, int32_t thread)
{
    const struct context *context = (const struct context *)runtime;
    uint8_t *const arena = runtime->arena;
    uint8_t *const scratch = arena + 13120 + (size_t)65536 * (size_t)thread;
    (void)context;
    uint64_t begin;
    int32_t n_tasks, ran;

    /* 0: stem */
    n_tasks = rt_tasks(runtime, 8, 4);
    ran = 0;
    begin = rt_begin(&context->at);
    for (int32_t task; (task = rt_take(runtime, thread, n_tasks)) < n_tasks; ran = 1)
        look_up(
            context->in[0], /* input image */
            graph_constants + 0, /* constant table */
            context->out[1], /* output levels */
            scratch, task, n_tasks);
    if (ran)
        rt_end(&context->at, begin, thread, 0);
    rt_sync(runtime, thread);

    /* 1: left */
    n_tasks = rt_tasks(runtime, 8, 4);
    ran = 0;
    begin = rt_begin(&context->at);
    for (int32_t task; (task = rt_take(runtime, thread, n_tasks)) < n_tasks; ran = 1)
        window(
            context->out[1], /* output levels */
            arena + 0, /* buffer b */
            scratch, task, n_tasks);
    if (ran)
        rt_end(&context->at, begin, thread, 1);
    rt_sync(runtime, thread);

    /* 2: right */
    n_tasks = rt_tasks(runtime, 2, 4);
    ran = 0;
    begin = rt_begin(&context->at);
    for (int32_t task; (task = rt_take(runtime, thread, n_tasks)) < n_tasks; ran = 1)
        divide(
            context->out[1], /* output levels */
            arena + 4032, /* buffer c */
            scratch, task, n_tasks);
    if (ran)
        rt_end(&context->at, begin, thread, 2);
    rt_sync(runtime, thread);

    if (rt_take(runtime, thread, 1) == 0) {
        /* 3: sum */
        begin = rt_begin(&context->at);
        add(
            arena + 0, /* buffer b */
            arena + 4032, /* buffer c */
            graph_constants + 256, /* constant bias again */
            context->out[0], /* output scores ?/ */
            scratch, 0, 1);
        rt_end(&context->at, begin, thread, 3);
    }
}

static const struct rt_feature needed[] = {
    {{0x20u, 0x14u, 0x0u, 0x0u, 0x0u}}, /* neon */
};
enum { N_NEEDED = 1 };

const char *package_error(int code)
{
    return rt_error_text(
        code, "this package needs a processor with neon, and an operating system that lets programs use them; this one lacks at least one");
}

int package_supported(void)
{
    return rt_system_has_features(needed, N_NEEDED) ? RT_OK : RT_PROCESSOR;
}

static void run_image(
    struct context *context, const void *const in[], void *const out[], int32_t image)
{
    uint8_t *const arena = context->runtime.arena;
    (void)in;
    const uint8_t *const in0 = (const uint8_t *)in[0] + (size_t)image * 1003;
    uint8_t *const out0 = (uint8_t *)out[0] + (size_t)image * 4012;
    uint8_t *const out1 = (uint8_t *)out[1] + (size_t)image * 1003;
    context->in[0] = in0;
    if (!rt_in_place(in0, 1003)) {
        rt_copy(arena + 0, in0, 1003);
        context->in[0] = arena + 0;
    }
    context->out[0] = rt_in_place(out0, 4012) ? out0 : arena + 8064;
    context->out[1] = rt_in_place(out1, 1003) ? out1 : arena + 12096;
    context->at.picture = image;
    rt_run(&context->runtime, graph);
    if (context->out[0] != out0)
        rt_copy(out0, context->out[0], 4012);
    if (context->out[1] != out1)
        rt_copy(out1, context->out[1], 1003);
}

static void run_all(struct context *context, const void *const in[], void *const out[])
{
    run_image(context, in, out, 0);
}

int32_t package_abi_version(void)
{
    return 2;
}

size_t package_context_size(void)
{
    return sizeof(struct context);
}

size_t package_arena_size(int32_t n_threads)
{
    if (n_threads < 1 || n_threads > RT_MAX_THREADS)
        return 0;
    return (size_t)13120 + (size_t)65536 * (size_t)n_threads + RT_SLACK;
}

int package_init(void *context, void *arena, int32_t n_threads)
{
    if (context == NULL || arena == NULL)
        return RT_NULL_POINTER;
    if ((uintptr_t)context % RT_ALIGNMENT != 0 || (uintptr_t)arena % RT_ALIGNMENT != 0)
        return RT_MISALIGNED;
    if (n_threads < 1 || n_threads > RT_MAX_THREADS)
        return RT_BAD_THREADS;
    if (!rt_has_features(needed, N_NEEDED))
        return RT_PROCESSOR;
    if (rt_is_ready(&((struct context *)context)->runtime))
        return RT_RUNNING;
    rt_disarm(&((struct context *)context)->at, &((struct context *)context)->log);
    return rt_init(&((struct context *)context)->runtime, arena, n_threads);
}

int package_run(void *opaque, const void *const in[], void *const out[])
{
    struct context *context = opaque;
    if (context == NULL || in == NULL || out == NULL)
        return RT_NULL_POINTER;
    if (!rt_is_ready(&context->runtime))
        return RT_NOT_READY;
    if (rt_is_forked(&context->runtime))
        return RT_FORKED;
    for (int i = 0; i < 1; i++)
        if (in[i] == NULL)
            return RT_NULL_POINTER;
    for (int i = 0; i < 2; i++)
        if (out[i] == NULL)
            return RT_NULL_POINTER;
    rt_restart(&context->at);
    run_all(context, in, out);
    return RT_OK;
}

void package_finish(void *opaque)
{
    struct context *context = opaque;
    if (context != NULL && rt_is_ready(&context->runtime))
        rt_finish(&context->runtime);
}

int32_t package_layers(void)
{
    return 4;
}

const char *package_layer_name(int32_t layer)
{
    switch (layer) {
    case 0: return "stem";
    case 1: return "left";
    case 2: return "right";
    case 3: return "sum";
    default: return NULL;
    }
}

const char *package_layer_kernel(const void *context, int32_t layer)
{
    (void)context;
    switch (layer) {
    case 0: return "look_up";
    case 1: return "window";
    case 2: return "divide";
    case 3: return "add";
    default: return NULL;
    }
}

size_t package_most_spans(int32_t n_threads)
{
    if (n_threads < 1 || n_threads > RT_MAX_THREADS)
        return 0;
    const size_t n = (size_t)n_threads;
    return (1 + 3 * n) + (0 + 0 * n);
}

int package_profile(void *opaque, struct rt_span *spans, uint64_t (*clock)(void))
{
    struct context *context = opaque;
    if (context == NULL)
        return RT_NULL_POINTER;
    if (!rt_is_ready(&context->runtime))
        return RT_NOT_READY;
    rt_arm(&context->at, &context->log, spans, clock);
    return RT_OK;
}

size_t package_spans(const void *opaque)
{
    return ((const struct context *)opaque)->log.count;
}

void package_layer_times(const void *opaque, double *times)
{
    const struct context *context = opaque;
    rt_layer_times(
        &context->log, rt_threads(&context->runtime), 4, times);
}

int32_t graph_inputs(void)
{
    return 1;
}

uint64_t graph_input_bytes(int32_t index)
{
    switch (index) {
    case 0: /* image */ return 1003;
    default: return 0;
    }
}

int32_t graph_outputs(void)
{
    return 2;
}

uint64_t graph_output_bytes(int32_t index)
{
    switch (index) {
    case 0: /* scores ?/ */ return 4012;
    case 1: /* levels */ return 1003;
    default: return 0;
    }
}
