/* pool.h: the thread pool, as the other host files use it. */
#ifndef IE_POOL_H
#define IE_POOL_H

#include <stdatomic.h>
#include <stdint.h>
#include "host.h"

/* A number that threads wait to see change: they spin briefly, then sleep. */
typedef struct {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} ie_event;
uint32_t ie_event_wait(ie_event *e, uint32_t seen);      /* until value != seen; returns it */
void ie_event_set(ie_event *e, uint32_t value);          /* set, and wake those who sleep */

/* Runs fn(arg, i) on the caller (i = 0) and on the workers; returns when all that began have ended.
 * everyone: each worker must run it once. Else it is enough that the caller does: a worker that the system keeps
 * from running takes no part, and nobody waits for it. */
typedef void (*ie_task)(void *arg, int thread);
void ie_pool_run(ie_pool *pool, ie_task fn, void *arg, int everyone);
/* At least `bytes` of memory that lives as long as the pool, 64-byte aligned; NULL when there is none. It grows at most
 * once for each larger program. */
void *ie_pool_scratch(ie_pool *pool, int64_t bytes);
int64_t ie_nanoseconds(void); /* of a clock that only goes forward */
int ie_pool_threads(const ie_pool *pool);
int ie_pool_isa(const ie_pool *pool);

#endif
