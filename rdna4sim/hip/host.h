/* The stand-in's own world: settings, device memory, modules, launches, reports. One lock guards all of it. */
#ifndef RDNA4SIM_HOST_H
#define RDNA4SIM_HOST_H
#include "sim.h"
#include <stddef.h>
#include <stdio.h>

#define PUBLIC __attribute__((visibility("default")))
#define HIDDEN __attribute__((visibility("hidden")))

/* HIP's error numbers. */
enum {
    hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorNotInitialized = 3,
    hipErrorInvalidConfiguration = 9, hipErrorInvalidMemcpyDirection = 21, hipErrorInvalidDeviceFunction = 98,
    hipErrorInvalidDevice = 101, hipErrorInvalidImage = 200, hipErrorInvalidContext = 201, hipErrorNoBinaryForGpu = 209,
    hipErrorUnsupportedLimit = 215,
    hipErrorPeerAccessUnsupported = 217, hipErrorFileNotFound = 301, hipErrorInvalidHandle = 400, hipErrorNotFound = 500,
    hipErrorNotReady = 600, hipErrorIllegalAddress = 700, hipErrorLaunchTimeOut = 702, hipErrorPeerAccessNotEnabled = 705,
    hipErrorContextIsDestroyed = 709, hipErrorHostMemoryAlreadyRegistered = 712, hipErrorHostMemoryNotRegistered = 713,
    hipErrorLaunchFailure = 719, hipErrorCooperativeLaunchTooLarge = 720, hipErrorNotSupported = 801, hipErrorUnknown = 999
};

/* The modelled card: 32 workgroup processors of 4 SIMDs, 1536 registers a lane, 128 KiB LDS each. */
enum { PROCESSORS = 32, SIMDS = 4, WAVES_PER_SIMD = 16, REGISTERS = 1536, REGISTER_GRANULE = 24, LDS_PER_PROCESSOR = 131072,
       LDS_PER_GROUP = 65536, LDS_FOR_OCCUPANCY = 65536, MAX_THREADS = 1024, MAX_WAVES = MAX_THREADS / LANES };
#define DEVICE_MEMORY (32ull << 30)
/* kHz of the shader engines, of the memory (16 transfers a cycle, 256 wires) and of the clock that kernels can read. */
enum { CLOCK_KHZ = 2400000, MEMORY_KHZ = 1250000, TIMER_KHZ = 100000 };

typedef struct {
    u32 seed;
    int weak, check_undefined, events_estimate;
    u64 limit;
    char counters[512], report[512], python[512];
    char *cache;        /* RDNA4SIM_CACHE=..., absolute, for the translator; 0: it stays as it is */
} Settings;
HIDDEN extern Settings settings;
HIDDEN void settings_read(void);

/* Memory: allocations in one reserved range, in address order. */
#define RANGE (64ull << 30)
typedef struct { u64 address, bytes; u32 kind; } Block;
enum { BLOCK_DEVICE, BLOCK_HOST, BLOCK_CODE, BLOCK_ARGUMENTS, BLOCK_MANAGED, BLOCK_REGISTERED };
HIDDEN void *memory_take(u64 bytes, u32 kind);
HIDDEN int memory_give(u64 address, u32 kind);
HIDDEN const Block *memory_find(u64 address);
HIDDEN const Block *memory_near(u64 address);
HIDDEN u64 memory_used(void);
HIDDEN void memory_clear(u8 *fresh, u64 bytes);
HIDDEN void memory_reset(void);
HIDDEN int memory_inside(u64 address);
HIDDEN u64 memory_base(void);
HIDDEN int memory_register(u64 address, u64 bytes);
HIDDEN int memory_unregister(u64 address);

typedef struct Module Module;
typedef struct { Module *module; const SimKernel *kernel; char *name; } Function;
struct Module {
    void *library;
    const SimModule *table;
    u8 *code;
    u64 hash;
    Function *functions;
    char **variable, **function; /* names, as many as the table has of each */
    Module *next;
};
HIDDEN int module_load(const void *image, u64 bytes, Module **out);
HIDDEN int module_unload(Module *m);
HIDDEN void module_unload_all(void);
HIDDEN int module_known(const Module *m);
HIDDEN Function *function_known(const void *f);

/* Coroutines: a wave runs on a stack of its own until it yields. */
typedef struct { void *sp; u8 *stack; } Coroutine;
enum { STACK_BYTES = 2 << 20 };
HIDDEN void coroutine_start(Coroutine *c, void (*run)(void *), void *argument);
HIDDEN void coroutine_switch(void **save, void *to);
HIDDEN u8 *stack_take(void);
HIDDEN void stack_give(u8 *stack);

typedef struct Group Group;
typedef struct Launch Launch;
enum { WAVE_READY, WAVE_BARRIER, WAVE_SLEEP, WAVE_SLICE, WAVE_DONE };
typedef struct {
    Wave w;
    Coroutine coroutine;
    Group *group;
    Launch *launch;
    u64 target_phase;
    u32 state, number, half, nap, round;
    u64 seen[4]; /* digests of earlier rounds */
    u64 quiet;   /* the launch's, when it last slept */
    u32 sleeps;  /* since anything changed */
    void *weak;
} HostWave;
struct Group {
    u32 index, waves, alive, members, arrived;
    u64 phase;
    u8 *lds, *lds_defined;
    HostWave *wave;
    void *weak;
};
typedef struct { u32 grid[3], block[3], dynamic_lds; int cooperative; } Shape;
struct Launch {
    Function *function;
    Shape shape;
    u64 kernarg, code, total, progress;
    u32 groups, next, active, limit_active, lds_bytes, waves, fault;
    u32 *order;
    Group *group;
    Site *sites;
    void *host_sp;
    u64 random, quiet; /* quiet: counts the rounds in which something changed */
    u64 counters[COUNTERS];
    u64 ended, least, most, phases;     /* waves that ended, their instructions; barriers of a workgroup, the greatest */
    int stop;
};
HIDDEN extern Launch *running;
HIDDEN extern const Runtime runtime;
HIDDEN int launch_run(Function *f, const Shape *shape, const void *arguments);
HIDDEN u32 occupancy(const SimKernel *k, u32 threads, u32 dynamic_lds);
HIDDEN u64 random_next(u64 *state);
HIDDEN u32 random_below(u64 *state, u32 n);
/* Counters: before a launch, for each wave, after the launch; to the file, when there is something new. */
HIDDEN void counters_start(void);
HIDDEN void counters_wave(Wave *w);
HIDDEN void counters_add(const Launch *l);
HIDDEN void counters_write(void);
HIDDEN void counters_file(void);
HIDDEN extern double estimated_ms;

/* Reports: one line each, without control characters. error_line: to standard error in any case. */
enum { NAME_SHOWN = 1000 };
HIDDEN void error_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
HIDDEN void report_fault(HostWave *h, u32 kind, u32 pc, u32 lane, u64 address, u32 bytes);
HIDDEN void report_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
HIDDEN int fault_error(u32 kind);

/* Weak memory. */
HIDDEN void weak_launch_start(Launch *l);
HIDDEN void weak_launch_end(Launch *l);
HIDDEN void weak_group_start(Launch *l, Group *g);
HIDDEN void weak_group_end(Launch *l, Group *g);
HIDDEN void weak_wave_start(HostWave *h);
HIDDEN void weak_wave_end(HostWave *h);
HIDDEN void weak_wave_free(HostWave *h);
HIDDEN void weak_step(HostWave *h);
HIDDEN void weak_load(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, u8 *out);
HIDDEN void weak_store(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, const u8 *data);
HIDDEN u8 *weak_atomic(Wave *w, u64 address, u32 bytes, u32 scope);
HIDDEN void weak_after_atomic(Wave *w, u64 address, u32 bytes, u32 scope);
HIDDEN void weak_defer(Wave *w, u32 exec, const u64 *address, u32 bytes, u32 scope, u32 pc, WeakOp *op, const u64 *x, const u64 *y);
HIDDEN void weak_lds_defer(Wave *w, u32 address, u32 bytes, WeakOp *op, u64 x, u64 y);
HIDDEN void weak_lds_note(Wave *w, u32 exec, const u32 *at, u32 bytes, u32 is_signed);
HIDDEN void weak_barrier(HostWave *h);
HIDDEN void weak_lds_store(Wave *w, u32 address, u32 bytes, const u8 *data);
HIDDEN void weak_lds_drain(Wave *w);
HIDDEN void weak_pending(Wave *w, u32 counter, u32 land, u32 first, u32 count, u32 exec, const u32 *data, u32 pc);
HIDDEN void weak_wait(Wave *w, u32 counter, u32 left);
HIDDEN void weak_inv(Wave *w, u32 scope);
HIDDEN void weak_wb(Wave *w, u32 scope);

/* A HIP call: begin() or look() takes the lock, done() gives it back and remembers the error. begin() answers with the fault
 * of an earlier launch, which ends every later call; look() is for calls that work after one too. */
HIDDEN extern int sticky;
HIDDEN void lock(void);
HIDDEN int try_lock(void);
HIDDEN void unlock(void);
HIDDEN int begin(void);
HIDDEN void look(void);
HIDDEN int done(int code);
HIDDEN int stream_known(const void *stream);
HIDDEN int event_known(const void *event);
HIDDEN void event_mark(const void *event);
HIDDEN void streams_reset(void);
#endif
