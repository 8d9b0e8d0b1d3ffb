/* Layer times of the program that replays: a table (--profile), and a trace that Perfetto and
 * chrome://tracing open (--trace). */
#ifndef TRACE_H
#define TRACE_H

#include <stdint.h>
#include <stdio.h>

struct layer_time {
    double sum, least; /* of the runs that count, ns */
};

struct layers {
    int is_shown;     /* whether the table is wanted */
    const char *path; /* of the trace; NULL if none is wanted */
    void *context;
    int threads, count, runs;
    struct rt_span *spans;
    double *times;
    struct layer_time *each, whole, between;
    FILE *trace;
    char *part; /* where the trace is until it is whole */
    uint64_t zero;
};

/* Whether times are wanted. */
int has_layers(const struct layers *layers);

/* Arm a context if times are wanted. Whether it could be done; else this says why not. */
int open_layers(struct layers *layers, void *context, int threads);

/* Note a run that lasted from `begin` to `end`, seconds of the monotonic clock. Of several rounds
 * the first one warms up and does not count; the last one is traced. */
void note_run(
    struct layers *layers, double begin, double end, int round, int rounds, uint32_t sample);

/* Print the table and finish the trace, or drop both if a run failed. Returns as `open_layers`. */
int close_layers(struct layers *layers, int is_good);

#endif
