/* Dequantisation on the CPU: rows of any tensor format to F32, one block after the other.
 *
 * Owns: the choice of the decoder. Formula and bytes of a block: decode.h, compared with ie/formats/ bit for bit.
 * Used where a tensor is read as floats once (embedding rows, norms); matrix ops read the device layouts.
 * No scratch. Bytes: n / block * size read, 4 n written. */
#include <stdint.h>

#include "decode.h"
#include "formats.h"

/* n elements, a whole number of blocks, from src (any alignment) to dst. Returns 0, or -1 for an unknown format, an n
 * that is not a whole number of blocks, or a negative n. */
__attribute__((visibility("default"))) int ie_dequant(int32_t fmt, const uint8_t *src, float *dst, int64_t n);

#define IE_DEQUANT_CASE(NAME, name, ELEMENTS, BYTES)                       \
    case IE_FMT_##NAME:                                                    \
        for (int64_t i = 0; i < n / (ELEMENTS); i++)                       \
            ie_decode_##name(src + i * (BYTES), dst + i * (ELEMENTS));     \
        return 0;

int ie_dequant(int32_t fmt, const uint8_t *src, float *dst, int64_t n) {
    if (fmt < 0 || fmt >= IE_FMT_COUNT || ie_formats[fmt].block == 0) return -1;
    if (n < 0 || n % ie_formats[fmt].block != 0) return -1;
    switch (fmt) {
        IE_FOR_EACH_FORMAT(IE_DEQUANT_CASE)
        default: return -1;
    }
}
