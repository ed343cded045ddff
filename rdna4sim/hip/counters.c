/* Counters by kernel, an estimate of the card's time from them, and the file they go to.
 *
 * The estimate knows no latency and no caches across launches: it is a lower bound of sorts. README.md has the formula.
 */
#define _GNU_SOURCE
#include "host.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GB_PER_SECOND = 612, TRANS_CYCLES = 4, LDS_BYTES_PER_CYCLE = 64, GRID_BARRIER_NS = 300 };
#define LINES (RANGE >> LINE_SHIFT)

typedef struct Stats {
    char *name;
    u64 hash, launches, cooperative, faults, groups, waves, least, most, counters[COUNTERS];
    double issue_us, memory_us, barrier_us, us;
    struct Stats *next;
} Stats;
static Stats *stats;
static char file[sizeof settings.counters];
static int news, told;
static pid_t owner;
static u8 *lines;
double estimated_ms;

static void forget(void) {
    while (stats) { Stats *next = stats->next; free(stats->name), free(stats); stats = next; }
}
/* The settings were read: another file starts at zero. A forked child leaves its parent's file alone. */
void counters_file(void) {
    if (owner == getpid() && !strcmp(file, settings.counters)) return;
    forget();
    snprintf(file, sizeof file, "%s", settings.counters);
    owner = getpid(), news = *file != 0, told = 0;
}
void counters_start(void) {
    if (!*settings.counters) return;
    if (lines) { madvise(lines, LINES / 4, MADV_DONTNEED); return; }
    void *p = mmap(0, LINES / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    lines = p == MAP_FAILED ? 0 : p;
}
void counters_wave(Wave *w) {
    w->lines[0] = lines, w->lines[1] = lines + LINES / 8;
    w->lines_base = memory_base(), w->lines_count = lines ? LINES : 0;
}

static double least_of(double a, double b) { return a < b ? a : b; }
static double most_of(double a, double b) { return a > b ? a : b; }
/* Cycles of the busiest kind of unit, spread over the SIMDs that have a wave; no less than the longest wave's instructions. */
static double issue_us(const Launch *l) {
    const u64 *c = l->counters;
    double simds = most_of(1, least_of((double)l->ended, PROCESSORS * SIMDS));
    double cycles = most_of((double)(c[COUNT_VALU] + c[COUNT_WMMA_CYCLES]), (double)c[COUNT_TRANS] * TRANS_CYCLES);
    cycles = most_of(cycles, most_of((double)c[COUNT_SALU], (double)c[COUNT_SMEM]));
    cycles = most_of(cycles, most_of((double)c[COUNT_VMEM], (double)c[COUNT_BRANCH]));
    cycles = most_of(cycles, most_of((double)c[COUNT_LDS], (double)c[COUNT_LDS_BYTES] / LDS_BYTES_PER_CYCLE));
    return most_of(cycles / simds, (double)l->most) / (CLOCK_KHZ / 1e3);
}
static Stats *stats_of(const Launch *l) {
    Stats **at = &stats;
    const char *name = l->function->name;
    for (; *at; at = &(*at)->next)
        if ((*at)->hash == l->function->module->hash && !strcmp((*at)->name, name)) return *at;
    Stats *s = calloc(1, sizeof *s);
    char *copy = strdup(name);
    if (!s || !copy) { free(s), free(copy); return 0; }
    s->name = copy, s->hash = l->function->module->hash;
    return *at = s;
}
void counters_add(const Launch *l) {
    Stats *s = *settings.counters ? stats_of(l) : 0;
    if (!s) return;
    double issue = issue_us(l), barriers = l->shape.cooperative ? (double)l->phases * GRID_BARRIER_NS / 1e3 : 0;
    double memory = (double)((l->counters[COUNT_READ_LINES] + l->counters[COUNT_WRITE_LINES]) << LINE_SHIFT) / (GB_PER_SECOND * 1e3);
    if (l->ended && (!s->waves || l->least < s->least)) s->least = l->least;
    if (l->most > s->most) s->most = l->most;
    s->launches++, s->cooperative += l->shape.cooperative != 0, s->faults += l->stop != 0;
    s->groups += l->groups, s->waves += l->ended;
    s->issue_us += issue, s->memory_us += memory, s->barrier_us += barriers, s->us += most_of(issue, memory) + barriers;
    estimated_ms += (most_of(issue, memory) + barriers) / 1e3;
    for (int i = 0; i < COUNTERS; i++) s->counters[i] += l->counters[i];
    news = 1;
}

/* Numbers without the locale's decimal point. */
static void put(FILE *out, const char *key, double value) {
    fprintf(out, "\"%s\": %llu.%06u", key, (u64)value, (u32)((value - (double)(u64)value) * 1e6));
}
static void put_text(FILE *out, const char *text) {
    for (const u8 *p = (const u8 *)text; *p; p++)
        if (*p < 32 || *p == '"' || *p == '\\' || *p > 126) fprintf(out, "\\u%04x", *p); else fputc(*p, out);
}
static void put_counts(FILE *out, const char *key, const char *const *names, const u64 *counts, u32 n, u64 more) {
    fprintf(out, "     \"%s\": {", key);
    for (u32 i = 0; i < n; i++) fprintf(out, "\"%s\": %llu, ", names[i], counts[i]);
    fprintf(out, "\"%s\": %llu}", *key == 'i' ? "total" : "distinct_write_lines", more);
}
static void put_kernel(FILE *out, const Stats *s) {
    static const char *const classes[] = {"salu", "valu", "smem", "vmem", "lds", "branch", "wmma", "other", "wait", "barrier_wait"};
    static const char *const kinds[] = {"load", "store", "atomic", "lds", "scalar", "scratch", "distinct_read_lines"};
    const u64 *c = s->counters;
    u64 total = 0, bytes[7], line = 1u << LINE_SHIFT;
    for (u32 i = 0; i <= COUNT_BARRIER; i++) total += c[i];
    memcpy(bytes, c + COUNT_LOAD_BYTES, 6 * sizeof *bytes);
    bytes[6] = c[COUNT_READ_LINES] * line;
    fprintf(out, "    {\"name\": \"");
    put_text(out, s->name);
    fprintf(out, "\", \"code_object\": \"%016llx\", \"launches\": %llu, \"cooperative_launches\": %llu, \"faults\": %llu,\n"
            "     \"workgroups\": %llu, \"waves\": %llu,\n", s->hash, s->launches, s->cooperative, s->faults, s->groups, s->waves);
    put_counts(out, "instructions", classes, c, 10, total);
    fprintf(out, ",\n     \"valu_transcendental\": %llu, \"wmma_cycles\": %llu,\n", c[COUNT_TRANS], c[COUNT_WMMA_CYCLES]);
    put_counts(out, "bytes", kinds, bytes, 7, c[COUNT_WRITE_LINES] * line);
    fprintf(out, ",\n     \"instructions_per_wave\": {\"smallest\": %llu, \"greatest\": %llu, ", s->least, s->most);
    put(out, "mean", s->waves ? (double)total / (double)s->waves : 0);
    fprintf(out, "},\n     ");
    put(out, "estimated_us", s->us), fputs(", ", out);
    put(out, "estimated_issue_us", s->issue_us), fputs(", ", out);
    put(out, "estimated_memory_us", s->memory_us), fputs(", ", out);
    put(out, "estimated_barrier_us", s->barrier_us);
    fprintf(out, "}%s\n", s->next ? "," : "");
}
static void put_document(FILE *out) {
    double us = 0;
    for (const Stats *s = stats; s; s = s->next) us += s->us;
    fprintf(out, "{\"card\": {\"simds\": %d, \"clock_mhz\": %d, \"gb_per_s\": %d, \"line_bytes\": %d, \"grid_barrier_ns\": %d},\n ",
            PROCESSORS * SIMDS, CLOCK_KHZ / 1000, GB_PER_SECOND, 1 << LINE_SHIFT, GRID_BARRIER_NS);
    put(out, "estimated_us", us);
    fprintf(out, ",\n \"kernels\": [\n");
    for (const Stats *s = stats; s; s = s->next) put_kernel(out, s);
    fprintf(out, "  ]}\n");
}
/* A regular file is replaced by a complete new one; a pipe or a device is written to. */
static int write_file(void) {
    char other[sizeof file + 32];
    struct stat is;
    int plain = stat(file, &is) || S_ISREG(is.st_mode);
    snprintf(other, sizeof other, plain ? "%s.%d.tmp" : "%s", file, (int)getpid());
    FILE *out = fopen(other, "w");
    if (!out) return errno;
    put_document(out);
    int bad = ferror(out) ? EIO : 0;
    if (fclose(out)) bad = errno;
    if (plain && !bad && rename(other, file)) bad = errno;
    if (plain && bad) unlink(other);
    return bad;
}
void counters_write(void) {
    if (!news || !*file || owner != getpid()) return;
    news = 0;
    if (!strcmp(file, "-")) { put_document(stderr); return; }
    int bad = write_file();
    if (bad && !told++) error_line("rdna4sim: the counters cannot be written to %s (%s)\n", file, strerror(bad));
}
/* If another thread is inside a call now, its launch is not counted whole: nothing is better than that. */
__attribute__((destructor)) static void at_exit(void) {
    if (!try_lock()) return;
    counters_write();
    unlock();
}
