// Atomics in LDS and in global memory, of every kind, with and without the old value.
#include "gfx.h"

KERNEL(256) histogram(const u8 *x, u32 *out, i32 n) {
    LDS u32 bins[256];
    bins[thread()] = 0;
    barrier();
    for (i32 i = (i32)(group() * 256 + thread()); i < n; i += (i32)(256 * 4))
        __scoped_atomic_fetch_add(&bins[x[i]], 1, __ATOMIC_RELAXED, GROUP);
    barrier();
    if (bins[thread()]) __scoped_atomic_fetch_add(out + thread(), bins[thread()], __ATOMIC_RELAXED, DEVICE);
}

// Results that do not depend on the order: sums, extremes, bit operations, floats that stay whole numbers.
KERNEL(128) lds_atomics(const u32 *in, u32 *out) {
    LDS u32 cell[8];
    LDS u64 wide[4];
    LDS f32 real[1];
    if (thread() < 8) cell[thread()] = thread() == 2 || thread() == 4 ? ~0u : 0;
    if (thread() < 4) wide[thread()] = thread() == 1 ? ~0ul : 0;
    if (thread() == 0) real[0] = 0;
    barrier();
    u32 x = in[group() * 128 + thread()];
    __scoped_atomic_fetch_add(&cell[0], x, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_sub(&cell[1], x, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_min(&cell[2], x, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_max(&cell[3], x, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_and(&cell[4], x | 0xff, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_or(&cell[5], x & 0xff, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_xor(&cell[6], x, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_max((__attribute__((address_space(3))) i32 *)&cell[7], (i32)x, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_add(&wide[0], (u64)x << 20, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_min(&wide[1], (u64)x << 8, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_xor(&wide[2], (u64)x << 13, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_max(&wide[3], (u64)x << 30, __ATOMIC_RELAXED, GROUP);
    __builtin_amdgcn_ds_atomic_fadd_f32(&real[0], (f32)(x & 15));
    barrier();
    if (thread() < 8) out[group() * 20 + thread()] = cell[thread()];
    if (thread() < 4) {
        out[group() * 20 + 8 + 2 * thread()] = (u32)wide[thread()];
        out[group() * 20 + 9 + 2 * thread()] = (u32)(wide[thread()] >> 32);
    }
    if (thread() == 0) out[group() * 20 + 16] = as_u32(real[0]);
}

// Old values: each ticket is given once; the sum of tickets shows it whatever the order.
KERNEL(128) tickets(u32 *global, u32 *out, u32 *seen) {
    LDS u32 next, owner;
    if (thread() == 0) next = 0, owner = ~0u;
    barrier();
    u32 mine = __scoped_atomic_fetch_add(&next, 1, __ATOMIC_RELAXED, GROUP);
    u32 expected = ~0u;
    if (__scoped_atomic_compare_exchange_n(&owner, &expected, 5u, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED, GROUP))
        __scoped_atomic_fetch_add(out + 1, 1, __ATOMIC_RELAXED, DEVICE);
    u32 number = __scoped_atomic_fetch_add(global, 1, __ATOMIC_RELAXED, DEVICE);
    seen[number] = 1 + mine;
    barrier();
    if (thread() == 0) out[2 + group()] = __scoped_atomic_exchange_n(&owner, 9u, __ATOMIC_RELAXED, GROUP);
    __scoped_atomic_fetch_add(out, number, __ATOMIC_RELAXED, DEVICE);
}

KERNEL(128) global_atomics(const u32 *in, u32 *cell, u64 *wide, f32 *real) {
    u32 x = in[group() * 128 + thread()];
    __scoped_atomic_fetch_add(cell + 0, x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_sub(cell + 1, x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_min(cell + 2, x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_max(cell + 3, x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_and(cell + 4, x | 0xff, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_or(cell + 5, x & 0xff, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_xor(cell + 6, x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_min((i32 *)cell + 7, (i32)x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_max((i32 *)cell + 8, (i32)x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_add(wide + 0, (u64)x << 20, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_min(wide + 1, (u64)x << 8, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_xor(wide + 2, (u64)x << 13, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_max(wide + 3, (u64)x << 30, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_add(real, (f32)(x & 15), __ATOMIC_RELAXED, DEVICE);
    u32 old = __scoped_atomic_load_n(cell + 9, __ATOMIC_RELAXED, DEVICE);
    while (!__scoped_atomic_compare_exchange_n(cell + 9, &old, old * 3 + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED, DEVICE)) {
    }
}

// Global float atomics by instruction: F32, packed F16, minimum and maximum. Whole numbers, so the order is free.
KERNEL(64) float_atomics(f32 *sum, f16x2 *pair, f32 *low, f32 *high, const f32 *in) {
    typedef __attribute__((address_space(1))) f16x2 *Pair;
    f32 x = in[thread()];
    __scoped_atomic_fetch_add(sum, x, __ATOMIC_RELAXED, DEVICE);
    __builtin_amdgcn_global_atomic_fadd_v2f16((Pair)pair, (f16x2){(f16)1, (f16)2});
    __scoped_atomic_fetch_min(low, x, __ATOMIC_RELAXED, DEVICE);
    __scoped_atomic_fetch_max(high, x, __ATOMIC_RELAXED, DEVICE);
}
