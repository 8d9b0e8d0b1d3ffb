/* Sides: calls of kernels on tensors of their own, run to be checked, or timed in turns. */
#define _GNU_SOURCE
#include "runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST = 4, LONGER = 4 };
enum { MAX_SIDES = 64, MAX_CALLS = 16 };

struct result {
    uint8_t *data;
    size_t bytes;
};
struct side {
    int calls, results, nears, threads;
    struct call call[MAX_CALLS];
    struct result result[MAX_ARGUMENTS];
    struct result near[MAX_ARGUMENTS]; /* what it reads that another kernel has just written */
};
static struct side *sides[MAX_SIDES];

static struct side **side_at(void)
{
    return &sides[number(MAX_SIDES - 1)];
}

static struct side *side(void)
{
    struct side *found = *side_at();
    if (found == NULL)
        fail("no such side", "");
    return found;
}

static kernel kernel_of(const char *name)
{
    for (const struct entry *at = kernels_of_library(); at->name != NULL; at++)
        if (strcmp(at->name, name) == 0)
            return at->run;
    fail("the library has no such kernel", name);
}

/* An argument: c KEY is a constant, r KEY another tensor that is read, w BYTES one that is written
 * and compared, t BYTES one that is written and is nobody else's, x NUMBER the one that the side
 * wrote with that number. */
static void *argument(struct side *made)
{
    const char *kind = word();
    if (*kind == 'c' || *kind == 'r') {
        const struct blob *found = blob_of(word());
        if (*kind == 'r' && made->nears < MAX_ARGUMENTS)
            made->near[made->nears++] = (struct result){found->data, found->bytes};
        return found->data;
    }
    if (*kind == 'x') {
        uint64_t index = number(MAX_ARGUMENTS - 1);
        if (index >= (uint64_t)made->results)
            fail("the side has no such tensor", "");
        return made->result[index].data;
    }
    size_t bytes = number((uint64_t)1 << 30);
    void *room = allocate(bytes);
    if (made->results == MAX_ARGUMENTS)
        fail("a side has too many tensors", "");
    made->result[made->results++] = (struct result){room, *kind == 'w' ? bytes : 0};
    return room;
}

static void release(struct side *gone)
{
    for (int i = 0; i < gone->results; i++)
        free(gone->result[i].data);
    for (int i = 0; i < gone->calls; i++)
        free(gone->call[i].arguments[gone->call[i].count]);
    free(gone);
}

/* side NUMBER THREADS CALLS, and for each call its kernel, its bytes of scratch for a thread, its
 * tasks, the number of its arguments, and these */
void define_side(void)
{
    struct side **at = side_at();
    if (*at != NULL)
        release(*at);
    struct side *made = *at = allocate(sizeof *made);
    made->threads = (int)number(MAX_THREADS);
    made->calls = (int)number(MAX_CALLS);
    for (int i = 0; i < made->calls; i++) {
        struct call *call = &made->call[i];
        call->run = kernel_of(word());
        call->scratch = (number(1 << 28) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        call->tasks = (int32_t)number(1 << 20);
        call->count = (int)number(MAX_ARGUMENTS - 1);
        for (int a = 0; a < call->count; a++)
            call->arguments[a] = argument(made);
        call->arguments[call->count] = allocate(call->scratch * (size_t)made->threads);
    }
}

/* forget NUMBER */
void forget_side(void)
{
    struct side **at = side_at();
    if (*at != NULL)
        release(*at);
    *at = NULL;
}

void forget_sides(void)
{
    for (int i = 0; i < MAX_SIDES; i++) {
        if (sides[i] != NULL)
            release(sides[i]);
        sides[i] = NULL;
    }
}

static void run_side(const struct side *which)
{
    for (int i = 0; i < which->calls; i++)
        run_call(&which->call[i]);
}

/* -- commands ------------------------------------------------------------------------------- */

static uint32_t checksum(const uint8_t *bytes, size_t count)
{
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            table[i] = value;
        }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

/* check NUMBER: runs it once, and gives the CRC-32 (ISO 3309) of every tensor that is compared */
void check_side(void)
{
    struct side *which = side();
    for (int i = 0; i < which->results; i++)
        memset(which->result[i].data, 0xa5, which->result[i].bytes);
    run_side(which);
    fputs("{\"checksums\": [", answers);
    const char *comma = "";
    for (int i = 0; i < which->results; i++)
        if (which->result[i].bytes) {
            uint32_t found = checksum(which->result[i].data, which->result[i].bytes);
            fprintf(answers, "%s%lu", comma, (unsigned long)found);
            comma = ", ";
        }
    fputs("]}\n", answers);
}

/* read NUMBER RESULT */
void read_side(void)
{
    struct side *which = side();
    uint64_t index = number(MAX_ARGUMENTS - 1);
    if (index >= (uint64_t)which->results)
        fail("the side has no such tensor", "");
    send_bytes(which->result[index].data, which->result[index].bytes);
}

static volatile uint8_t seen;

static void pass_over(const uint8_t *data, size_t bytes)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < bytes; i += ALIGNMENT)
        sum = (uint8_t)(sum + data[i]);
    seen = sum;
}

/* Seconds of a run, on average of as many as take `wanted` seconds; `once` is about what one takes.
 *
 * Where weights are far, that is, other layers have pushed them out of the caches, as many bytes are
 * read before each run, and what else the side reads after them. That takes longer than the runs
 * do, so that some of them have to be enough: FEWEST, as long as all takes LONGER times as long. */
static double seconds(const struct side *which, double wanted, double once, const struct blob *far)
{
    double begin = now(), total = 0, runs = 0;
    if (far == NULL) {
        double count = fmax(1, ceil(wanted / once));
        for (; runs < count; runs++)
            run_side(which);
        return (now() - begin) / count;
    }
    while (runs < 1 || (total < wanted && (runs < FEWEST || now() - begin < LONGER * wanted))) {
        pass_over(far->data, far->bytes);
        for (int n = 0; n < which->nears; n++)
            pass_over(which->near[n].data, which->near[n].bytes);
        double from = now();
        run_side(which);
        total += now() - from;
        runs++;
    }
    return total / runs;
}

/* time THREADS ROUNDS SETTLE_US TURN_US FAR_BYTES SIDES NUMBER...: in every round each side has its
 * turn, and who is first changes. What a turn begins with, until the machine has settled, is not
 * counted. */
void time_sides(void)
{
    const struct side *turn[MAX_SIDES];
    double once[MAX_SIDES], found[MAX_SIDES];
    int threads = (int)number(MAX_THREADS), rounds = (int)number(MAX_ROUNDS);
    double settle = 1e-6 * (double)number(10000000), measure = 1e-6 * (double)number(10000000);
    struct blob far = {.bytes = number((uint64_t)1 << 30)};
    int count = (int)number(MAX_SIDES);
    if (threads < 1 || count < 1)
        fail("nothing is to be timed", "");
    for (int i = 0; i < count; i++) {
        turn[i] = side();
        if (turn[i]->threads < threads)
            fail("a side has scratch for fewer threads", "");
    }
    if (far.bytes)
        far.data = allocate(far.bytes);
    use_threads(threads);
    for (int i = 0; i < count; i++)
        once[i] = fmax(seconds(turn[i], 0, 1, far.bytes ? &far : NULL), 1e-7);
    for (int round = 0; round < rounds; round++) {
        fprintf(answers, "{\"round\": %d", round);
        print_state();
        for (int place = 0; place < count; place++) {
            int step = round / count % 2 ? count - 1 - place : place;
            int which = (round + step) % count;
            const struct blob *before = far.bytes ? &far : NULL;
            if (settle > 0)
                seconds(turn[which], before ? settle / LONGER : settle, once[which], before);
            found[which] = seconds(turn[which], measure, once[which], before);
        }
        fputs(", \"after\": {\"round\": 0", answers);
        print_state();
        fputs("}, \"seconds\": [", answers);
        for (int i = 0; i < count; i++)
            fprintf(answers, "%s%.9g", i ? ", " : "", found[i]);
        fputs("]}\n", answers);
        fflush(answers);
    }
    use_threads(1);
    free(far.data);
}
