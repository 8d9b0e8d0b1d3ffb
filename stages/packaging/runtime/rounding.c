/* The rounding functions that a compiler calls where the processor has no instruction for them
 * (x86-64 before SSE4.1, 32-bit ARM before ARMv8). Exact for every input, in round-to-nearest. */
#include <stdint.h>

/* x rounds to an integer when a power of two is added whose unit in the last place is 1. */
#define ROUNDING(real, bits, s, magic, sign)                                                   \
    static inline real with_sign##s(real magnitude, real of)                                   \
    {                                                                                          \
        union { real r; bits b; } m = {magnitude}, o = {of};                                   \
        m.b |= o.b & (sign);                                                                   \
        return m.r;                                                                            \
    }                                                                                          \
    static inline real magnitude##s(real x)                                                    \
    {                                                                                          \
        union { real r; bits b; } v = {x};                                                     \
        v.b &= ~(sign);                                                                        \
        return v.r;                                                                            \
    }                                                                                          \
    real roundeven##s(real x)                                                                  \
    {                                                                                          \
        real m = magnitude##s(x);                                                              \
        if (!(m < (magic))) /* an integer already, or not a number */                          \
            return x;                                                                          \
        return with_sign##s(m + (magic) - (magic), x);                                         \
    }                                                                                          \
    real rint##s(real x) { return roundeven##s(x); }                                           \
    real nearbyint##s(real x) { return roundeven##s(x); }                                      \
    real trunc##s(real x)                                                                      \
    {                                                                                          \
        real m = magnitude##s(x), n = magnitude##s(roundeven##s(x));                           \
        return with_sign##s(n > m ? n - 1 : n, x);                                             \
    }                                                                                          \
    real floor##s(real x)                                                                      \
    {                                                                                          \
        real n = roundeven##s(x);                                                              \
        return n > x ? with_sign##s(magnitude##s(n - 1), x) : n;                               \
    }                                                                                          \
    real ceil##s(real x)                                                                       \
    {                                                                                          \
        real n = roundeven##s(x);                                                              \
        return n < x ? with_sign##s(magnitude##s(n + 1), x) : n;                               \
    }                                                                                          \
    real round##s(real x) /* halves away from zero */                                          \
    {                                                                                          \
        real n = magnitude##s(trunc##s(x));                                                    \
        return with_sign##s(magnitude##s(x) - n >= (real)0.5 ? n + 1 : n, x);                  \
    }

ROUNDING(float, uint32_t, f, 0x1p23f, UINT32_C(1) << 31)
ROUNDING(double, uint64_t, , 0x1p52, UINT64_C(1) << 63)
