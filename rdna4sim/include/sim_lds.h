/* LDS of translated kernels: checked against the workgroup's size, reads also against what was written. */
#ifndef RDNA4SIM_LDS_H
#define RDNA4SIM_LDS_H
#include "sim_mem.h"

OUTLINE void lds_fault(Wave *w, u32 exec, u32 pc, V at, u32 bytes, u32 kind) {
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m), a = at[l];
        if (a > w->lds_bytes || w->lds_bytes - a < bytes) w->rt->fault(w, kind, pc, l, a, bytes);
        if (kind != FAULT_LDS_READ) continue;
        for (u32 i = 0; i < bytes; i++) if (!w->lds_defined[a + i]) w->rt->fault(w, FAULT_LDS_UNDEFINED, pc, l, a, bytes);
    }
}
INLINE void lds_check(Wave *w, u32 exec, u32 pc, V at, u32 bytes, u32 kind) {
    V a = exec == ~0u ? at : sel(exec, at, SP(first_lane(at, exec)));
    u32 most = __builtin_reduce_max(a);
    if (UNLIKELY(most > w->lds_bytes || w->lds_bytes - most < bytes)) lds_fault(w, exec, pc, at, bytes, kind);
}
/* Whether `count` bytes from `at` on were all written. */
INLINE int lds_run_defined(Wave *w, u32 at, u32 count) {
    const u8 *d = w->lds_defined + at;
    VB all = (VB)(u8)255;
    for (u32 i = 0; i < count; i += LANES) { VB x; __builtin_memcpy(&x, d + i, sizeof x); all &= x; }
    return !bits_of(CVT(all == 0, B));
}
INLINE void lds_mark(Wave *w, u32 at, u32 bytes) { __builtin_memset(w->lds_defined + at, 255, bytes); }

#ifdef SIM_WEAK
/* What a load reads, so that it can be read later. */
OUTLINE void lds_note(Wave *w, u32 exec, V at, u32 bytes, u32 is_signed) {
    w->rt->weak_lds_note(w, exec, (const u32 *)&at, bytes, is_signed);
}
#endif

/* N dwords a lane. */
#define DEFINE_LDS_LOAD(N)                                                                                     \
    INLINE void lload_##N(Wave *w, u32 exec, u32 pc, V at, V *r) {                                             \
        u32 table[LANES * N] __attribute__((aligned(64)));                                                     \
        if (!exec) { for (int i = 0; i < N; i++) r[i] = SP(0); return; }                                       \
        COUNT(w, COUNT_LDS_BYTES, LIVE(exec) * N * 4);                                                         \
        lds_check(w, exec, pc, at, N * 4, FAULT_LDS_READ);                                                     \
        if (consecutive(exec, at, N * 4)) {                                                                    \
            if (UNLIKELY(!lds_run_defined(w, at[0], LANES * N * 4))) lds_fault(w, exec, pc, at, N * 4, FAULT_LDS_READ); \
            columns##N((const u32 *)(w->lds + at[0]), r);                                                      \
            return;                                                                                            \
        }                                                                                                      \
        if (all_equal(exec, at)) {                                                                             \
            const Unaligned *p = (const Unaligned *)(w->lds + at[0]), *d = (const Unaligned *)(w->lds_defined + at[0]); \
            u32 defined = ~0u;                                                                                 \
            for (int i = 0; i < N; i++) r[i] = SP(p[i]), defined &= d[i];                                      \
            if (UNLIKELY(defined != ~0u)) lds_fault(w, exec, pc, at, N * 4, FAULT_LDS_READ);                   \
            return;                                                                                            \
        }                                                                                                      \
        u32 defined = ~0u;                                                                                     \
        for (u32 m = exec; m; m &= m - 1) {                                                                    \
            u32 l = (u32)__builtin_ctz(m), a = at[l];                                                          \
            const Unaligned *p = (const Unaligned *)(w->lds + a), *d = (const Unaligned *)(w->lds_defined + a);\
            for (int i = 0; i < N; i++) table[l * N + i] = p[i], defined &= d[i];                              \
        }                                                                                                      \
        if (UNLIKELY(defined != ~0u)) lds_fault(w, exec, pc, at, N * 4, FAULT_LDS_READ);                       \
        columns##N(table, r);                                                                                  \
    }
DEFINE_LDS_LOAD(1)
DEFINE_LDS_LOAD(2)
DEFINE_LDS_LOAD(3)
DEFINE_LDS_LOAD(4)

INLINE V lload_small(Wave *w, u32 exec, u32 pc, V at, u32 bytes, u32 is_signed) {
    V r = SP(0);
    if (!exec) return r;
    COUNT(w, COUNT_LDS_BYTES, LIVE(exec) * bytes);
    lds_fault(w, exec, pc, at, bytes, FAULT_LDS_READ);
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        const u8 *p = w->lds + at[l];
        if (bytes == 1) r[l] = is_signed ? (u32)(i8)*p : *p;
        else r[l] = is_signed ? (u32)(i16) * (const Unaligned16 *)p : *(const Unaligned16 *)p;
    }
    return r;
}
INLINE void lstore(Wave *w, u32 exec, u32 pc, V at, u32 bytes, const V *x) {
    if (!exec) return;
    COUNT(w, COUNT_LDS_BYTES, LIVE(exec) * bytes);
    lds_check(w, exec, pc, at, bytes, FAULT_LDS_WRITE);
#ifdef SIM_WEAK
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m), data[4];
        for (u32 i = 0; i < (bytes + 3) / 4; i++) data[i] = x[i][l];
        w->rt->weak_lds_store(w, at[l], bytes, (const u8 *)data);
    }
#else
    ++*w->progress;
    if (bytes == 4 && consecutive(exec, at, 4)) {
        __builtin_memcpy(w->lds + at[0], x, sizeof *x);
        lds_mark(w, at[0], LANES * 4);
        return;
    }
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m), a = at[l];
        u8 *p = w->lds + a;
        if (bytes == 1) *p = (u8)x[0][l];
        else if (bytes == 2) *(Unaligned16 *)p = (u16)x[0][l];
        else for (u32 i = 0; i < bytes / 4; i++) ((Unaligned *)p)[i] = x[i][l];
        lds_mark(w, a, bytes);
    }
#endif
}
#define LDS_ATOMIC_LOOP(T, TA, BYTES, X, Y, OP)                                                                \
    if (exec) lds_check(w, exec, pc, at, BYTES, FAULT_LDS_WRITE), lds_fault(w, exec, pc, at, BYTES, FAULT_LDS_READ); \
    COUNT(w, COUNT_LDS_BYTES, LIVE(exec) * BYTES);                                                             \
    for (u32 m = exec; m; m &= m - 1) {                                                                        \
        u32 l = (u32)__builtin_ctz(m);                                                                         \
        if (at[l] & (BYTES - 1)) w->rt->fault(w, FAULT_ALIGN, pc, l, at[l], BYTES);                            \
        TA *p = (TA *)(w->lds + at[l]);                                                                        \
        T old = *p, x = X, y = Y, r;                                                                           \
        (void)x, (void)y;                                                                                      \
        OP;                                                                                                    \
        if (r != old) ++*w->progress;                                                                          \
        *p = r;                                                                                                \
        RETURN_OLD;                                                                                            \
    }

/* ds_bpermute: a lane reads where its address says; a lane that is not active gives 0. */
INLINE V bpermute(u32 exec, V at, V data, int inactive_too) {
    u32 source[LANES] __attribute__((aligned(64)));
    *(V *)source = inactive_too ? data : sel(exec, data, SP(0));
    V index = at >> 2 & 31, r;
    for (int l = 0; l < LANES; l++) r[l] = source[index[l]];
    return r;
}
INLINE V permute(u32 exec, V at, V data) {
    V r = SP(0);
    for (u32 m = exec; m; m &= m - 1) { u32 l = (u32)__builtin_ctz(m); r[at[l] >> 2 & 31] = data[l]; }
    return r;
}
#endif
