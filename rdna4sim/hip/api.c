/* The HIP C ABI: modules, launches, occupancy. */
#define _GNU_SOURCE
#include "host.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int sticky;
static int ready;
static __thread int last;
static Module *modules;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
void lock(void) { pthread_mutex_lock(&mutex); }
int try_lock(void) { return !pthread_mutex_trylock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

int done(int code) {
    if (code) last = code;
    unlock();
    return code;
}
void look(void) {
    lock();
    if (!ready) { settings_read(); counters_file(); ready = 1; }
}
int begin(void) { look(); return sticky; }

enum { LIMIT = 256 << 20, PATH_BYTES = 4096 };
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
/* The program's environment with a cache folder that does not depend on where the program stands; 0: no memory. */
static char **environment_of_child(void) {
    size_t n = 0, kept = 0;
    while (environ[n]) n++;
    char **out = malloc((n + 2) * sizeof *out);
    for (size_t i = 0; out && i < n; i++)
        if (!settings.cache || strncmp(environ[i], "RDNA4SIM_CACHE=", 15)) out[kept++] = environ[i];
    if (out && settings.cache) out[kept++] = settings.cache;
    if (out) out[kept] = 0;
    return out;
}
/* Starts the translator with `image` as its input and `answer` as its output. No shell: any path will do. */
static int start_translator(pid_t *child, int image, int answer) {
    /* Ctrl-C goes to the child too. Python would answer with a traceback, so it stays blocked until that is caught. */
    static const char run[] =
        "import signal, sys\n"
        "try:\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\n"
        "    sys.path.insert(0, sys.argv[1])\n"
        "    from rdna4sim.cache import main\n"
        "    main(sys.argv[2:])\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n";
    const char *given[] = {settings.python, "-P", "-c", run, RDNA4SIM_PACKAGE_PARENT, variant(), 0};
    char **environment = environment_of_child();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t mask;
    if (!environment) return ENOMEM;
    pthread_sigmask(SIG_BLOCK, 0, &mask);
    sigaddset(&mask, SIGINT);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, image, 0);
    posix_spawn_file_actions_adddup2(&actions, answer, 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &mask);
    int failed = posix_spawnp(child, settings.python, &actions, &attributes, (char **)given, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return failed;
}
/* Runs the translator on an image in a file; fills in the path of the library it made. */
static int translate_file(int image, char *path, size_t size) {
    static const char cure[] = "RDNA4SIM_PYTHON names the Python that has rdna4sim";
    pid_t child;
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC)) return hipErrorUnknown;
    int failed = start_translator(&child, image, ends[1]);
    close(ends[1]);
    size_t have = 0;
    for (ssize_t n; !failed && have + 1 < size && (n = read(ends[0], path + have, size - 1 - have)) != 0;)
        if (n > 0) have += (size_t)n; else if (errno != EINTR) break;
    close(ends[0]);
    path[have] = 0;
    if (failed) {
        report_line("rdna4sim: %s cannot be started (%s); %s\n", settings.python, strerror(failed), cure);
        return hipErrorUnknown;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (!status && *path == '/') return hipSuccess;
    path[strcspn(path, "\n")] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 130) report_line("rdna4sim: the translator was interrupted\n");
    else if (status && *path) report_line("rdna4sim: %s\n", path);
    else report_line("rdna4sim: %s translated nothing; %s\n", settings.python, cure);
    return hipErrorInvalidImage;
}
/* Libraries of images that this process has met: a reset must not start the translator again. */
typedef struct Known { u64 hash, bytes; const char *variant; char path[PATH_BYTES]; struct Known *next; } Known;
static Known *knowns;
static u64 hash_of(const u8 *p, u64 n) {
    u64 h = 0xcbf29ce484222325ull;
    for (u64 i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3ull;
    return h;
}
static int library_of(const void *image, u64 bytes, char *path, size_t size, u64 *digest) {
    int handle = memfd_create("rdna4sim", MFD_CLOEXEC), code = hipErrorUnknown;
    if (handle < 0) { report_line("rdna4sim: no room for a copy of the image (%s)\n", strerror(errno)); return code; }
    /* The kernel says whether all of it can be read: a damaged table may speak of more than there is. */
    int whole = write(handle, image, bytes) == (ssize_t)bytes;
    u64 hash = *digest = whole ? hash_of(image, bytes) : 0;
    code = whole ? hipErrorUnknown : hipErrorInvalidImage;
    for (Known *k = knowns; whole && code && k; k = k->next)
        if (k->hash == hash && k->bytes == bytes && k->variant == variant()) { snprintf(path, size, "%s", k->path); code = hipSuccess; }
    int known = !code;
    if (whole && !known) code = lseek(handle, 0, SEEK_SET) ? hipErrorUnknown : translate_file(handle, path, size);
    close(handle);
    Known *k = code || known ? 0 : malloc(sizeof *k);
    if (!k) return code;
    *k = (Known){hash, bytes, variant(), "", knowns};
    snprintf(k->path, sizeof k->path, "%s", path);
    knowns = k;
    return code;
}
/* A copy of a name that stands in the image; 0: no memory. */
static char *name_copy(const u8 *image, u64 bytes, SimName n) {
    u64 size = n.at <= bytes && n.bytes <= bytes - n.at ? n.bytes : 0;
    char *copy = malloc(size + 1);
    if (copy) memcpy(copy, image + (size ? n.at : 0), size), copy[size] = 0;
    return copy;
}
static void names_free(Module *m) {
    for (u32 i = 0; i < m->table->kernels; i++) free(m->functions[i].name);
    for (u32 i = 0; i < m->table->variables; i++) free(m->variable[i]);
    for (u32 i = 0; i < m->table->functions; i++) free(m->function[i]);
    free(m->variable), free(m->function);
}
/* A module with the names of its kernels, variables and functions, but without memory of the device; 0: no memory. */
static Module *module_made(void *library, const SimModule *t, const u8 *image, u64 bytes) {
    Module *m = calloc(1, sizeof *m);
    if (!m) return 0;
    *m = (Module){.library = library, .table = t, .functions = calloc(t->kernels + 1u, sizeof *m->functions),
                  .variable = calloc(t->variables + 1u, sizeof *m->variable), .function = calloc(t->functions + 1u, sizeof *m->function)};
    int good = m->functions && m->variable && m->function;
    for (u32 i = 0; good && i < t->kernels; i++) {
        m->functions[i] = (Function){m, &t->kernel[i], name_copy(image, bytes, t->kernel[i].name)};
        good = m->functions[i].name != 0;
    }
    for (u32 i = 0; good && i < t->variables; i++) good = (m->variable[i] = name_copy(image, bytes, t->variable[i].name)) != 0;
    for (u32 i = 0; good && i < t->functions; i++) good = (m->function[i] = name_copy(image, bytes, t->function[i].name)) != 0;
    return good ? m : 0;
}
int module_load(const void *image, u64 bytes, Module **out) {
    char path[PATH_BYTES];
    u64 hash;
    int code = library_of(image, bytes, path, sizeof path, &hash);
    if (code) return code;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const SimModule *t = library ? dlsym(library, "sim_module") : 0;
    if (!t || t->abi != ABI_VERSION) {
        report_line("rdna4sim: %s\n", library ? "a library of another version" : dlerror());
        if (library) dlclose(library);
        return hipErrorInvalidImage;
    }
    u64 end = 64;
    for (u32 i = 0; i < t->segments; i++)
        if (t->segment[i].address + t->segment[i].in_memory > end) end = t->segment[i].address + t->segment[i].in_memory;
    Module *m = module_made(library, t, image, bytes);
    if (!m || !(m->code = memory_take(end, BLOCK_CODE))) {
        if (m) names_free(m), free(m->functions), free(m);
        dlclose(library);
        return hipErrorOutOfMemory;
    }
    m->hash = hash;
    memory_clear(m->code, end);
    for (u32 i = 0; i < t->segments; i++)
        if (t->segment[i].in_file <= bytes && t->segment[i].offset <= bytes - t->segment[i].in_file)
            memcpy(m->code + t->segment[i].address, (const u8 *)image + t->segment[i].offset, t->segment[i].in_file);
    for (u32 i = 0; i < t->relocations; i++) {
        u64 value = t->relocation[i].addend + (u64)m->code;
        if (t->relocation[i].address <= end - 8) memcpy(m->code + t->relocation[i].address, &value, 8);
    }
    m->next = modules;
    modules = *out = m;
    return hipSuccess;
}
int module_unload(Module *m) {
    for (Module **at = &modules; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            memory_give((u64)m->code, BLOCK_CODE);
            names_free(m);
            dlclose(m->library);
            /* Its few bytes stay, so that no later module has its address: an old handle never means another module. */
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

PUBLIC int hipDeviceReset(void) {
    look();
    counters_write();
    module_unload_all();
    memory_reset();
    streams_reset();
    settings_read();
    counters_file();
    sticky = last = 0;
    unlock();
    return hipSuccess;
}
PUBLIC int hipPeekAtLastError(void) { look(); int code = sticky ? sticky : last; unlock(); return code; }
PUBLIC int hipGetLastError(void) { int code = hipPeekAtLastError(); last = 0; return code; }
PUBLIC int hipExtGetLastError(void) { return hipGetLastError(); }

/* Copies a few bytes through a pipe: where there is no memory, the kernel says so and nothing crashes. */
static int peek(const u8 *from, void *to, size_t bytes) {
    int ends[2];
    if (pipe(ends)) return 0;
    int good = write(ends[1], from, bytes) == (ssize_t)bytes && read(ends[0], to, bytes) == (ssize_t)bytes;
    close(ends[0]), close(ends[1]);
    return good;
}
/* In a bundle of code objects (as hipcc writes it, not compressed) the one for this card; else the image itself. */
static int unbundle(const u8 **image, u64 *have) {
    static const char magic[] = "__CLANG_OFFLOAD_BUNDLE__", card[] = "-gfx1201";
    enum { NAME = 256, CARD = sizeof card - 1, BUNDLED = 1024 };
    u64 count, at = 32, entry[3];
    char head[32], name[NAME];
    if (*have < sizeof head || !peek(*image, head, sizeof head)) return hipSuccess;
    if (!memcmp(head, "CCOB", 4)) {
        report_line("rdna4sim: the bundle is compressed: unpack it with clang-offload-bundler\n");
        return hipErrorInvalidImage;
    }
    if (memcmp(head, magic, sizeof magic - 1)) return hipSuccess;
    memcpy(&count, head + 24, 8);
    if (count > BUNDLED) {
        report_line("rdna4sim: a bundle of %llu entries, expected at most %d\n", count, BUNDLED);
        return hipErrorInvalidImage;
    }
    for (u64 i = 0; i < count; i++, at += sizeof entry + entry[2]) {
        if (at + sizeof entry > *have || !peek(*image + at, entry, sizeof entry)) return hipErrorInvalidImage;
        if (entry[2] > NAME || at + sizeof entry + entry[2] > *have) return hipErrorInvalidImage;
        if (entry[2] && !peek(*image + at + sizeof entry, name, entry[2])) return hipErrorInvalidImage;
        u64 n = 0;
        while (n < entry[2] && name[n] != ':') n++;
        if (n < CARD || memcmp(name + n - CARD, card, CARD)) continue;
        if (entry[0] > *have || entry[1] > *have - entry[0]) return hipErrorInvalidImage;
        *image += entry[0], *have = entry[1];
        return hipSuccess;
    }
    report_line("rdna4sim: the bundle holds no code object for gfx1201\n");
    return hipErrorNoBinaryForGpu;
}
static int load(Module **out, const u8 *image, u64 have) {
    int code = unbundle(&image, &have);
    if (code) return code;
    u8 head[64];
    int seen = have >= sizeof head && peek(image, head, sizeof head);
    u64 bytes = seen ? image_bytes(head, have) : 0;
    if (seen && !memcmp(head, "\177ELF\2\1", 6) && head[16] == 1) {
        report_line("rdna4sim: the image is not linked: ld.lld -shared\n");
        return hipErrorInvalidImage;
    }
    if (!bytes) { report_line("rdna4sim: the image is no complete 64-bit ELF file\n"); return hipErrorInvalidImage; }
    return module_load(image, bytes, out);
}
PUBLIC int hipModuleLoadData(Module **out, const void *image) {
    int code = begin();
    return done(code ? code : out && image ? load(out, image, LIMIT) : hipErrorInvalidValue);
}
PUBLIC int hipModuleLoadDataEx(Module **out, const void *image, u32 count, const int *options, void **values) {
    (void)count, (void)options, (void)values;
    return hipModuleLoadData(out, image);
}
PUBLIC int hipModuleLoad(Module **out, const char *name) {
    int code = begin();
    if (code || !out || !name) return done(code ? code : hipErrorInvalidValue);
    struct stat is;
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0 || fstat(file, &is) || !S_ISREG(is.st_mode)) {
        if (file >= 0) close(file);
        return done(hipErrorFileNotFound);
    }
    u8 *data = malloc(LIMIT);
    u64 bytes = 0;
    for (ssize_t n; data && (n = read(file, data + bytes, LIMIT - bytes)) != 0;)
        if (n > 0) bytes += (u64)n; else if (errno != EINTR) break;
    close(file);
    code = load(out, data, bytes);
    free(data);
    return done(code);
}
PUBLIC int hipModuleUnload(Module *m) { int code = begin(); return done(code ? code : module_unload(m)); }
PUBLIC int hipModuleGetFunction(Function **out, Module *m, const char *name) {
    int code = begin();
    if (code || !out || !name || !*name) return done(code ? code : hipErrorInvalidValue);
    if (!module_known(m)) return done(hipErrorInvalidHandle);
    for (u32 i = 0; i < m->table->kernels; i++)
        if (!strcmp(m->functions[i].name, name)) { *out = &m->functions[i]; return done(hipSuccess); }
    return done(hipErrorNotFound);
}
PUBLIC int hipModuleGetGlobal(void **out, size_t *bytes, Module *m, const char *name) {
    int code = begin();
    if (code || (!out && !bytes) || !name || !*name) return done(code ? code : hipErrorInvalidValue);
    if (!module_known(m)) return done(hipErrorInvalidHandle);
    for (u32 i = 0; i < m->table->variables; i++) {
        SimSymbol v = m->table->variable[i];
        if (strcmp(m->variable[i], name)) continue;
        if (out) *out = m->code + v.address;
        if (bytes) *bytes = v.size;
        return done(hipSuccess);
    }
    return done(hipErrorNotFound);
}

/* Workgroups that fit on a workgroup processor, as HIP reckons: waves that the registers allow on its SIMDs, and LDS. */
u32 occupancy(const SimKernel *k, u32 threads, u32 dynamic_lds) {
    u32 registers = (k->vgprs ? k->vgprs + REGISTER_GRANULE - 1 : REGISTER_GRANULE) / REGISTER_GRANULE * REGISTER_GRANULE;
    u32 waves = REGISTERS / (registers ? registers : 1), lds = k->lds_bytes + dynamic_lds;
    if (k->vgprs > REGISTERS || k->lds_bytes > LDS_PER_GROUP) return 0;
    if (waves > WAVES_PER_SIMD) waves = WAVES_PER_SIMD;
    u32 groups = SIMDS * waves / ((threads + LANES - 1) / LANES);
    return lds && LDS_FOR_OCCUPANCY / lds < groups ? LDS_FOR_OCCUPANCY / lds : groups;
}
static int active_blocks(int *out, void *f, int threads, size_t lds) {
    int code = begin();
    if (code || !out || threads <= 0) return done(code ? code : hipErrorInvalidValue);
    Function *known = function_known(f);
    if (!known) return done(hipErrorInvalidHandle);
    *out = threads > MAX_THREADS || lds > LDS_PER_GROUP ? 0 : (int)occupancy(known->kernel, (u32)threads, (u32)lds);
    return done(hipSuccess);
}
PUBLIC int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *f, int threads, size_t lds) {
    return active_blocks(out, f, threads, lds);
}
PUBLIC int hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, void *f, int threads, size_t lds, u32 flags) {
    return active_blocks(out, flags > 1 ? 0 : f, flags > 1 ? 0 : threads, lds);
}
/* The greatest workgroup among those that put the most waves on the card. */
PUBLIC int hipModuleOccupancyMaxPotentialBlockSize(int *grid, int *block, void *f, size_t lds, int limit) {
    int code = begin();
    if (code || !grid || !block || lds > LDS_PER_GROUP) return done(code ? code : hipErrorInvalidValue);
    Function *known = function_known(f);
    if (!known) return done(hipErrorInvalidHandle);
    u32 most = known->kernel->max_threads < MAX_THREADS ? known->kernel->max_threads : MAX_THREADS, best = 0;
    if (limit > 0 && (u32)limit < most) most = (u32)limit;
    *grid = *block = 0;
    for (u32 threads = most < LANES ? most : most / LANES * LANES; threads; threads = threads > LANES ? threads - LANES : 0) {
        u32 groups = occupancy(known->kernel, threads, (u32)lds), waves = groups * ((threads + LANES - 1) / LANES);
        if (waves > best) best = waves, *block = (int)threads, *grid = (int)(groups * PROCESSORS);
    }
    return done(hipSuccess);
}
PUBLIC int hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, void *f, size_t lds, int limit, u32 flags) {
    return hipModuleOccupancyMaxPotentialBlockSize(flags > 1 ? 0 : grid, block, f, lds, limit);
}
/* hipFunction_attribute: 0 threads, 1 LDS, 2 constants, 3 scratch, 4 registers, 5 6 versions, 7 cache, 8 LDS left, 9 share. */
PUBLIC int hipFuncGetAttribute(int *out, u32 what, void *f) {
    int code = begin();
    if (code || !out || what > 9) return done(code ? code : hipErrorInvalidValue);
    Function *known = function_known(f);
    if (!known) return done(hipErrorInvalidHandle);
    const SimKernel *k = known->kernel;
    const u32 answers[] = {k->max_threads, k->lds_bytes, 0, k->scratch_bytes, k->vgprs, 120, 120, 0, LDS_PER_GROUP - k->lds_bytes, 0};
    *out = (int)answers[what];
    return done(hipSuccess);
}
/* Takes a hipFunction_t: there are no host functions here. Nothing follows from what is set. */
PUBLIC int hipFuncSetAttribute(const void *f, u32 what, int value) {
    int code = begin();
    Function *known = code ? 0 : function_known(f);
    if (!known) return done(code ? code : hipErrorInvalidDeviceFunction);
    int most = what == 8 ? (int)(LDS_PER_GROUP - known->kernel->lds_bytes) : what == 9 ? 100 : -2;
    return done(value < (what == 9 ? -1 : 0) || value > most ? hipErrorInvalidValue : hipSuccess);
}

/* Where a launch takes its arguments from: pointers to values, or one buffer that is laid out as the kernel wants it. */
typedef struct { void **given; const u8 *buffer; u64 bytes; } Given;
enum { EXTRA_POINTER = 1, EXTRA_SIZE = 2, EXTRA_END = 3 };
static int given_of(const SimKernel *k, void **values, void **extra, Given *out) {
    *out = (Given){.given = values};
    if (values && extra) return 0;
    for (u32 i = 0; extra && (u64)extra[i] != EXTRA_END; i += 2) {
        if ((u64)extra[i] == EXTRA_POINTER) out->buffer = extra[i + 1];
        else if ((u64)extra[i] == EXTRA_SIZE && extra[i + 1]) memcpy(&out->bytes, extra[i + 1], 8);
        else return 0;
    }
    for (u32 i = 0, n = 0; i < k->args; i++) {
        if (k->arg[i].kind != ARG_VALUE) continue;
        if (extra ? !out->buffer || k->arg[i].offset + k->arg[i].size > out->bytes : !values || !values[n++]) return 0;
    }
    return 1;
}
/* Argument bytes, hidden arguments and the dispatch packet behind them, in memory that the kernel may read. */
static u8 *arguments_of(const SimKernel *k, const Shape *s, const Given *from) {
    u64 room = (k->kernarg_bytes + 63u) & ~63u;
    u8 *p = memory_take(room + 64, BLOCK_ARGUMENTS);
    if (!p) return 0;
    memset(p, 0, room + 64);
    for (u32 i = 0, n = 0; i < k->args; i++) {
        SimArg a = k->arg[i];
        u32 v = 0;
        if (a.kind == ARG_VALUE) {
            memcpy(p + a.offset, from->buffer ? from->buffer + a.offset : from->given[n++], a.size);
            continue;
        }
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
/* The shape against what HIP, the kernel and the card allow. */
static int refused(const Function *f, const Shape *s) {
    const SimKernel *k = f->kernel;
    u64 threads = 1, groups = 1;
    for (u32 i = 0; i < 3; i++) {
        if (!s->grid[i] || s->grid[i] > (i ? 65536u : 0x7fffffffu)) return hipErrorInvalidValue;
        if (!s->block[i]) return hipErrorInvalidConfiguration;
        if (s->block[i] > MAX_THREADS) return hipErrorInvalidValue;
        if ((u64)s->grid[i] * s->block[i] > ~0u) return hipErrorInvalidConfiguration;
        threads *= s->block[i], groups *= s->grid[i];
    }
    if (threads > MAX_THREADS || groups > 1u << 30) return hipErrorInvalidValue;
    if ((u64)k->lds_bytes + s->dynamic_lds > LDS_PER_GROUP) return hipErrorInvalidValue;
    if (threads > k->max_threads) return hipErrorLaunchFailure;
    if (k->refused) {
        report_line("rdna4sim: kernel %.*s cannot be run: %s\n", NAME_SHOWN, f->name, k->refused);
        return hipErrorNotSupported;
    }
    if (!s->cooperative) return hipSuccess;
    return groups > occupancy(k, (u32)threads, s->dynamic_lds) * PROCESSORS ? hipErrorCooperativeLaunchTooLarge : hipSuccess;
}
static int launch(void *f, Shape s, void *stream, void **values, void **extra, void *start, void *stop) {
    int code = begin();
    Function *known = code ? 0 : function_known(f);
    if (!known) return done(code ? code : hipErrorInvalidHandle);
    const SimKernel *k = known->kernel;
    Given given;
    if (!stream_known(stream)) return done(hipErrorInvalidValue);
    if ((start && !event_known(start)) || (stop && !event_known(stop))) return done(hipErrorInvalidHandle);
    code = refused(known, &s);
    if (code || !given_of(k, values, extra, &given)) return done(code ? code : hipErrorInvalidValue);
    u8 *arguments = arguments_of(k, &s, &given);
    if (!arguments) return done(hipErrorOutOfMemory);
    if (start) event_mark(start);
    sticky = launch_run(known, &s, arguments);
    memory_give((u64)arguments, BLOCK_ARGUMENTS);
    if (stop) event_mark(stop);
    /* As on hardware the fault shows at the next call. */
    unlock();
    return hipSuccess;
}
PUBLIC int hipModuleLaunchKernel(void *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream, void **values,
                                 void **extra) {
    return launch(f, (Shape){{gx, gy, gz}, {bx, by, bz}, lds, 0}, stream, values, extra, 0, 0);
}
PUBLIC int hipModuleLaunchCooperativeKernel(void *f, u32 gx, u32 gy, u32 gz, u32 bx, u32 by, u32 bz, u32 lds, void *stream,
                                            void **values) {
    return launch(f, (Shape){{gx, gy, gz}, {bx, by, bz}, lds, 1}, stream, values, 0, 0, 0);
}
/* Sizes in threads; they must be whole workgroups. */
PUBLIC int hipExtModuleLaunchKernel(void *f, u32 x, u32 y, u32 z, u32 bx, u32 by, u32 bz, size_t lds, void *stream,
                                    void **values, void **extra, void *start, void *stop, u32 flags) {
    (void)flags;
    int whole = !(bx && x % bx) && !(by && y % by) && !(bz && z % bz) && lds <= LDS_PER_GROUP;
    if (!whole) { look(); return done(hipErrorInvalidValue); }
    Shape s = {{bx ? x / bx : 1, by ? y / by : 1, bz ? z / bz : 1}, {bx, by, bz}, (u32)lds, 0};
    return launch(f, s, stream, values, extra, start, stop);
}
