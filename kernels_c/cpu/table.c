/* table.c: op id to kernel, for the instruction set this file is compiled for. */
#include "cpu.h"

#define ENTRY(NAME, name) [IE_OP_##NAME] = IE_NAME(ie_##name),

extern const ie_kernel IE_NAME(ie_kernels)[IE_OP_COUNT];
const ie_kernel IE_NAME(ie_kernels)[IE_OP_COUNT] = {IE_FOR_EACH_OP(ENTRY)};
