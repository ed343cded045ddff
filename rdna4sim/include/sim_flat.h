/* FLAT accesses: the upper half of an address chooses LDS, scratch or global memory, lane by lane. */
#ifndef RDNA4SIM_FLAT_H
#define RDNA4SIM_FLAT_H
#include "sim_lds.h"

#define SHARED_APERTURE 0x10000u
#define PRIVATE_APERTURE 0x20000u

INLINE Ad flat_ad(Wave *w, u32 exec, u32 pc, VQ at) { return ad_v(w, exec, pc, low_v(at), high_v(at), 0); }
#ifdef SIM_WEAK
static void weak_gload(Wave *w, u32 exec, Site *site, u32 pc, Ad a, u32 size, u32 is_signed, u32 scope, V *r);
static void weak_gstore(Wave *w, u32 exec, Site *site, u32 pc, Ad a, u32 size, u32 scope, const V *x);
#endif

INLINE u32 flat_lds(u32 exec, VQ at) { return bits_v((VI)(high_v(at) == SHARED_APERTURE)) & exec; }
INLINE u32 flat_own(u32 exec, VQ at) { return bits_v((VI)(high_v(at) == PRIVATE_APERTURE)) & exec; }
/* Lanes of an atomic that go to global memory; scratch has no atomics. */
INLINE u32 flat_global(Wave *w, u32 exec, u32 pc, VQ at) {
    u32 own = flat_own(exec, at), l = own ? (u32)__builtin_ctz(own) : 0;
    if (UNLIKELY(own)) w->rt->fault(w, FAULT_SCRATCH_ATOMIC, pc, l, low_v(at)[l], 4);
    return exec & ~flat_lds(exec, at);
}

OUTLINE void flat_load(Wave *w, u32 exec, Site *site, u32 pc, VQ at, u32 bytes, u32 is_signed, u32 scope, V *r) {
    u32 lds = flat_lds(exec, at), own = flat_own(exec, at);
    u32 global = exec & ~lds & ~own, n = (bytes + 3) / 4;
    V x[4];
    (void)scope;
    for (u32 i = 0; i < n; i++) r[i] = SP(0);
    if (global) {
        Ad a = flat_ad(w, global, pc, at);
#ifdef SIM_WEAK
        weak_gload(w, global, site, pc, a, bytes, is_signed, scope, r);
#else
        if (bytes == 1) r[0] = is_signed ? gload_i8(w, global, site, pc, a) : gload_u8(w, global, site, pc, a);
        else if (bytes == 2) r[0] = is_signed ? gload_i16(w, global, site, pc, a) : gload_u16(w, global, site, pc, a);
        else {
            u32 table[LANES * 4];
            COUNT(w, COUNT_LOAD_BYTES, LIVE(global) * bytes);
            TOUCH(w, global, a, bytes, 0);
            check(w, site, global, pc, &a, bytes, FAULT_GLOBAL_READ);
            gather(global, &a, n, table);
            for (u32 m = global; m; m &= m - 1) {
                u32 l = (u32)__builtin_ctz(m);
                for (u32 i = 0; i < n; i++) r[i][l] = table[l * n + i];
            }
        }
#endif
    }
    if (lds) {
#ifdef SIM_WEAK
        w->rt->weak_lds_drain(w);
#endif
        if (bytes < 4) x[0] = lload_small(w, lds, pc, low_v(at), bytes, is_signed);
        else if (bytes == 4) lload_1(w, lds, pc, low_v(at), x);
        else if (bytes == 8) lload_2(w, lds, pc, low_v(at), x);
        else if (bytes == 12) lload_3(w, lds, pc, low_v(at), x);
        else lload_4(w, lds, pc, low_v(at), x);
        for (u32 i = 0; i < n; i++) r[i] = sel(lds, x[i], r[i]);
    }
    if (own) scratch_load(w, own, pc, low_v(at), bytes, is_signed, r);
}
OUTLINE void flat_store(Wave *w, u32 exec, Site *site, u32 pc, VQ at, u32 bytes, u32 scope, const V *x) {
    u32 lds = flat_lds(exec, at), own = flat_own(exec, at);
    u32 global = exec & ~lds & ~own;
    (void)scope;
#ifdef SIM_WEAK
    /* With no lane it still counts as a store. */
    weak_gstore(w, global, site, pc, flat_ad(w, global, pc, at), bytes, scope, x);
#else
    if (global) {
        Ad a = flat_ad(w, global, pc, at);
        if (bytes == 1) gstore_u8(w, global, site, pc, a, x[0]);
        else if (bytes == 2) gstore_u16(w, global, site, pc, a, x[0]);
        else gstore_n(w, global, site, pc, a, bytes / 4, x);
    }
#endif
    if (lds) lstore(w, lds, pc, low_v(at), bytes, x);
    if (own) scratch_store(w, own, pc, low_v(at), bytes, x);
}
#endif
