// Kernels that are right as they stand; with FAULT defined each has one planted mistake.
#include "gfx.h"

#ifdef FAULT
#define UNLESS_FAULT(x)
#define FAULTY 1
#else
#define UNLESS_FAULT(x) x
#define FAULTY 0
#endif

// Read after another wave's write: without the barrier a wave may read before the other has written.
KERNEL(256) read_before_write(const u32 *in, u32 *out) {
    LDS u32 s[256];
    s[thread()] = in[thread()];
    UNLESS_FAULT(barrier());
    out[thread()] = s[255 - thread()];
}

// Write after another wave's read: without the second barrier a wave may overwrite what another still has to read.
KERNEL(256) write_before_read(const u32 *in, u32 *out) {
    LDS u32 s[256];
    u32 x = in[thread()];
    for (u32 i = 0; i < 5; i++) {
        s[thread()] = x + i;
        barrier();
        x = x * 3 + s[(thread() * 33 + 32) % 256];
        UNLESS_FAULT(barrier());
    }
    out[thread()] = x;
}

KERNEL(64) store_past_end(u32 *out, u32 n) {
    u32 at = group() * 64 + thread();
    if (at < n + FAULTY) out[at] = at * 3;
}

KERNEL(64) load_past_end(const u32 *in, u32 *out, u32 n) {
    u32 at = group() * 64 + thread();
    if (at < n) out[at] = in[at + FAULTY];
}

KERNEL(64) load_before_start(const u32 *in, u32 *out) { out[thread()] = in[(i32)thread() - FAULTY]; }

// An LDS histogram whose bins are not cleared.
KERNEL(64) uninitialised_lds(const u32 *in, u32 *out) {
    LDS u32 bins[64];
    UNLESS_FAULT(bins[thread()] = 0);
    barrier();
    __scoped_atomic_fetch_add(&bins[in[thread()] % 64], 1, __ATOMIC_RELAXED, GROUP);
    barrier();
    out[thread()] = bins[thread()];
}

KERNEL(64) uninitialised_lds_load(u32 *out) {
    LDS u32 s[64];
    if (thread() < 64 - FAULTY) s[thread()] = thread();
    barrier();
    out[thread()] = s[63 - thread()];
}

KERNEL(64) wild_lds(const u32 *in, u32 *out) {
    LDS u32 s[64];
    s[thread()] = in[thread()];
    barrier();
    out[thread()] = s[thread() + in[0] * FAULTY];
}

KERNEL(64) wild_lds_store(const u32 *in, u32 *out) {
    LDS u32 s[64];
    s[thread() + (thread() == 63 ? in[0] * FAULTY : 0)] = in[thread()];
    barrier();
    out[thread()] = s[thread()];
}

// Waits for a flag that the right kernel raises itself.
KERNEL(64) endless_sleep(u32 *flag, u32 *out) {
    UNLESS_FAULT(if (thread() == 0) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, DEVICE));
    while (!__scoped_atomic_load_n(flag, __ATOMIC_ACQUIRE, DEVICE)) __builtin_amdgcn_s_sleep(1);
    out[thread()] = 1;
}

KERNEL(64) endless_loop(u32 *flag, u32 *out) {
    UNLESS_FAULT(if (thread() == 0) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, DEVICE));
    while (!__scoped_atomic_load_n(flag, __ATOMIC_ACQUIRE, DEVICE)) {
    }
    out[thread()] = 1;
}

// A chain of workgroups: each waits for the one before. With the fault, for the one after the last.
KERNEL(64) endless_chain(u32 *flags, u32 *out, u32 groups) {
    u32 before = group() + FAULTY;
    if (group() != 0 || FAULTY)
        while (!__scoped_atomic_load_n(flags + before - 1 + FAULTY, __ATOMIC_ACQUIRE, DEVICE)) __builtin_amdgcn_s_sleep(1);
    if (thread() == 0) out[group()] = groups - group();
    __scoped_atomic_store_n(flags + group(), 1, __ATOMIC_RELEASE, DEVICE);
}

// Two waves exchange values through global memory. Each has read the other's place before, so that its L0 may hold it.
// With the fault the barrier orders the waves, but nothing orders their memory.
KERNEL(64) through_memory(u32 *place, u32 *out) {
    u32 *mine = place + group() * 64 + thread(), *other = place + group() * 64 + (63 - thread()), before = *other;
    barrier();
    *mine = before * 2 + thread();
#if FAULTY
    __builtin_amdgcn_s_barrier();
    __asm__ volatile("" ::: "memory");
#else
    barrier();
#endif
    out[group() * 64 + thread()] = *other + before;
}

KERNEL(64) pointer_chase(u32 **table, u32 *out) { out[thread()] = *table[FAULTY]; }

// Much work without a store: no wait.
KERNEL(64) long_sum(const u32 *in, u32 *out, u32 n) {
    u32 x = in[thread()];
    for (u32 i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        x ^= x >> 7;
    }
    out[thread()] = x;
}

KERNEL(64) never_reached(u32 *out) {
    (void)out;
    __builtin_unreachable();
}

KERNEL(64) trap(u32 *out) {
    if (out[0] == 5) __builtin_trap();
    out[thread()] = 1;
}

// Runs for ever with a changing register, so that only a limit ends it.
KERNEL(64) counts_for_ever(u32 *out) {
    u32 x = out[0];
    while (x != 1) {
        x += 2;
        __asm__ volatile("" : "+v"(x));
    }
    out[thread()] = x;
}

// Waits for a time, not for memory.
KERNEL(32) waits_for_time(u32 *out) {
    u64 start = __builtin_readsteadycounter();
    while (__builtin_readsteadycounter() - start < 400000) __builtin_amdgcn_s_sleep(1);
    out[thread()] = 1;
}

// A flag that a wave raises late, and one that nobody raises.
KERNEL(64) late_flag(u32 *flag, u32 *out) {
    if (thread() < 32) {
        for (u32 i = 0; i < 9000; i++) __builtin_amdgcn_s_sleep(1);
        UNLESS_FAULT(__scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, DEVICE));
    }
    while (!__scoped_atomic_load_n(flag, __ATOMIC_ACQUIRE, DEVICE)) __builtin_amdgcn_s_sleep(1);
    out[thread()] = 1;
}

// All wait for the last workgroup: on the card there is room for more than run here at first.
KERNEL(32) last_raises(u32 *flag, u32 *out, u32 groups) {
    if (group() == groups - 1) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, DEVICE);
    while (!__scoped_atomic_load_n(flag, __ATOMIC_ACQUIRE, DEVICE)) __builtin_amdgcn_s_sleep(1);
    out[group() * 32 + thread()] = 1;
}

NOINLINE u32 reads(const u32 *p, u32 at) { return p[at]; }
KERNEL(64) in_a_call(const u32 *in, u32 *out) { out[thread()] = reads(in, thread() + 64 * FAULTY) + 1; }

// Lanes that point into two buffers, and, with the fault, nowhere: far from both.
KERNEL(64) far_lanes(u32 *x, u32 *y, u32 *out) {
    u32 *p = thread() % 2 ? x : y;
    if (FAULTY && thread() == 5) p = (u32 *)(1ul << 45);
    out[thread()] = p[thread()];
}

KERNEL(64) add_one(u32 *x, u32 *y) { y[thread()] = x[thread()] + 1; }

// Two waits are needed before the sum: for the loads and for the LDS read.
KERNEL(64) waits(const u32 *a, const u32 *b, u32 *out) {
    LDS u32 s[64];
    u32 at = group() * 64 + thread();
    s[thread()] = a[at];
    barrier();
    out[at] = s[thread() ^ 1] + b[at];
}
