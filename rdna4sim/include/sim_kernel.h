/* The one header that a translated code object includes. */
#ifndef RDNA4SIM_KERNEL_H
#define RDNA4SIM_KERNEL_H
#include "sim_wmma.h"
#include "sim_lds.h"
#include "sim_flat.h"
#ifdef SIM_WEAK
#include "sim_weak.h"
#endif

/* Hand the CPU to another wave; the registers stay on this wave's stack. */
#define YIELD(why, at)                                                                                         \
    do {                                                                                                       \
        w->instructions = ic;                                                                                  \
        w->pc = (at);                                                                                          \
        w->rt->yield(w, (why));                                                                                \
    } while (0)
#endif
