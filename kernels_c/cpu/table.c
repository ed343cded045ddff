/* table.c: op id to kernel, for the instruction set this file is compiled for. */
#include "cpu.h"

extern const ie_kernel IE_NAME(ie_kernels)[IE_OP_COUNT];
const ie_kernel IE_NAME(ie_kernels)[IE_OP_COUNT] = {
    [IE_OP_EMBED] = IE_NAME(ie_embed),
    [IE_OP_GATHER] = IE_NAME(ie_gather),
    [IE_OP_RMSNORM] = IE_NAME(ie_rmsnorm),
    [IE_OP_QUANTIZE] = IE_NAME(ie_quantize),
    [IE_OP_MATMUL] = IE_NAME(ie_matmul),
    [IE_OP_ROPE] = IE_NAME(ie_rope),
    [IE_OP_ATTENTION] = IE_NAME(ie_attention),
    [IE_OP_GLU] = IE_NAME(ie_glu),
    [IE_OP_ADD] = IE_NAME(ie_add),
    [IE_OP_SOFTCAP] = IE_NAME(ie_softcap),
    [IE_OP_CONV] = IE_NAME(ie_conv),
    [IE_OP_DELTANET] = IE_NAME(ie_deltanet),
    [IE_OP_RING_PUT] = IE_NAME(ie_ring_put),
    [IE_OP_RING_GET] = IE_NAME(ie_ring_get),
    [IE_OP_PICK] = IE_NAME(ie_pick),
    [IE_OP_ROUTE] = IE_NAME(ie_route),
    [IE_OP_EXPERTS] = IE_NAME(ie_experts),
    [IE_OP_COMBINE] = IE_NAME(ie_combine),
};
