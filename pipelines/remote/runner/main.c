/* Reads commands and calls what does them. */
#define _GNU_SOURCE
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum {
    LONGEST_LINE = 1 << 20,
    IDLE_MS = 180000, /* whoever drives it says at least "ping" in this time, or is gone */
    LOCK_MS = 500,
};

const char *board_root = "";
FILE *answers;
const char *unfinished;
static char *line, *rest;

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

_Noreturn void fail(const char *what, const char *which)
{
    fputs("{\"error\": ", answers);
    char text[512];
    snprintf(text, sizeof text, "%s%s%s", what, which[0] ? ": " : "", which);
    print_string(answers, text);
    fputs("}\n", answers);
    fflush(answers);
    _exit(1);
}

void *allocate(size_t bytes)
{
    void *memory = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, ALIGNMENT, bytes + SLACK) != 0) {
        char size[32];
        snprintf(size, sizeof size, "%zu bytes", bytes);
        fail("there is no memory", size);
    }
    return memset(memory, 0, bytes + SLACK);
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *word(void)
{
    char *found = strsep(&rest, " ");
    if (found == NULL || !*found)
        fail("a command lacks a word", "");
    return found;
}

uint64_t number(uint64_t most)
{
    const char *text = word();
    char *end;
    errno = 0;
    unsigned long long found = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || found > most)
        fail("no such number", text);
    return found;
}

/* Bytes of standard input, read ahead by nobody else. */
static uint8_t ahead[1 << 16];
static size_t first, behind;

/* Whether there are any; waits as long as a silent driver may be alive. */
static int fill(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    first = behind = 0;
    if (poll(&in, 1, IDLE_MS) <= 0)
        return 0;
    ssize_t got = read(0, ahead, sizeof ahead);
    behind = got > 0 ? (size_t)got : 0;
    return behind > 0;
}

void take(void *to, size_t bytes)
{
    uint8_t *at = to;
    while (bytes > 0) {
        if (first == behind && !fill()) {
            if (unfinished != NULL)
                unlink(unfinished);
            _exit(0);
        }
        size_t some = behind - first < bytes ? behind - first : bytes;
        memcpy(at, ahead + first, some);
        first += some, at += some, bytes -= some;
    }
}

void send_bytes(const void *from, size_t bytes)
{
    fprintf(answers, "{\"bytes\": %zu}\n", bytes);
    fwrite(from, 1, bytes, answers);
}

/* The next line without its end, in `line`; 0 at the end of all. */
static int next_line(void)
{
    for (size_t length = 0; length < LONGEST_LINE; length++) {
        if (first == behind && !fill())
            return 0;
        char c = (char)ahead[first++];
        line[length] = c == '\n' ? 0 : c;
        if (c == '\n')
            return 1;
    }
    fail("a command is too long", "");
}

/* Removes what others left here that were ended before they could: nobody else is at work now. */
static void sweep(void)
{
    static const char *const left[] = {"engine-", "model-", "inputs-", "program-", "golden-",
                                       "library-"};
    DIR *folder = opendir(".");
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        for (size_t i = 0; i < sizeof left / sizeof *left; i++)
            if (strncmp(entry->d_name, left[i], strlen(left[i])) == 0)
                unlink(entry->d_name);
    closedir(folder);
}

/* Nobody else uses the board meanwhile; who does is told until it ends. */
static void lock(const char *path, const char *who)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        fail("the lock cannot be opened", strerror(errno));
    for (int told = 0; flock(file, LOCK_EX | LOCK_NB) != 0; told = 1) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            fail("the lock cannot be had", strerror(errno));
        char owner[128] = "";
        ssize_t got = pread(file, owner, sizeof owner - 1, 0);
        owner[got > 0 ? got : 0] = 0;
        if (!told) {
            fputs("{\"busy\": ", answers);
            print_string(answers, owner);
            fputs("}\n", answers);
            fflush(answers);
        }
        struct pollfd in = {.fd = 0};
        if (poll(&in, 1, LOCK_MS) > 0 && in.revents & (POLLHUP | POLLERR))
            _exit(0);
        if (ferror(answers))
            _exit(0);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, who, strlen(who), 0) < 0)
        fail("the lock cannot be written", strerror(errno));
    sweep();
}

/* Written without stdio, which a signal may have interrupted. */
static void on_fault(int signal)
{
    static const char *const names[] = {
        [SIGSEGV] = "it read or wrote where it must not",
        [SIGBUS] = "it read or wrote where it must not",
        [SIGILL] = "the processor does not know an instruction",
        [SIGFPE] = "it divided by zero",
    };
    if (unfinished != NULL)
        unlink(unfinished);
    static const char before[] = "\n{\"fault\": \"", after[] = "\"}\n";
    ssize_t done = write(1, before, sizeof before - 1);
    done += write(1, names[signal], strlen(names[signal]));
    done += write(1, after, sizeof after - 1);
    _exit(done > 0 ? 1 : 2);
}

static const struct {
    const char *name;
    void (*run)(void);
} commands[] = {
    {"put", put_blob},          {"drop", drop_blob},     {"library", load_library},
    {"side", define_side},      {"forget", forget_side}, {"check", check_side},
    {"read", read_side},        {"time", time_sides},    {"package", open_package},
    {"infer", infer},           {"output", read_output}, {"board", print_board},
};

static void obey(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0) {
            commands[i].run();
            return;
        }
    if (strcmp(name, "ping") != 0)
        fail("no such command", name);
    fputs("{\"pong\": true}\n", answers);
}

int main(int count, char **given)
{
    answers = stdout;
    line = malloc(LONGEST_LINE);
    const char *locked = NULL, *who = "";
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(given[i], "--root") == 0)
            board_root = given[i + 1];
        else if (strcmp(given[i], "--lock") == 0)
            locked = given[i + 1];
        else if (strcmp(given[i], "--who") == 0)
            who = given[i + 1];
        else if (strcmp(given[i], "--cores") == 0)
            use_cores(given[i + 1]);
        else
            fail("no such option", given[i]);
    }
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        signal(faults[i], on_fault);
    print_board();
    fflush(answers);
    if (locked != NULL)
        lock(locked, who);
    fputs("{\"ready\": true}\n", answers);
    fflush(answers);
    while (next_line()) {
        rest = line;
        obey(word());
        if (fflush(answers) != 0)
            return 1;
    }
    return 0;
}
