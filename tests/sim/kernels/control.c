// Control flow: divergence, nested loops, switches, early exits, calls, recursion.
#include "gfx.h"

// Steps of the 3n+1 sequence, capped.
KERNEL(64) collatz(const u32 *in, u32 *out, i32 n) {
    i32 at = (i32)(group() * 64 + thread());
    if (at >= n) return;
    u64 x = in[at];
    u32 steps = 0;
    while (x != 1 && steps < 500) {
        if (x & 1) x = 3 * x + 1;
        else x >>= 1;
        steps++;
    }
    out[at] = steps;
}

KERNEL(64) branches(const i32 *in, i32 *out) {
    u32 at = group() * 64 + thread();
    i32 x = in[at], r = 0;
    switch (x & 7) {
    case 0: r = x + 1; break;
    case 1: r = x * 3; break;
    case 2:
        for (i32 i = 0; i < (x & 31); i++) {
            if (i % 5 == 4) continue;
            if (r > 200) break;
            r += i;
        }
        break;
    case 3: r = -x;  // falls through
    case 4: r ^= 0x55; break;
    case 5: r = x > 100 ? x - 100 : 100 - x; break;
    default: r = x / 3;
    }
    if (r < 0) {
        i32 y = r;
        do y += 7; while (y < 0);
        r = y;
    }
    out[at] = r;
}

NOINLINE i32 twist(i32 x, i32 times) {
    for (i32 i = 0; i < times; i++) x = x * 1103515245 + 12345;
    return x ^ (i32)((u32)x >> 16);
}

NOINLINE u32 ackermann(u32 m, u32 n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

KERNEL(32) calls(const i32 *in, i32 *out) {
    i32 x = in[group() * 32 + lane()];
    i32 y = twist(x, 3);
    if (y & 1) y = twist(y, (x & 3) + 1);
    out[group() * 32 + lane()] = y;
}

KERNEL(32) recursion(u32 *out) { out[lane()] = ackermann(lane() % 3, lane() % 4); }

typedef i32 (*Unary)(i32);
NOINLINE i32 minus(i32 x) { return -x; }
NOINLINE i32 square(i32 x) { return x * x; }
NOINLINE i32 next(i32 x) { return x + 1; }

// A function pointer that differs from lane to lane: the compiler calls each target in turn.
KERNEL(32) pointers(const i32 *in, i32 *out) {
    static const Unary table[3] = {minus, square, next};
    out[lane()] = table[(u32)in[lane()] % 3](in[lane()]);
}

// Hidden arguments and three-dimensional ids.
__attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 256))) void ids(u32 *out) {
    u32 sx = (u32)__builtin_amdgcn_workgroup_size_x(), sy = (u32)__builtin_amdgcn_workgroup_size_y();
    u32 sz = (u32)__builtin_amdgcn_workgroup_size_z();
    const u32 *hidden = (const u32 *)__builtin_amdgcn_implicitarg_ptr();
    u32 gx = hidden[0], gy = hidden[1];
    u32 g = group() + gx * (__builtin_amdgcn_workgroup_id_y() + gy * __builtin_amdgcn_workgroup_id_z());
    u32 t = thread() + sx * (__builtin_amdgcn_workitem_id_y() + sy * __builtin_amdgcn_workitem_id_z());
    out[g * sx * sy * sz + t] = thread() | __builtin_amdgcn_workitem_id_y() << 4 | __builtin_amdgcn_workitem_id_z() << 8 |
                                group() << 12 | __builtin_amdgcn_workgroup_id_y() << 16 |
                                __builtin_amdgcn_workgroup_id_z() << 20 | hidden[2] << 24;
}

// The dispatch packet: grid size in work items, group sizes.
KERNEL(64) packet(u32 *out) {
    if (thread() || group()) return;
    out[0] = (u32)__builtin_amdgcn_grid_size_x();
    out[1] = (u32)__builtin_amdgcn_grid_size_y();
    out[2] = (u32)__builtin_amdgcn_grid_size_z();
}
