/* A plugin of QEMU's user emulation (API version 1, QEMU 7 and later): how often each translated
   block ran between two marks, and what its loads and stores met in the caches of memory.h.

   The guest marks by sched_get_priority_max(N), which is harmless: 1000000 begins to warm the
   caches, 1000001 begins an interval, 1000002 ends it and writes it. Of a guest with more threads
   than one, the counts are those of all; accesses are simulated as one trace.

   Each interval is a line `interval` and a line a block: its address, its instructions, how often
   it ran, the events of memory.h in their order, its code in hexadecimal.

   QEMU's package has no header, so what is used of its API is declared here. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*on_access_t)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *);
typedef void (*on_translation_t)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*on_call_t)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
enum { ADD_U64 = 0, NO_REGISTERS = 0, READS_AND_WRITES = 3 };
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, on_translation_t);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, on_access_t, int, int,
                                             void *);
extern void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, on_call_t);

EXPORT int qemu_plugin_version = 1;

typedef struct block {
  uint64_t at, count, events[EVENTS];
  uint32_t instructions, size;
  unsigned char *code;
  struct block *next;
} block_t;

enum { BUCKETS = 1 << 16, LONGEST = 1 << 14 };
static block_t *table[BUCKETS];
static memory_t memory;
static const char *out;
static int64_t call;
static int simulates, is_on;

static block_t *find(struct qemu_plugin_tb *tb) {
  uint64_t at = qemu_plugin_tb_vaddr(tb);
  uint32_t instructions = qemu_plugin_tb_n_insns(tb), size = 0;
  unsigned char code[LONGEST];
  for (uint32_t k = 0; k < instructions; k++) {
    struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(tb, k);
    size_t bytes = qemu_plugin_insn_size(one);
    if (size + bytes > sizeof code) break;
    memcpy(code + size, qemu_plugin_insn_data(one), bytes);
    size += bytes;
  }
  block_t **bucket = &table[(at >> 1 ^ at >> 17) % BUCKETS], *b;
  for (b = *bucket; b; b = b->next)
    if (b->at == at && b->size == size && !memcmp(b->code, code, size)) return b;
  b = calloc(1, sizeof *b);
  b->at = at, b->instructions = instructions, b->size = size, b->next = *bucket;
  b->code = malloc(size);
  memcpy(b->code, code, size);
  return *bucket = b;
}

static void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t at, void *block) {
  if (!is_on) return;
  memory_access(&memory, at, 1u << qemu_plugin_mem_size_shift(info), qemu_plugin_mem_is_store(info),
                ((block_t *)block)->events);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
  block_t *block = find(tb);
  qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &block->count, 1);
  if (!simulates) return;
  for (size_t k = 0; k < qemu_plugin_tb_n_insns(tb); k++)
    qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, k), on_access, NO_REGISTERS,
                                     READS_AND_WRITES, block);
}

static void reset(void) {
  for (int k = 0; k < BUCKETS; k++)
    for (block_t *b = table[k]; b; b = b->next) {
      b->count = 0;
      memset(b->events, 0, sizeof b->events);
    }
}

static void write_interval(void) {
  FILE *file = fopen(out, "a");
  if (!file) return;
  fprintf(file, "interval\n");
  for (int k = 0; k < BUCKETS; k++)
    for (block_t *b = table[k]; b; b = b->next) {
      if (!b->count) continue;
      fprintf(file, "%" PRIx64 " %u %" PRIu64, b->at, b->instructions, b->count);
      for (int e = 0; e < EVENTS; e++) fprintf(file, " %" PRIu64, b->events[e]);
      fputc(' ', file);
      for (uint32_t i = 0; i < b->size; i++) fprintf(file, "%02x", b->code[i]);
      fputc('\n', file);
    }
  fclose(file);
}

static void on_call(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2,
                    uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
  if (number != call) return;
  uint32_t mark = (uint32_t)a1;
  if (mark == 1000001) reset();
  if (mark == 1000002 && (is_on & 2)) write_interval();
  if (mark == 1000000) is_on = 1;
  if (mark == 1000001) is_on = 2;
  if (mark == 1000002) is_on = 0;
}

static uint32_t option(int argc, char **argv, const char *name) {
  size_t length = strlen(name);
  for (int k = 0; k < argc; k++)
    if (!strncmp(argv[k], name, length) && argv[k][length] == '=')
      return strtoul(argv[k] + length + 1, NULL, 10);
  return 0;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info, int argc,
                               char **argv) {
  for (int k = 0; k < argc; k++)
    if (!strncmp(argv[k], "out=", 4)) out = strdup(argv[k] + 4);
  if (!out) return 1;
  call = option(argc, argv, "call");
  uint32_t kib[2] = {option(argc, argv, "l1_kib"), option(argc, argv, "l2_kib")};
  uint32_t ways[2] = {option(argc, argv, "l1_ways"), option(argc, argv, "l2_ways")};
  memory.streams = option(argc, argv, "streams");
  memory.train = option(argc, argv, "train");
  memory.distance = option(argc, argv, "distance");
  memory.reach = option(argc, argv, "reach");
  memory.random = option(argc, argv, "random");
  simulates = kib[0] && kib[1] && ways[0] && ways[1];
  if (simulates) memory_make(&memory, kib, ways, option(argc, argv, "line"));
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_vcpu_syscall_cb(id, on_call);
  return 0;
}
