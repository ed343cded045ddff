/* Device memory: one reserved range of the host's addresses; a device address is a host address. Beside it, memory of the
 * host program that it registered.
 *
 * Each allocation stands on pages of its own with a page between it and the next, and the table holds its exact size, so that
 * an access behind the end is in no allocation. Small allocations start with a pattern that differs by seed.
 */
#include "host.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
#define FILL_LIMIT (64ull << 20)
#define LEAST_RANGE (64ull << 20)

static u8 *range;
static u64 reserved;
static Block *blocks;
static u32 count, room;
static u64 used;
static Block *registered;
static u32 registrations;

static int reserve(void) {
    if (range) return 1;
    for (u64 bytes = RANGE; bytes >= LEAST_RANGE; bytes /= 2) {
        u8 *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        /* Where addresses are limited, the program needs some for itself. */
        if (bytes < RANGE) bytes /= 2, munmap(p + bytes, bytes);
        range = p, reserved = bytes;
        return 1;
    }
    return 0;
}
/* For an allocation that does not fit; says so if that is not because the card is full. */
static void *too_large(void) {
    static int told;
    if (reserved < RANGE && !told++)
        report_line("rdna4sim: of %llu MiB of addresses for device memory only %llu could be reserved: see ulimit -v\n",
                    RANGE >> 20, reserved >> 20);
    return 0;
}
/* Index of the first block that starts beyond the address. */
static u32 after(u64 address) {
    u32 lo = 0, hi = count;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (blocks[mid].address <= address) lo = mid + 1; else hi = mid;
    }
    return lo;
}
static u64 pages(u64 bytes) { return (bytes + PAGE - 1) / PAGE * PAGE + PAGE; }

static int on_card(u32 kind) { return kind == BLOCK_DEVICE || kind == BLOCK_MANAGED; }

void *memory_take(u64 bytes, u32 kind) {
    if (!bytes || bytes > DEVICE_MEMORY) return 0;
    if (!reserve()) return too_large();
    if (on_card(kind) && used + bytes > DEVICE_MEMORY) return 0;
    u64 at = (u64)range + PAGE;
    u32 i = 0;
    for (; i < count && blocks[i].address - at < pages(bytes); i++) at = blocks[i].address + pages(blocks[i].bytes);
    if (at + pages(bytes) > (u64)range + reserved) return too_large();
    if (count == room) {
        Block *more = realloc(blocks, (room * 2 + 64) * sizeof *blocks);
        if (!more) return 0;
        blocks = more, room = room * 2 + 64;
    }
    memmove(blocks + i + 1, blocks + i, (count - i) * sizeof *blocks);
    blocks[i] = (Block){at, bytes, kind};
    count++;
    if (on_card(kind)) used += bytes;
    if (bytes <= FILL_LIMIT) memset((void *)at, (int)(0xcb ^ (settings.seed & 0x1f)), bytes);
    return (void *)at;
}
/* Zeroes an allocation that was just taken: a large one is not filled, and nothing has touched its pages. */
void memory_clear(u8 *fresh, u64 bytes) { if (bytes <= FILL_LIMIT) memset(fresh, 0, bytes); }
int memory_give(u64 address, u32 kind) {
    u32 i = after(address);
    if (!i || blocks[i - 1].address != address || blocks[i - 1].kind != kind) return 0;
    if (on_card(kind)) used -= blocks[i - 1].bytes;
    madvise((void *)address, pages(blocks[i - 1].bytes), MADV_DONTNEED);
    memmove(blocks + i - 1, blocks + i, (count - i) * sizeof *blocks);
    count--;
    return 1;
}
const Block *memory_find(u64 address) {
    u32 i = after(address);
    if (i && address - blocks[i - 1].address < blocks[i - 1].bytes) return blocks + i - 1;
    for (i = 0; i < registrations; i++)
        if (address - registered[i].address < registered[i].bytes) return registered + i;
    return 0;
}
/* Whether the address is one that only device memory can have, allocated or not. */
int memory_inside(u64 address) { return range && address - (u64)range < reserved; }
u64 memory_base(void) { return (u64)range; }
int memory_register(u64 address, u64 bytes) {
    for (u32 i = 0; i < registrations; i++)
        if (address < registered[i].address + registered[i].bytes && registered[i].address < address + bytes)
            return hipErrorHostMemoryAlreadyRegistered;
    if (memory_inside(address) || memory_inside(address + bytes - 1)) return hipErrorHostMemoryAlreadyRegistered;
    Block *more = realloc(registered, (registrations + 1) * sizeof *more);
    if (!more) return hipErrorOutOfMemory;
    registered = more;
    registered[registrations++] = (Block){address, bytes, BLOCK_REGISTERED};
    return hipSuccess;
}
int memory_unregister(u64 address) {
    for (u32 i = 0; i < registrations; i++)
        if (registered[i].address == address) { registered[i] = registered[--registrations]; return hipSuccess; }
    return hipErrorHostMemoryNotRegistered;
}
/* The allocation of the host program whose end or start is nearest. */
const Block *memory_near(u64 address) {
    u32 i = after(address), up_to = i;
    while (i && (blocks[i - 1].kind == BLOCK_CODE || blocks[i - 1].kind == BLOCK_ARGUMENTS)) i--;
    while (up_to < count && (blocks[up_to].kind == BLOCK_CODE || blocks[up_to].kind == BLOCK_ARGUMENTS)) up_to++;
    const Block *below = i ? blocks + i - 1 : 0, *above = up_to < count ? blocks + up_to : 0;
    if (!below || !above) return below ? below : above;
    u64 down = address - below->address, up = above->address - address;
    down = down > below->bytes ? down - below->bytes : 0;
    return down <= up ? below : above;
}
u64 memory_used(void) { return used; }
void memory_reset(void) {
    registrations = 0;
    while (count) memory_give(blocks[count - 1].address, blocks[count - 1].kind);
}
