/* The memory functions that a compiler may call on its own, so that no kernel needs libc.
 *
 * Compiled with -fno-builtin, lest a loop here become a call of itself. */
#include "runtime.h"

#if defined(__GNUC__) && !defined(__clang__)
/* What -fno-builtin is to Clang; and GCC goes byte by byte at -O2. */
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#endif

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    for (size_t i = 0; i < bytes; i++)
        t[i] = f[i];
    return to;
}

void *memmove(void *to, const void *from, size_t bytes)
{
    uint8_t *t = to;
    const uint8_t *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= bytes)
        return memcpy(to, from, bytes);
    for (size_t i = bytes; i-- > 0;)
        t[i] = f[i];
    return to;
}

void *memset(void *to, int value, size_t bytes)
{
    uint8_t *t = to;
    for (size_t i = 0; i < bytes; i++)
        t[i] = (uint8_t)value;
    return to;
}

void rt_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

#if defined(__arm__)
/* The ARM run-time ABI's names for the same; __aeabi_memset swaps its last two arguments. */
void __aeabi_memcpy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy4(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memcpy8(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void __aeabi_memmove(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memmove4(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memmove8(void *to, const void *from, size_t bytes) { memmove(to, from, bytes); }
void __aeabi_memset(void *to, size_t bytes, int value) { memset(to, value, bytes); }
void __aeabi_memset4(void *to, size_t bytes, int value) { memset(to, value, bytes); }
void __aeabi_memset8(void *to, size_t bytes, int value) { memset(to, value, bytes); }
void __aeabi_memclr(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr4(void *to, size_t bytes) { memset(to, 0, bytes); }
void __aeabi_memclr8(void *to, size_t bytes) { memset(to, 0, bytes); }

/* Named by every object with unwind tables; nothing unwinds through a kernel. */
void __aeabi_unwind_cpp_pr0(void) {}
void __aeabi_unwind_cpp_pr1(void) {}
void __aeabi_unwind_cpp_pr2(void) {}
#endif
