/* Memory of translated kernels, immediate and coherent: global, scratch, LDS and scalar accesses, all checked.
 *
 * An access is a base and a 32-bit offset for each lane. If EXEC is full and the offsets are consecutive, one comparison
 * against the site's last allocation covers the wave. Names end in the element (u8 i8 u16 i16 b32) or the register count.
 */
#ifndef RDNA4SIM_MEM_H
#define RDNA4SIM_MEM_H
#include "sim_alu.h"

typedef struct { u64 base; V off; } Ad;
typedef u32 V64 __attribute__((ext_vector_type(64)));
typedef u32 V128 __attribute__((ext_vector_type(128)));
typedef u32 Unaligned __attribute__((aligned(1), may_alias));
typedef u64 Unaligned64 __attribute__((aligned(1), may_alias));
typedef u16 Unaligned16 __attribute__((aligned(1), may_alias));

#ifdef SIM_COUNTERS
#define COUNT(w, what, n) ((w)->counters[what] += (u64)(n))
#define TOUCH(w, exec, a, bytes, writes) touch(w, exec, a, bytes, writes)
#else
#define COUNT(w, what, n) ((void)0)
#define TOUCH(w, exec, a, bytes, writes) ((void)0)
#endif
#define LIVE(exec) __builtin_popcount(exec)

/* Lines of memory that the launch reads (or writes) here for the first time. Not checked yet: an address may be any. */
OUTLINE void touch_line(Wave *w, u64 line, u32 writes) {
    if (line >= w->lines_count || w->lines[writes][line >> 3] >> (line & 7) & 1) return;
    w->lines[writes][line >> 3] |= (u8)(1 << (line & 7));
    w->counters[COUNT_READ_LINES + writes]++;
}
OUTLINE void touch(Wave *w, u32 exec, Ad a, u32 bytes, u32 writes) {
    u64 last = ~0ull;
    for (u32 m = exec; m; m &= m - 1) {
        u64 p = a.base + a.off[__builtin_ctz(m)] - w->lines_base, line = p >> LINE_SHIFT, end = (p + bytes - 1) >> LINE_SHIFT;
        if (line == last && end == last) continue;
        touch_line(w, line, writes);
        if (end != line) touch_line(w, end, writes);
        last = end;
    }
}

/* Lanes too far apart for one base: a lane that points nowhere is the reason nearly always, and is named. */
OUTLINE void span_fault(Wave *w, u32 exec, u32 pc, V lo, V hi) {
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        Site site = {0, 0};
        if (!w->rt->locate(w, &site, pair(lo[l], hi[l]), 1)) w->rt->fault(w, FAULT_GLOBAL, pc, l, pair(lo[l], hi[l]), 1);
    }
    w->rt->fault(w, FAULT_SPAN, pc, (u32)__builtin_ctz(exec), 0, 0);
}
INLINE Ad ad_s(u64 base, V off, i64 imm) { return (Ad){base + (u64)imm, off}; }
/* 64-bit addresses in VGPR pairs. Nearly always the upper halves are equal. */
INLINE Ad ad_v(Wave *w, u32 exec, u32 pc, V lo, V hi, i64 imm) {
    u32 h = first_lane(hi, exec);
    if (LIKELY(!(bits_v((VI)(hi != h)) & exec))) return (Ad){pair(0, h) + (u64)imm, lo};
    u64 least = ~0ull, most = 0;
    for (u32 m = exec; m; m &= m - 1) {
        u64 a = pair(lo[__builtin_ctz(m)], hi[__builtin_ctz(m)]);
        if (a < least) least = a;
        if (a > most) most = a;
    }
    if (most - least > 0xffffffffull) span_fault(w, exec, pc, lo, hi);
    return (Ad){least + (u64)imm, lo - (u32)least};
}

OUTLINE void check_lanes(Wave *w, Site *site, u32 exec, u32 pc, const Ad *a, u32 bytes, u32 kind) {
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        u64 p = a->base + a->off[l];
        if (p >= site->lo && p < site->hi && site->hi - p >= bytes) continue;
        if (!w->rt->locate(w, site, p, bytes)) w->rt->fault(w, kind, pc, l, p, bytes);
    }
}
/* All active lanes against live allocations. */
INLINE void check(Wave *w, Site *site, u32 exec, u32 pc, const Ad *a, u32 bytes, u32 kind) {
    V off = exec == ~0u ? a->off : sel(exec, a->off, SP(first_lane(a->off, exec)));
    u64 lo = a->base + __builtin_reduce_min(off), hi = a->base + __builtin_reduce_max(off) + bytes;
    /* Addresses wrap: lanes on both sides of the end of all addresses have their greatest below their smallest. */
    if (UNLIKELY(lo < site->lo || hi > site->hi || hi < lo)) check_lanes(w, site, exec, pc, a, bytes, kind);
}
INLINE int check_run(Wave *w, Site *site, u64 p, u64 bytes) {
    return LIKELY(p >= site->lo && p < site->hi && site->hi - p >= bytes) || w->rt->locate(w, site, p, bytes);
}
INLINE int consecutive(u32 exec, V off, u32 stride) {
    return exec == ~0u && !bits_v((VI)(off - off[0] != IOTA * stride)) && off[0] <= ~0u - 32 * stride;
}
INLINE int all_equal(u32 exec, V off) { return exec == ~0u && !bits_v((VI)(off != off[0])); }

#define DEFINE_LOAD(NAME, T, VT)                                                                               \
    INLINE V gload_##NAME(Wave *w, u32 exec, Site *site, u32 pc, Ad a) {                                       \
        if (!exec) return SP(0);                                                                               \
        COUNT(w, COUNT_LOAD_BYTES, LIVE(exec) * sizeof(T));                                                    \
        TOUCH(w, exec, a, sizeof(T), 0);                                                                       \
        if (LIKELY(consecutive(exec, a.off, sizeof(T)))) {                                                     \
            u64 p = a.base + a.off[0];                                                                         \
            if (LIKELY(check_run(w, site, p, LANES * sizeof(T)))) {                                            \
                VT x;                                                                                          \
                __builtin_memcpy(&x, (const void *)p, sizeof x);                                               \
                return (V)CVT(x, VI);                                                                          \
            }                                                                                                  \
        }                                                                                                      \
        check(w, site, exec, pc, &a, sizeof(T), FAULT_GLOBAL_READ);                                            \
        V r = SP(0);                                                                                           \
        for (u32 m = exec; m; m &= m - 1) {                                                                    \
            u32 l = (u32)__builtin_ctz(m);                                                                     \
            T x;                                                                                               \
            __builtin_memcpy(&x, (const void *)(a.base + a.off[l]), sizeof x);                                 \
            r[l] = (u32)(i32)x;                                                                                \
        }                                                                                                      \
        return r;                                                                                              \
    }
DEFINE_LOAD(u8, u8, VB)
DEFINE_LOAD(i8, i8, VBI)
DEFINE_LOAD(u16, u16, VS)
DEFINE_LOAD(i16, i16, VSI)

/* n registers a lane into rows of a table, 16 bytes apart at most; callers take the columns. */
OUTLINE void gather(u32 exec, const Ad *a, u32 n, u32 *table) {
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        const Unaligned *p = (const Unaligned *)(a->base + a->off[l]);
        for (u32 i = 0; i < n; i++) table[l * n + i] = p[i];
    }
}
INLINE void gather_full(const Ad *a, u32 n, u32 *table) {
    u32 off[LANES] __attribute__((aligned(64)));
    *(V *)off = a->off;
    for (u32 l = 0; l < LANES; l++) __builtin_memcpy(table + l * n, (const void *)(a->base + off[l]), n * 4);
}
INLINE void columns2(const u32 *t, V *r) {
    V64 x;
    __builtin_memcpy(&x, t, sizeof x);
    r[0] = x.even;
    r[1] = x.odd;
}
INLINE void columns4(const u32 *t, V *r) {
    V128 x;
    __builtin_memcpy(&x, t, sizeof x);
    V64 e = x.even, o = x.odd;
    r[0] = e.even, r[1] = o.even, r[2] = e.odd, r[3] = o.odd;
}
INLINE void columns3(const u32 *t, V *r) { for (int l = 0; l < LANES; l++) for (int i = 0; i < 3; i++) r[i][l] = t[3 * l + i]; }
INLINE void columns1(const u32 *t, V *r) { __builtin_memcpy(r, t, sizeof *r); }

#define DEFINE_LOAD_N(N)                                                                                       \
    INLINE void gload_##N(Wave *w, u32 exec, Site *site, u32 pc, Ad a, V *r) {                                 \
        u32 table[LANES * N] __attribute__((aligned(64)));                                                     \
        if (!exec) { for (int i = 0; i < N; i++) r[i] = SP(0); return; }                                       \
        COUNT(w, COUNT_LOAD_BYTES, LIVE(exec) * N * 4);                                                        \
        TOUCH(w, exec, a, N * 4, 0);                                                                           \
        if (LIKELY(consecutive(exec, a.off, N * 4))) {                                                         \
            u64 p = a.base + a.off[0];                                                                         \
            if (LIKELY(check_run(w, site, p, LANES * N * 4))) { columns##N((const u32 *)p, r); return; }       \
        }                                                                                                      \
        check(w, site, exec, pc, &a, N * 4, FAULT_GLOBAL_READ);                                                \
        if (all_equal(exec, a.off)) {                                                                          \
            const Unaligned *p = (const Unaligned *)(a.base + a.off[0]);                                       \
            for (int i = 0; i < N; i++) r[i] = SP(p[i]);                                                       \
            return;                                                                                            \
        }                                                                                                      \
        if (exec == ~0u) gather_full(&a, N, table); else gather(exec, &a, N, table);                           \
        columns##N(table, r);                                                                                  \
    }
DEFINE_LOAD_N(1)
DEFINE_LOAD_N(2)
DEFINE_LOAD_N(3)
DEFINE_LOAD_N(4)

#define DEFINE_STORE(NAME, T, VT)                                                                              \
    INLINE void gstore_##NAME(Wave *w, u32 exec, Site *site, u32 pc, Ad a, V x) {                              \
        if (!exec) return;                                                                                     \
        COUNT(w, COUNT_STORE_BYTES, LIVE(exec) * sizeof(T));                                                   \
        TOUCH(w, exec, a, sizeof(T), 1);                                                                       \
        ++*w->progress;                                                                                        \
        if (LIKELY(consecutive(exec, a.off, sizeof(T)))) {                                                     \
            u64 p = a.base + a.off[0];                                                                         \
            if (LIKELY(check_run(w, site, p, LANES * sizeof(T)))) {                                            \
                VT y = CVT(x, VT);                                                                             \
                __builtin_memcpy((void *)p, &y, sizeof y);                                                     \
                return;                                                                                        \
            }                                                                                                  \
        }                                                                                                      \
        check(w, site, exec, pc, &a, sizeof(T), FAULT_GLOBAL_WRITE);                                           \
        for (u32 m = exec; m; m &= m - 1) {                                                                    \
            u32 l = (u32)__builtin_ctz(m);                                                                     \
            T y = (T)x[l];                                                                                     \
            __builtin_memcpy((void *)(a.base + a.off[l]), &y, sizeof y);                                       \
        }                                                                                                      \
    }
DEFINE_STORE(u8, u8, VB)
DEFINE_STORE(u16, u16, VS)
DEFINE_STORE(b32, u32, V)

INLINE void gstore_n(Wave *w, u32 exec, Site *site, u32 pc, Ad a, u32 n, const V *x) {
    if (!exec) return;
    COUNT(w, COUNT_STORE_BYTES, LIVE(exec) * n * 4);
    TOUCH(w, exec, a, n * 4, 1);
    ++*w->progress;
    check(w, site, exec, pc, &a, n * 4, FAULT_GLOBAL_WRITE);
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        Unaligned *p = (Unaligned *)(a.base + a.off[l]);
        for (u32 i = 0; i < n; i++) p[i] = ((const u32 *)(x + i))[l];
    }
}

/* One lane after the other, in ascending order. OP sees `old`, `x` (data) and `y` (comparand), and makes `r`. */
#define ATOMIC_LOOP(T, TA, BYTES, X, Y, OP)                                                                    \
    check(w, site, exec, pc, &a, BYTES, FAULT_GLOBAL_ATOMIC);                                                  \
    COUNT(w, COUNT_ATOMIC_BYTES, LIVE(exec) * BYTES);                                                          \
    TOUCH(w, exec, a, BYTES, 1);                                                                               \
    for (u32 m = exec; m; m &= m - 1) {                                                                        \
        u32 l = (u32)__builtin_ctz(m);                                                                         \
        u64 at = a.base + a.off[l];                                                                            \
        if (at & (BYTES - 1)) w->rt->fault(w, FAULT_ALIGN, pc, l, at, BYTES);                                  \
        TA *p = (TA *)at;                                                                                      \
        T old = *p, x = X, y = Y, r;                                                                           \
        (void)x, (void)y;                                                                                      \
        OP;                                                                                                    \
        if (r != old) ++*w->progress;                                                                          \
        *p = r;                                                                                                \
        RETURN_OLD;                                                                                            \
    }

/* In weak memory mode registers are memory anyway, and calls keep compilation short. */
#ifdef SIM_WEAK
#define SCRATCH_CALL OUTLINE
#else
#define SCRATCH_CALL INLINE
#endif

/* Scratch: each lane has its own bytes, so an address is an offset into the lane's part. */
INLINE u8 *scratch_at(Wave *w, u32 pc, u32 l, u32 off, u32 bytes) {
    if (UNLIKELY(off > w->scratch_bytes || w->scratch_bytes - off < bytes)) w->rt->fault(w, FAULT_SCRATCH, pc, l, off, bytes);
    return w->scratch + (u64)l * w->scratch_bytes + off;
}
SCRATCH_CALL void scratch_load(Wave *w, u32 exec, u32 pc, V off, u32 bytes, u32 is_signed, V *r) {
    COUNT(w, COUNT_SCRATCH_BYTES, LIVE(exec) * bytes);
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        const u8 *p = scratch_at(w, pc, l, off[l], bytes);
        if (bytes == 1) r[0][l] = is_signed ? (u32)(i8)*p : *p;
        else if (bytes == 2) r[0][l] = is_signed ? (u32)(i16) * (const Unaligned16 *)p : *(const Unaligned16 *)p;
        else for (u32 i = 0; i < bytes / 4; i++) r[i][l] = ((const Unaligned *)p)[i];
    }
}
SCRATCH_CALL void scratch_store(Wave *w, u32 exec, u32 pc, V off, u32 bytes, const V *x) {
    ++*w->progress;
    COUNT(w, COUNT_SCRATCH_BYTES, LIVE(exec) * bytes);
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        u8 *p = scratch_at(w, pc, l, off[l], bytes);
        if (bytes == 1) *p = (u8)x[0][l];
        else if (bytes == 2) *(Unaligned16 *)p = (u16)x[0][l];
        else for (u32 i = 0; i < bytes / 4; i++) ((Unaligned *)p)[i] = x[i][l];
    }
}

/* Scalar loads: the two low bits of the address are ignored by loads of 32 bits and more. */
INLINE u64 scalar_at(Wave *w, Site *site, u32 pc, u64 p, u32 bytes) {
    if (bytes >= 4) p &= ~3ull;
    COUNT(w, COUNT_SCALAR_BYTES, bytes);
    TOUCH(w, 1, ((Ad){p, SP(0)}), bytes, 0);
    if (UNLIKELY(!check_run(w, site, p, bytes))) w->rt->fault(w, FAULT_SCALAR_READ, pc, 0, p, bytes);
    return p;
}

/* What a register holds that nothing was written to: a NaN, another one for each seed and register. */
INLINE u32 poison(u32 seed, u32 what) { return 0x7fc00000u | ((seed * 0x9e3779b1u + what * 0x85ebca6bu) >> 10 & 0x3fffffu) | 1; }
#endif
