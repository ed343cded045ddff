/* The HIP C ABI: streams and events. A launch has ended when the call returns, so there is never anything to wait for. */
#include "host.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A handle is a number that was never given before: one that was destroyed, or is another library's, is in no table. */
typedef struct { u64 number; u32 flags; int priority, recorded; double wall_ms, estimated; } Handle;
typedef struct { Handle *item; u32 count, room; } Table;
enum { STREAM_LEGACY = 1, STREAM_OF_THREAD = 2, EVENT_NO_TIMING = 2, EVENT_BETWEEN_PROCESSES = 4, PRIORITY_LEAST = 1,
       PRIORITY_GREATEST = -1 };
#define EVENT_FLAGS 0xe0000007u
static Table streams, events;
static u64 numbers = 0x5133000000ull;

static void *table_add(Table *t, u32 flags, int priority) {
    if (t->count == t->room) {
        Handle *more = realloc(t->item, (t->room * 2 + 16) * sizeof *more);
        if (!more) return 0;
        t->item = more, t->room = t->room * 2 + 16;
    }
    numbers += 16;
    t->item[t->count++] = (Handle){.number = numbers, .flags = flags, .priority = priority};
    return (void *)numbers;
}
/* Numbers only grow, so the table is sorted. */
static Handle *table_find(const Table *t, const void *handle) {
    u32 lo = 0, hi = t->count;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (t->item[mid].number < (u64)handle) lo = mid + 1; else hi = mid;
    }
    return lo < t->count && t->item[lo].number == (u64)handle ? t->item + lo : 0;
}
static void table_remove(Table *t, Handle *h) {
    memmove(h, h + 1, (size_t)(t->item + t->count - h - 1) * sizeof *h);
    t->count--;
}
int stream_known(const void *stream) { return (u64)stream <= STREAM_OF_THREAD || table_find(&streams, stream); }
int event_known(const void *event) { return table_find(&events, event) != 0; }
void streams_reset(void) { streams.count = 0; }
void event_mark(const void *event) {
    Handle *h = table_find(&events, event);
    struct timespec now;
    if (!h) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    h->recorded = 1;
    h->wall_ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
    h->estimated = estimated_ms;
}

static int create(Table *t, void **out, u32 flags, u32 allowed, int priority) {
    int code = begin();
    if (code || !out || flags & ~allowed) return done(code ? code : hipErrorInvalidValue);
    *out = table_add(t, flags, priority);
    return done(*out ? hipSuccess : hipErrorOutOfMemory);
}
PUBLIC int hipStreamCreate(void **out) { return create(&streams, out, 0, 1, 0); }
PUBLIC int hipStreamCreateWithFlags(void **out, u32 flags) { return create(&streams, out, flags, 1, 0); }
PUBLIC int hipStreamCreateWithPriority(void **out, u32 flags, int priority) {
    int p = priority < PRIORITY_GREATEST ? PRIORITY_GREATEST : priority > PRIORITY_LEAST ? PRIORITY_LEAST : priority;
    return create(&streams, out, flags, 1, p);
}
PUBLIC int hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    look();
    if (least) *least = PRIORITY_LEAST;
    if (greatest) *greatest = PRIORITY_GREATEST;
    return done(hipSuccess);
}
/* After a fault too: a program that gives up must be able to clean up. */
PUBLIC int hipStreamDestroy(void *stream) {
    look();
    Handle *h = table_find(&streams, stream);
    if (!h) return done((u64)stream <= STREAM_OF_THREAD ? hipErrorInvalidHandle : hipErrorContextIsDestroyed);
    table_remove(&streams, h);
    return done(hipSuccess);
}
static int stream_wait(const void *stream) {
    int code = begin();
    return done(code ? code : stream_known(stream) ? hipSuccess : hipErrorContextIsDestroyed);
}
PUBLIC int hipStreamSynchronize(void *stream) { return stream_wait(stream); }
PUBLIC int hipStreamQuery(void *stream) { return stream_wait(stream); }
PUBLIC int hipStreamWaitEvent(void *stream, void *event, u32 flags) {
    int code = begin();
    if (code || flags > 1) return done(code ? code : hipErrorInvalidValue);
    if (!stream_known(stream)) return done(hipErrorContextIsDestroyed);
    return done(event_known(event) ? hipSuccess : hipErrorInvalidHandle);
}
static int stream_ask(const void *stream, int *out, int what) {
    look();
    if (!out || !stream_known(stream)) return done(out ? hipErrorInvalidHandle : hipErrorInvalidValue);
    const Handle *h = table_find(&streams, stream);
    *out = !h || what == 2 ? 0 : what ? h->priority : (int)h->flags;
    return done(hipSuccess);
}
PUBLIC int hipStreamGetFlags(void *stream, u32 *out) { return stream_ask(stream, (int *)out, 0); }
PUBLIC int hipStreamGetPriority(void *stream, int *out) { return stream_ask(stream, out, 1); }
PUBLIC int hipStreamGetDevice(void *stream, int *out) { return stream_ask(stream, out, 2); }

/* Callbacks may call HIP, so they run without the lock. */
PUBLIC int hipLaunchHostFunc(void *stream, void (*call)(void *), void *data) {
    int code = begin();
    if (!code) code = !call ? hipErrorInvalidValue : stream_known(stream) ? hipSuccess : hipErrorContextIsDestroyed;
    done(code);
    if (!code) call(data);
    return code;
}
PUBLIC int hipStreamAddCallback(void *stream, void (*call)(void *, int, void *), void *data, u32 flags) {
    int code = begin();
    if (!code) code = !call || flags ? hipErrorInvalidValue : stream_known(stream) ? hipSuccess : hipErrorContextIsDestroyed;
    done(code);
    if (!code) call(stream, hipSuccess, data);
    return code;
}

PUBLIC int hipEventCreateWithFlags(void **out, u32 flags) {
    u32 release = flags >> 29;
    if (release & (release - 1) || ((flags & EVENT_BETWEEN_PROCESSES) && !(flags & EVENT_NO_TIMING))) flags = ~0u;
    return create(&events, out, flags, EVENT_FLAGS, 0);
}
PUBLIC int hipEventCreate(void **out) { return create(&events, out, 0, 0, 0); }
PUBLIC int hipEventDestroy(void *event) {
    look();
    Handle *h = table_find(&events, event);
    if (!h) return done(event ? hipErrorContextIsDestroyed : hipErrorInvalidHandle);
    table_remove(&events, h);
    return done(hipSuccess);
}
PUBLIC int hipEventRecord(void *event, void *stream) {
    int code = begin();
    if (!code) code = !event_known(event) ? hipErrorInvalidHandle : stream_known(stream) ? hipSuccess : hipErrorContextIsDestroyed;
    if (!code) event_mark(event);
    return done(code);
}
static int event_wait(const void *event) {
    int code = begin();
    return done(code ? code : event_known(event) ? hipSuccess : hipErrorInvalidHandle);
}
PUBLIC int hipEventSynchronize(void *event) { return event_wait(event); }
PUBLIC int hipEventQuery(void *event) { return event_wait(event); }
/* Wall time of the simulation; with counters and RDNA4SIM_ESTIMATE=1 the card's estimated time. */
PUBLIC int hipEventElapsedTime(float *out, void *start, void *stop) {
    int code = begin();
    if (code || !out) return done(code ? code : hipErrorInvalidValue);
    const Handle *a = table_find(&events, start), *b = table_find(&events, stop);
    if (!a || !b || !a->recorded || !b->recorded || (a->flags | b->flags) & EVENT_NO_TIMING) return done(hipErrorInvalidHandle);
    int estimate = settings.events_estimate && *settings.counters;
    *out = (float)(estimate ? b->estimated - a->estimated : b->wall_ms - a->wall_ms);
    return done(hipSuccess);
}
