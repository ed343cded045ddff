/* isa.h: the instruction sets that the kernels of this library are compiled for; see ISAS in build_kernels.py. */
#ifndef IE_ISA_H
#define IE_ISA_H

#include "host.h"

/* X(name in the symbols, IE_ISA_...) */
#if defined(__x86_64__)
#define IE_EACH_ISA(X) X(portable, PORTABLE) X(avx2, AVX2) X(avxvnni, AVXVNNI) X(avx512, AVX512)
#elif defined(__aarch64__)
#define IE_EACH_ISA(X) X(portable, PORTABLE) X(neon, NEON) X(i8mm, I8MM)
#else
#define IE_EACH_ISA(X) X(portable, PORTABLE)
#endif

#endif
