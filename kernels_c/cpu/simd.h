/* simd.h: 16 lanes on every CPU, from clang's vector extensions.
 *
 * Owns: the lane types, fused multiply-add, the 4-byte dot products and the fixed reduction tree. The same
 * source is compiled once per instruction set; bits do not depend on which.
 */
#ifndef IE_SIMD_H
#define IE_SIMD_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "../../core_laws/ie_core.h"
#include "../include/formula.h"

typedef float ie_vf __attribute__((ext_vector_type(16), aligned(4)));       /* 16 floats */
typedef int32_t ie_vi __attribute__((ext_vector_type(16), aligned(4)));     /* 16 ints */
typedef uint32_t ie_vu __attribute__((ext_vector_type(16), aligned(4)));
typedef _Float16 ie_vh __attribute__((ext_vector_type(16), aligned(2)));    /* 16 halves */

IE_MATH ie_vf ie_load_f(const float *p) { return *(const ie_vf *)p; }
IE_MATH void ie_store_f(float *p, ie_vf v) { *(ie_vf *)p = v; }
IE_MATH ie_vu ie_load_w(const uint8_t *p) { return *(const ie_vu *)(const void *)p; }
IE_MATH ie_vf ie_load_h(const void *p) { return __builtin_convertvector(*(const ie_vh *)p, ie_vf); }
IE_MATH ie_vf ie_splat(float x) { return (ie_vf)(x); }

IE_MATH ie_vf ie_fma16(ie_vf a, ie_vf b, ie_vf c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_elementwise_fma(a, b, c);
#else
    ie_vf r;
    for (int i = 0; i < 16; i++)
        r[i] = ie_fma_soft(a[i], b[i], c[i]);
    return r;
#endif
}

/* Sum, and largest, of 16 lanes in the order every target uses: halves are combined until one lane is left. */
typedef float ie_f8 __attribute__((ext_vector_type(8)));
typedef float ie_f4 __attribute__((ext_vector_type(4)));
typedef float ie_f2 __attribute__((ext_vector_type(2)));
IE_MATH float ie_sum16(ie_vf v)
{
    ie_f8 a = v.lo + v.hi;
    ie_f4 b = a.lo + a.hi;
    ie_f2 c = b.lo + b.hi;
    return c.x + c.y;
}
IE_MATH float ie_max16(ie_vf v)
{
    ie_f8 a = v.lo > v.hi ? v.lo : v.hi;
    ie_f4 b = a.lo > a.hi ? a.lo : a.hi;
    ie_f2 c = b.lo > b.hi ? b.lo : b.hi;
    return c.x > c.y ? c.x : c.y;
}

typedef int32_t ie_i8 __attribute__((ext_vector_type(8)));
typedef int32_t ie_i4 __attribute__((ext_vector_type(4)));
typedef int8_t ie_b16 __attribute__((ext_vector_type(16), aligned(1)));
IE_MATH int32_t ie_isum16(ie_vi v)
{
    ie_i8 a = v.lo + v.hi;
    ie_i4 b = a.lo + a.hi;
    return b.x + b.y + b.z + b.w;
}
IE_MATH ie_vf ie_abs16(ie_vf v) { return (ie_vf)((ie_vu)v & 0x7FFFFFFFu); }
/* ie_q8_code of 16 values. */
IE_MATH ie_vi ie_codes16(ie_vf x, float multiplier)
{
    return (ie_vi)((ie_vu)(x * multiplier + IE_ROUND_MAGIC) << 24) >> 24;
}
IE_MATH void ie_store_bytes(int8_t *p, ie_vi v) { *(ie_b16 *)p = __builtin_convertvector(v, ie_b16); }

/* acc + sum of 4 products in each lane: unsigned codes below 128 (w) times the signed bytes of a. */
IE_MATH ie_vi ie_dot_small(ie_vi acc, ie_vu w, uint32_t a);
/* The same for biased codes (code + 128, any byte), where acc started from ie_dot_start(-sum of the activations). */
IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a);
IE_MATH ie_vi ie_dot_start(int32_t minus_sum);

/* minus_sum * bias in every lane, bias a power of two. A broadcast load and a shift: the barrier keeps the compiler
 * from shifting in a general register, from which a broadcast is slow. */
IE_MATH ie_vi ie_start(int32_t minus_sum, int bias)
{
    ie_vu v = (ie_vu)((uint32_t)minus_sum);
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#endif
    return (ie_vi)(v << (uint32_t)__builtin_ctz((uint32_t)bias));
}

#if defined(__AVX512VNNI__)

IE_MATH ie_vi ie_dot_small(ie_vi acc, ie_vu w, uint32_t a)
{
    return (ie_vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, _mm512_set1_epi32((int32_t)a));
}
IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a) { return ie_dot_small(acc, w, a); }
IE_MATH ie_vi ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#elif defined(__AVX2__)

typedef union {
    ie_vu u;
    ie_vi s;
    __m256i h[2];
} ie_pair;

#if defined(__AVXVNNI__)

IE_MATH ie_vi ie_dot_small(ie_vi acc, ie_vu w, uint32_t a)
{
    const __m256i b = _mm256_set1_epi32((int32_t)a);
    ie_pair x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 2; i++)
        r.h[i] = _mm256_dpbusd_avx_epi32(r.h[i], x.h[i], b);
    return r.s;
}
IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a) { return ie_dot_small(acc, w, a); }
IE_MATH ie_vi ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#else

IE_MATH ie_vi ie_dot_small(ie_vi acc, ie_vu w, uint32_t a)
{
    const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi32((int32_t)a);
    ie_pair x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 2; i++) /* 2 * 127 * 128 fits 16 bits: no saturation */
        r.h[i] = _mm256_add_epi32(r.h[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x.h[i], b), ones));
    return r.s;
}
IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a)
{
    const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi32((int32_t)a), bias = _mm256_set1_epi8(-128);
    ie_pair x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 2; i++) {
        /* |code| * (sign of code applied to a): at most 2 * 128 * 127, no saturation either. */
        __m256i code = _mm256_xor_si256(x.h[i], bias);
        __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(b, code));
        r.h[i] = _mm256_add_epi32(r.h[i], _mm256_madd_epi16(p, ones));
    }
    return r.s;
}
IE_MATH ie_vi ie_dot_start(int32_t minus_sum)
{
    (void)minus_sum;
    return (ie_vi)(0);
}

#endif

#elif defined(__aarch64__)

typedef union {
    ie_vu u;
    ie_vi s;
    int8x16_t b[4];
    int32x4_t q[4];
} ie_quad;

/* Products of signed bytes, four a lane. Without the dot product a lane's are added in 16 bits first, which two
 * products of −128 … 127 and −127 … 127 fit (Q8 codes keep clear of -128). */
IE_MATH int32x4_t ie_dot_signed(int32x4_t acc, int8x16_t w, int8x16_t a)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(acc, w, a);
#else
    const int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(a)), hi = vmull_high_s8(w, a);
    return vpadalq_s16(acc, vpaddq_s16(lo, hi));
#endif
}
IE_MATH ie_vi ie_dot_small(ie_vi acc, ie_vu w, uint32_t a)
{
    const int8x16_t b = vreinterpretq_s8_u32(vdupq_n_u32(a));
    ie_quad x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 4; i++)
        r.q[i] = ie_dot_signed(r.q[i], x.b[i], b);
    return r.s;
}

#if defined(__ARM_FEATURE_MATMUL_INT8) /* unsigned times signed */

IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a)
{
    const int8x16_t b = vreinterpretq_s8_u32(vdupq_n_u32(a));
    ie_quad x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 4; i++)
        r.q[i] = vusdotq_s32(r.q[i], vreinterpretq_u8_s8(x.b[i]), b);
    return r.s;
}
IE_MATH ie_vi ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#else

IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a) { return ie_dot_small(acc, IE_BIAS_CODES(w), a); }
IE_MATH ie_vi ie_dot_start(int32_t minus_sum)
{
    (void)minus_sum;
    return (ie_vi)(0);
}

#endif

#else

IE_MATH ie_vi ie_dot_small(ie_vi acc, ie_vu w, uint32_t a)
{
    for (int i = 0; i < 4; i++)
        acc += IE_PRODUCT_US(ie_vi, w, a, i);
    return acc;
}
IE_MATH ie_vi ie_dot_biased(ie_vi acc, ie_vu w, uint32_t a) { return ie_dot_small(acc, w, a); }
IE_MATH ie_vi ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#endif

#endif
