/* Tensor formats and device layouts. Written from ie/formats/ (header.py): do not edit. */
#ifndef IE_FORMATS_H
#define IE_FORMATS_H
#include <stdint.h>

enum ie_format {
    IE_FMT_F32 = 0,
    IE_FMT_F16 = 1,
    IE_FMT_Q4_0 = 2,
    IE_FMT_Q4_1 = 3,
    IE_FMT_Q5_0 = 6,
    IE_FMT_Q5_1 = 7,
    IE_FMT_Q8_0 = 8,
    IE_FMT_Q8_1 = 9,
    IE_FMT_Q2_K = 10,
    IE_FMT_Q3_K = 11,
    IE_FMT_Q4_K = 12,
    IE_FMT_Q5_K = 13,
    IE_FMT_Q6_K = 14,
    IE_FMT_Q8_K = 15,
    IE_FMT_IQ2_XXS = 16,
    IE_FMT_IQ2_XS = 17,
    IE_FMT_IQ3_XXS = 18,
    IE_FMT_IQ1_S = 19,
    IE_FMT_IQ4_NL = 20,
    IE_FMT_IQ3_S = 21,
    IE_FMT_IQ2_S = 22,
    IE_FMT_IQ4_XS = 23,
    IE_FMT_I8 = 24,
    IE_FMT_I16 = 25,
    IE_FMT_I32 = 26,
    IE_FMT_I64 = 27,
    IE_FMT_F64 = 28,
    IE_FMT_IQ1_M = 29,
    IE_FMT_BF16 = 30,
    IE_FMT_TQ1_0 = 34,
    IE_FMT_TQ2_0 = 35,
    IE_FMT_MXFP4 = 39,
    IE_FMT_NVFP4 = 40,
    IE_FMT_Q1_0 = 41,
    IE_FMT_Q2_0 = 42,
    IE_FMT_COUNT = 43
};

/* elements and bytes of a block, by format id; 0, 0 where no format has the id */
typedef struct { uint16_t block, size; } ie_format_row;
static const ie_format_row ie_formats[IE_FMT_COUNT] = {
    [IE_FMT_F32] = {1, 4},
    [IE_FMT_F16] = {1, 2},
    [IE_FMT_Q4_0] = {32, 18},
    [IE_FMT_Q4_1] = {32, 20},
    [IE_FMT_Q5_0] = {32, 22},
    [IE_FMT_Q5_1] = {32, 24},
    [IE_FMT_Q8_0] = {32, 34},
    [IE_FMT_Q8_1] = {32, 36},
    [IE_FMT_Q2_K] = {256, 84},
    [IE_FMT_Q3_K] = {256, 110},
    [IE_FMT_Q4_K] = {256, 144},
    [IE_FMT_Q5_K] = {256, 176},
    [IE_FMT_Q6_K] = {256, 210},
    [IE_FMT_Q8_K] = {256, 292},
    [IE_FMT_IQ2_XXS] = {256, 66},
    [IE_FMT_IQ2_XS] = {256, 74},
    [IE_FMT_IQ3_XXS] = {256, 98},
    [IE_FMT_IQ1_S] = {256, 50},
    [IE_FMT_IQ4_NL] = {32, 18},
    [IE_FMT_IQ3_S] = {256, 110},
    [IE_FMT_IQ2_S] = {256, 82},
    [IE_FMT_IQ4_XS] = {256, 136},
    [IE_FMT_I8] = {1, 1},
    [IE_FMT_I16] = {1, 2},
    [IE_FMT_I32] = {1, 4},
    [IE_FMT_I64] = {1, 8},
    [IE_FMT_F64] = {1, 8},
    [IE_FMT_IQ1_M] = {256, 56},
    [IE_FMT_BF16] = {1, 2},
    [IE_FMT_TQ1_0] = {256, 54},
    [IE_FMT_TQ2_0] = {256, 66},
    [IE_FMT_MXFP4] = {32, 17},
    [IE_FMT_NVFP4] = {64, 36},
    [IE_FMT_Q1_0] = {128, 18},
    [IE_FMT_Q2_0] = {64, 18},
};

/* X(NAME, name, elements, bytes) for each format: a decoder ie_decode_<name> exists for every one */
#define IE_FOR_EACH_FORMAT(X) \
    X(F32, f32, 1, 4) \
    X(F16, f16, 1, 2) \
    X(Q4_0, q4_0, 32, 18) \
    X(Q4_1, q4_1, 32, 20) \
    X(Q5_0, q5_0, 32, 22) \
    X(Q5_1, q5_1, 32, 24) \
    X(Q8_0, q8_0, 32, 34) \
    X(Q8_1, q8_1, 32, 36) \
    X(Q2_K, q2_k, 256, 84) \
    X(Q3_K, q3_k, 256, 110) \
    X(Q4_K, q4_k, 256, 144) \
    X(Q5_K, q5_k, 256, 176) \
    X(Q6_K, q6_k, 256, 210) \
    X(Q8_K, q8_k, 256, 292) \
    X(IQ2_XXS, iq2_xxs, 256, 66) \
    X(IQ2_XS, iq2_xs, 256, 74) \
    X(IQ3_XXS, iq3_xxs, 256, 98) \
    X(IQ1_S, iq1_s, 256, 50) \
    X(IQ4_NL, iq4_nl, 32, 18) \
    X(IQ3_S, iq3_s, 256, 110) \
    X(IQ2_S, iq2_s, 256, 82) \
    X(IQ4_XS, iq4_xs, 256, 136) \
    X(I8, i8, 1, 1) \
    X(I16, i16, 1, 2) \
    X(I32, i32, 1, 4) \
    X(I64, i64, 1, 8) \
    X(F64, f64, 1, 8) \
    X(IQ1_M, iq1_m, 256, 56) \
    X(BF16, bf16, 1, 2) \
    X(TQ1_0, tq1_0, 256, 54) \
    X(TQ2_0, tq2_0, 256, 66) \
    X(MXFP4, mxfp4, 32, 17) \
    X(NVFP4, nvfp4, 64, 36) \
    X(Q1_0, q1_0, 128, 18) \
    X(Q2_0, q2_0, 64, 18) \

/* layouts: a tile of _ROWS rows by _BLOCK elements takes _SIZE bytes; a field starts at its offset */
enum ie_layout {
    IE_L_Q4_1X16 = 1,
    IE_L_Q8_0X16 = 2,
    IE_L_F32X16 = 3,
    IE_L_F16X16 = 4,
    IE_L_BF16X16 = 5,
    IE_L_Q4_0X16 = 6,
    IE_L_Q5_0X16 = 7,
    IE_L_Q5_1X16 = 8,
    IE_L_Q4_KX16 = 9,
    IE_L_Q5_KX16 = 10,
    IE_L_Q6_KX16 = 11,
    IE_L_IQ4_NLX16 = 12,
    IE_L_MXFP4X16 = 13,
    IE_L_IQ4_XSX16 = 14,
    IE_L_Q2_KX16 = 15,
    IE_L_Q3_KX16 = 16,
    IE_L_IQ2_XXSX16 = 17,
    IE_L_IQ2_XSX16 = 18,
    IE_L_IQ2_SX16 = 19,
    IE_L_IQ3_XXSX16 = 20,
    IE_L_IQ3_SX16 = 21,
    IE_L_COUNT = 22
};

#define IE_L_Q4_1X16_ROWS 16
#define IE_L_Q4_1X16_BLOCK 32
#define IE_L_Q4_1X16_SIZE 320
#define IE_L_Q4_1X16_D 0
#define IE_L_Q4_1X16_M 32
#define IE_L_Q4_1X16_Q 64

#define IE_L_Q8_0X16_ROWS 16
#define IE_L_Q8_0X16_BLOCK 32
#define IE_L_Q8_0X16_SIZE 544
#define IE_L_Q8_0X16_D 0
#define IE_L_Q8_0X16_Q 32

#define IE_L_F32X16_ROWS 16
#define IE_L_F32X16_BLOCK 1
#define IE_L_F32X16_SIZE 64
#define IE_L_F32X16_V 0

#define IE_L_F16X16_ROWS 16
#define IE_L_F16X16_BLOCK 1
#define IE_L_F16X16_SIZE 32
#define IE_L_F16X16_V 0

#define IE_L_BF16X16_ROWS 16
#define IE_L_BF16X16_BLOCK 1
#define IE_L_BF16X16_SIZE 32
#define IE_L_BF16X16_V 0

#define IE_L_Q4_0X16_ROWS 16
#define IE_L_Q4_0X16_BLOCK 32
#define IE_L_Q4_0X16_SIZE 288
#define IE_L_Q4_0X16_D 0
#define IE_L_Q4_0X16_Q 32

#define IE_L_Q5_0X16_ROWS 16
#define IE_L_Q5_0X16_BLOCK 32
#define IE_L_Q5_0X16_SIZE 352
#define IE_L_Q5_0X16_D 0
#define IE_L_Q5_0X16_H 32
#define IE_L_Q5_0X16_Q 96

#define IE_L_Q5_1X16_ROWS 16
#define IE_L_Q5_1X16_BLOCK 32
#define IE_L_Q5_1X16_SIZE 384
#define IE_L_Q5_1X16_D 0
#define IE_L_Q5_1X16_M 32
#define IE_L_Q5_1X16_H 64
#define IE_L_Q5_1X16_Q 128

#define IE_L_Q4_KX16_ROWS 16
#define IE_L_Q4_KX16_BLOCK 256
#define IE_L_Q4_KX16_SIZE 2304
#define IE_L_Q4_KX16_D 0
#define IE_L_Q4_KX16_M 32
#define IE_L_Q4_KX16_S 64
#define IE_L_Q4_KX16_Q 256

#define IE_L_Q5_KX16_ROWS 16
#define IE_L_Q5_KX16_BLOCK 256
#define IE_L_Q5_KX16_SIZE 2816
#define IE_L_Q5_KX16_D 0
#define IE_L_Q5_KX16_M 32
#define IE_L_Q5_KX16_S 64
#define IE_L_Q5_KX16_H 256
#define IE_L_Q5_KX16_Q 768

#define IE_L_Q6_KX16_ROWS 16
#define IE_L_Q6_KX16_BLOCK 256
#define IE_L_Q6_KX16_SIZE 3360
#define IE_L_Q6_KX16_D 0
#define IE_L_Q6_KX16_S 32
#define IE_L_Q6_KX16_H 288
#define IE_L_Q6_KX16_Q 1312

#define IE_L_IQ4_NLX16_ROWS 16
#define IE_L_IQ4_NLX16_BLOCK 32
#define IE_L_IQ4_NLX16_SIZE 288
#define IE_L_IQ4_NLX16_D 0
#define IE_L_IQ4_NLX16_Q 32

#define IE_L_MXFP4X16_ROWS 16
#define IE_L_MXFP4X16_BLOCK 32
#define IE_L_MXFP4X16_SIZE 272
#define IE_L_MXFP4X16_E 0
#define IE_L_MXFP4X16_Q 16

#define IE_L_IQ4_XSX16_ROWS 16
#define IE_L_IQ4_XSX16_BLOCK 256
#define IE_L_IQ4_XSX16_SIZE 2176
#define IE_L_IQ4_XSX16_D 0
#define IE_L_IQ4_XSX16_H 32
#define IE_L_IQ4_XSX16_S 64
#define IE_L_IQ4_XSX16_Q 128

#define IE_L_Q2_KX16_ROWS 16
#define IE_L_Q2_KX16_BLOCK 256
#define IE_L_Q2_KX16_SIZE 1344
#define IE_L_Q2_KX16_D 0
#define IE_L_Q2_KX16_M 32
#define IE_L_Q2_KX16_S 64
#define IE_L_Q2_KX16_Q 320

#define IE_L_Q3_KX16_ROWS 16
#define IE_L_Q3_KX16_BLOCK 256
#define IE_L_Q3_KX16_SIZE 1760
#define IE_L_Q3_KX16_D 0
#define IE_L_Q3_KX16_S 32
#define IE_L_Q3_KX16_H 224
#define IE_L_Q3_KX16_Q 736

#define IE_L_IQ2_XXSX16_ROWS 16
#define IE_L_IQ2_XXSX16_BLOCK 256
#define IE_L_IQ2_XXSX16_SIZE 1056
#define IE_L_IQ2_XXSX16_D 0
#define IE_L_IQ2_XXSX16_Q 32
#define IE_L_IQ2_XXSX16_G 544

#define IE_L_IQ2_XSX16_ROWS 16
#define IE_L_IQ2_XSX16_BLOCK 256
#define IE_L_IQ2_XSX16_SIZE 1184
#define IE_L_IQ2_XSX16_D 0
#define IE_L_IQ2_XSX16_Q 32
#define IE_L_IQ2_XSX16_G 544
#define IE_L_IQ2_XSX16_S 1056
#define IE_L_IQ2_XSX16_H 1120

#define IE_L_IQ2_SX16_ROWS 16
#define IE_L_IQ2_SX16_BLOCK 256
#define IE_L_IQ2_SX16_SIZE 1312
#define IE_L_IQ2_SX16_D 0
#define IE_L_IQ2_SX16_Q 32
#define IE_L_IQ2_SX16_G 544
#define IE_L_IQ2_SX16_S 1056
#define IE_L_IQ2_SX16_H 1184

#define IE_L_IQ3_XXSX16_ROWS 16
#define IE_L_IQ3_XXSX16_BLOCK 256
#define IE_L_IQ3_XXSX16_SIZE 1568
#define IE_L_IQ3_XXSX16_D 0
#define IE_L_IQ3_XXSX16_Q 32
#define IE_L_IQ3_XXSX16_G 1056

#define IE_L_IQ3_SX16_ROWS 16
#define IE_L_IQ3_SX16_BLOCK 256
#define IE_L_IQ3_SX16_SIZE 1760
#define IE_L_IQ3_SX16_D 0
#define IE_L_IQ3_SX16_Q 32
#define IE_L_IQ3_SX16_G 1056
#define IE_L_IQ3_SX16_S 1568
#define IE_L_IQ3_SX16_H 1632

#define IE_L_ROWS 128 /* ids from here on: a file format kept as it is, its id added */

/* how a lane's fields come from its file block; unit 0 ends the list */
enum { IE_FIELD_COPY, IE_FIELD_BIAS, IE_FIELD_SPREAD, IE_FIELD_NIBBLES, IE_FIELD_PAIRS };
typedef struct { uint16_t source, offset; uint8_t unit, count, transform; } ie_field;
typedef struct { uint16_t block, size, arranged, format; ie_field field[6]; } ie_layout_row;
static const ie_layout_row ie_layouts[IE_L_COUNT] = {
    [IE_L_Q4_1X16] = {32, 320, 0, IE_FMT_Q4_1, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 2, 1, IE_FIELD_COPY}, {4, 64, 4, 4, IE_FIELD_COPY}}},
    [IE_L_Q8_0X16] = {32, 544, 0, IE_FMT_Q8_0, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 8, IE_FIELD_BIAS}}},
    [IE_L_F32X16] = {1, 64, 0, IE_FMT_F32, {{0, 0, 4, 1, IE_FIELD_COPY}}},
    [IE_L_F16X16] = {1, 32, 0, IE_FMT_F16, {{0, 0, 2, 1, IE_FIELD_COPY}}},
    [IE_L_BF16X16] = {1, 32, 0, IE_FMT_BF16, {{0, 0, 2, 1, IE_FIELD_COPY}}},
    [IE_L_Q4_0X16] = {32, 288, 0, IE_FMT_Q4_0, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 4, IE_FIELD_COPY}}},
    [IE_L_Q5_0X16] = {32, 352, 0, IE_FMT_Q5_0, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 1, IE_FIELD_SPREAD}, {6, 96, 4, 4, IE_FIELD_COPY}}},
    [IE_L_Q5_1X16] = {32, 384, 0, IE_FMT_Q5_1, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 2, 1, IE_FIELD_COPY}, {4, 64, 4, 1, IE_FIELD_SPREAD}, {8, 128, 4, 4, IE_FIELD_COPY}}},
    [IE_L_Q4_KX16] = {256, 2304, 0, IE_FMT_Q4_K, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 2, 1, IE_FIELD_COPY}, {4, 64, 4, 3, IE_FIELD_COPY}, {16, 256, 4, 32, IE_FIELD_COPY}}},
    [IE_L_Q5_KX16] = {256, 2816, 0, IE_FMT_Q5_K, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 2, 1, IE_FIELD_COPY}, {4, 64, 4, 3, IE_FIELD_COPY}, {16, 256, 4, 8, IE_FIELD_COPY}, {48, 768, 4, 32, IE_FIELD_COPY}}},
    [IE_L_Q6_KX16] = {256, 3360, 0, IE_FMT_Q6_K, {{208, 0, 2, 1, IE_FIELD_COPY}, {192, 32, 1, 16, IE_FIELD_COPY}, {128, 288, 4, 16, IE_FIELD_COPY}, {0, 1312, 4, 32, IE_FIELD_COPY}}},
    [IE_L_IQ4_NLX16] = {32, 288, 0, IE_FMT_IQ4_NL, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 4, IE_FIELD_COPY}}},
    [IE_L_MXFP4X16] = {32, 272, 0, IE_FMT_MXFP4, {{0, 0, 1, 1, IE_FIELD_COPY}, {1, 16, 4, 4, IE_FIELD_COPY}}},
    [IE_L_IQ4_XSX16] = {256, 2176, 0, IE_FMT_IQ4_XS, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 2, 1, IE_FIELD_COPY}, {4, 64, 4, 1, IE_FIELD_COPY}, {8, 128, 4, 32, IE_FIELD_COPY}}},
    [IE_L_Q2_KX16] = {256, 1344, 0, IE_FMT_Q2_K, {{80, 0, 2, 1, IE_FIELD_COPY}, {82, 32, 2, 1, IE_FIELD_COPY}, {0, 64, 4, 4, IE_FIELD_COPY}, {16, 320, 4, 16, IE_FIELD_COPY}}},
    [IE_L_Q3_KX16] = {256, 1760, 0, IE_FMT_Q3_K, {{108, 0, 2, 1, IE_FIELD_COPY}, {96, 32, 4, 3, IE_FIELD_COPY}, {0, 224, 4, 8, IE_FIELD_COPY}, {32, 736, 4, 16, IE_FIELD_COPY}}},
    [IE_L_IQ2_XXSX16] = {256, 1056, 1, IE_FMT_IQ2_XXS, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 8, IE_FIELD_COPY}, {34, 544, 1, 32, IE_FIELD_NIBBLES}}},
    [IE_L_IQ2_XSX16] = {256, 1184, 1, IE_FMT_IQ2_XS, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 8, IE_FIELD_COPY}, {34, 544, 1, 32, IE_FIELD_NIBBLES}, {66, 1056, 4, 1, IE_FIELD_COPY}, {70, 1120, 1, 4, IE_FIELD_PAIRS}}},
    [IE_L_IQ2_SX16] = {256, 1312, 1, IE_FMT_IQ2_S, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 8, IE_FIELD_COPY}, {34, 544, 1, 32, IE_FIELD_NIBBLES}, {66, 1056, 4, 2, IE_FIELD_COPY}, {74, 1184, 1, 8, IE_FIELD_PAIRS}}},
    [IE_L_IQ3_XXSX16] = {256, 1568, 1, IE_FMT_IQ3_XXS, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 16, IE_FIELD_COPY}, {66, 1056, 1, 32, IE_FIELD_NIBBLES}}},
    [IE_L_IQ3_SX16] = {256, 1760, 1, IE_FMT_IQ3_S, {{0, 0, 2, 1, IE_FIELD_COPY}, {2, 32, 4, 16, IE_FIELD_COPY}, {66, 1056, 1, 32, IE_FIELD_NIBBLES}, {98, 1568, 4, 1, IE_FIELD_COPY}, {102, 1632, 1, 8, IE_FIELD_PAIRS}}},
};

#endif
