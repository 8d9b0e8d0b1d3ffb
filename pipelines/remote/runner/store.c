/* What the runner was sent: tensors in memory, and the one library whose functions it calls. */
#define _GNU_SOURCE
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STATIC
#include <dlfcn.h>
#endif

static struct blob *blobs;
static const size_t MOST = (size_t)1 << 30;

static struct blob **place_of(const char *key)
{
    struct blob **at = &blobs;
    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

const struct blob *blob_of(const char *key)
{
    struct blob *found = *place_of(key);
    if (found == NULL)
        fail("it was not sent", key);
    return found;
}

void forget_all(void)
{
    forget_sides();
    close_package();
}

/* put KEY BYTES */
void put_blob(void)
{
    struct blob *made = allocate(sizeof *made);
    const char *key = word();
    if (strlen(key) >= sizeof made->key || *place_of(key) != NULL)
        fail("no key, or one that is taken", key);
    strcpy(made->key, key);
    made->bytes = number(MOST);
    made->data = allocate(made->bytes);
    take(made->data, made->bytes);
    made->next = blobs;
    blobs = made;
}

/* drop KEY: and all sides, and the package */
void drop_blob(void)
{
    struct blob **at = place_of(word());
    if (*at == NULL)
        return;
    struct blob *gone = *at;
    forget_all(); /* what may still read it */
    *at = gone->next;
    free(gone->data);
    free(gone);
}

#ifdef STATIC

extern const struct entry bitkiln_kernels[];

/* library 0: its kernels are linked into this program. */
void load_library(void)
{
    number(0);
    fputs("{\"loaded\": 0}\n", answers);
}

void *symbol_of(const char *name)
{
    (void)name;
    fail("a runner without a dynamic loader opens no package", "");
}

const struct entry *kernels_of_library(void)
{
    return bitkiln_kernels;
}

#else

static void *library;

/* library BYTES: in place of the one before; seconds to load it, of which it is a file as long */
void load_library(void)
{
    static uint8_t some[1 << 16];
    char path[] = "./library-XXXXXX";
    size_t bytes = number(MOST);
    forget_all();
    if (library != NULL)
        dlclose(library);
    int file = mkstemp(path);
    if (file < 0)
        fail("a library cannot be kept", strerror(errno));
    unfinished = path;
    for (size_t left = bytes; left > 0;) {
        size_t part = left < sizeof some ? left : sizeof some;
        take(some, part);
        errno = ENOSPC; /* a disk that is nearly full takes a part, which is no error */
        if (write(file, some, part) != (ssize_t)part) {
            unlink(path);
            fail("a library cannot be kept", strerror(errno));
        }
        left -= part;
    }
    close(file);
    double begin = now();
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    double taken = now() - begin;
    unlink(path);
    unfinished = NULL;
    if (library == NULL)
        fail("a library cannot be loaded", dlerror());
    fprintf(answers, "{\"loaded\": %.9g}\n", taken);
}

void *symbol_of(const char *name)
{
    return library != NULL ? dlsym(library, name) : NULL;
}

const struct entry *kernels_of_library(void)
{
    const struct entry *found = symbol_of("bitkiln_kernels");
    if (found == NULL)
        fail("the library has no kernels", "");
    return found;
}

#endif

void print_text(const char *field, const char *path)
{
    char name[512], text[1 << 14];
    snprintf(name, sizeof name, "%s%s", board_root, path);
    int file = open(name, O_RDONLY);
    if (file < 0)
        return;
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text && (got = read(file, text + length, sizeof text - length)) > 0)
        length += (size_t)got;
    close(file);
    fprintf(answers, ", \"%s\": \"", field);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\' || c >= 0x7f)
            fprintf(answers, "\\u%04x", c);
        else
            fputc(c, answers);
    }
    fputc('"', answers);
}
