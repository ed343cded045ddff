/* replay.c: runs what tests/recording.py has written down on every instruction set of this processor, and compares.
 *
 *     replay                 the instruction sets that there are, best last
 *     replay FILE [ISA ...]  all of the file's cases on these (all available ones), with one and with three threads
 *
 * A line an instruction set, and one for each of the first cases that differ; exit status 1 when one did. A region of
 * memory comes back at an address that is the same modulo 256; words that hold addresses are changed to it. */
#include "../../kernels_c/host/host.h"
#include "../../kernels_c/sample/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 256
#define MAX_REGIONS 64

static const char *const names[IE_ISA_COUNT] = {"portable", "avx2", "avxvnni", "avx512", "neon", "i8mm"};

enum { PROGRAM, PASSES, REPACK }; /* what a case calls; see recording.py */

typedef struct {
    int64_t size, skew, changed;
    const uint8_t *before, *after;
    uint8_t *at, *want;
} region;
typedef struct {
    int64_t region, offset, target, target_offset;
} address;
typedef struct {
    char name[96];
    int64_t kind, n_regions, n_addresses, args[8];
    region regions[MAX_REGIONS];
    const uint8_t *addresses;
} recorded;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "replay: %s\n", what);
    exit(2);
}

static const uint8_t *take(const uint8_t **p, const uint8_t *end, int64_t n)
{
    const uint8_t *start = *p;
    if (n < 0 || n > end - start)
        fail("the file ends too early");
    *p += n;
    return start;
}

static int64_t take_int(const uint8_t **p, const uint8_t *end)
{
    int64_t v;
    memcpy(&v, take(p, end, 8), 8);
    return v;
}

static void take_case(recorded *c, const uint8_t **p, const uint8_t *end)
{
    memcpy(c->name, take(p, end, sizeof c->name), sizeof c->name);
    c->kind = take_int(p, end);
    c->n_regions = take_int(p, end);
    c->n_addresses = take_int(p, end);
    for (int i = 0; i < 8; i++)
        c->args[i] = take_int(p, end);
    if (c->n_regions > MAX_REGIONS)
        fail("too many regions");
    for (int64_t i = 0; i < c->n_regions; i++) {
        region *r = &c->regions[i];
        r->size = take_int(p, end);
        r->skew = take_int(p, end);
        r->changed = take_int(p, end);
        r->before = take(p, end, r->size);
        r->after = r->changed ? take(p, end, r->size) : r->before;
    }
    c->addresses = take(p, end, c->n_addresses * (int64_t)sizeof(address));
}

static uint8_t *memory(const region *r)
{
    uint8_t *p = aligned_alloc(ALIGN, (size_t)((r->size + 2 * ALIGN) / ALIGN * ALIGN));
    if (!p)
        fail("out of memory");
    return p + r->skew;
}

static void relocate(const recorded *c, int want)
{
    for (int64_t i = 0; i < c->n_addresses; i++) {
        address a;
        memcpy(&a, c->addresses + i * (int64_t)sizeof a, sizeof a);
        const uint64_t value = (uint64_t)(uintptr_t)(c->regions[a.target].at + a.target_offset);
        memcpy((want ? c->regions[a.region].want : c->regions[a.region].at) + a.offset, &value, 8);
    }
}

static void call(const recorded *c, ie_pool *pool, int isa)
{
    uint8_t *const at[4] = {c->regions[0].at, c->regions[1].at, c->regions[2].at, c->regions[3].at};
    const int64_t *n = c->args;
    if (c->kind == PROGRAM) { /* commands, stage starts, step */
        const ie_program p = {(uint64_t)(uintptr_t)at[0], (uint64_t)(uintptr_t)at[1], (int32_t)n[0], (int32_t)n[1], 0};
        if (ie_run(pool, &p, (uint64_t)(uintptr_t)at[2]) != 0)
            fail("a program was refused");
    } else if (c->kind == PASSES) { /* logits, largest and temperature, weights, sums */
        const float *limits = (const float *)(const void *)at[1];
        ie_logit_passes(isa, (const float *)(const void *)at[0], (int32_t)n[0], limits[0], limits[1],
                        (float *)(void *)at[2], (double *)(void *)at[3]);
    } else { /* file rows, layout */
        if (ie_repack(pool, (int)n[0], at[0], at[1], n[1], n[2]) < 0)
            fail("a matrix was refused");
    }
}

/* Region that differs after the case ran, or -1; *where: the first byte of it. */
static int64_t differs(recorded *c, ie_pool *pool, int isa, int64_t *where)
{
    int64_t found = -1;
    for (int64_t i = 0; i < c->n_regions; i++) {
        region *r = &c->regions[i];
        r->at = memory(r);
        r->want = memory(r);
        memcpy(r->at, r->before, (size_t)r->size);
        memcpy(r->want, r->after, (size_t)r->size);
    }
    relocate(c, 0);
    relocate(c, 1);
    call(c, pool, isa);
    for (int64_t i = c->n_regions - 1; i >= 0; i--) {
        region *r = &c->regions[i];
        for (int64_t b = 0; b < r->size; b++)
            if (r->at[b] != r->want[b]) {
                found = i;
                *where = b;
                break;
            }
        free(r->at - r->skew);
        free(r->want - r->skew);
    }
    return found;
}

static uint8_t *read_file(const char *path, int64_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0 || (*size = ftell(f)) < 0 || fseek(f, 0, SEEK_SET) != 0)
        fail("the file cannot be read");
    uint8_t *data = malloc((size_t)*size + 1);
    if (!data || fread(data, 1, (size_t)*size, f) != (size_t)*size)
        fail("the file cannot be read");
    fclose(f);
    return data;
}

static int replay(const uint8_t *data, int64_t size, int isa, int threads)
{
    ie_pool *pool = ie_pool_create(threads, isa);
    if (!pool)
        fail("no such instruction set here");
    const uint8_t *p = data;
    const int64_t cases = take_int(&p, data + size);
    int64_t different = 0;
    for (int64_t i = 0; i < cases; i++) {
        static recorded c;
        int64_t where = 0;
        take_case(&c, &p, data + size);
        const int64_t found = differs(&c, pool, isa, &where);
        if (found >= 0 && ++different <= 10)
            printf("%s %d: %s: byte %lld of region %lld differs\n", names[isa], threads, c.name, (long long)where,
                   (long long)found);
    }
    printf("%s %d: %lld cases, %lld differ\n", names[isa], threads, (long long)cases, (long long)different);
    ie_pool_destroy(pool);
    return different > 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        for (int isa = 0; isa < IE_ISA_COUNT; isa++)
            if (ie_isa_available(isa))
                printf("%s%s", names[isa], isa == ie_isa_best() ? "\n" : " ");
        return 0;
    }
    int64_t size = 0;
    int bad = 0;
    uint8_t *data = read_file(argv[1], &size);
    for (int isa = 0; isa < IE_ISA_COUNT; isa++) {
        int asked = argc == 2;
        for (int i = 2; i < argc; i++)
            asked |= strcmp(argv[i], names[isa]) == 0;
        for (int threads = 1; asked && ie_isa_available(isa) && threads <= 3; threads += 2)
            bad |= replay(data, size, isa, threads);
    }
    free(data);
    return bad;
}
