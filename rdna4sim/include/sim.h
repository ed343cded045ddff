/* What translated kernels and the HIP stand-in agree on: vector types, the wave, the calls between the two.
 *
 * Owns: the Wave structure, the Runtime table (calls from translated code into the stand-in) and the module table
 * (calls the other way). Everything a translated kernel computes with is in the sim_*.h files next to this one.
 */
#ifndef RDNA4SIM_SIM_H
#define RDNA4SIM_SIM_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;

#define LANES 32
#define ABI_VERSION 5

/* Vectors over the lanes of a wave. V is what a VGPR holds; the others are ways to look at it. */
#define LANE_VECTOR __attribute__((ext_vector_type(LANES)))
typedef u32 V LANE_VECTOR;

enum { YIELD_BARRIER, YIELD_SLEEP, YIELD_SLICE, YIELD_END };
enum {
    FAULT_GLOBAL_READ, FAULT_GLOBAL_WRITE, FAULT_GLOBAL_ATOMIC, FAULT_SCALAR_READ, FAULT_LDS_READ, FAULT_LDS_WRITE,
    FAULT_LDS_UNDEFINED, FAULT_SCRATCH, FAULT_PC, FAULT_LIMIT, FAULT_NO_PROGRESS, FAULT_REGISTER_PENDING, FAULT_ALIGN,
    FAULT_GLOBAL, FAULT_SPAN, FAULT_INDEX, FAULT_END, FAULT_TRAP, FAULT_SCRATCH_ATOMIC
};
enum { COUNT_SALU, COUNT_VALU, COUNT_SMEM, COUNT_VMEM, COUNT_LDS, COUNT_BRANCH, COUNT_WMMA, COUNT_OTHER, COUNT_WAIT,
       COUNT_BARRIER, COUNT_LOAD_BYTES, COUNT_STORE_BYTES, COUNT_ATOMIC_BYTES, COUNT_LDS_BYTES, COUNT_SCALAR_BYTES,
       COUNT_SCRATCH_BYTES,
       /* Of VALU those that the transcendental unit does; cycles of all WMMA; lines touched for the first time in the launch. */
       COUNT_TRANS, COUNT_WMMA_CYCLES, COUNT_READ_LINES, COUNT_WRITE_LINES, COUNTERS };
enum { LINE_SHIFT = 7 };
enum { PENDING_LOAD, PENDING_DS, PENDING_SCALAR, PENDING_STORE, PENDING_KINDS };
/* Added to the scope of a scalar load, and the "scope" that empties the scalar cache. */
enum { WEAK_SCALAR = 8, WEAK_SIGNED = 16 };
/* LAND_HOLD: another counter brings the value, but the register must not be touched before this one was waited for too. */
enum { LAND_NOTHING, LAND_V, LAND_LOW, LAND_HIGH, LAND_S, LAND_HOLD };

/* The allocation that an instruction touched last: most accesses need two comparisons and no search. */
typedef struct { u64 lo, hi; } Site;

typedef struct Wave Wave;
typedef u64 WeakOp(u64 old, u64 x, u64 y);

typedef struct {
    void (*yield)(Wave *w, u32 why);
    /* Does not return: the wave stays where it is. */
    void (*fault)(Wave *w, u32 kind, u32 pc, u32 lane, u64 address, u32 bytes) __attribute__((noreturn));
    /* Finds the allocation that holds all of [address, address + bytes) and remembers it in the site; 0 if there is none. */
    int (*locate)(Wave *w, Site *site, u64 address, u64 bytes);
    void (*signal)(Wave *w);
    u64 (*clock)(Wave *w);
    /* Bit 0: there is a barrier; bits 4 to 10: waves that take part; bits 16 to 22: those that have signalled. */
    u32 (*barrier_state)(Wave *w);
    /* Weak memory mode. Addresses of inactive lanes are not looked at. */
    void (*weak_load)(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, u8 *out);
    void (*weak_store)(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, const u8 *data);
    u8 *(*weak_atomic)(Wave *w, u64 address, u32 bytes, u32 scope);
    void (*weak_after_atomic)(Wave *w, u64 address, u32 bytes, u32 scope);
    /* Atomics that return nothing act when the wave's stores do. op: the new value from the old one, data and comparand. */
    void (*weak_defer)(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, WeakOp *op, const u64 *x, const u64 *y);
    void (*weak_lds_defer)(Wave *w, u32 address, u32 bytes, WeakOp *op, u64 x, u64 y);
    void (*weak_lds_note)(Wave *w, u32 exec, const u32 *at, u32 bytes, u32 is_signed);
    void (*weak_lds_store)(Wave *w, u32 address, u32 bytes, const u8 *data);
    void (*weak_lds_drain)(Wave *w);
    void (*weak_pending)(Wave *w, u32 counter, u32 land, u32 first, u32 count, u32 exec, const u32 *data, u32 pc);
    void (*weak_wait)(Wave *w, u32 counter, u32 left);
    void (*weak_inv)(Wave *w, u32 scope);
    void (*weak_wb)(Wave *w, u32 scope);
} Runtime;

struct Wave {
    const Runtime *rt;
    u64 instructions;       /* executed so far, counted at block starts */
    u64 slice_end;          /* a backward branch beyond this count yields */
    u64 *progress;          /* of the launch: stores, changes by atomics */
    u8 *lds, *lds_defined;
    u32 lds_bytes, scratch_bytes;
    u8 *scratch;            /* scratch_bytes for each lane */
    Site *sites;
    u64 code;               /* address where ELF address 0 of the code object stands */
    u64 kernarg, dispatch;
    u32 group_x, group_yz, exec, seed, id, pc;
    u32 barrier_first;
    u64 *counters;
    u8 *lines[2];           /* with counters: a bit for each line that was read, or written */
    u64 lines_base, lines_count;
    u32 vid[LANES] __attribute__((aligned(128)));
    /* Weak memory mode keeps the registers here, because a load may land long after its instruction. */
    V *v;
    u32 *s;
    u32 v_pending[8], s_pending[4];
    void *host;             /* the stand-in's own record of this wave */
};

/* Kernel arguments: explicit ones are values; hidden ones are filled in by the launch. */
enum { ARG_VALUE, ARG_HIDDEN_ZERO, ARG_BLOCKS, ARG_GROUP_SIZE = ARG_BLOCKS + 3, ARG_REMAINDER = ARG_GROUP_SIZE + 3,
       ARG_DIMENSIONS = ARG_REMAINDER + 3, ARG_DYNAMIC_LDS };
typedef struct { u32 offset, size, kind; } SimArg;

/* Names stay where they are, in the code object's file: translated code has none. */
typedef struct { u32 at, bytes; } SimName;
typedef struct {
    SimName name;
    void (*run)(Wave *w);
    const char *refused;    /* why it cannot be run; NULL if it can */
    u32 sites, entry, lds_bytes, scratch_bytes, kernarg_bytes, max_threads, vgprs, sgprs, wgp_mode, args;
    const SimArg *arg;
} SimKernel;

typedef struct { u64 address, offset, in_file, in_memory; } SimSegment;
typedef struct { SimName name; u64 address, size; } SimSymbol;
/* The 8 bytes at `address` become `addend` plus where the code object stands. */
typedef struct { u64 address, addend; } SimRelocation;

typedef struct {
    u32 abi, kernels, segments, variables, functions, relocations;
    const SimKernel *kernel;
    const SimSegment *segment;
    const SimSymbol *variable, *function;
    const SimRelocation *relocation;
} SimModule;

#endif
