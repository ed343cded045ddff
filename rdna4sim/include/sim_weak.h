/* Accesses of translated kernels in weak memory mode: the checks as always, then the stand-in's model of the caches. */
#ifndef RDNA4SIM_WEAK_H
#define RDNA4SIM_WEAK_H
#include "sim_lds.h"

OUTLINE void weak_registers(Wave *w) {
    for (u32 i = 0; i < 128; i++) w->s[i] = poison(w->seed, i);
    for (u32 i = 0; i < 256; i++) w->v[i] = SP(poison(w->seed, 256 + i));
}
OUTLINE void addresses(u32 exec, const Ad *a, u64 *out) {
    for (u32 m = exec; m; m &= m - 1) { u32 l = (u32)__builtin_ctz(m); out[l] = a->base + a->off[l]; }
}
/* Bytes of each lane, 16 apart, to registers and back. */
OUTLINE void from_bytes(const u8 *bytes, u32 size, u32 is_signed, u32 exec, V *r) {
    for (u32 i = 0; i < (size + 3) / 4; i++) r[i] = SP(0);
    for (u32 m = exec; m; m &= m - 1) {
        u32 l = (u32)__builtin_ctz(m);
        const u8 *p = bytes + 16 * l;
        if (size == 1) r[0][l] = is_signed ? (u32)(i8)*p : *p;
        else if (size == 2) r[0][l] = is_signed ? (u32)(i16) * (const Unaligned16 *)p : *(const Unaligned16 *)p;
        else for (u32 i = 0; i < size / 4; i++) r[i][l] = ((const Unaligned *)p)[i];
    }
}
OUTLINE void to_bytes(const V *x, u32 size, u8 *bytes) {
    for (u32 l = 0; l < LANES; l++) for (u32 i = 0; i < (size + 3) / 4; i++) ((Unaligned *)(bytes + 16 * l))[i] = x[i][l];
}
OUTLINE void weak_gload(Wave *w, u32 exec, Site *site, u32 pc, Ad a, u32 size, u32 is_signed, u32 scope, V *r) {
    u64 at[LANES];
    u8 bytes[LANES * 16];
    if (exec) check(w, site, exec, pc, &a, size, FAULT_GLOBAL_READ);
    COUNT(w, COUNT_LOAD_BYTES, LIVE(exec) * size);
    TOUCH(w, exec, a, size, 0);
    addresses(exec, &a, at);
    w->rt->weak_load(w, exec, at, size, scope | (is_signed ? WEAK_SIGNED : 0), pc, bytes);
    from_bytes(bytes, size, is_signed, exec, r);
}
OUTLINE void weak_gstore(Wave *w, u32 exec, Site *site, u32 pc, Ad a, u32 size, u32 scope, const V *x) {
    u64 at[LANES];
    u8 bytes[LANES * 16];
    if (exec) check(w, site, exec, pc, &a, size, FAULT_GLOBAL_WRITE);
    COUNT(w, COUNT_STORE_BYTES, LIVE(exec) * size);
    TOUCH(w, exec, a, size, 1);
    addresses(exec, &a, at);
    to_bytes(x, size, bytes);
    if (exec) ++*w->progress;
    w->rt->weak_store(w, exec, at, size, scope, pc, bytes);
}
OUTLINE void weak_scalar_load(Wave *w, u32 pc, u64 p, u32 size, u32 scope, u8 *out) {
    for (u32 at = 0; at < size; at += 16) {
        u32 part = size - at < 16 ? size - at : 16;
        u64 address = p + at;
        u8 bytes[LANES * 16];
        w->rt->weak_load(w, 1, &address, part, scope | WEAK_SCALAR, pc, bytes);
        __builtin_memcpy(out + at, bytes, part);
    }
}
/* An atomic that returns nothing: checked now, done later. */
#define WEAK_ATOMIC_DEFER(SCOPE, BYTES, X, Y, OP)                                                              \
    if (exec) check(w, site, exec, pc, &a, BYTES, FAULT_GLOBAL_ATOMIC);                                        \
    COUNT(w, COUNT_ATOMIC_BYTES, LIVE(exec) * BYTES);                                                          \
    TOUCH(w, exec, a, BYTES, 1);                                                                               \
    u64 where[LANES], xs[LANES], ys[LANES];                                                                    \
    for (u32 m = exec; m; m &= m - 1) {                                                                        \
        u32 l = (u32)__builtin_ctz(m);                                                                         \
        where[l] = a.base + a.off[l], xs[l] = (u64)(X), ys[l] = (u64)(Y);                                      \
        if (where[l] & (BYTES - 1)) w->rt->fault(w, FAULT_ALIGN, pc, l, where[l], BYTES);                      \
    }                                                                                                          \
    w->rt->weak_defer(w, exec, where, BYTES, SCOPE, pc, OP, xs, ys);
#define WEAK_LDS_DEFER(BYTES, X, Y, OP)                                                                        \
    if (exec) lds_check(w, exec, pc, at, BYTES, FAULT_LDS_WRITE);                                              \
    COUNT(w, COUNT_LDS_BYTES, LIVE(exec) * BYTES);                                                             \
    for (u32 m = exec; m; m &= m - 1) {                                                                        \
        u32 l = (u32)__builtin_ctz(m);                                                                         \
        if (at[l] & (BYTES - 1)) w->rt->fault(w, FAULT_ALIGN, pc, l, at[l], BYTES);                            \
        w->rt->weak_lds_defer(w, at[l], BYTES, OP, (u64)(X), (u64)(Y));                                        \
    }
#define WEAK_ATOMIC_LOOP(SCOPE, T, TA, BYTES, X, Y, OP)                                                        \
    if (exec) check(w, site, exec, pc, &a, BYTES, FAULT_GLOBAL_ATOMIC);                                        \
    COUNT(w, COUNT_ATOMIC_BYTES, LIVE(exec) * BYTES);                                                          \
    TOUCH(w, exec, a, BYTES, 1);                                                                               \
    for (u32 m = exec; m; m &= m - 1) {                                                                        \
        u32 l = (u32)__builtin_ctz(m);                                                                         \
        u64 at = a.base + a.off[l];                                                                            \
        if (at & (BYTES - 1)) w->rt->fault(w, FAULT_ALIGN, pc, l, at, BYTES);                                  \
        TA *p = (TA *)w->rt->weak_atomic(w, at, BYTES, SCOPE);                                                 \
        T old = *p, x = X, y = Y, r;                                                                           \
        (void)x, (void)y;                                                                                      \
        OP;                                                                                                    \
        if (r != old) ++*w->progress;                                                                          \
        *p = r;                                                                                                \
        w->rt->weak_after_atomic(w, at, BYTES, SCOPE);                                                         \
        RETURN_OLD;                                                                                            \
    }
#endif
