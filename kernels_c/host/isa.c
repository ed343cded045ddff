/* isa.c: which instruction sets this processor and this operating system support.
 *
 * x86-64: by the CPUID instruction, for zig's runtime does not fill the table behind __builtin_cpu_supports; the
 * operating system must save the wide registers too, which XGETBV tells. aarch64: by what the kernel tells a
 * process. */
#include "isa.h"

#define HAS(id) (1u << IE_ISA_##id)

#if defined(__x86_64__)
#include <cpuid.h>

#define BIT(word, n) (((word) >> (n)) & 1u)

static uint64_t saved_state(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((uint64_t)hi << 32) | lo;
}

static unsigned supported(void)
{
    uint32_t a, b, c, d, c1, a71 = 0;
    if (!__get_cpuid(1, &a, &b, &c1, &d) || !BIT(c1, 27) || (saved_state() & 6) != 6) /* OSXSAVE; XMM and YMM saved */
        return HAS(PORTABLE);
    const int fma = BIT(c1, 12), f16c = BIT(c1, 29), avx = BIT(c1, 28);
    if (!fma || !f16c || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return HAS(PORTABLE);
    const uint32_t subleaves = a, b7 = b, c7 = c;
    /* AVX2, BMI, LZCNT */
    if (!BIT(b7, 5) || !BIT(b7, 3) || !BIT(b7, 8) || !__get_cpuid(0x80000001u, &a, &b, &c, &d) || !BIT(c, 5))
        return HAS(PORTABLE);
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
        a71 = a;
    const int avx512 = BIT(b7, 16) && BIT(b7, 17) && BIT(b7, 28) && BIT(b7, 30) && BIT(b7, 31); /* F DQ CD BW VL */
    const int wide = avx512 && BIT(c7, 11) && (saved_state() & 0xE6) == 0xE6;                    /* VNNI; ZMM saved */
    return HAS(PORTABLE) | HAS(AVX2) | (BIT(a71, 4) ? HAS(AVXVNNI) : 0) | (wide ? HAS(AVX512) : 0);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of AT_HWCAP and AT_HWCAP2: Linux, arch/arm64, uapi/asm/hwcap.h. The headers of an old C library lack some. */
#define CAP_DOTPROD (1ul << 20)
#define CAP2_I8MM (1ul << 13)
#define ENTRY_HWCAP2 26

static unsigned supported(void)
{
    if (!(getauxval(AT_HWCAP) & CAP_DOTPROD))
        return HAS(PORTABLE);
    return HAS(PORTABLE) | HAS(NEON) | (getauxval(ENTRY_HWCAP2) & CAP2_I8MM ? HAS(I8MM) : 0);
}

#else

static unsigned supported(void) { return HAS(PORTABLE); }

#endif

int ie_isa_available(int isa)
{
    static _Atomic unsigned known; /* asked once: a virtual machine may be slow to answer CPUID */
    if (!known)
        known = supported();
    return isa >= 0 && isa < IE_ISA_COUNT && (known >> isa & 1u);
}

int ie_isa_best(void)
{
    int best = IE_ISA_COUNT - 1;
    while (!ie_isa_available(best))
        best--;
    return best;
}
