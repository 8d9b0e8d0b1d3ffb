/* A program for boards that times kernels and runs packages, as it is told on its standard input.
 *
 * A command is a line of words; some have as many bytes behind it as it says. Answers are lines of
 * JSON; bytes that are asked for follow theirs. What goes wrong is one line {"error": ...}, behind
 * which the runner ends: whoever drives it starts it anew. It writes no file but libraries, which
 * are gone as soon as they are loaded, and the lock. */
#ifndef RUNNER_H
#define RUNNER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    ALIGNMENT = 64, /* of what kernels and packages are given, bytes */
    SLACK = 64,     /* a kernel may read this far past the end of a tensor, bytes */
    MAX_THREADS = 256,
    MAX_ROUNDS = 1000,
    MAX_ARGUMENTS = 256, /* of a kernel */
};

/* What a library of kernels says of each: it takes its tensors and its scratch from an array. */
typedef void (*kernel)(void *const *arguments, int32_t task, int32_t tasks);
struct entry {
    const char *name;
    kernel run;
};

/* main.c */
extern const char *board_root; /* what stands before /sys and /proc */
extern FILE *answers;
extern const char *unfinished; /* a file to remove if the rest of it does not come */
_Noreturn void fail(const char *what, const char *which);
void *allocate(size_t bytes); /* aligned, zeroed, with SLACK behind it */
double now(void);             /* seconds */
const char *word(void);       /* the next one of the line; fails at its end */
uint64_t number(uint64_t most);
void take(void *to, size_t bytes); /* bytes that stand behind the line */
void send_bytes(const void *from, size_t bytes);

/* store.c */
struct blob {
    char key[64];
    uint8_t *data;
    size_t bytes;
    struct blob *next;
};
const struct blob *blob_of(const char *key);
void forget_all(void); /* sides and package */
void put_blob(void);
void drop_blob(void);
void load_library(void);
void *symbol_of(const char *name); /* of the library; NULL if it has none */
const struct entry *kernels_of_library(void);
void print_text(const char *field, const char *path); /* a file of the system, as a JSON string */

/* threads.c */
struct call {
    kernel run;
    void *arguments[MAX_ARGUMENTS]; /* tensors, and scratch for the first thread behind them */
    int count;
    int32_t tasks;
    size_t scratch; /* bytes, of one thread */
};
void use_threads(int threads); /* from now on, this one among them */
void run_call(const struct call *call);

/* kernels.c */
void forget_sides(void);
void define_side(void);
void forget_side(void);
void check_side(void);
void read_side(void);
void time_sides(void);

/* package.c */
void close_package(void);
void open_package(void);
void infer(void);
void read_output(void);

/* board.c */
extern int first_core;
void use_cores(const char *list);
void print_board(void);
void print_state(void); /* clock, temperature, throttling, energy: members of an object */
double energy(void);    /* microjoules since some time; negative where the board does not tell */
long peak_kib(void);    /* 0 where the system does not tell */

#endif
