/* formula.h: the scalar formulas that decide bits, once, for every target.
 *
 * Owns: fused multiply-add, exp, the activations, Q8 quantisation of one value, a RoPE pair. Everything is
 * +, -, *, / and fma in a written order, so each target and each vector width gives the same bits (compile
 * with -ffp-contract=off). Nothing here branches on data, so compilers can vectorise loops over it.
 */
#ifndef IE_FORMULA_H
#define IE_FORMULA_H

#include <stdint.h>

#define IE_MATH static inline __attribute__((always_inline))

IE_MATH uint32_t ie_bits(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    return v.u;
}
IE_MATH float ie_from_bits(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } v = {u};
    return v.f;
}

/* Correctly rounded a * b + c where the target has no instruction for it: the product is exact in
 * double; the sum is rounded to odd there, after which rounding to float rounds once (Boldo, Melquiond,
 * "Emulation of FMA and correctly rounded sums", 2008). */
IE_MATH float ie_fma_soft(float a, float b, float c)
{
    double p = (double)a * (double)b, d = (double)c, s = p + d;
    double t = s - p, e = (p - (s - t)) + (d - t);
    union {
        double f;
        int64_t i;
    } v = {s};
    int inexact = (e > 0) | (e < 0);
    int64_t step = ((e > 0) == (s > 0)) ? 1 : -1;
    v.i += (inexact & ((v.i & 1) == 0)) ? step : 0;
    return (float)v.f;
}

IE_MATH float ie_fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__) || defined(__AMDGCN__) || defined(__NVPTX__)
    return __builtin_fmaf(a, b, c);
#else
    return ie_fma_soft(a, b, c);
#endif
}

/* Adding this and subtracting it again rounds |x| < 2^22 to an integer, half to even. */
#define IE_ROUND_MAGIC 12582912.0f

/* e^x: relative error below 1.5e-7; exactly 1 at 0, 0 below -86.5 (and at -inf), inf above 88.73, NaN for NaN.
 * x = n ln 2 + r; e^r = 1 + r + r^2 Q(r) with Q fitted for least relative error on |r| <= ln(2) / 2. */
IE_MATH float ie_exp(float x)
{
    float t = x < -86.5f ? -86.5f : x;
    t = t > 89.0f ? 89.0f : t;
    float magic = ie_fma(t, 0x1.715476p+0f, IE_ROUND_MAGIC);
    float n = magic - IE_ROUND_MAGIC;
    float r = ie_fma(n, -0x1.62e400p-1f, t); /* ln 2 split so that n * high part is exact */
    r = ie_fma(n, -0x1.7f7d1cp-20f, r);
    float q = 0x1.6a23d0p-10f;
    q = ie_fma(q, r, 0x1.123a20p-7f);
    q = ie_fma(q, r, 0x1.5558f2p-5f);
    q = ie_fma(q, r, 0x1.555492p-3f);
    q = ie_fma(q, r, 0x1.fffffcp-2f);
    float p = ie_fma(r * r, q, r) + 1.0f;
    /* 2^n as 2^(n-1) * 2: n reaches 128, whose scale alone would not be a finite float. */
    float half_scale = ie_from_bits((ie_bits(magic) << 23) + 0x3F000000u);
    float y = p * half_scale * 2.0f;
    return x < -86.5f ? 0.0f : y;
}

IE_MATH float ie_sigmoid(float x) { return 1.0f / (1.0f + ie_exp(-x)); }

/* ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x|; ln(1 + u) = 2 atanh(z), z = u / (2 + u) <= 1/3, by its series. */
IE_MATH float ie_softplus(float x)
{
    float u = ie_exp(-ie_from_bits(ie_bits(x) & 0x7FFFFFFFu)), z = u / (2.0f + u), s = z * z;
    float p = 0x1.111112p-4f; /* 1/15, 1/13, … 1/3 */
    p = ie_fma(p, s, 0x1.3b13b2p-4f);
    p = ie_fma(p, s, 0x1.745d18p-4f);
    p = ie_fma(p, s, 0x1.c71c72p-4f);
    p = ie_fma(p, s, 0x1.24924ap-3f);
    p = ie_fma(p, s, 0x1.99999ap-3f);
    p = ie_fma(p, s, 0x1.555556p-2f);
    return (x > 0.0f ? x : 0.0f) + 2.0f * ie_fma(p * s, z, z);
}

/* x * sigmoid(x). */
IE_MATH float ie_silu(float x) { return x / (1.0f + ie_exp(-x)); }

/* tanh form of GELU: x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
IE_MATH float ie_gelu(float x)
{
    float u = 0x1.988454p-1f * ie_fma(0x1.6e4e26p-5f * x * x, x, x);
    return x / (1.0f + ie_exp(-2.0f * u));
}

/* tanh(x) = (1 - e) / (1 + e) with the sign of x, e = exp(-2 |x|). */
IE_MATH float ie_tanh(float x)
{
    float e = ie_exp(-2.0f * ie_from_bits(ie_bits(x) & 0x7FFFFFFFu));
    return ie_from_bits(ie_bits((1.0f - e) / (1.0f + e)) | (ie_bits(x) & 0x80000000u));
}

/* Q8 of a block: scale d = amax / 127 and multiplier 127 / amax; both 0 where the multiplier would overflow. */
IE_MATH float ie_q8_scale(float amax) { return amax > 4e-37f ? amax / 127.0f : 0.0f; }
IE_MATH float ie_q8_multiplier(float amax) { return amax > 4e-37f ? 127.0f / amax : 0.0f; }
/* Round-half-even of x * multiplier. NaN gives some code in range, never undefined behaviour. */
IE_MATH int32_t ie_q8_code(float x, float multiplier)
{
    return (int32_t)(int8_t)(ie_bits(x * multiplier + IE_ROUND_MAGIC) & 255u);
}

/* One rotary pair. */
IE_MATH float ie_rope_first(float a, float b, float cos, float sin) { return a * cos - b * sin; }
IE_MATH float ie_rope_second(float a, float b, float cos, float sin) { return a * sin + b * cos; }

#endif
