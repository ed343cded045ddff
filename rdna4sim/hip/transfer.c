/* The HIP C ABI: allocation, copies, filling, pointers. An address of the host is an address of the device. */
#include "host.h"
#include <string.h>

#define HOST_FLAGS 0xf000000fu
enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, EITHER, DEVICE_TO_DEVICE_NO_KERNEL = 1024 };
enum { MEMORY_UNREGISTERED, MEMORY_HOST, MEMORY_DEVICE, MEMORY_MANAGED };

static int take(void **out, size_t bytes, u32 kind, int allowed, const void *stream) {
    int code = begin();
    if (code || !out || !allowed) return done(code ? code : hipErrorInvalidValue);
    if (!stream_known(stream)) return done(hipErrorContextIsDestroyed);
    *out = bytes ? memory_take(bytes, kind) : 0;
    return done(bytes && !*out ? hipErrorOutOfMemory : hipSuccess);
}
static int give(void *p, u32 kind, u32 or_kind, const void *stream) {
    int code = begin();
    if (code) return done(code);
    if (!stream_known(stream)) return done(hipErrorContextIsDestroyed);
    if (!p) return done(hipSuccess);
    return done(memory_give((u64)p, kind) || memory_give((u64)p, or_kind) ? hipSuccess : hipErrorInvalidValue);
}
static int host_flags(u32 flags) { return !(flags & ~HOST_FLAGS) && (flags & 0xc0000000u) != 0xc0000000u; }
PUBLIC int hipMalloc(void **out, size_t bytes) { return take(out, bytes, BLOCK_DEVICE, 1, 0); }
PUBLIC int hipExtMallocWithFlags(void **out, size_t bytes, u32 flags) { return take(out, bytes, BLOCK_DEVICE, flags <= 3, 0); }
PUBLIC int hipMallocManaged(void **out, size_t bytes, u32 flags) {
    return take(out, bytes, BLOCK_MANAGED, bytes && (flags == 1 || flags == 2), 0);
}
PUBLIC int hipMallocAsync(void **out, size_t bytes, void *stream) {
    return take(out, bytes, BLOCK_DEVICE, 1, stream);
}
PUBLIC int hipHostMalloc(void **out, size_t bytes, u32 flags) { return take(out, bytes, BLOCK_HOST, host_flags(flags), 0); }
PUBLIC int hipHostAlloc(void **out, size_t bytes, u32 flags) { return take(out, bytes, BLOCK_HOST, host_flags(flags), 0); }
PUBLIC int hipMallocHost(void **out, size_t bytes) { return take(out, bytes, BLOCK_HOST, 1, 0); }
PUBLIC int hipMemAllocHost(void **out, size_t bytes) { return take(out, bytes, BLOCK_HOST, 1, 0); }
PUBLIC int hipFree(void *p) { return give(p, BLOCK_DEVICE, BLOCK_MANAGED, 0); }
PUBLIC int hipFreeAsync(void *p, void *stream) { return give(p, BLOCK_DEVICE, BLOCK_DEVICE, stream); }
PUBLIC int hipHostFree(void *p) { return give(p, BLOCK_HOST, BLOCK_HOST, 0); }
PUBLIC int hipFreeHost(void *p) { return give(p, BLOCK_HOST, BLOCK_HOST, 0); }
PUBLIC int hipMemGetInfo(size_t *left, size_t *total) {
    int code = begin();
    if (code || (!left && !total)) return done(code ? code : hipErrorInvalidValue);
    if (left) *left = DEVICE_MEMORY - memory_used();
    if (total) *total = DEVICE_MEMORY;
    return done(hipSuccess);
}

/* Memory of the host program that kernels may touch from now on, under its own address. */
PUBLIC int hipHostRegister(void *p, size_t bytes, u32 flags) {
    int code = begin();
    if (code) return done(code);
    if (!p || !bytes || flags & ~0xfu || bytes > ~(u64)p) return done(hipErrorInvalidValue);
    return done(memory_register((u64)p, bytes));
}
PUBLIC int hipHostUnregister(void *p) {
    int code = begin();
    return done(code ? code : p ? memory_unregister((u64)p) : hipErrorInvalidValue);
}
PUBLIC int hipHostGetDevicePointer(void **out, void *p, u32 flags) {
    int code = begin();
    const Block *b = memory_find((u64)p);
    if (code) return done(code);
    if (!out || flags || !b || (b->kind != BLOCK_HOST && b->kind != BLOCK_MANAGED && b->kind != BLOCK_REGISTERED))
        return done(hipErrorInvalidValue);
    *out = p;
    return done(hipSuccess);
}
typedef struct { u32 type; int device; void *on_device, *on_host; int managed; u32 flags; } Attributes;
PUBLIC int hipPointerGetAttributes(Attributes *out, const void *p) {
    int code = begin();
    if (code || !out || !p) return done(code ? code : hipErrorInvalidValue);
    const Block *b = memory_find((u64)p);
    *out = (Attributes){.device = b ? 0 : -1};
    if (!b) return done(hipSuccess);
    int managed = b->kind == BLOCK_MANAGED, host = b->kind == BLOCK_HOST || b->kind == BLOCK_REGISTERED;
    out->type = managed ? MEMORY_MANAGED : host ? MEMORY_HOST : MEMORY_DEVICE;
    out->managed = managed;
    out->on_device = (void *)p;
    out->on_host = managed || host ? (void *)p : 0;
    return done(hipSuccess);
}
PUBLIC int hipMemGetAddressRange(void **base, size_t *bytes, void *p) {
    int code = begin();
    const Block *b = memory_find((u64)p);
    if (code || !b) return done(code ? code : hipErrorNotFound);
    if (base) *base = (void *)b->address;
    if (bytes) *bytes = b->bytes;
    return done(hipSuccess);
}

/* One side of a copy: what is said to be the device's must lie in one allocation, and so must anything in its range. */
static int side(const void *p, u64 bytes, int device) {
    const Block *b = memory_find((u64)p);
    if (b) return bytes <= b->address + b->bytes - (u64)p;
    return p && !device && !memory_inside((u64)p) && bytes <= ~(u64)p;
}
static int copy(void *to, const void *from, u64 bytes, int kind, const void *stream) {
    int code = begin();
    if (code) return done(code);
    if (!stream_known(stream)) return done(hipErrorContextIsDestroyed);
    if ((kind < HOST_TO_HOST || kind > EITHER) && kind != DEVICE_TO_DEVICE_NO_KERNEL) return done(hipErrorInvalidMemcpyDirection);
    int both = kind == DEVICE_TO_DEVICE || kind == DEVICE_TO_DEVICE_NO_KERNEL;
    if (!bytes) return done(hipSuccess);
    if (!side(to, bytes, both || kind == HOST_TO_DEVICE) || !side(from, bytes, both || kind == DEVICE_TO_HOST))
        return done(hipErrorInvalidValue);
    memmove(to, from, bytes);
    return done(hipSuccess);
}
PUBLIC int hipMemcpy(void *to, const void *from, size_t n, int kind) { return copy(to, from, n, kind, 0); }
PUBLIC int hipMemcpyAsync(void *to, const void *from, size_t n, int kind, void *s) { return copy(to, from, n, kind, s); }
PUBLIC int hipMemcpyWithStream(void *to, const void *from, size_t n, int kind, void *s) { return copy(to, from, n, kind, s); }
PUBLIC int hipMemcpyHtoD(void *to, const void *from, size_t n) { return copy(to, from, n, HOST_TO_DEVICE, 0); }
PUBLIC int hipMemcpyHtoDAsync(void *to, const void *from, size_t n, void *s) { return copy(to, from, n, HOST_TO_DEVICE, s); }
PUBLIC int hipMemcpyDtoH(void *to, const void *from, size_t n) { return copy(to, from, n, DEVICE_TO_HOST, 0); }
PUBLIC int hipMemcpyDtoHAsync(void *to, const void *from, size_t n, void *s) { return copy(to, from, n, DEVICE_TO_HOST, s); }
PUBLIC int hipMemcpyDtoD(void *to, const void *from, size_t n) { return copy(to, from, n, DEVICE_TO_DEVICE, 0); }
PUBLIC int hipMemcpyDtoDAsync(void *to, const void *from, size_t n, void *s) { return copy(to, from, n, DEVICE_TO_DEVICE, s); }
PUBLIC int hipMemcpyPeerAsync(void *to, int device, const void *from, int other, size_t n, void *s) {
    if (!device && !other) return copy(to, from, n, DEVICE_TO_DEVICE, s);
    look();
    return done(hipErrorInvalidDevice);
}
PUBLIC int hipMemcpyPeer(void *to, int device, const void *from, int other, size_t n) {
    return hipMemcpyPeerAsync(to, device, from, other, n, 0);
}

/* `count` elements of `width` bytes. */
static int fill(void *to, u32 value, u64 count, u32 width, const void *stream) {
    int code = begin();
    if (code) return done(code);
    if (!stream_known(stream)) return done(hipErrorContextIsDestroyed);
    if (!count) return done(hipSuccess);
    if (count > ~0ull / width || !side(to, count * width, 1) || (u64)to % width) return done(hipErrorInvalidValue);
    if (width == 1) memset(to, (int)value, count);
    else for (u64 i = 0; i < count; i++) memcpy((u8 *)to + i * width, &value, width);
    return done(hipSuccess);
}
PUBLIC int hipMemset(void *to, int value, size_t n) { return fill(to, (u8)value, n, 1, 0); }
PUBLIC int hipMemsetAsync(void *to, int value, size_t n, void *s) { return fill(to, (u8)value, n, 1, s); }
PUBLIC int hipMemsetD8(void *to, u8 value, size_t n) { return fill(to, value, n, 1, 0); }
PUBLIC int hipMemsetD8Async(void *to, u8 value, size_t n, void *s) { return fill(to, value, n, 1, s); }
PUBLIC int hipMemsetD16(void *to, u16 value, size_t n) { return fill(to, value, n, 2, 0); }
PUBLIC int hipMemsetD16Async(void *to, u16 value, size_t n, void *s) { return fill(to, value, n, 2, s); }
PUBLIC int hipMemsetD32(void *to, int value, size_t n) { return fill(to, (u32)value, n, 4, 0); }
PUBLIC int hipMemsetD32Async(void *to, int value, size_t n, void *s) { return fill(to, (u32)value, n, 4, s); }
