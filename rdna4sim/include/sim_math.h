/* Functions that hardware computes to about one ulp, division steps, small float formats, matrix steps.
 *
 * exp2, log2, sin and cos are evaluated in double precision and rounded once; hardware may differ in the last bit.
 */
#ifndef RDNA4SIM_MATH_H
#define RDNA4SIM_MATH_H
#include "sim_alu.h"

#define DOUBLES(x) CVT((x), VD)
#define ROUND_D(x) __builtin_elementwise_roundeven(x)

/* Horner's scheme over coefficients from the highest power down. */
INLINE VD horner(VD x, const double *c, int n) {
    VD r = (VD)c[0];
    for (int i = 1; i < n; i++) r = fma_d(r, x, (VD)c[i]);
    return r;
}
OUTLINE VD exp2_d(VD x) {
    static const double c[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                               1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    VD y = pick_d((VL)(x < 900.0), pick_d((VL)(x > -900.0), x, (VD)-900.0), (VD)900.0);
    VD n = ROUND_D(y), r = horner((y - n) * 0.693147180559945309417, c, 13);
    VD scale = (VD)((CVT(n, VL) + 1023) << 52);
    return pick_d(isnan_d(x), x, r * scale);
}
OUTLINE VF exp2_f(VF x) { return CVT(exp2_d(DOUBLES(x)), VF); }
OUTLINE VH exp2_h(VH x) { return CVT(exp2_d(CVT(x, VD)), VH); }
OUTLINE VD log2_d(VD x) {
    static const double c[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0};
    VQ bits = (VQ)x;
    VL e = (VL)(bits >> 52 & 0x7ff) - 1023;
    VD m = (VD)((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    VL high = (VL)(m > 1.41421356237309504880);
    m = pick_d(high, m * 0.5, m);
    e -= high;
    VD s = (m - 1.0) / (m + 1.0), r = horner(s * s, c, 11) * s * 2.88539008177792681472 + CVT(e, VD);
    r = pick_d((VL)(x == 0.0), (VD)-__builtin_inf(), r);
    r = pick_d((VL)(x < 0.0), (VD)__builtin_nan(""), r);
    return pick_d((VL)(x == __builtin_inf()) | isnan_d(x), x, r);
}
OUTLINE VF log2_f(VF x) { return CVT(log2_d(DOUBLES(x)), VF); }
OUTLINE VH log2_h(VH x) { return CVT(log2_d(CVT(x, VD)), VH); }
/* sin and cos of revolutions. */
OUTLINE VD sin_d(VD x) {
    static const double c[] = {1.0 / 15511210043330985984000000.0, -1.0 / 25852016738884976640000.0, 1.0 / 51090942171709440000.0,
                               -1.0 / 121645100408832000.0, 1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0,
                               -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0};
    VD t = (x - ROUND_D(x)) * 6.28318530717958647692;
    return t * horner(t * t, c, 13);
}
OUTLINE VF sin_f(VF x) { return CVT(sin_d(DOUBLES(x)), VF); }
OUTLINE VF cos_f(VF x) { VD d = DOUBLES(x); return CVT(sin_d(d - ROUND_D(d) + 0.25), VF); }
INLINE VF rsq_f(VF x) { return CVT(1.0 / __builtin_elementwise_sqrt(DOUBLES(x)), VF); }
INLINE VF fract_f(VF x) {
    VF r = x - __builtin_elementwise_floor(x);
    return pick_f((VI)(r < 0.99999994f), r, pick_f(isnan_f(r), r, (VF)0.99999994f));
}

INLINE VI frexp_exp_f(VF x) {
    VI e = (VI)exponent_f(x);
    VI tiny = -117 - (VI)clz_v((V)abs_f(x));
    VI r = (VI)pick((VI)(e == 0), (V)tiny, (V)(e - 126));
    return (VI)pick((VI)((V)abs_f(x) == 0) | (VI)(e == 255), SP(0), (V)r);
}
INLINE VF frexp_mant_f(VF x) {
    VF y = pick_f((VI)(exponent_f(x) == 0), x * 8388608.0f, x);
    VF r = (VF)(((V)y & 0x807fffffu) | 0x3f000000u);
    return pick_f((VI)(exponent_f(x) == 255) | (VI)(x == 0.0f), x, r);
}
INLINE VI frexp_exp_d(VD x) {
    VI r;
    for (int l = 0; l < LANES; l++) {
        u64 b = of_d(x[l]) & 0x7fffffffffffffffull;
        int e = (int)(b >> 52);
        if (e == 0 && b) { b = of_d(as_d(b) * 18014398509481984.0); e = (int)(b >> 52) - 54; }
        r[l] = e == 2047 || !b ? 0 : e - 1022;
    }
    return r;
}
INLINE VD frexp_mant_d(VD x) {
    VD y = pick_d((VL)(((VQ)x >> 52 & 0x7ff) == 0), x * 18014398509481984.0, x);
    VD r = (VD)(((VQ)y & 0x800fffffffffffffull) | 0x3fe0000000000000ull);
    return pick_d((VL)(((VQ)x >> 52 & 0x7ff) == 0x7ff) | (VL)(x == 0.0), x, r);
}

/* Division: scale away from the ends of the range, iterate, undo, repair the special cases. */
INLINE int is_denormal_f(float x) { u32 b = of_f(x) & 0x7fffffff; return b && b < 0x800000; }
INLINE int is_denormal_d(double x) { u64 b = of_d(x) & 0x7fffffffffffffffull; return b && b < 0x10000000000000ull; }
INLINE int exp_f1(float x) { return (int)(of_f(x) >> 23 & 255); }
INLINE int exp_d1(double x) { return (int)(of_d(x) >> 52 & 2047); }
#define DEFINE_DIV_SCALE(NAME, T, VT, EXP, DENORMAL, UP, DOWN, FAR, TINY, INVERSE_TINY)                        \
    OUTLINE T div_scale1_##NAME(T s0, T s1, T s2, u32 *vcc) {                                                  \
        *vcc = 0;                                                                                              \
        if (s2 == 0 || s1 == 0) return (T)__builtin_nanf("");                                                  \
        if (EXP(s2) - EXP(s1) >= FAR) { *vcc = 1; return s0 == s1 ? s0 * UP : s0; }                            \
        if (DENORMAL(s1)) return s0 * UP;                                                                      \
        /* The published UP would make this denominator infinite. */                                           \
        if (INVERSE_TINY && DENORMAL(s2 / s1)) { *vcc = 1; return s0 == s1 ? s0 * DOWN : s0; }                 \
        if (INVERSE_TINY) return s0 * DOWN;                                                                    \
        if (DENORMAL(s2 / s1)) { *vcc = 1; return s0 == s2 ? s0 * UP : s0; }                                   \
        if (EXP(s2) <= TINY) return s0 * UP;                                                                   \
        return s0;                                                                                             \
    }                                                                                                          \
    OUTLINE VT div_scale_##NAME(VT a, VT b, VT c, u32 *vcc) {                                                  \
        VT r;                                                                                                  \
        *vcc = 0;                                                                                              \
        for (int l = 0; l < LANES; l++) { u32 bit; r[l] = div_scale1_##NAME(a[l], b[l], c[l], &bit); *vcc |= bit << l; } \
        return r;                                                                                              \
    }
#define TWO64 18446744073709551616.0
#define TWO128 (TWO64 * TWO64)
DEFINE_DIV_SCALE(f, float, VF, exp_f1, is_denormal_f, (float)TWO64, (float)(1.0 / TWO64), 96, 23, is_denormal_d(1.0 / (double)s1))
DEFINE_DIV_SCALE(d, double, VD, exp_d1, is_denormal_d, TWO128, (1.0 / TWO128), 768, 53, is_denormal_d(1.0 / s1))
INLINE VF div_fmas_f(VF a, VF b, VF c, u32 vcc) {
    VF r = fma_f(a, b, c);
    if (LIKELY(!vcc)) return r;
    /* Scaled before it is rounded: a denormal quotient must not be rounded twice. */
    VD scale = CVT(pick_f((VI)(exponent_f(c) > 127), (VF)(float)TWO64, (VF)(float)(1.0 / TWO64)), VD);
    VD wide = fma_d(CVT(a, VD), CVT(b, VD), CVT(c, VD)) * scale;
    return (VF)sel(vcc, (V)CVT(wide, VF), (V)r);
}
INLINE VD div_fmas_d(VD a, VD b, VD c, u32 vcc) {
    VD r = fma_d(a, b, c);
    if (LIKELY(!vcc)) return r;
    VD scale = pick_d((VL)(((VQ)c >> 52 & 0x7ff) > 1023), (VD)TWO128, (VD)(1.0 / TWO128));
    return (VD)sel_q(vcc, (VQ)(r * scale), (VQ)r);
}
INLINE VF div_fixup_f(VF q, VF d, VF n) {
    V sign = ((V)d ^ (V)n) & 0x80000000u, ad = (V)abs_f(d), an = (V)abs_f(n), r = (V)abs_f(q);
    VI ed = (VI)exponent_f(d), en = (VI)exponent_f(n);
    /* A quotient beyond the range comes out of the steps before as inf - inf. */
    r = pick(isnan_f(q), pick((VI)(en > ed), SP(0x7f800000u), SP(0)), r);
    r = pick((VI)(en - ed < -150), SP(0), r);
    r = pick((VI)(ad == 0x7f800000u) | (VI)(an == 0), SP(0), r);
    r = pick((VI)(ad == 0) | (VI)(an == 0x7f800000u), SP(0x7f800000u), r) | sign;
    r = pick(((VI)(ad == 0) & (VI)(an == 0)) | ((VI)(ad == 0x7f800000u) & (VI)(an == 0x7f800000u)), SP(0xffc00000u), r);
    r = pick(isnan_f(d), (V)d | 0x400000u, r);
    return (VF)pick(isnan_f(n), (V)n | 0x400000u, r);
}
INLINE VD div_fixup_d(VD q, VD d, VD n) {
    const u64 inf = 0x7ff0000000000000ull;
    VQ sign = ((VQ)d ^ (VQ)n) & 0x8000000000000000ull, ad = (VQ)abs_d(d), an = (VQ)abs_d(n);
    VD r = abs_d(q);
    r = pick_d(isnan_d(q), pick_d((VL)((VL)(an >> 52) > (VL)(ad >> 52)), (VD)SPQ(inf), (VD)0.0), r);
    r = pick_d((VL)((VL)(an >> 52) - (VL)(ad >> 52) < -1075), (VD)0.0, r);
    r = pick_d((VL)(ad == inf) | (VL)(an == 0), (VD)0.0, r);
    r = (VD)((VQ)pick_d((VL)(ad == 0) | (VL)(an == inf), (VD)SPQ(inf), r) | sign);
    r = pick_d(((VL)(ad == 0) & (VL)(an == 0)) | ((VL)(ad == inf) & (VL)(an == inf)), (VD)SPQ(0xfff8000000000000ull), r);
    r = pick_d(isnan_d(d), (VD)((VQ)d | 0x8000000000000ull), r);
    return pick_d(isnan_d(n), (VD)((VQ)n | 0x8000000000000ull), r);
}
INLINE VH div_fixup_h(VH q, VH d, VH n) {
    VF r = div_fixup_f(CVT(q, VF), CVT(d, VF), CVT(n, VF));
    return CVT(r, VH);
}

/* Class of a number as one of ten bits: see v_cmp_class. */
INLINE V class_f(VF x) {
    V b = (V)x, sign = b >> 31, e = exponent_f(x), m = b & 0x7fffff;
    V number = pick((VI)(e == 255), pick((VI)(sign != 0), SP(1 << 2), SP(1 << 9)),
               pick((VI)(e > 0), pick((VI)(sign != 0), SP(1 << 3), SP(1 << 8)),
               pick((VI)(m > 0), pick((VI)(sign != 0), SP(1 << 4), SP(1 << 7)), pick((VI)(sign != 0), SP(1 << 5), SP(1 << 6)))));
    V nan = pick((VI)((m & 0x400000) != 0), SP(2), SP(1));
    return pick((VI)(e == 255) & (VI)(m != 0), nan, number);
}
INLINE V class_h(VH x) {
    V b = CVT((VS)x, V), sign = b >> 15, e = b >> 10 & 31, m = b & 0x3ff;
    V number = pick((VI)(e == 31), pick((VI)(sign != 0), SP(1 << 2), SP(1 << 9)),
               pick((VI)(e > 0), pick((VI)(sign != 0), SP(1 << 3), SP(1 << 8)),
               pick((VI)(m > 0), pick((VI)(sign != 0), SP(1 << 4), SP(1 << 7)), pick((VI)(sign != 0), SP(1 << 5), SP(1 << 6)))));
    V nan = pick((VI)((m & 0x200) != 0), SP(2), SP(1));
    return pick((VI)(e == 31) & (VI)(m != 0), nan, number);
}
INLINE V class_d(VD x) {
    V b = high_v((VQ)x), low = low_v((VQ)x), sign = b >> 31, e = b >> 20 & 2047, m = (b & 0xfffff) | (V)((low != 0) & 1);
    V number = pick((VI)(e == 2047), pick((VI)(sign != 0), SP(1 << 2), SP(1 << 9)),
               pick((VI)(e > 0), pick((VI)(sign != 0), SP(1 << 3), SP(1 << 8)),
               pick((VI)(m != 0), pick((VI)(sign != 0), SP(1 << 4), SP(1 << 7)), pick((VI)(sign != 0), SP(1 << 5), SP(1 << 6)))));
    V nan = pick((VI)((m & 0x80000) != 0), SP(2), SP(1));
    return pick((VI)(e == 2047) & (VI)(m != 0), nan, number);
}

/* Small float formats. bf16 is the upper half of f32. fp8: e4m3 without infinities; bf8: e5m2. */
INLINE VF bf16_lo(V x) { return (VF)(x << 16); }
INLINE VF bf16_hi(V x) { return (VF)(x & 0xffff0000u); }
INLINE u32 f32_to_bf16(float f) {
    u32 b = of_f(f);
    if ((b & 0x7fffffff) > 0x7f800000) return b >> 16 | 0x40;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
OUTLINE float small_to_f32(u32 x, int mantissa, int bias, int has_inf) {
    u32 sign = x >> 7 & 1, m = x & ((1u << mantissa) - 1), e = (x & 127) >> mantissa, top = (1u << (7 - mantissa)) - 1;
    float r;
    if (has_inf && e == top) r = m ? __builtin_nanf("") : __builtin_inff();
    else if (!has_inf && (x & 127) == 127) r = __builtin_nanf("");
    else if (e == 0) r = __builtin_ldexpf((float)m, 1 - bias - mantissa);
    else r = __builtin_ldexpf((float)(m | 1u << mantissa), (int)e - bias - mantissa);
    return sign ? -r : r;
}
INLINE float fp8_to_f32(u32 x) { return small_to_f32(x, 3, 7, 0); }
INLINE float bf8_to_f32(u32 x) { return small_to_f32(x, 2, 15, 1); }
/* To nearest even; what does not fit becomes the largest number for fp8 and an infinity for bf8 unless clamped. */
OUTLINE u32 f32_to_small(float f, int mantissa, int bias, int has_inf) {
    u32 b = of_f(f), sign = b >> 31 << 7;
    if ((b & 0x7fffffff) > 0x7f800000) return sign | 127;
    double x = f < 0 ? -(double)f : (double)f, most = has_inf ? 57344.0 : 448.0;
    int e = (int)(of_f((float)x) >> 23) - 127;
    if (e < 1 - bias) e = 1 - bias;
    double unit = __builtin_ldexp(1.0, e - mantissa), q = __builtin_roundeven(x / unit) * unit;
    if (q > most) return has_inf ? sign | 0x7c : sign | 127;
    if (q == 0) return sign;
    u32 qb = of_f((float)q);
    int qe = (int)(qb >> 23) - 127;
    if (qe < 1 - bias) return sign | (u32)(q / __builtin_ldexp(1.0, 1 - bias - mantissa));
    return sign | (u32)(qe + bias) << mantissa | (qb >> (23 - mantissa) & ((1u << mantissa) - 1));
}
OUTLINE V pack_small(VF a, VF b, int bf8) {
    V r;
    for (int l = 0; l < LANES; l++) {
        u32 lo = bf8 ? f32_to_small(a[l], 2, 15, 1) : f32_to_small(a[l], 3, 7, 0);
        u32 hi = bf8 ? f32_to_small(b[l], 2, 15, 1) : f32_to_small(b[l], 3, 7, 0);
        r[l] = lo | hi << 8;
    }
    return r;
}
OUTLINE VF unpack_small(V x, int bf8) {
    VF r;
    for (int l = 0; l < LANES; l++) r[l] = bf8 ? bf8_to_f32(x[l] & 255) : fp8_to_f32(x[l] & 255);
    return r;
}
INLINE VF dot2_f16(V a, V b, VF c) {
    VF r = c + CVT((VH)lo16(a), VF) * CVT((VH)lo16(b), VF);
    return r + CVT((VH)hi16(a), VF) * CVT((VH)hi16(b), VF);
}
INLINE VF dot2_bf16(V a, V b, VF c) { return c + bf16_lo(a) * bf16_lo(b) + bf16_hi(a) * bf16_hi(b); }
/* What precision the sum has before the last rounding is not published; here f32. */
INLINE VH dot2_f16_f16(V a, V b, VH c) { return CVT(dot2_f16(a, b, CVT(c, VF)), VH); }
OUTLINE VS dot2_bf16_bf16(V a, V b, VS c) {
    VF s = dot2_bf16(a, b, (VF)(CVT(c, V) << 16));
    VS r;
    for (int l = 0; l < LANES; l++) r[l] = (u16)f32_to_bf16(s[l]);
    return r;
}
/* Stochastic rounding: random bits are added to the mantissa, which wraps around; then to nearest even. NaN and infinity stay. */
OUTLINE V cvt_sr_small(VF a, V random, int bf8) {
    V r;
    for (int l = 0; l < LANES; l++) {
        u32 x = of_f(a[l]);
        if ((x >> 23 & 255) != 255) x = (x & 0xff800000u) | (x + (random[l] >> (bf8 ? 11 : 12)) & 0x7fffff);
        r[l] = bf8 ? f32_to_small(as_f(x), 2, 15, 1) : f32_to_small(as_f(x), 3, 7, 0);
    }
    return r;
}
/* Face of a cube (id), coordinates on it (sc, tc) and twice the major axis (ma) of the vector a, b, c. */
#define CUBE_Z(a, b, c) ((VI)(abs_f(c) >= abs_f(a)) & (VI)(abs_f(c) >= abs_f(b)))
#define CUBE_Y(a, b) ((VI)(abs_f(b) >= abs_f(a)))
INLINE VF cube_pick(VF a, VF b, VF c, VF x, VF y, VF z) { return pick_f(CUBE_Z(a, b, c), z, pick_f(CUBE_Y(a, b), y, x)); }
INLINE VF minus_if(VF test, VF below, VF other) { return pick_f((VI)(test < 0.0f), below, other); }
INLINE VF cube_id(VF a, VF b, VF c) {
    return cube_pick(a, b, c, minus_if(a, (VF)1.0f, (VF)0.0f), minus_if(b, (VF)3.0f, (VF)2.0f), minus_if(c, (VF)5.0f, (VF)4.0f));
}
INLINE VF cube_sc(VF a, VF b, VF c) { return cube_pick(a, b, c, minus_if(a, c, neg_f(c)), a, minus_if(c, neg_f(a), a)); }
INLINE VF cube_tc(VF a, VF b, VF c) { return cube_pick(a, b, c, neg_f(b), minus_if(b, neg_f(c), c), neg_f(b)); }
INLINE VF cube_ma(VF a, VF b, VF c) { return cube_pick(a, b, c, a, b, c) * 2.0f; }
OUTLINE VF dot4_small(V a, V b, VF c, int bf8_a, int bf8_b) {
    VF r = c;
    for (int i = 0; i < 4; i++) r += unpack_small(a >> (8 * i), bf8_a) * unpack_small(b >> (8 * i), bf8_b);
    return r;
}
#endif
