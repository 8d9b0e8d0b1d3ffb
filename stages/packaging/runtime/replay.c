/* The package as a program: replays the golden vectors bit for bit and prints the latency.
 *
 * Exit status: 0 all equal, 1 a mismatch, 2 the processor is refused, 3 anything else. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "package.h"
#include "runtime.h"
#ifdef PROFILE
#include "trace.h"
#endif

enum { EQUAL = 0, MISMATCH = 1, REFUSED = 2, FAILED = 3 };

/* golden.bin, little-endian: this header, one record per input, one per output, then data. */
struct header {
    char magic[8];
    uint32_t checksum; /* of all that follows it */
    uint32_t samples, inputs, outputs;
    uint64_t size; /* of the whole file */
};
struct record {
    char name[96], dtype[16];
    uint64_t sample_bytes, offset; /* of one sample; of the first, from the start of the file */
};
struct golden {
    struct header header;
    const struct record *records;
    const uint8_t *bytes;
};

static const char MAGIC[8] = {'b', 'k', 'g', 'o', 'l', 'd', 0, 2};
#ifdef PROFILE
static const char USAGE[] =
    "usage: %s [--threads N] [--repeat N] [--profile] [--trace FILE] [golden.bin]\n";
static struct layers layers;
#else
static const char USAGE[] = "usage: %s [--threads N] [--repeat N] [golden.bin]\n";
#endif

static int fail(const char *what, const char *which)
{
    fprintf(stderr, "error: %s%s%s\n", what, which[0] ? ": " : "", which);
    return FAILED;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, RT_ALIGNMENT, bytes) != 0)
        return NULL;
    memset(memory, 0xa5, bytes); /* a package that relies on zeroed memory must not pass */
    return memory;
}

/* Reads the file at `path`, or golden.bin beside the program where `path` is NULL. */
static uint8_t *read_file(const char *path, size_t *size)
{
    char beside[4096];
    if (path == NULL) {
        static const char NAME[] = "golden.bin";
        ssize_t n = readlink("/proc/self/exe", beside, sizeof beside - sizeof NAME);
        while (n > 0 && beside[n - 1] != '/')
            n--;
        memcpy(beside + (n > 0 ? n : 0), NAME, sizeof NAME);
        path = beside;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail(path, strerror(errno));
        return NULL;
    }
    uint8_t *bytes = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        rewind(file);
        if (end >= 0 && (bytes = allocate((size_t)end + RT_SLACK)) != NULL
            && fread(bytes, 1, (size_t)end, file) == (size_t)end)
            *size = (size_t)end;
        else
            fail(path, "cannot be read");
    }
    fclose(file);
    return bytes;
}

/* CRC-32, as zlib and PNG have it. */
static uint32_t checksum(const uint8_t *bytes, size_t size)
{
    uint32_t table[256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t entry = i;
        for (int bit = 0; bit < 8; bit++)
            entry = entry >> 1 ^ (entry & 1 ? 0xedb88320u : 0);
        table[i] = entry;
    }
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

/* Whether all of the file is there as it was written; `magic` must be right. */
static int is_whole(const uint8_t *bytes, size_t size)
{
    struct header header;
    enum { FIRST = offsetof(struct header, samples) };
    if (size < sizeof header)
        return 0;
    memcpy(&header, bytes, sizeof header);
    return header.size == size && header.checksum == checksum(bytes + FIRST, size - FIRST);
}

static int is_golden(const uint8_t *bytes, size_t size)
{
    return size >= sizeof MAGIC && memcmp(bytes, MAGIC, sizeof MAGIC) == 0;
}

/* Whether a whole file has what this package wants. */
static int parse(const uint8_t *bytes, size_t size, struct golden *golden)
{
    memcpy(&golden->header, bytes, sizeof golden->header);
    golden->records = (const struct record *)(bytes + sizeof golden->header);
    golden->bytes = bytes;
    if (golden->header.inputs != (uint32_t)graph_inputs()
        || golden->header.outputs != (uint32_t)graph_outputs())
        return 0;
    uint64_t n = (uint64_t)golden->header.inputs + golden->header.outputs;
    if (size < sizeof golden->header + n * sizeof(struct record))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct record *r = &golden->records[i];
        uint64_t expected = i < golden->header.inputs
                                ? graph_input_bytes((int32_t)i)
                                : graph_output_bytes((int32_t)(i - golden->header.inputs));
        if (r->sample_bytes != expected || r->name[sizeof r->name - 1] != 0 || r->offset > size
            || golden->header.samples > (size - r->offset) / r->sample_bytes)
            return 0;
    }
    return 1;
}

static int compare(const struct golden *golden, uint32_t sample, uint8_t *const out[])
{
    for (uint32_t i = 0; i < golden->header.outputs; i++) {
        const struct record *r = &golden->records[golden->header.inputs + i];
        const uint8_t *expected = golden->bytes + r->offset + sample * r->sample_bytes;
        for (uint64_t byte = 0; byte < r->sample_bytes; byte++)
            if (out[i][byte] != expected[byte]) {
                printf("mismatch: sample %u, output %s, byte %llu: 0x%02x, expected 0x%02x\n",
                       sample, r->name, (unsigned long long)byte, out[i][byte], expected[byte]);
                return MISMATCH;
            }
    }
    return EQUAL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int replay(void *context, const struct golden *golden, int threads, int repeat)
{
    uint32_t n_in = golden->header.inputs, n_out = golden->header.outputs;
    const void **in = calloc(n_in + 1, sizeof *in);
    uint8_t **out = calloc(n_out + 1, sizeof *out);
    double *seconds = calloc((size_t)repeat, sizeof *seconds);
    if (in == NULL || out == NULL || seconds == NULL)
        return fail("out of memory", "");
    for (uint32_t i = 0; i < n_out; i++)
        if ((out[i] = allocate(graph_output_bytes((int32_t)i) + RT_SLACK)) == NULL)
            return fail("out of memory", "");

#ifdef PROFILE
    int status = EQUAL;
#endif
    /* Every sample is compared in every round, so a rare race has a chance to show. */
    for (int round = 0; round < repeat; round++)
        for (uint32_t sample = 0; sample < golden->header.samples; sample++) {
            for (uint32_t i = 0; i < n_in; i++) {
                const struct record *r = &golden->records[i];
                in[i] = golden->bytes + r->offset + sample * r->sample_bytes;
            }
            double begin = now();
            int error = package_run(context, in, (void *const *)out);
#ifdef PROFILE
            double end = now();
            seconds[round] += end - begin;
            note_run(&layers, begin, end, round, repeat, sample);
#else
            seconds[round] += now() - begin;
#endif
            if (error != RT_OK)
                return fail(package_error(error), "");
#ifdef PROFILE
            /* Who asks for times gets those of a network of floats, too, which are never equal. */
            if (status == EQUAL && compare(golden, sample, out) != EQUAL)
                status = MISMATCH;
            if (status != EQUAL && !has_layers(&layers))
                return status;
#else
            if (compare(golden, sample, out) != EQUAL)
                return MISMATCH;
#endif
        }
#ifdef PROFILE
    if (status != EQUAL)
        return status;
#endif
    for (int round = 0; round < repeat; round++)
        seconds[round] /= golden->header.samples;
    qsort(seconds, (size_t)repeat, sizeof *seconds, ascending);
    double median = 0.5 * (seconds[(repeat - 1) / 2] + seconds[repeat / 2]);
    printf("ok: %u samples bit for bit, %d threads, median %.6f ms, fastest %.6f ms of %d runs\n",
           golden->header.samples, threads, 1e3 * median, 1e3 * seconds[0], repeat);
    return EQUAL;
}

/* A whole number in 1..most, or 0. */
static int number(const char *text, int most)
{
    char *end = NULL;
    long value = text == NULL ? 0 : strtol(text, &end, 10);
    return text != NULL && *text != 0 && *end == 0 && value >= 1 && value <= most ? (int)value : 0;
}

int main(int argc, char **argv)
{
    int threads = 1, repeat = 1;
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
#ifdef PROFILE
        if (strcmp(argv[i], "--profile") == 0) {
            layers.is_shown = 1;
            continue;
        }
        if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc) {
            layers.path = argv[++i];
            continue;
        }
#endif
        int *option = strcmp(argv[i], "--threads") == 0  ? &threads
                      : strcmp(argv[i], "--repeat") == 0 ? &repeat
                                                         : NULL;
        if (option != NULL) {
            *option = number(argv[++i], option == &threads ? RT_MAX_THREADS : 1000000);
            if (*option != 0)
                continue;
        } else if (argv[i][0] != '-' && path == NULL) {
            path = argv[i];
            continue;
        }
        fprintf(stderr, USAGE, argv[0]);
        return FAILED;
    }
    int supported = package_supported();
    if (supported != RT_OK) {
        fprintf(stderr, "error: %s\n", package_error(supported));
        return REFUSED;
    }
    size_t size = 0;
    struct golden golden;
    uint8_t *bytes = read_file(path, &size);
    if (bytes == NULL)
        return FAILED;
    if (is_golden(bytes, size) && !is_whole(bytes, size))
        return fail("the golden vectors are damaged; copy them again", path ? path : "golden.bin");
    if (!is_golden(bytes, size) || !parse(bytes, size, &golden) || golden.header.samples == 0)
        return fail("the golden vectors do not belong to this package", path ? path : "golden.bin");

    void *context = allocate(package_context_size());
    void *arena = allocate(package_arena_size(threads));
    if (context == NULL || arena == NULL)
        return fail("out of memory", "");
    memset(context, 0, package_context_size());
    int error = package_init(context, arena, threads);
    if (error != RT_OK)
        return fail(package_error(error), "");
#ifdef PROFILE
    if (!open_layers(&layers, context, threads))
        return FAILED;
#endif
    int status = replay(context, &golden, threads, repeat);
#ifdef PROFILE
    if (!close_layers(&layers, status == EQUAL || status == MISMATCH))
        status = FAILED;
#endif
    package_finish(context);
    return status;
}
