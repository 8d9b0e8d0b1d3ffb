/* Conversions between floats and 64-bit integers, which 32-bit ARM has no instructions for.
 *
 * LLVM calls them by their GNU names and passes floats in registers of floats. A compiler's support
 * library for ARM has them by their EABI names; where it has the GNU names as well (libgcc), they
 * take floats in registers of integers. So a package brings its own, made of the EABI's. */
#include <stdint.h>

#if defined(__arm__)
int64_t __fixsfdi(float x) { return (int64_t)x; }
int64_t __fixdfdi(double x) { return (int64_t)x; }
uint64_t __fixunssfdi(float x) { return (uint64_t)x; }
uint64_t __fixunsdfdi(double x) { return (uint64_t)x; }
float __floatdisf(int64_t x) { return (float)x; }
double __floatdidf(int64_t x) { return (double)x; }
float __floatundisf(uint64_t x) { return (float)x; }
double __floatundidf(uint64_t x) { return (double)x; }
#endif
