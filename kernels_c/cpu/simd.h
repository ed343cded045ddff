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
#include "../include/formula.h"

typedef float ie_f16 __attribute__((ext_vector_type(16), aligned(4)));       /* 16 floats */
typedef int32_t ie_i16 __attribute__((ext_vector_type(16), aligned(4)));     /* 16 ints */
typedef uint32_t ie_u16 __attribute__((ext_vector_type(16), aligned(4)));
typedef _Float16 ie_h16 __attribute__((ext_vector_type(16), aligned(2)));    /* 16 halves */

IE_MATH ie_f16 ie_load_f(const float *p) { return *(const ie_f16 *)p; }
IE_MATH void ie_store_f(float *p, ie_f16 v) { *(ie_f16 *)p = v; }
IE_MATH ie_u16 ie_load_w(const uint8_t *p) { return *(const ie_u16 *)(const void *)p; }
IE_MATH ie_f16 ie_load_h(const void *p) { return __builtin_convertvector(*(const ie_h16 *)p, ie_f16); }
IE_MATH ie_f16 ie_splat(float x) { return (ie_f16)(x); }

IE_MATH ie_f16 ie_fma16(ie_f16 a, ie_f16 b, ie_f16 c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_elementwise_fma(a, b, c);
#else
    ie_f16 r;
    for (int i = 0; i < 16; i++)
        r[i] = ie_fma_soft(a[i], b[i], c[i]);
    return r;
#endif
}

/* Sum, and largest, of 16 lanes in the order every target uses: halves are combined until one lane is left. */
typedef float ie_f8 __attribute__((ext_vector_type(8)));
typedef float ie_f4 __attribute__((ext_vector_type(4)));
typedef float ie_f2 __attribute__((ext_vector_type(2)));
IE_MATH float ie_sum16(ie_f16 v)
{
    ie_f8 a = v.lo + v.hi;
    ie_f4 b = a.lo + a.hi;
    ie_f2 c = b.lo + b.hi;
    return c.x + c.y;
}
IE_MATH float ie_max16(ie_f16 v)
{
    ie_f8 a = v.lo > v.hi ? v.lo : v.hi;
    ie_f4 b = a.lo > a.hi ? a.lo : a.hi;
    ie_f2 c = b.lo > b.hi ? b.lo : b.hi;
    return c.x > c.y ? c.x : c.y;
}

typedef int32_t ie_i8 __attribute__((ext_vector_type(8)));
typedef int32_t ie_i4 __attribute__((ext_vector_type(4)));
typedef int8_t ie_b16 __attribute__((ext_vector_type(16), aligned(1)));
IE_MATH int32_t ie_isum16(ie_i16 v)
{
    ie_i8 a = v.lo + v.hi;
    ie_i4 b = a.lo + a.hi;
    return b.x + b.y + b.z + b.w;
}
IE_MATH ie_f16 ie_abs16(ie_f16 v) { return (ie_f16)((ie_u16)v & 0x7FFFFFFFu); }
/* ie_q8_code of 16 values. */
IE_MATH ie_i16 ie_codes16(ie_f16 x, float multiplier)
{
    return (ie_i16)((ie_u16)(x * multiplier + IE_ROUND_MAGIC) << 24) >> 24;
}
IE_MATH void ie_store_bytes(int8_t *p, ie_i16 v) { *(ie_b16 *)p = __builtin_convertvector(v, ie_b16); }

/* acc + sum of 4 products in each lane: unsigned codes below 128 (w) times the signed bytes of a. */
IE_MATH ie_i16 ie_dot_small(ie_i16 acc, ie_u16 w, uint32_t a);
/* The same for biased codes (code + 128, any byte), where acc started from ie_dot_start(-sum of the activations). */
IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a);
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum);

/* minus_sum * bias in every lane, bias a power of two. A broadcast load and a shift: the barrier keeps the compiler from
 * shifting in a general register, from which a broadcast is slow. */
IE_MATH ie_i16 ie_start(int32_t minus_sum, int bias)
{
    ie_u16 v = (ie_u16)((uint32_t)minus_sum);
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#endif
    return (ie_i16)(v << (uint32_t)__builtin_ctz((uint32_t)bias));
}

/* Each of the 64 bytes of idx (0 … 15) replaced by table[byte]. */
IE_MATH ie_u16 ie_lookup(ie_u16 idx, const uint8_t table[16])
{
#if defined(__AVX512BW__)
    return (ie_u16)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)), (__m512i)idx);
#elif defined(__AVX2__)
    union { ie_u16 u; __m256i h[2]; } v = {.u = idx};
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    for (int i = 0; i < 2; i++)
        v.h[i] = _mm256_shuffle_epi8(t, v.h[i]);
    return v.u;
#elif defined(__aarch64__)
    union { ie_u16 u; uint8x16_t q[4]; } v = {.u = idx};
    const uint8x16_t t = vld1q_u8(table);
    for (int i = 0; i < 4; i++)
        v.q[i] = vqtbl1q_u8(t, v.q[i]);
    return v.u;
#else
    union { ie_u16 u; uint8_t b[64]; } v = {.u = idx};
    for (int i = 0; i < 64; i++)
        v.b[i] = table[v.b[i]];
    return v.u;
#endif
}

#if defined(__AVX512VNNI__)

IE_MATH ie_i16 ie_dot_small(ie_i16 acc, ie_u16 w, uint32_t a)
{
    return (ie_i16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, _mm512_set1_epi32((int32_t)a));
}
IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a) { return ie_dot_small(acc, w, a); }
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#elif defined(__AVX2__)

typedef union { ie_u16 u; ie_i16 s; __m256i h[2]; } ie_pair;

#if defined(__AVXVNNI__)

IE_MATH ie_i16 ie_dot_small(ie_i16 acc, ie_u16 w, uint32_t a)
{
    const __m256i b = _mm256_set1_epi32((int32_t)a);
    ie_pair x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 2; i++)
        r.h[i] = _mm256_dpbusd_avx_epi32(r.h[i], x.h[i], b);
    return r.s;
}
IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a) { return ie_dot_small(acc, w, a); }
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#else

IE_MATH ie_i16 ie_dot_small(ie_i16 acc, ie_u16 w, uint32_t a)
{
    const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi32((int32_t)a);
    ie_pair x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 2; i++) /* 2 * 127 * 128 fits 16 bits: no saturation */
        r.h[i] = _mm256_add_epi32(r.h[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x.h[i], b), ones));
    return r.s;
}
IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a)
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
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum) { (void)minus_sum; return (ie_i16)(0); }

#endif

#elif defined(__aarch64__)

typedef union { ie_u16 u; ie_i16 s; int8x16_t b[4]; int32x4_t q[4]; } ie_quad;

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
IE_MATH ie_i16 ie_dot_small(ie_i16 acc, ie_u16 w, uint32_t a)
{
    const int8x16_t b = vreinterpretq_s8_u32(vdupq_n_u32(a));
    ie_quad x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 4; i++)
        r.q[i] = ie_dot_signed(r.q[i], x.b[i], b);
    return r.s;
}

#if defined(__ARM_FEATURE_MATMUL_INT8) /* unsigned times signed */

IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a)
{
    const int8x16_t b = vreinterpretq_s8_u32(vdupq_n_u32(a));
    ie_quad x = {.u = w}, r = {.s = acc};
    for (int i = 0; i < 4; i++)
        r.q[i] = vusdotq_s32(r.q[i], vreinterpretq_u8_s8(x.b[i]), b);
    return r.s;
}
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#else

IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a) { return ie_dot_small(acc, w ^ 0x80808080u, a); }
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum) { (void)minus_sum; return (ie_i16)(0); }

#endif

#else

IE_MATH ie_i16 ie_dot_small(ie_i16 acc, ie_u16 w, uint32_t a)
{
    for (int i = 0; i < 4; i++)
        acc += (ie_i16)((w >> (8u * (uint32_t)i)) & 255u) * (int32_t)(int8_t)((a >> (8 * i)) & 255u);
    return acc;
}
IE_MATH ie_i16 ie_dot_biased(ie_i16 acc, ie_u16 w, uint32_t a) { return ie_dot_small(acc, w, a); }
IE_MATH ie_i16 ie_dot_start(int32_t minus_sum) { return ie_start(minus_sum, 128); }

#endif

#endif
