// Short names for what the compiler offers on gfx1201, for the sample kernels of the simulator's tests.
#pragma once

#include <stdbool.h>

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned u32;
typedef long i64;
typedef unsigned long u64;
typedef float f32;
typedef double f64;
typedef _Float16 f16;

#define VECTOR(type, n) type __attribute__((ext_vector_type(n)))
typedef VECTOR(f16, 2) f16x2;
typedef VECTOR(f16, 8) f16x8;
typedef VECTOR(i16, 2) i16x2;
typedef VECTOR(i16, 8) i16x8;
typedef VECTOR(u16, 2) u16x2;
typedef VECTOR(u8, 4) u8x4;
typedef VECTOR(i32, 2) i32x2;
typedef VECTOR(i32, 4) i32x4;
typedef VECTOR(i32, 8) i32x8;
typedef VECTOR(u32, 2) u32x2;
typedef VECTOR(u32, 3) u32x3;
typedef VECTOR(u32, 4) u32x4;
typedef VECTOR(f32, 2) f32x2;
typedef VECTOR(f32, 4) f32x4;
typedef VECTOR(f32, 8) f32x8;

#define KERNEL(size) __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(size, size))) void
#define LDS static __attribute__((address_space(3), loader_uninitialized))
#define NOINLINE static __attribute__((noinline))
#define INLINE static inline __attribute__((always_inline))

#define GROUP __MEMORY_SCOPE_WRKGRP
#define DEVICE __MEMORY_SCOPE_DEVICE
#define FENCE(order, scope) __builtin_amdgcn_fence(order, scope)

INLINE u32 thread(void) { return __builtin_amdgcn_workitem_id_x(); }
INLINE u32 group(void) { return __builtin_amdgcn_workgroup_id_x(); }
INLINE u32 lane(void) { return __builtin_amdgcn_mbcnt_lo(~0u, 0); }
INLINE u32 wave(void) { return __builtin_amdgcn_readfirstlane(thread() / 32); }

INLINE void barrier(void) {
    FENCE(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    FENCE(__ATOMIC_ACQUIRE, "workgroup");
}

INLINE f32 as_f32(u32 bits) { return __builtin_bit_cast(f32, bits); }
INLINE u32 as_u32(f32 value) { return __builtin_bit_cast(u32, value); }

// Partner lane by DPP: control 0x160 + mask is row_xmask, which stays inside 16 lanes.
#define DPP_XOR(x, mask) __builtin_amdgcn_update_dpp(0, x, 0x160 + (mask), 15, 15, true)
INLINE u32 other_row(u32 x) { return __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, false, false); }

// Sum over the wave in a fixed order: neighbours first, the two rows last. Every lane gets it.
INLINE f32 wave_sum(f32 x) {
    x += as_f32(DPP_XOR(as_u32(x), 1));
    x += as_f32(DPP_XOR(as_u32(x), 2));
    x += as_f32(DPP_XOR(as_u32(x), 4));
    x += as_f32(DPP_XOR(as_u32(x), 8));
    return x + as_f32(other_row(as_u32(x)));
}

INLINE f32 wave_max(f32 x) {
    x = __builtin_fmaxf(x, as_f32(DPP_XOR(as_u32(x), 1)));
    x = __builtin_fmaxf(x, as_f32(DPP_XOR(as_u32(x), 2)));
    x = __builtin_fmaxf(x, as_f32(DPP_XOR(as_u32(x), 4)));
    x = __builtin_fmaxf(x, as_f32(DPP_XOR(as_u32(x), 8)));
    return __builtin_fmaxf(x, as_f32(other_row(as_u32(x))));
}

INLINE i32 wave_add(i32 x) {
    x += DPP_XOR(x, 1);
    x += DPP_XOR(x, 2);
    x += DPP_XOR(x, 4);
    x += DPP_XOR(x, 8);
    return x + (i32)other_row((u32)x);
}

INLINE i32 dot4(u32 a, u32 b, i32 c) { return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false); }
INLINE f32 exp2_fast(f32 x) { return __builtin_amdgcn_exp2f(x); }
