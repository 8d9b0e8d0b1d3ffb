/* Writes layer times as a table, and as events in the trace format of Chrome:
 * docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "package.h"
#include "profile.h"
#include "trace.h"

static int refuse(const char *what, const char *which)
{
    fprintf(stderr, "error: %s%s%s\n", what, which[0] ? ": " : "", which);
    return 0;
}

int has_layers(const struct layers *layers)
{
    return layers->is_shown || layers->path != NULL;
}

/* A string of JSON; names are UTF-8. */
static void print_string(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\' || *text == 0x7f)
            fprintf(to, "\\u%04x", (unsigned char)*text);
        else
            fputc(*text, to);
    fputc('"', to);
}

/* What stands before each event but the first, and how it begins. */
static void print_event(FILE *to, const char *kind, int thread)
{
    fprintf(to, ",\n{\"ph\": \"%s\", \"pid\": 1, \"tid\": %d", kind, thread + 1);
}

/* Microseconds, to the nanosecond. */
static void print_time(FILE *to, const char *key, uint64_t ns)
{
    fprintf(to, ", \"%s\": %llu.%03llu", key, (unsigned long long)(ns / 1000),
            (unsigned long long)(ns % 1000));
}

static void print_extent(const struct layers *layers, uint64_t begin, uint64_t end)
{
    print_time(layers->trace, "ts", begin - layers->zero);
    print_time(layers->trace, "dur", end - begin);
}

static void begin_trace(const struct layers *layers)
{
    FILE *to = layers->trace;
    fputs("{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n"
          "{\"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"name\": \"process_name\", "
          "\"args\": {\"name\": \"inference\"}}",
          to);
    for (int thread = 0; thread < layers->threads; thread++) {
        print_event(to, "M", thread);
        fprintf(to, ", \"name\": \"thread_name\", \"args\": {\"name\": \"thread %d\"}}", thread);
        print_event(to, "M", thread);
        fprintf(to, ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": %d}}", thread);
    }
}

int open_layers(struct layers *layers, void *context, int threads)
{
    if (!has_layers(layers))
        return 1;
    layers->context = context;
    layers->threads = threads;
    layers->count = package_layers();
    size_t count = (size_t)layers->count + 1; /* none is not an error */
    layers->spans = calloc(package_most_spans(threads) + 1, sizeof *layers->spans);
    layers->times = calloc(count, sizeof *layers->times);
    layers->each = calloc(count, sizeof *layers->each);
    if (layers->spans == NULL || layers->times == NULL || layers->each == NULL)
        return refuse("out of memory", "");
    if (layers->path != NULL) {
        if (asprintf(&layers->part, "%s.part", layers->path) < 0)
            return refuse("out of memory", "");
        if ((layers->trace = fopen(layers->part, "w")) == NULL)
            return refuse(layers->path, strerror(errno));
        begin_trace(layers);
    }
    int error = package_profile(context, layers->spans, NULL);
    return error == RT_OK || refuse(package_error(error), "");
}

static void print_span(const struct layers *layers, const struct rt_span *span)
{
    FILE *to = layers->trace;
    print_event(to, "X", span->thread);
    print_extent(layers, span->begin, span->end);
    fputs(", \"cat\": \"layer\", \"name\": ", to);
    print_string(to, package_layer_name(span->layer));
    fputs(", \"args\": {\"kernel\": ", to);
    print_string(to, package_layer_kernel(layers->context, span->layer));
    fprintf(to, ", \"number\": %d, \"picture\": %d}}", span->layer, span->picture);
}

/* Around the layers of each image, a slice of its own in every thread that had a part in it. */
static void print_images(const struct layers *layers, size_t n)
{
    const struct rt_span *spans = layers->spans;
    for (int thread = 0; thread < layers->threads; thread++) {
        const struct rt_span *first = NULL, *last = NULL;
        for (size_t i = 0; i <= n; i++) {
            if (i < n && spans[i].thread != thread)
                continue;
            if (first != NULL && (i == n || spans[i].picture != first->picture)) {
                if (first->picture >= 0) {
                    print_event(layers->trace, "X", thread);
                    print_extent(layers, first->begin, last->end);
                    fprintf(layers->trace, ", \"cat\": \"picture\", \"name\": \"picture %d\"}",
                            first->picture);
                }
                first = NULL;
            }
            if (i < n) {
                first = first != NULL ? first : &spans[i];
                last = &spans[i];
            }
        }
    }
}

static void trace_run(struct layers *layers, double begin, double end, uint32_t sample)
{
    size_t n = package_spans(layers->context);
    uint64_t first = (uint64_t)(1e9 * begin), last = (uint64_t)(1e9 * end);
    int is_batch = 0;
    for (size_t i = 0; i < n; i++) {
        const struct rt_span *span = &layers->spans[i];
        first = span->begin < first ? span->begin : first; /* which was rounded */
        last = span->end > last ? span->end : last;
        is_batch |= span->picture != 0;
    }
    if (layers->zero == 0)
        layers->zero = first;
    print_event(layers->trace, "X", 0);
    print_extent(layers, first, last);
    fprintf(layers->trace, ", \"cat\": \"run\", \"name\": \"sample %u\"}", sample);
    if (is_batch)
        print_images(layers, n);
    for (size_t i = 0; i < n; i++)
        print_span(layers, &layers->spans[i]);
}

static void add(struct layer_time *to, double ns, int is_first)
{
    to->sum += ns;
    if (is_first || ns < to->least)
        to->least = ns;
}

void note_run(
    struct layers *layers, double begin, double end, int round, int rounds, uint32_t sample)
{
    if (!has_layers(layers))
        return;
    if (layers->trace != NULL && round == rounds - 1)
        trace_run(layers, begin, end, sample);
    if (rounds > 1 && round == 0)
        return;
    double inside = 0, whole = 1e9 * (end - begin);
    int is_first = layers->runs++ == 0;
    package_layer_times(layers->context, layers->times);
    for (int i = 0; i < layers->count; i++) {
        add(&layers->each[i], layers->times[i], is_first);
        inside += layers->times[i];
    }
    add(&layers->whole, whole, is_first);
    add(&layers->between, whole > inside ? whole - inside : 0, is_first);
}

static double mean_ms(const struct layers *layers, const struct layer_time *time)
{
    return 1e-6 * time->sum / layers->runs;
}

static double share(const struct layers *layers, const struct layer_time *time)
{
    return layers->whole.sum > 0 ? time->sum / layers->whole.sum : 0;
}

/* A name for a terminal: what could control it is a question mark. Returns its characters. */
static int print_name(const char *name)
{
    int printed = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        int is_control = *c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0);
        if (is_control && *c == 0xc2)
            c++;
        putchar(is_control ? '?' : *c);
        printed += (*c & 0xc0) != 0x80 || is_control;
    }
    return printed;
}

static int width_of(const char *name)
{
    int width = 0;
    for (; *name; name++)
        width += (*name & 0xc0) != 0x80;
    return width;
}

static void print_row(
    const struct layers *layers, const struct layer_time *time, const char *name,
    const char *kernel, int width)
{
    printf("%12.6f %12.6f %6.1f %%  ", mean_ms(layers, time), 1e-6 * time->least,
           100 * share(layers, time));
    int printed = print_name(name);
    if (kernel[0])
        printf("%*s  %s", width > printed ? width - printed : 0, "", kernel);
    putchar('\n');
}

static void print_table(const struct layers *layers)
{
    int width = (int)strlen("layer");
    for (int i = 0; i < layers->count; i++) {
        int own = width_of(package_layer_name(i));
        width = own > width ? own : width;
    }
    printf("%12s %12s %8s  %-*s  kernel\n", "mean ms", "least ms", "share", width, "layer");
    for (int i = 0; i < layers->count; i++)
        print_row(layers, &layers->each[i], package_layer_name(i),
                  package_layer_kernel(layers->context, i), width);
    print_row(layers, &layers->between, "(between layers)", "", width);
    print_row(layers, &layers->whole, "(whole)", "", width);
}

static void print_figures(const struct layers *layers, const struct layer_time *time)
{
    fprintf(layers->trace, "\"mean_ms\": %.6f, \"least_ms\": %.6f, \"share\": %.6f}",
            mean_ms(layers, time), 1e-6 * time->least, share(layers, time));
}

/* The table, which viewers of traces pass over. */
static void end_trace(const struct layers *layers)
{
    FILE *to = layers->trace;
    fprintf(to, "\n],\n\"otherData\": {\"threads\": %d, \"runs\": %d,\n\"layers\": [",
            layers->threads, layers->runs);
    for (int i = 0; i < layers->count; i++) {
        fputs(i ? ",\n{\"layer\": " : "\n{\"layer\": ", to);
        print_string(to, package_layer_name(i));
        fputs(", \"kernel\": ", to);
        print_string(to, package_layer_kernel(layers->context, i));
        fputs(", ", to);
        print_figures(layers, &layers->each[i]);
    }
    fputs("],\n\"between\": {", to);
    print_figures(layers, &layers->between);
    fputs(",\n\"whole\": {", to);
    print_figures(layers, &layers->whole);
    fputs("}}\n", to);
}

int close_layers(struct layers *layers, int is_good)
{
    if (!has_layers(layers))
        return 1;
    package_profile(layers->context, NULL, NULL);
    if (layers->is_shown && is_good)
        print_table(layers);
    if (layers->trace == NULL)
        return 1;
    if (is_good)
        end_trace(layers);
    int is_whole = !ferror(layers->trace);
    is_whole &= fclose(layers->trace) == 0;
    if (is_whole && is_good && rename(layers->part, layers->path) == 0)
        return 1;
    remove(layers->part);
    return !is_good || refuse("the trace cannot be written", layers->path);
}
