/* pool.h: the thread pool, as the other host files use it. */
#ifndef IE_POOL_H
#define IE_POOL_H

#include <stdint.h>
#include "host.h"

/* Runs fn(arg, i) for i = 0 … threads - 1, i = 0 on the caller, and returns when all have. */
typedef void (*ie_task)(void *arg, int thread);
void ie_pool_run(ie_pool *pool, ie_task fn, void *arg);
/* Inside a task: returns when every thread of the pool has called it. */
void ie_pool_barrier(ie_pool *pool);
int ie_pool_threads(const ie_pool *pool);
int ie_pool_isa(const ie_pool *pool);

#endif
