// Values that cross lanes: DPP, DPP8, permlane, swizzle, bpermute, readlane, ballots.
#include "gfx.h"

#define DPP(old, x, control, rows, banks, bound) __builtin_amdgcn_update_dpp(old, x, control, rows, banks, bound)

// out[k][lane] for each form of a DPP move; bound decides whether a missing source gives 0 or keeps `old`.
KERNEL(32) dpp_forms(const i32 *in, i32 *out) {
    i32 x = in[lane()], old = -1 - (i32)lane();
    i32 *to = out + lane();
    to[0 * 32] = DPP(old, x, 0x1b, 15, 15, false);   // quad_perm 3 2 1 0
    to[1 * 32] = DPP(old, x, 0x101, 15, 15, false);  // row_shl 1
    to[2 * 32] = DPP(old, x, 0x10f, 15, 15, true);   // row_shl 15
    to[3 * 32] = DPP(old, x, 0x111, 15, 15, false);  // row_shr 1
    to[4 * 32] = DPP(old, x, 0x118, 15, 15, true);   // row_shr 8
    to[5 * 32] = DPP(old, x, 0x121, 15, 15, false);  // row_ror 1
    to[6 * 32] = DPP(old, x, 0x12f, 15, 15, true);   // row_ror 15
    to[7 * 32] = DPP(old, x, 0x140, 15, 15, false);  // row_mirror
    to[8 * 32] = DPP(old, x, 0x141, 15, 15, false);  // row_half_mirror
    to[9 * 32] = DPP(old, x, 0x155, 15, 15, false);  // row_share 5
    to[10 * 32] = DPP(old, x, 0x163, 15, 15, false); // row_xmask 3
    to[11 * 32] = DPP(old, x, 0x111, 1, 15, false);  // only the first row is written
    to[12 * 32] = DPP(old, x, 0x112, 15, 5, false);  // only banks 0 and 2 are written
    to[13 * 32] = DPP(old, x, 0x114, 2, 10, true);
    to[14 * 32] = __builtin_amdgcn_mov_dpp8(x, 0x53977);
    to[15 * 32] = (i32)__builtin_amdgcn_permlane16((u32)old, (u32)x, 0x02468ace, 0x13579bdf, false, false);
    to[16 * 32] = (i32)__builtin_amdgcn_permlanex16((u32)old, (u32)x, 0x76543210, 0xfedcba98, false, true);
    to[17 * 32] = __builtin_amdgcn_ds_swizzle(x, 0x041f); // xor 1
    to[18 * 32] = __builtin_amdgcn_ds_swizzle(x, 0x801b); // quad permutation
    to[19 * 32] = __builtin_amdgcn_ds_bpermute((i32)(lane() * 20), x);
    to[20 * 32] = __builtin_amdgcn_ds_permute((i32)(lane() * 12), x);
    to[21 * 32] = (i32)__builtin_amdgcn_permlane16_var((u32)old, (u32)x, lane() * 5 % 16, false, false);
    to[22 * 32] = (i32)__builtin_amdgcn_permlanex16_var((u32)old, (u32)x, lane() * 7 % 16, false, false);
}

// The same inside a branch that only some lanes take: a source that is off counts as missing unless FI is set.
KERNEL(32) dpp_masked(const i32 *in, i32 *out, u32 mask) {
    i32 x = in[lane()], old = -1 - (i32)lane(), r[8] = {0};
    // Keeps the load outside of the branch: with FI, lanes that are off are read.
    __asm__ volatile("" : "+v"(x));
    if (mask >> lane() & 1) {
        r[0] = DPP(old, x, 0x111, 15, 15, false);
        r[1] = DPP(old, x, 0x111, 15, 15, true);
        r[2] = DPP(old, x, 0x121, 15, 15, false);
        r[3] = (i32)__builtin_amdgcn_permlanex16((u32)old, (u32)x, 0x76543210, 0xfedcba98, false, false);
        r[4] = (i32)__builtin_amdgcn_permlanex16((u32)old, (u32)x, 0x76543210, 0xfedcba98, true, false);
        r[5] = __builtin_amdgcn_ds_bpermute((i32)((lane() + 1) % 32 * 4), x);
        r[6] = __builtin_amdgcn_readfirstlane(x);
        r[7] = __builtin_amdgcn_mov_dpp8(x, 0xfac688);
    }
    for (i32 i = 0; i < 8; i++) out[(u32)i * 32 + lane()] = r[i];
}

// Inclusive prefix sum over 32 lanes by shifts within rows, then the first row's total for the second.
KERNEL(32) scan(const i32 *in, i32 *out) {
    u32 at = group() * 32 + lane();
    i32 x = in[at];
    x += DPP(0, x, 0x111, 15, 15, true);
    x += DPP(0, x, 0x112, 15, 15, true);
    x += DPP(0, x, 0x114, 15, 15, true);
    x += DPP(0, x, 0x118, 15, 15, true);
    i32 first = __builtin_amdgcn_readlane(x, 15);
    out[at] = lane() < 16 ? x : x + first;
}

KERNEL(256) reduce_all(const f32 *x, const i32 *k, f32 *sums, f32 *peaks, i32 *totals) {
    u32 at = group() * 256 + thread();
    f32 s = wave_sum(x[at]), m = wave_max(x[at]);
    i32 t = wave_add(k[at]);
    if (lane() == 31) {
        sums[at / 32] = s;
        peaks[at / 32] = m;
        totals[at / 32] = t;
    }
}

// Position of the largest value, the lowest one of equals: a tree that carries (value, index).
KERNEL(32) argmax(const f32 *x, i32 *best, i32 n) {
    f32 v = -__builtin_inff();
    i32 at = 0x7fffffff;
    const f32 *row = x + (u64)group() * (u32)n;
    for (i32 i = (i32)lane(); i < n; i += 32)
        if (row[i] > v) v = row[i], at = i;
    for (i32 step = 1; step < 32; step *= 2) {
        i32 partner = (i32)(lane() ^ (u32)step) * 4;
        f32 other = as_f32((u32)__builtin_amdgcn_ds_bpermute(partner, (i32)as_u32(v)));
        i32 where = __builtin_amdgcn_ds_bpermute(partner, at);
        if (other > v || (other == v && where < at)) v = other, at = where;
    }
    if (lane() == 0) best[group()] = at;
}

KERNEL(32) ballots(const i32 *in, u32 *out) {
    i32 x = in[lane()];
    u32 odd = __builtin_amdgcn_ballot_w32(x & 1);
    u32 rank = __builtin_amdgcn_mbcnt_lo(odd, 0);
    i32 put = lane() == 9 ? __builtin_amdgcn_readlane(x, 3) : x;
    out[lane()] = odd;
    out[32 + lane()] = rank;
    out[64 + lane()] = (u32)put;
    out[96 + lane()] = (u32)__builtin_popcount(odd) + (u32)__builtin_ctz(odd | 1u << 31);
    if (x > 0) out[128 + lane()] = __builtin_amdgcn_ballot_w32(true);
    else out[128 + lane()] = ~__builtin_amdgcn_ballot_w32(x < -5);
}
