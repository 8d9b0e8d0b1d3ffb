/* One sentence per error code. */
#include "runtime.h"

const char *rt_error_text(int code, const char *refusal)
{
    switch (code) {
    case RT_OK:
        return "no error";
    case RT_NULL_POINTER:
        return "a pointer is NULL; context, arena, in, out and every tensor in them must be given";
    case RT_MISALIGNED:
        return "context or arena is not 64-byte aligned; allocate both with aligned_alloc(64, ...)";
    case RT_BAD_THREADS:
        return "n_threads is not in 1..256";
    case RT_PROCESSOR:
        return refusal;
    case RT_NO_THREAD:
        return "the operating system gave no further thread; ask for fewer";
    case RT_NOT_READY:
        return "the context is not initialised; call init first";
    case RT_RUNNING:
        return "the context is initialised already; call finish first, and zero new contexts "
               "before their first init";
    case RT_FORKED:
        return "the context's threads are not in this process, which is a fork of theirs; call "
               "finish, then init";
    default:
        return "unknown error code";
    }
}
