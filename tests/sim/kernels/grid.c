// Work that crosses workgroups: last-workgroup merge, a persistent grid with a global barrier, messages.
#include "gfx.h"

// A test may plant a fault: no release, no acquire, or both for the workgroup only.
#ifdef NARROW
#define SHARED GROUP
#define SHARED_FENCE "workgroup"
#else
#define SHARED DEVICE
#define SHARED_FENCE "agent"
#endif
#ifdef NO_RELEASE
#define RELEASE __ATOMIC_RELAXED
#define RELEASE_FENCE()
#else
#define RELEASE __ATOMIC_RELEASE
#define RELEASE_FENCE() FENCE(__ATOMIC_RELEASE, SHARED_FENCE)
#endif
#ifdef NO_ACQUIRE
#define ACQUIRE_FENCE()
#else
#define ACQUIRE_FENCE() FENCE(__ATOMIC_ACQUIRE, SHARED_FENCE)
#endif

// Each workgroup leaves a partial sum; the one that counts last adds all of them in order, and resets the counter.
KERNEL(256) last_group_sum(const f32 *x, f32 *parts, u32 *counter, f32 *y, i32 n, i32 groups) {
    LDS f32 waves[8];
    LDS u32 last;
    f32 sum = 0;
    for (i32 i = (i32)(group() * 256 + thread()); i < n; i += groups * 256) sum += x[i];
    sum = wave_sum(sum);
    if (lane() == 0) waves[wave()] = sum;
    barrier();
    if (thread() == 0) {
        f32 total = 0;
        for (i32 i = 0; i < 8; i++) total += waves[i];
        parts[group()] = total;
        last = __scoped_atomic_fetch_add(counter, 1, RELEASE, SHARED) == (u32)groups - 1;
    }
    barrier();
    if (!last) return;
    ACQUIRE_FENCE();
    if (thread() == 0) {
        f32 total = 0;
        for (i32 i = 0; i < groups; i++) total += parts[i];
        *y = total;
        __scoped_atomic_store_n(counter, 0, __ATOMIC_RELAXED, SHARED);
    }
}

// All workgroups meet; `*arrived` counts for ever, so it needs no reset. A wait that lasts too long gives up.
INLINE u32 grid_barrier(u32 *arrived, u32 groups, u32 turn, __attribute__((address_space(3))) u32 *ok) {
    RELEASE_FENCE();
    __builtin_amdgcn_s_barrier();
    if (thread() == 0) {
        u32 wanted = (turn + 1) * groups, left = 1u << 14;
        __scoped_atomic_fetch_add(arrived, 1, RELEASE, SHARED);
        while (__scoped_atomic_load_n(arrived, __ATOMIC_RELAXED, SHARED) < wanted && --left) __builtin_amdgcn_s_sleep(1);
        *ok = left;
    }
    barrier();
    ACQUIRE_FENCE();
    return *ok;
}

// steps of a ring: value i of the next state is the sum of three neighbours of the present one.
KERNEL(128) persistent_ring(u32 *even, u32 *odd, u32 *arrived, u32 *failed, u32 n, u32 steps, u32 groups) {
    LDS u32 ok;
    for (u32 s = 0; s < steps; s++) {
        const u32 *from = s % 2 ? odd : even;
        u32 *to = s % 2 ? even : odd;
        for (u32 i = group() * 128 + thread(); i < n; i += groups * 128)
            to[i] = from[i] + 3 * from[(i + 1) % n] + 5 * from[(i + n - 1) % n];
        if (!grid_barrier(arrived, groups, s, &ok)) {
            if (thread() == 0) *failed = s + 1;
            return;
        }
    }
}

// Workgroup 0 writes a message and raises a flag; the others wait for the flag and copy the message.
KERNEL(64) broadcast(u32 *message, u32 *flag, u32 *out) {
    LDS u32 ok;
    if (group() == 0) {
        message[thread()] = 1000 + thread() * 7;
        RELEASE_FENCE();
        __builtin_amdgcn_s_barrier();
        if (thread() == 0) __scoped_atomic_store_n(flag, 1, RELEASE, SHARED);
    } else {
        // Reads the line before it is written, so that an old copy may be in a cache; the value decides nothing.
        if (message[(thread() + 1) % 64] == 1) out[group() * 64 + thread()] = 1;
        if (thread() == 0) {
            u32 left = 1u << 14;
            while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, SHARED) && --left) __builtin_amdgcn_s_sleep(1);
            ok = left;
        }
        barrier();
        ACQUIRE_FENCE();
        out[group() * 64 + thread()] = ok ? message[thread()] : 0;
    }
}
