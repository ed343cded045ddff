/* dequant.c: rows of any tensor format to F32, one block after the other.
 *
 * Owns: the choice of the decoder. Formula and bytes of a block: decode.h, compared with ie/formats/ bit for bit.
 * Used where a tensor is read as floats once (embedding rows, norms), and by matrix products of formats that have no
 * interleaved layout. No scratch. Bytes: n / block * size read, 4 n written. */
#include "../include/decode.h"
#include "../include/formats.h"
#include "host.h"

#define DEQUANT_CASE(NAME, name, ELEMENTS, BYTES) \
    case IE_FMT_##NAME: \
        for (int64_t i = 0; i < n / (ELEMENTS); i++) \
            ie_decode_##name(src + i * (BYTES), dst + i * (ELEMENTS)); \
        return 0;

int ie_dequant(int32_t format, const uint8_t *src, float *dst, int64_t n)
{
    if (format < 0 || format >= IE_FMT_COUNT || ie_formats[format].block == 0)
        return -1;
    if (n < 0 || n % ie_formats[format].block != 0)
        return -1;
    switch (format) {
        IE_FOR_EACH_FORMAT(DEQUANT_CASE)
    default: return -1;
    }
}
