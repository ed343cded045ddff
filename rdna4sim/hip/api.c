/* The HIP C ABI: memory, modules, launches. */
#define _GNU_SOURCE
#include "host.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int sticky;
static int ready, last;
static Module *modules;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

static int done(int code) {
    if (code) last = code;
    unlock();
    return code;
}
/* Opens a call: the lock is held; nonzero is the answer already. */
static int begin(void) {
    lock();
    if (!ready) { settings_read(); ready = 1; }
    return sticky;
}

enum { LIMIT = 256 << 20 };
/* Bytes that the section and segment tables speak of; 0 if the head is no ELF file's. */
static u64 image_bytes(const u8 *p, u64 have) {
    if (have < 64 || memcmp(p, "\177ELF\2\1", 6)) return 0;
    u64 sections, segments, end;
    u16 n[6];
    memcpy(&segments, p + 32, 8), memcpy(&sections, p + 40, 8), memcpy(n, p + 52, 12);
    if (n[1] != 56 || n[3] != 64 || sections > LIMIT || segments > LIMIT) return 0;
    end = sections + n[4] * 64ull;
    if (segments + n[2] * 56ull > end) end = segments + n[2] * 56ull;
    return end > have || end > LIMIT ? 0 : end;
}
static const char *variant(void) {
    if (settings.weak) return *settings.counters ? "weak-counters" : "weak";
    return *settings.counters ? "plain-counters" : "plain";
}
/* Runs the translator on a file; fills in the path of the library it made. No shell: any path will do. */
static int translate_file(const char *file, char *path, size_t size) {
    static const char run[] = "import sys; sys.path.insert(0, sys.argv[1]); from rdna4sim.cache import main; main(sys.argv[2:])";
    const char *given[] = {settings.python, "-P", "-c", run, RDNA4SIM_PACKAGE_PARENT, file, variant(), 0};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int ends[2], status = 0;
    if (pipe(ends)) return hipErrorUnknown;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int failed = posix_spawnp(&child, settings.python, &actions, 0, (char **)given, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t have = 0;
    for (ssize_t n; !failed && have + 1 < size && (n = read(ends[0], path + have, size - 1 - have)) != 0;)
        if (n > 0) have += (size_t)n; else if (errno != EINTR) break;
    close(ends[0]);
    path[have] = 0;
    path[strcspn(path, "\n")] = 0;
    if (failed) {
        report_line("rdna4sim: %s cannot be started (%s); RDNA4SIM_PYTHON names the Python that has rdna4sim\n", settings.python, strerror(failed));
        return hipErrorUnknown;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (!status) return hipSuccess;
    report_line("rdna4sim: %s\n", *path ? path : "the translator ended without a word");
    return hipErrorInvalidImage;
}
/* Libraries of images that this process has met: a reset must not start the translator again. */
typedef struct Known { u64 hash, bytes; const char *variant; char path[1024]; struct Known *next; } Known;
static Known *knowns;
static u64 hash_of(const u8 *p, u64 n) {
    u64 h = 0xcbf29ce484222325ull;
    for (u64 i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}
static int library_of(const void *image, u64 bytes, char *path, size_t size) {
    char file[] = "/tmp/rdna4sim-" "XX" "XX" "XX";
    int handle = mkstemp(file), code = hipErrorUnknown;
    if (handle < 0) return code;
    /* The kernel says whether all of it can be read: a damaged table may speak of more than there is. */
    int whole = write(handle, image, bytes) == (ssize_t)bytes;
    u64 hash = whole ? hash_of(image, bytes) : 0;
    code = whole ? hipErrorUnknown : hipErrorInvalidImage;
    for (Known *k = knowns; whole && code && k; k = k->next)
        if (k->hash == hash && k->bytes == bytes && k->variant == variant()) { snprintf(path, size, "%s", k->path); code = hipSuccess; }
    int known = !code;
    if (whole && !known) code = translate_file(file, path, size);
    close(handle);
    unlink(file);
    Known *k = code || known ? 0 : malloc(sizeof *k);
    if (!k) return code;
    *k = (Known){hash, bytes, variant(), "", knowns};
    snprintf(k->path, sizeof k->path, "%s", path);
    knowns = k;
    return code;
}
int module_load(const void *image, u64 bytes, Module **out) {
    char path[1024];
    int code = library_of(image, bytes, path, sizeof path);
    if (code) return code;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const SimModule *t = library ? dlsym(library, "sim_module") : 0;
    if (!t || t->abi != ABI_VERSION) {
        report_line("rdna4sim: %s\n", library ? "a library of another version" : dlerror());
        return hipErrorInvalidImage;
    }
    u64 end = 64;
    for (u32 i = 0; i < t->segments; i++)
        if (t->segment[i].address + t->segment[i].in_memory > end) end = t->segment[i].address + t->segment[i].in_memory;
    Module *m = calloc(1, sizeof *m);
    m->library = library, m->table = t, m->code = memory_take(end, BLOCK_CODE);
    m->functions = calloc(t->kernels, sizeof *m->functions);
    if (!m->code) { free(m->functions), free(m); return hipErrorOutOfMemory; }
    memset(m->code, 0, end);
    for (u32 i = 0; i < t->segments; i++)
        if (t->segment[i].offset + t->segment[i].in_file <= bytes)
            memcpy(m->code + t->segment[i].address, (const u8 *)image + t->segment[i].offset, t->segment[i].in_file);
    for (u32 i = 0; i < t->relocations; i++) {
        u64 value = t->relocation[i].addend + (u64)m->code;
        if (t->relocation[i].address + 8 <= end) memcpy(m->code + t->relocation[i].address, &value, 8);
    }
    for (u32 i = 0; i < t->kernels; i++) m->functions[i] = (Function){m, &t->kernel[i], 0};
    m->next = modules;
    modules = *out = m;
    return hipSuccess;
}
int module_unload(Module *m) {
    for (Module **at = &modules; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            memory_give((u64)m->code, BLOCK_CODE);
            dlclose(m->library);
            free(m->functions), free(m);
            return hipSuccess;
        }
    return hipErrorInvalidHandle;
}
void module_unload_all(void) { while (modules) module_unload(modules); }
int module_known(const Module *m) {
    for (const Module *at = modules; at; at = at->next)
        if (at == m) return 1;
    return 0;
}
Function *function_known(const void *f) {
    for (Module *m = modules; m; m = m->next)
        for (u32 i = 0; i < m->table->kernels; i++)
            if (f == &m->functions[i]) return &m->functions[i];
    return 0;
}

PUBLIC int hipInit(u32 flags) { (void)begin(); return done(flags ? hipErrorInvalidValue : hipSuccess); }
PUBLIC int hipDeviceReset(void) {
    lock();
    module_unload_all();
    memory_reset();
    settings_read();
    ready = 1, sticky = last = 0;
    unlock();
    return hipSuccess;
}
PUBLIC int hipGetDeviceCount(int *n) { if (n) *n = 1; return n ? hipSuccess : hipErrorInvalidValue; }
PUBLIC int hipGetDevice(int *n) { if (n) *n = 0; return n ? hipSuccess : hipErrorInvalidValue; }
PUBLIC int hipSetDevice(int n) { return n ? hipErrorInvalidDevice : hipSuccess; }
PUBLIC int hipDeviceSynchronize(void) { return done(begin()); }
PUBLIC int hipGetLastError(void) { lock(); int code = sticky ? sticky : last; last = 0; unlock(); return code; }
PUBLIC const char *hipGetErrorName(int code) {
    switch (code) {
    case hipSuccess: return "hipSuccess";
    case hipErrorInvalidValue: return "hipErrorInvalidValue";
    case hipErrorOutOfMemory: return "hipErrorOutOfMemory";
    case hipErrorInvalidImage: return "hipErrorInvalidImage";
    case hipErrorInvalidHandle: return "hipErrorInvalidHandle";
    case hipErrorNotFound: return "hipErrorNotFound";
    case hipErrorIllegalAddress: return "hipErrorIllegalAddress";
    case hipErrorLaunchTimeOut: return "hipErrorLaunchTimeOut";
    case hipErrorLaunchFailure: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
    }
}
PUBLIC int hipMalloc(void **out, size_t bytes) {
    int code = begin();
    if (code || !out) return done(code ? code : hipErrorInvalidValue);
    *out = bytes ? memory_take(bytes, BLOCK_DEVICE) : 0;
    return done(bytes && !*out ? hipErrorOutOfMemory : hipSuccess);
}
PUBLIC int hipFree(void *p) {
    int code = begin();
    return done(code ? code : !p || memory_give((u64)p, BLOCK_DEVICE) ? hipSuccess : hipErrorInvalidValue);
}
/* A device side of a copy must lie in one allocation. */
static int covered(const void *p, u64 bytes) {
    const Block *b = memory_find((u64)p);
    return b && bytes <= b->address + b->bytes - (u64)p;
}
PUBLIC int hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    int code = begin();
    if (code || !bytes) return done(code);
    if (!to || !from || kind < 0 || kind > 4) return done(hipErrorInvalidValue);
    if ((kind == 1 || kind == 3) && !covered(to, bytes)) return done(hipErrorInvalidValue);
    if ((kind == 2 || kind == 3) && !covered(from, bytes)) return done(hipErrorInvalidValue);
    memmove(to, from, bytes);
    return done(hipSuccess);
}
PUBLIC int hipMemset(void *to, int value, size_t bytes) {
    int code = begin();
    if (!code && bytes && !covered(to, bytes)) code = hipErrorInvalidValue;
    if (!code) memset(to, value, bytes);
    return done(code);
}
static int load(Module **out, const void *image, u64 have) {
    u64 bytes = image_bytes(image, have);
    if (!bytes) { report_line("rdna4sim: the image is no complete 64-bit ELF file\n"); return hipErrorInvalidImage; }
    return module_load(image, bytes, out);
}
PUBLIC int hipModuleLoadData(Module **out, const void *image) {
    int code = begin();
    return done(code ? code : out && image ? load(out, image, LIMIT) : hipErrorInvalidValue);
}
PUBLIC int hipModuleLoad(Module **out, const char *name) {
    int code = begin();
    FILE *file = !code && out && name ? fopen(name, "rb") : 0;
    if (!file) return done(code ? code : hipErrorNotFound);
    u8 *data = malloc(LIMIT);
    u64 bytes = data ? fread(data, 1, LIMIT - 1, file) : 0;
    fclose(file);
    code = load(out, data, bytes);
    free(data);
    return done(code);
}
PUBLIC int hipModuleUnload(Module *m) { int code = begin(); return done(code ? code : module_unload(m)); }
PUBLIC int hipModuleGetFunction(Function **out, Module *m, const char *name) {
    int code = begin();
    if (code || !out || !name || !module_known(m)) return done(code ? code : hipErrorInvalidHandle);
    for (u32 i = 0; i < m->table->kernels; i++)
        if (!strcmp(m->table->kernel[i].name, name)) { *out = &m->functions[i]; return done(hipSuccess); }
    return done(hipErrorNotFound);
}
/* Argument bytes, hidden arguments and the dispatch packet behind them, in memory that the kernel may read. */
static u8 *arguments_of(const SimKernel *k, const Shape *s, void **given) {
    u64 room = (k->kernarg_bytes + 63u) & ~63u;
    u8 *p = memory_take(room + 64, BLOCK_ARGUMENTS);
    if (!p) return 0;
    memset(p, 0, room + 64);
    for (u32 i = 0, n = 0; i < k->args; i++) {
        SimArg a = k->arg[i];
        u32 v = 0;
        if (a.kind == ARG_VALUE) { memcpy(p + a.offset, given[n++], a.size); continue; }
        if (a.kind >= ARG_BLOCKS && a.kind < ARG_GROUP_SIZE) v = s->grid[a.kind - ARG_BLOCKS];
        else if (a.kind >= ARG_GROUP_SIZE && a.kind < ARG_REMAINDER) v = s->block[a.kind - ARG_GROUP_SIZE];
        else if (a.kind == ARG_DIMENSIONS) v = 3;
        else if (a.kind == ARG_DYNAMIC_LDS) v = s->dynamic_lds;
        memcpy(p + a.offset, &v, a.size < 4 ? a.size : 4);
    }
    for (u32 i = 0; i < 3; i++) {
        u16 size = (u16)s->block[i];
        u32 grid = s->grid[i] * s->block[i];
        memcpy(p + room + 4 + 2 * i, &size, 2), memcpy(p + room + 12 + 4 * i, &grid, 4);
    }
    return p;
}
static int launch(void *f, Shape s, void **given) {
    int code = begin();
    Function *known = code ? 0 : function_known(f);
    if (!known) return done(code ? code : hipErrorInvalidHandle);
    const SimKernel *k = known->kernel;
    u64 threads = (u64)s.block[0] * s.block[1] * s.block[2], groups = (u64)s.grid[0] * s.grid[1] * s.grid[2];
    if (!threads || threads > k->max_threads || threads > MAX_THREADS || !groups || groups > 1u << 30 || (k->args && !given))
        return done(hipErrorInvalidValue);
    if (k->lds_bytes + s.dynamic_lds > LDS_PER_GROUP) return done(hipErrorInvalidConfiguration);
    u8 *arguments = arguments_of(k, &s, given);
    if (!arguments) return done(hipErrorOutOfMemory);
    sticky = launch_run(known, &s, arguments, k->kernarg_bytes);
    memory_give((u64)arguments, BLOCK_ARGUMENTS);
    /* As on hardware the fault shows at the next call. */
    unlock();
    return hipSuccess;
}
PUBLIC int hipModuleLaunchKernel(void *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream, void **given,
                                 void **extra) {
    if (extra) return hipErrorNotSupported;
    (void)stream;
    return launch(f, (Shape){{gx, gy, gz}, {bx, by, bz}, lds, 0}, given);
}
PUBLIC int hipModuleLaunchCooperativeKernel(void *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream,
                                            void **given) {
    (void)stream;
    return launch(f, (Shape){{gx, gy, gz}, {bx, by, bz}, lds, 1}, given);
}
