/* Links a package's static library and runs one inference between two marks of the plugin.
 *
 * Compiled with -DHEADER="name.h" -DNAME(x)=name_##x -DIN=bytes,... -DOUT=bytes,...; takes two
 * files: the inputs one behind the other, and where the outputs go, likewise. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include HEADER

enum { WARM = 1000000, BEGIN, END };

static const size_t in_bytes[] = {IN}, out_bytes[] = {OUT};

static void mark(int which) { syscall(SYS_sched_get_priority_max, which); }

static void *allocate(size_t bytes) {
  size_t whole = (bytes + 127) / 64 * 64;
  void *found = aligned_alloc(64, whole);
  if (found == NULL) {
    fputs("no memory\n", stderr);
    exit(2);
  }
  return memset(found, 0, whole);
}

int main(int count, char **given) {
  enum { INPUTS = sizeof in_bytes / sizeof *in_bytes, OUTPUTS = sizeof out_bytes / sizeof *out_bytes };
  const void *in[INPUTS];
  void *out[OUTPUTS];
  FILE *from = count == 3 ? fopen(given[1], "rb") : NULL;
  FILE *to = count == 3 ? fopen(given[2], "wb") : NULL;
  if (from == NULL || to == NULL) return 2;
  for (int i = 0; i < INPUTS; i++) {
    void *input = allocate(in_bytes[i]);
    if (fread(input, 1, in_bytes[i], from) != in_bytes[i]) return 2;
    in[i] = input;
  }
  for (int i = 0; i < OUTPUTS; i++) out[i] = allocate(out_bytes[i]);
  void *context = allocate(NAME(context_size)()), *arena = allocate(NAME(arena_size)(1));
  int error = NAME(init)(context, arena, 1);
  mark(WARM);
  if (!error) error = NAME(run)(context, in, out);
  mark(BEGIN);
  if (!error) error = NAME(run)(context, in, out);
  mark(END);
  if (error) {
    fprintf(stderr, "%s\n", NAME(error)(error));
    return 1;
  }
  for (int i = 0; i < OUTPUTS; i++)
    if (fwrite(out[i], 1, out_bytes[i], to) != out_bytes[i]) return 2;
  return fclose(to) ? 2 : 0;
}
