/* Matrix steps of one wave: D = A·B + C on 16×16 tiles.
 *
 * Row r of A (column of B) stands in lanes r and r + 16; lane half h holds elements k with (k / 8) mod 2 = h, in the order of
 * its registers' bits. Register j of D in lane l is row j + 8·(l / 16), column l mod 16. 16-bit results are packed in pairs.
 * Sums are taken in ascending k, in f64 for float inputs, and rounded once.
 */
#ifndef RDNA4SIM_WMMA_H
#define RDNA4SIM_WMMA_H
#include "sim_math.h"

enum { WMMA_F16, WMMA_BF16, WMMA_FP8, WMMA_BF8 };

OUTLINE void wmma_unpack(const V *x, int format, float *out) {
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 8; i++) {
            u32 r = format <= WMMA_BF16 ? x[i / 2][lane] >> 16 * (i & 1) & 0xffff : x[i / 4][lane] >> 8 * (i & 3) & 0xff;
            float f = format == WMMA_F16 ? (float)as_h(r) : format == WMMA_BF16 ? as_f(r << 16)
                      : format == WMMA_FP8 ? fp8_to_f32(r) : bf8_to_f32(r);
            out[(lane & 15) * 16 + (lane >> 4) * 8 + i] = f;
        }
}
/* out[row][column] in f64, without C. */
OUTLINE void wmma_products(const V *a, const V *b, int format_a, int format_b, double *out) {
    float x[256], y[256];
    wmma_unpack(a, format_a, x);
    wmma_unpack(b, format_b, y);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            double s = 0;
            for (int k = 0; k < 16; k++) s += (double)x[row * 16 + k] * (double)y[column * 16 + k];
            out[row * 16 + column] = s;
        }
}
INLINE u32 sign_changed(u32 x, u32 sign, int flip, int absolute) { return (absolute ? x & ~sign : x) ^ (flip ? sign : 0); }
/* flip and absolute are the sign modifiers of C. */
OUTLINE void wmma_f32(const V *a, const V *b, const V *c, V *d, int format_a, int format_b, int flip, int absolute) {
    double p[256];
    V out[8];
    wmma_products(a, b, format_a, format_b, p);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < LANES; l++) {
            float x = as_f(c[j][l]);
            x = as_f(sign_changed(of_f(x), 0x80000000u, flip, absolute));
            out[j][l] = of_f((float)((double)x + p[(j + 8 * (l >> 4)) * 16 + (l & 15)]));
        }
    for (int j = 0; j < 8; j++) d[j] = out[j];
}
OUTLINE void wmma_16(const V *a, const V *b, const V *c, V *d, int format, int flip, int absolute) {
    double p[256];
    V out[4];
    wmma_products(a, b, format, format, p);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < LANES; l++) {
            u32 old = sign_changed(c[j / 2][l] >> 16 * (j & 1) & 0xffff, 0x8000, flip, absolute);
            double s = p[(j + 8 * (l >> 4)) * 16 + (l & 15)] + (format == WMMA_F16 ? (double)as_h(old) : (double)as_f(old << 16));
            u32 bits = format == WMMA_F16 ? of_h((_Float16)s) : f32_to_bf16((float)s);
            out[j / 2][l] = j & 1 ? out[j / 2][l] | bits << 16 : bits;
        }
    for (int j = 0; j < 4; j++) d[j] = out[j];
}
/* bits 8 or 4; k elements a row; one register holds 32 / bits of them. */
OUTLINE void wmma_int(const V *a, const V *b, const V *c, V *d, int bits, int k, int sa, int sb, int clamp) {
    i32 x[16 * 32], y[16 * 32];
    V out[8];
    u32 top = 32 - (u32)bits;
    int half = k / 2, per = 32 / bits;
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < half; i++) {
            u32 ra = a[i / per][lane] << (top - (u32)(i % per * bits)), rb = b[i / per][lane] << (top - (u32)(i % per * bits));
            int at = (lane & 15) * k + (lane >> 4) * half + i;
            x[at] = sa ? (i32)ra >> top : (i32)(ra >> top);
            y[at] = sb ? (i32)rb >> top : (i32)(rb >> top);
        }
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < LANES; l++) {
            i64 s = 0;
            for (int i = 0; i < k; i++) s += x[(j + 8 * (l >> 4)) * k + i] * y[(l & 15) * k + i];
            s += (i32)c[j][l];
            if (clamp) s = s > 0x7fffffff ? 0x7fffffff : s < -0x80000000ll ? -0x80000000ll : s;
            out[j][l] = (u32)s;
        }
    for (int j = 0; j < 8; j++) d[j] = out[j];
}
#endif
