/* Asks the processor what it can do. On x86-64 and aarch64 that needs no operating system. */
#include "runtime.h"

#if defined(__x86_64__)

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
    __asm__ volatile("cpuid"
                     : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3])
                     : "a"(leaf), "c"(subleaf));
}

/* The register state that the operating system saves; 0 where it saves none beyond SSE. */
static uint64_t saved_state(void)
{
    uint32_t leaf[4], low, high;
    cpuid(1, 0, leaf);
    if ((leaf[2] >> 27 & 1) == 0) /* OSXSAVE */
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int has_feature(const struct rt_feature *f)
{
    uint32_t leaf = f->what[0], subleaf = f->what[1], out[4];
    cpuid(leaf & 0x80000000u, 0, out);
    if (out[0] < leaf)
        return 0;
    if (subleaf != 0) {
        cpuid(leaf, 0, out);
        if (out[0] < subleaf)
            return 0;
    }
    cpuid(leaf, subleaf, out);
    if ((out[f->what[2]] >> f->what[3] & 1) == 0)
        return 0;
    return f->what[4] == 0 || (saved_state() & f->what[4]) == f->what[4];
}

#elif defined(__aarch64__)

/* Linux answers these reads for user programs since 4.11. */
#define ID_REGISTER(crm, op2)                                                                  \
    case 8 * (crm) + (op2):                                                                    \
        __asm__ volatile("mrs %0, S3_0_C0_C" #crm "_" #op2 : "=r"(value));                     \
        break

static int has_feature(const struct rt_feature *f)
{
    uint64_t value = 0;
    switch (f->what[0]) {
        ID_REGISTER(4, 0); /* ID_AA64PFR0_EL1 */
        ID_REGISTER(4, 4); /* ID_AA64ZFR0_EL1 */
        ID_REGISTER(6, 0); /* ID_AA64ISAR0_EL1 */
        ID_REGISTER(6, 1); /* ID_AA64ISAR1_EL1 */
    }
    uint32_t field = value >> f->what[1] & 15;
    return field != 15 && field >= f->what[2]; /* 15: no floating point or SIMD at all */
}

#else

static int has_feature(const struct rt_feature *f)
{
    (void)f; /* 32-bit ARM tells only the operating system */
    return 1;
}

#endif

int rt_has_features(const struct rt_feature *features, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!has_feature(&features[i]))
            return 0;
    return 1;
}

#if defined(__arm__)
#include <sys/auxv.h>

int rt_system_has_features(const struct rt_feature *features, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        unsigned long bits = getauxval(features[i].what[0] == 0 ? AT_HWCAP : AT_HWCAP2);
        if ((bits >> features[i].what[1] & 1) == 0)
            return 0;
    }
    return 1;
}
#else
int rt_system_has_features(const struct rt_feature *features, int32_t n)
{
    return rt_has_features(features, n);
}
#endif
