/* Device memory: one reserved range of the host's addresses; a device address is a host address.
 *
 * Each allocation stands on pages of its own with a page between it and the next, and the table holds its exact size, so that
 * an access behind the end is in no allocation. Small allocations start with a pattern that differs by seed.
 */
#include "host.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
#define RANGE (64ull << 30)
#define FILL_LIMIT (64ull << 20)

static u8 *range;
static Block *blocks;
static u32 count, room;
static u64 used;

static int reserve(void) {
    if (range) return 1;
    void *p = mmap(0, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 0;
    range = p;
    return 1;
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

void *memory_take(u64 bytes, u32 kind) {
    if (!bytes || bytes > DEVICE_MEMORY || !reserve()) return 0;
    if (kind == BLOCK_DEVICE && used + bytes > DEVICE_MEMORY) return 0;
    u64 at = (u64)range + PAGE;
    u32 i = 0;
    for (; i < count && blocks[i].address - at < pages(bytes); i++) at = blocks[i].address + pages(blocks[i].bytes);
    if (at + pages(bytes) > (u64)range + RANGE) return 0;
    if (count == room) {
        Block *more = realloc(blocks, (room = room * 2 + 64) * sizeof *blocks);
        if (!more) return 0;
        blocks = more;
    }
    memmove(blocks + i + 1, blocks + i, (count - i) * sizeof *blocks);
    blocks[i] = (Block){at, bytes, kind};
    count++;
    if (kind == BLOCK_DEVICE) used += bytes;
    if (bytes <= FILL_LIMIT) memset((void *)at, (int)(0xcb ^ (settings.seed & 0x1f)), bytes);
    return (void *)at;
}
int memory_give(u64 address, u32 kind) {
    u32 i = after(address);
    if (!i || blocks[i - 1].address != address || blocks[i - 1].kind != kind) return 0;
    if (kind == BLOCK_DEVICE) used -= blocks[i - 1].bytes;
    madvise((void *)address, pages(blocks[i - 1].bytes), MADV_DONTNEED);
    memmove(blocks + i - 1, blocks + i, (count - i) * sizeof *blocks);
    count--;
    return 1;
}
const Block *memory_find(u64 address) {
    u32 i = after(address);
    return i && address - blocks[i - 1].address < blocks[i - 1].bytes ? blocks + i - 1 : 0;
}
/* The allocation whose end or start is nearest. */
const Block *memory_near(u64 address) {
    u32 i = after(address);
    const Block *below = i ? blocks + i - 1 : 0, *above = i < count ? blocks + i : 0;
    if (!below || !above) return below ? below : above;
    u64 down = address - below->address, up = above->address - address;
    down = down > below->bytes ? down - below->bytes : 0;
    return down <= up ? below : above;
}
u64 memory_used(void) { return used; }
void memory_reset(void) {
    while (count) memory_give(blocks[count - 1].address, blocks[count - 1].kind);
}
