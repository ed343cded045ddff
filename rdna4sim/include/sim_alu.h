/* Vector arithmetic of translated kernels: views of registers, selects by EXEC, and what C has no operator for. */
#ifndef RDNA4SIM_ALU_H
#define RDNA4SIM_ALU_H
#include "sim.h"

typedef _Bool B LANE_VECTOR;
typedef i32 VI LANE_VECTOR;
typedef float VF LANE_VECTOR;
typedef u64 VQ LANE_VECTOR;
typedef i64 VL LANE_VECTOR;
typedef double VD LANE_VECTOR;
typedef u16 VS LANE_VECTOR;
typedef i16 VSI LANE_VECTOR;
typedef _Float16 VH LANE_VECTOR;
typedef u8 VB LANE_VECTOR;
typedef i8 VBI LANE_VECTOR;

#define INLINE static inline __attribute__((always_inline, unused))
#define OUTLINE static __attribute__((noinline, unused))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CVT(x, T) __builtin_convertvector((x), T)
#define SP(x) ((V)(u32)(x))
#define SPQ(x) ((VQ)(u64)(x))
#define SPS(x) ((VS)(u16)(x))

static const V IOTA = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                       16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

INLINE B mask_of(u32 bits) { union { u32 u; B b; } x; x.u = bits; return x.b; }
INLINE u32 bits_of(B mask) { union { u32 u; B b; } x; x.b = mask; return x.u; }
/* From a vector comparison (0 or -1 in each lane) to one bit for each lane. */
INLINE u32 bits_v(VI c) { return bits_of(CVT(c, B)); }
/* F64 to F16 with one rounding; no compiler library is linked. Through F32 rounded to odd. */
__attribute__((weak, visibility("hidden"))) _Float16 __truncdfhf2(double x) {
    float f = (float)x;
    u32 b = __builtin_bit_cast(u32, f);
    if (f == f && (double)f != x) b = (__builtin_fabs((double)f) > __builtin_fabs(x) ? b - 1 : b) | 1;
    return (_Float16)__builtin_bit_cast(float, b);
}
/* Comparisons of long and of long long give vectors of either type. */
#define bits_q(c) bits_of_q((VL)(c))
INLINE u32 bits_of_q(VL c) { return bits_of(CVT(c, B)); }
INLINE u32 bits_s(VSI c) { return bits_of(CVT(c, B)); }
INLINE V lanes_v(u32 bits) { return (V)(-CVT(mask_of(bits), VI)); }
INLINE VS lanes_s(u32 bits) { return (VS)(-CVT(mask_of(bits), VSI)); }
INLINE VQ lanes_q(u32 bits) { return (VQ)(-CVT(mask_of(bits), VL)); }

INLINE V sel(u32 bits, V a, V b) { V k = lanes_v(bits); return (a & k) | (b & ~k); }
INLINE VS sel_s(u32 bits, VS a, VS b) { VS k = lanes_s(bits); return (a & k) | (b & ~k); }
INLINE VQ sel_q(u32 bits, VQ a, VQ b) { VQ k = lanes_q(bits); return (a & k) | (b & ~k); }
/* Select by a comparison's result. */
INLINE V pick(VI c, V a, V b) { return (a & (V)c) | (b & ~(V)c); }
INLINE VF pick_f(VI c, VF a, VF b) { return (VF)pick(c, (V)a, (V)b); }
INLINE VH pick_h(VSI c, VH a, VH b) { return (VH)(((VS)a & (VS)c) | ((VS)b & ~(VS)c)); }
INLINE VD pick_d(VL c, VD a, VD b) { return (VD)(((VQ)a & (VQ)c) | ((VQ)b & ~(VQ)c)); }

INLINE u64 pair(u32 lo, u32 hi) { return (u64)hi << 32 | lo; }
INLINE VQ pair_v(V lo, V hi) { return CVT(hi, VQ) << 32 | CVT(lo, VQ); }
INLINE V low_v(VQ x) { return CVT(x, V); }
INLINE V high_v(VQ x) { return CVT(x >> 32, V); }
INLINE VS lo16(V x) { return CVT(x, VS); }
INLINE VS hi16(V x) { return CVT(x >> 16, VS); }
INLINE V set_lo16(V old, VS x) { return (old & 0xffff0000u) | CVT(x, V); }
INLINE V set_hi16(V old, VS x) { return (old & 0x0000ffffu) | CVT(x, V) << 16; }
INLINE V pack16(VS lo, VS hi) { return CVT(lo, V) | CVT(hi, V) << 16; }

INLINE float as_f(u32 x) { union { u32 u; float f; } c; c.u = x; return c.f; }
INLINE u32 of_f(float x) { union { u32 u; float f; } c; c.f = x; return c.u; }
INLINE double as_d(u64 x) { union { u64 u; double f; } c; c.u = x; return c.f; }
INLINE u64 of_d(double x) { union { u64 u; double f; } c; c.f = x; return c.u; }
INLINE _Float16 as_h(u32 x) { union { u16 u; _Float16 f; } c; c.u = (u16)x; return c.f; }
INLINE u32 of_h(_Float16 x) { union { u16 u; _Float16 f; } c; c.f = x; return c.u; }

INLINE VF neg_f(VF x) { return (VF)((V)x ^ 0x80000000u); }
INLINE VF abs_f(VF x) { return (VF)((V)x & 0x7fffffffu); }
INLINE VH neg_h(VH x) { return (VH)((VS)x ^ (VS)(u16)0x8000); }
INLINE VH abs_h(VH x) { return (VH)((VS)x & (VS)(u16)0x7fff); }
INLINE VD neg_d(VD x) { return (VD)((VQ)x ^ 0x8000000000000000ull); }
INLINE VD abs_d(VD x) { return (VD)((VQ)x & 0x7fffffffffffffffull); }

INLINE VI isnan_f(VF x) { return (VI)(x != x); }
INLINE VSI isnan_h(VH x) { return (VSI)(x != x); }
INLINE VL isnan_d(VD x) { return (VL)(x != x); }
/* minNum and maxNum: a NaN loses against a number, and -0 is less than +0. */
INLINE VF min_f(VF a, VF b) {
    VF r = pick_f((VI)(a < b), a, b);
    r = pick_f((VI)(a == b), (VF)((V)a | (V)b), r);
    return pick_f(isnan_f(b), a, r);
}
INLINE VF max_f(VF a, VF b) {
    VF r = pick_f((VI)(a > b), a, b);
    r = pick_f((VI)(a == b), (VF)((V)a & (V)b), r);
    return pick_f(isnan_f(b), a, r);
}
INLINE VH min_h(VH a, VH b) {
    VH r = pick_h((VSI)(a < b), a, b);
    r = pick_h((VSI)(a == b), (VH)((VS)a | (VS)b), r);
    return pick_h(isnan_h(b), a, r);
}
INLINE VH max_h(VH a, VH b) {
    VH r = pick_h((VSI)(a > b), a, b);
    r = pick_h((VSI)(a == b), (VH)((VS)a & (VS)b), r);
    return pick_h(isnan_h(b), a, r);
}
INLINE VD min_d(VD a, VD b) {
    VD r = pick_d((VL)(a < b), a, b);
    r = pick_d((VL)(a == b), (VD)((VQ)a | (VQ)b), r);
    return pick_d(isnan_d(b), a, r);
}
INLINE VD max_d(VD a, VD b) {
    VD r = pick_d((VL)(a > b), a, b);
    r = pick_d((VL)(a == b), (VD)((VQ)a & (VQ)b), r);
    return pick_d(isnan_d(b), a, r);
}
/* minimum and maximum of IEEE 754-2019: a NaN wins. */
INLINE VF minimum_f(VF a, VF b) { return pick_f(isnan_f(a) | isnan_f(b), a + b, min_f(a, b)); }
INLINE VF maximum_f(VF a, VF b) { return pick_f(isnan_f(a) | isnan_f(b), a + b, max_f(a, b)); }
INLINE VH minimum_h(VH a, VH b) { return pick_h(isnan_h(a) | isnan_h(b), a + b, min_h(a, b)); }
INLINE VH maximum_h(VH a, VH b) { return pick_h(isnan_h(a) | isnan_h(b), a + b, max_h(a, b)); }
INLINE VD minimum_d(VD a, VD b) { return pick_d(isnan_d(a) | isnan_d(b), a + b, min_d(a, b)); }
INLINE VD maximum_d(VD a, VD b) { return pick_d(isnan_d(a) | isnan_d(b), a + b, max_d(a, b)); }
/* The middle one; with a NaN among them the least of the others. */
INLINE VF med3_f(VF a, VF b, VF c) {
    VF m = max_f(min_f(a, b), min_f(max_f(a, b), c));
    return pick_f(isnan_f(a) | isnan_f(b) | isnan_f(c), min_f(min_f(a, b), c), m);
}
INLINE VH med3_h(VH a, VH b, VH c) {
    VH m = max_h(min_h(a, b), min_h(max_h(a, b), c));
    return pick_h(isnan_h(a) | isnan_h(b) | isnan_h(c), min_h(min_h(a, b), c), m);
}
#define MIN_V(a, b) __builtin_elementwise_min((a), (b))
#define MAX_V(a, b) __builtin_elementwise_max((a), (b))
#define MED_V(a, b, c) MAX_V(MIN_V(a, b), MIN_V(MAX_V(a, b), c))

/* Clamp of a float result: to [0, 1], a NaN to 0. */
INLINE VF clamp_f(VF x) { return pick_f((VI)(x > 0.0f), pick_f((VI)(x < 1.0f), x, (VF)1.0f), (VF)0.0f); }
INLINE VH clamp_h(VH x) {
    return pick_h((VSI)(x > (_Float16)0), pick_h((VSI)(x < (_Float16)1), x, (VH)(_Float16)1), (VH)(_Float16)0);
}
INLINE VD clamp_d(VD x) { return pick_d((VL)(x > 0.0), pick_d((VL)(x < 1.0), x, (VD)1.0), (VD)0.0); }

INLINE VF fma_f(VF a, VF b, VF c) { return __builtin_elementwise_fma(a, b, c); }
INLINE VD fma_d(VD a, VD b, VD c) { return __builtin_elementwise_fma(a, b, c); }
/* Products of two f16 are exact in f64 and so is the sum wherever the result is finite: one rounding in all. */
INLINE VH fma_h(VH a, VH b, VH c) { return CVT(CVT(a, VD) * CVT(b, VD) + CVT(c, VD), VH); }

INLINE VI cvt_i_f(VF x) {
    VF c = pick_f((VI)(x >= 2147483648.0f), (VF)0.0f, pick_f((VI)(x < -2147483648.0f), (VF)0.0f, x));
    VI r = CVT(pick_f(isnan_f(x), (VF)0.0f, c), VI);
    r = (VI)pick((VI)(x >= 2147483648.0f), SP(0x7fffffff), (V)r);
    return (VI)pick((VI)(x < -2147483648.0f), SP(0x80000000u), (V)r);
}
INLINE V cvt_u_f(VF x) {
    VF c = pick_f((VI)(x >= 4294967296.0f), (VF)0.0f, pick_f((VI)(x > -1.0f), x, (VF)0.0f));
    return pick((VI)(x >= 4294967296.0f), SP(0xffffffffu), CVT(pick_f((VI)(c > 0.0f), c, (VF)0.0f), V));
}
INLINE VI cvt_i_d(VD x) {
    VD c = pick_d((VL)(x >= 2147483648.0), (VD)2147483647.0, x);
    c = pick_d((VL)(c <= -2147483649.0), (VD)-2147483648.0, c);
    return CVT(pick_d(isnan_d(x), (VD)0.0, c), VI);
}
INLINE V cvt_u_d(VD x) {
    VD c = pick_d((VL)(x >= 4294967296.0), (VD)4294967295.0, x);
    return CVT(pick_d((VL)(c > 0.0), c, (VD)0.0), V);
}
INLINE VSI cvt_s_h(VH x) {
    VF f = CVT(x, VF);
    VF c = pick_f((VI)(f > 32767.0f), (VF)32767.0f, pick_f((VI)(f < -32768.0f), (VF)-32768.0f, f));
    return CVT(CVT(pick_f(isnan_f(f), (VF)0.0f, c), VI), VSI);
}
INLINE VS cvt_w_h(VH x) {
    VF f = CVT(x, VF);
    VF c = pick_f((VI)(f > 65535.0f), (VF)65535.0f, pick_f((VI)(f > 0.0f), f, (VF)0.0f));
    return CVT(CVT(c, VI), VS);
}
/* f32 to f16 towards zero: cut the mantissa, keep what the exponent cannot hold at the largest number. */
OUTLINE u16 f16_rtz(u32 x) {
    u32 sign = x >> 16 & 0x8000, magnitude = x & 0x7fffffff;
    if (magnitude > 0x7f800000) return (u16)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude == 0x7f800000) return (u16)(sign | 0x7c00);
    if (magnitude >= 0x47800000) return (u16)(sign | 0x7bff);
    if (magnitude >= 0x38800000) return (u16)(sign | ((magnitude - 0x38000000) >> 13));
    u32 shift = 126 - (magnitude >> 23);
    if (shift > 24) return (u16)sign;
    return (u16)(sign | ((magnitude & 0x7fffff) | 0x800000) >> shift);
}
OUTLINE VS f16_rtz_v(VF x) { VS r; for (int l = 0; l < LANES; l++) r[l] = f16_rtz(((V)x)[l]); return r; }

INLINE V shl_v(V a, V n) { return a << (n & 31); }
INLINE V shr_v(V a, V n) { return a >> (n & 31); }
INLINE V sar_v(V a, V n) { return (V)((VI)a >> (VI)(n & 31)); }
INLINE V bfe_u(V a, V off, V width) {
    width &= 31;
    return shr_v(a, off) & ((SP(1) << width) - 1);
}
INLINE V bfe_i(V a, V off, V width) {
    off &= 31, width &= 31;
    V x = (V)((VI)a >> (VI)off) & ((SP(1) << width) - 1), sign = (SP(1) << width) >> 1;
    return (x ^ sign) - sign;
}
INLINE V mulhi_u(V a, V b) { return CVT(CVT(a, VQ) * CVT(b, VQ) >> 32, V); }
INLINE V mulhi_i(V a, V b) { return CVT((VQ)(CVT((VI)a, VL) * CVT((VI)b, VL)) >> 32, V); }
INLINE VI sext24(V a) { return (VI)(a << 8) >> 8; }
INLINE V clz_v(V x) {
    V r = SP(32);
    for (int i = 16; i; i >>= 1) { VI c = (VI)((x >> i) != 0); r = pick(c, r - (u32)i, r); x = pick(c, x >> i, x); }
    return pick((VI)(x != 0), r - 1, SP(0xffffffffu));
}
INLINE V ctz_v(V x) { return pick((VI)(x != 0), __builtin_elementwise_popcount((x & -x) - 1), SP(0xffffffffu)); }
INLINE V mbcnt(V mask, V add) { return add + __builtin_elementwise_popcount(mask & ((SP(1) << IOTA) - 1)); }
INLINE V mbcnt_s(u32 mask, V add) {
    if (LIKELY(mask == ~0u)) return add + IOTA;
    return mbcnt(SP(mask), add);
}
INLINE V byte_perm(V hi, V lo, V selector) {
    V r = SP(0);
    for (int i = 0; i < 4; i++) {
        V s = selector >> (8 * i) & 0xff, k = s & 7;
        V b = pick((VI)(k < 4), lo >> (k * 8 & 31), hi >> (k * 8 & 31)) & 0xff;
        V sign = pick((VI)(s == 8), lo >> 15, pick((VI)(s == 9), lo >> 31, pick((VI)(s == 10), hi >> 15, hi >> 31))) & 1;
        b = pick((VI)(s >= 8), sign * 255u, b);
        b = pick((VI)(s == 12), SP(0), pick((VI)(s >= 13), SP(255), b));
        r |= b << (8 * i);
    }
    return r;
}
INLINE V align_bit(V hi, V lo, V n) {
    n &= 31;
    return pick((VI)(n == 0), lo, (hi << (32 - n & 31)) | (lo >> n));
}
INLINE VI dot4(V a, V b, int sa, int sb) {
    VI r = (VI)0;
    for (int i = 0; i < 4; i++) {
        VI x = sa ? (VI)(a << (24 - 8 * i)) >> 24 : (VI)(a >> (8 * i) & 0xff);
        VI y = sb ? (VI)(b << (24 - 8 * i)) >> 24 : (VI)(b >> (8 * i) & 0xff);
        r += x * y;
    }
    return r;
}
INLINE VI dot8(V a, V b, int sa, int sb) {
    VI r = (VI)0;
    for (int i = 0; i < 8; i++) {
        VI x = sa ? (VI)(a << (28 - 4 * i)) >> 28 : (VI)(a >> (4 * i) & 0xf);
        VI y = sb ? (VI)(b << (28 - 4 * i)) >> 28 : (VI)(b >> (4 * i) & 0xf);
        r += x * y;
    }
    return r;
}
/* Sum of absolute differences of four bytes; masked: those of b that are 0 do not count. */
INLINE V sad_bytes(V a, V b, int masked) {
    V r = SP(0);
    for (int i = 0; i < 4; i++) {
        V x = a >> (8 * i) & 255, y = b >> (8 * i) & 255, t = MAX_V(x, y) - MIN_V(x, y);
        r += masked ? pick((VI)(y != 0), t, SP(0)) : t;
    }
    return r;
}
/* The four windows of four bytes that begin at the first four bytes of a, against b; sums of 16 bits on top of c's. */
INLINE VQ qsad_pk(VQ a, V b, VQ c, int masked) {
    VQ r = SPQ(0);
    for (int i = 0; i < 4; i++)
        r |= CVT(low_v(c >> (16 * i)) + sad_bytes(low_v(a >> (8 * i)), b, masked) & 0xffff, VQ) << (16 * i);
    return r;
}
/* What v_div_scale, v_frexp and v_ldexp need of a number's exponent. */
INLINE V exponent_f(VF x) { return (V)x >> 23 & 0xff; }
OUTLINE float ldexp_f1(float x, i32 e) { return __builtin_ldexpf(x, e); }
OUTLINE double ldexp_d1(double x, i32 e) { return __builtin_ldexp(x, e); }
OUTLINE VF ldexp_f(VF x, VI e) { VF r; for (int l = 0; l < LANES; l++) r[l] = ldexp_f1(x[l], e[l]); return r; }
OUTLINE VD ldexp_d(VD x, VI e) { VD r; for (int l = 0; l < LANES; l++) r[l] = ldexp_d1(x[l], e[l]); return r; }
INLINE VH ldexp_h(VH x, VI e) { return CVT(ldexp_f(CVT(x, VF), MAX_V(MIN_V(e, (VI)100), (VI)-100)), VH); }

/* Reads of one lane. With EXEC = 0 lane 0 is read. */
INLINE u32 first_lane(V x, u32 exec) {
    if (LIKELY(exec & 1)) return x[0];
    return x[exec ? __builtin_ctz(exec) : 0];
}
OUTLINE u32 permute_bits(u32 bits, const i8 *source) {
    u32 r = 0;
    for (int l = 0; l < LANES; l++) if (source[l] >= 0) r |= (bits >> source[l] & 1) << l;
    return r;
}
INLINE u32 rev_bits(u32 x) { return __builtin_bitreverse32(x); }
#endif
