/* Tiles (AMX) on x86-64 processors that have none: their instructions are undefined there, and a
 * handler of the signal carries them out; everything else runs as it is. Written after the Intel
 * SDM, volume 2, and stricter than it: shapes that do not fit end the program with a sentence. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, THREADS = 64 };

struct registers {
    _Atomic int32_t thread;
    uint8_t config[64];
    uint8_t data[TILES][ROWS][ROW_BYTES];
};

static struct registers all[THREADS];
static struct sigaction before;

static void refuse(const char *why)
{
    ssize_t done = write(2, why, strlen(why));
    (void)done;
    abort();
}

static struct registers *own(void)
{
    int32_t thread = (int32_t)syscall(SYS_gettid);
    for (int i = 0; i < THREADS; i++) {
        int32_t none = 0;
        if (all[i].thread == thread
            || atomic_compare_exchange_strong(&all[i].thread, &none, thread))
            return &all[i];
    }
    refuse("tiles: too many threads\n");
    return NULL;
}

static int rows(const struct registers *r, int tile)
{
    if (r->config[0] != 1 || r->config[48 + tile] == 0)
        refuse("tiles: a register without a shape\n");
    return r->config[48 + tile];
}

static int row_bytes(const struct registers *r, int tile)
{
    rows(r, tile);
    return r->config[16 + 2 * tile];
}

static void configure(struct registers *r, const uint8_t *from)
{
    memset(r->data, 0, sizeof r->data);
    memcpy(r->config, from, sizeof r->config);
    for (int tile = 0; tile < TILES; tile++) {
        int high = from[17 + 2 * tile], bytes = from[16 + 2 * tile], count = from[48 + tile];
        if (from[0] != 1 || from[1] != 0 || high || bytes > ROW_BYTES || count > ROWS
            || !bytes != !count)
            refuse("tiles: an invalid configuration\n");
    }
}

/* Of a product of `a` and `b`, added to `c`: shapes fit, and rows that `c` does not have are 0. */
static void begin_product(struct registers *r, int c, int a, int b)
{
    int m = rows(r, c);
    if (rows(r, a) != m || row_bytes(r, a) != 4 * rows(r, b)
        || row_bytes(r, b) != 4 * (row_bytes(r, c) / 4))
        refuse("tiles: shapes do not fit\n");
    if (a == b || a == c || b == c)
        refuse("tiles: one register twice\n");
    for (int y = m; y < ROWS; y++)
        memset(r->data[c][y], 0, ROW_BYTES);
}

static void multiply(struct registers *r, int c, int a, int b, int is_signed_a, int is_signed_b)
{
    int m = rows(r, c), n = row_bytes(r, c) / 4, k = rows(r, b);
    begin_product(r, c, a, b);
    for (int y = 0; y < m; y++)
        for (int x = 0; x < n; x++) {
            uint32_t sum;
            memcpy(&sum, &r->data[c][y][4 * x], 4);
            for (int word = 0; word < k; word++)
                for (int byte = 0; byte < 4; byte++) {
                    uint8_t p = r->data[a][y][4 * word + byte], q = r->data[b][word][4 * x + byte];
                    int32_t left = is_signed_a ? (int8_t)p : p, right = is_signed_b ? (int8_t)q : q;
                    sum += (uint32_t)(left * right);
                }
            memcpy(&r->data[c][y][4 * x], &sum, 4);
        }
}

static float widened(const uint8_t *from)
{
    uint8_t bytes[4] = {0, 0, from[0], from[1]};
    float value;
    memcpy(&value, bytes, 4);
    return value;
}

static void multiply_floats(struct registers *r, int c, int a, int b)
{
    int m = rows(r, c), n = row_bytes(r, c) / 4, k = rows(r, b);
    begin_product(r, c, a, b);
    for (int y = 0; y < m; y++)
        for (int x = 0; x < n; x++) {
            float halves[2] = {0, 0}, sum;
            for (int word = 0; word < k; word++)
                for (int half = 0; half < 2; half++)
                    halves[half] = fmaf(widened(&r->data[a][y][4 * word + 2 * half]),
                                        widened(&r->data[b][word][4 * x + 2 * half]), halves[half]);
            memcpy(&sum, &r->data[c][y][4 * x], 4);
            sum += halves[0] + halves[1];
            memcpy(&r->data[c][y][4 * x], &sum, 4);
        }
}

static void move(struct registers *r, int tile, uint8_t *base, int64_t stride, int is_store)
{
    int count = rows(r, tile), bytes = row_bytes(r, tile);
    if (!is_store)
        memset(r->data[tile], 0, sizeof r->data[tile]);
    for (int y = 0; y < count; y++) {
        uint8_t *place = base + y * stride;
        if (is_store)
            memcpy(place, r->data[tile][y], bytes);
        else
            memcpy(r->data[tile][y], place, bytes);
    }
}

/* General registers by the number that instructions give them. */
static const int NUMBERS[16] = {
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

struct operand {
    uint8_t *base;
    int64_t index; /* a tile's stride */
    int length;    /* of ModRM, SIB and displacement */
};

/* `next` is how many bytes of the instruction come before ModRM. */
static struct operand memory(const greg_t *general, const uint8_t *code, int next)
{
    int no_x = code[1] >> 6 & 1, no_b = code[1] >> 5 & 1;
    int mode = code[next] >> 6, low = code[next] & 7;
    struct operand found = {NULL, 0, 1};
    int64_t address = 0;
    if (low == 4) {
        int sib = code[next + 1], index = (sib >> 3 & 7) | (no_x ? 0 : 8);
        int base = (sib & 7) | (no_b ? 0 : 8);
        found.length = 2;
        if (index != 4)
            found.index = general[NUMBERS[index]] * (1 << (sib >> 6));
        if ((sib & 7) == 5 && mode == 0)
            mode = 4; /* no base, but a displacement of 32 bits */
        else
            address = general[NUMBERS[base]];
    } else if (low == 5 && mode == 0) {
        mode = 5; /* behind the instruction */
    } else {
        address = general[NUMBERS[low | (no_b ? 0 : 8)]];
    }
    if (mode == 1) {
        address += (int8_t)code[next + found.length];
        found.length += 1;
    } else if (mode != 0) {
        int32_t displacement;
        memcpy(&displacement, &code[next + found.length], 4);
        found.length += 4;
        address += displacement;
        if (mode == 5)
            address += general[REG_RIP] + next + found.length;
    }
    found.base = (uint8_t *)address;
    return found;
}

/* Carry out the instruction at `code`; return its length, 0 if it is none of tiles. */
static int carry_out(const greg_t *general, const uint8_t *code)
{
    enum { NONE, P66, PF3, PF2 };
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x84) != 0)
        return 0;
    int prefix = code[2] & 3, other = (~code[2] >> 3) & 7, opcode = code[3];
    int is_register = code[4] >> 6 == 3, tile = code[4] >> 3 & 7, last = code[4] & 7;
    struct registers *r = own();
    if (opcode == 0x5C && is_register && prefix == PF3) {
        multiply_floats(r, tile, last, other);
        return 5;
    }
    if (opcode == 0x5E && is_register) {
        multiply(r, tile, last, other, prefix == PF3 || prefix == PF2,
                 prefix == P66 || prefix == PF2);
        return 5;
    }
    if (opcode == 0x49 && is_register) {
        if (prefix == PF2) {
            rows(r, tile);
            memset(r->data[tile], 0, sizeof r->data[tile]);
        } else {
            memset(r->config, 0, sizeof r->config);
        }
        return 5;
    }
    if (opcode != 0x49 && opcode != 0x4B)
        return 0;
    struct operand where = memory(general, code, 4);
    if (opcode == 0x4B)
        move(r, tile, where.base, where.index, prefix == PF3);
    else if (prefix == NONE)
        configure(r, where.base + where.index);
    else
        memcpy(where.base + where.index, r->config, sizeof r->config);
    return 4 + where.length;
}

static void handler(int number, siginfo_t *info, void *context)
{
    greg_t *general = ((ucontext_t *)context)->uc_mcontext.gregs;
    int length = carry_out(general, (const uint8_t *)general[REG_RIP]);
    if (length == 0) {
        sigaction(SIGILL, &before, NULL); /* and meet it once more */
        return;
    }
    (void)number, (void)info;
    general[REG_RIP] += length;
}

int tiles_install(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    return sigaction(SIGILL, &action, &before);
}
