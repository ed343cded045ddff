/* isa.c: which instruction sets this processor and this operating system support.
 *
 * By the CPUID instruction: zig's runtime does not fill the table behind __builtin_cpu_supports. The operating
 * system must save the wide registers too, which XGETBV tells. */
#include "host.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define BIT(word, n) (((word) >> (n)) & 1u)

static uint64_t saved_state(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((uint64_t)hi << 32) | lo;
}

static int best_x86(void)
{
    uint32_t a, b, c, d, c1;
    if (!__get_cpuid(1, &a, &b, &c1, &d) || !BIT(c1, 27) || (saved_state() & 6) != 6) /* OSXSAVE; XMM and YMM saved */
        return IE_ISA_PORTABLE;
    const int fma = BIT(c1, 12), f16c = BIT(c1, 29), avx = BIT(c1, 28);
    if (!fma || !f16c || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return IE_ISA_PORTABLE;
    uint32_t b7 = b, c7 = c;
    if (!BIT(b7, 5) || !BIT(b7, 3) || !BIT(b7, 8) || !__get_cpuid(0x80000001u, &a, &b, &c, &d) || !BIT(c, 5)) /* AVX2, BMI, LZCNT */
        return IE_ISA_PORTABLE;
    const int avx512 = BIT(b7, 16) && BIT(b7, 17) && BIT(b7, 28) && BIT(b7, 30) && BIT(b7, 31); /* F DQ CD BW VL */
    return avx512 && BIT(c7, 11) && (saved_state() & 0xE6) == 0xE6 ? IE_ISA_AVX512 : IE_ISA_AVX2; /* VNNI; ZMM saved */
}
#endif

int ie_isa_best(void)
{
#if defined(__x86_64__)
    return best_x86();
#else
    return IE_ISA_PORTABLE;
#endif
}

int ie_isa_available(int isa) { return isa >= 0 && isa <= ie_isa_best(); }
