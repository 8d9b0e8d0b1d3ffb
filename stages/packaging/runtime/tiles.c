/* Tiles (AMX) are the one part of a processor that a process has to ask for: Linux lends their
 * 8 KiB of state on demand (Documentation/arch/x86/xstate.rst). Without libc. */
#include "runtime.h"

#if defined(__x86_64__) && defined(__linux__)

enum {
    ARCH_PRCTL = 158,              /* the system call */
    ARCH_REQ_XCOMP_PERM = 0x1023,
    XFEATURE_XTILEDATA = 18,
};

/* AMX-BF16, AMX-TILE and AMX-INT8 in edx of leaf 7, and the states TILECFG and TILEDATA. */
static const struct rt_feature tiles[] = {
    {{7, 0, 3, 22, 0x60000}},
    {{7, 0, 3, 24, 0x60000}},
    {{7, 0, 3, 25, 0x60000}},
};

int rt_may_use_tiles(void)
{
    if (!rt_has_features(tiles, 3))
        return 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"((long)ARCH_PRCTL), "D"((long)ARCH_REQ_XCOMP_PERM),
                       "S"((long)XFEATURE_XTILEDATA)
                     : "rcx", "r11", "memory");
    return result == 0;
}

#else

int rt_may_use_tiles(void)
{
    return 0;
}

#endif
