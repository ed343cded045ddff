/* ie_core.h: every integer function that decides an address, a permutation, a nibble, an integer dot
 * product, a geometry, a work split, or whether an arena or a schedule is accepted.
 *
 * Owns: integer arithmetic only. No floating point, no memory allocation, no I/O, no libc.
 * Host C, GPU C and Python (through the exported wrappers in kernels_c/host/core_export.c) all call
 * these functions; nobody derives an index elsewhere. Each is total within the limits stated beside it.
 */
#ifndef IE_CORE_H
#define IE_CORE_H

#include <stdint.h>

#define IE_LANES 16            /* weight rows interleaved in one tile; one lane each */
#define IE_BLOCK 32            /* values along K that share one Q8 activation scale */
#define IE_KV_BLOCK 32         /* positions in one KV block; a power of two */
#define IE_KV_SHIFT 5
#define IE_KV_CHUNK 16         /* blocks in a chunk of the KV cache; a power of two */
#define IE_ATTN_SEGMENT 256    /* positions in one attention segment; a multiple of IE_KV_BLOCK */
#define IE_ALIGN 256           /* byte alignment of arena buffers and device weights */
#define IE_MAX_DECODE_ROWS 16  /* rows of one decode command */
/* Bytes behind an item, in the memory of a device, that a kernel may read and then not use: 16 lanes are loaded where
 * fewer are left. Every allocation has them; nothing is written there. */
#define IE_READ_PAST 64

#define IE_FN static inline

/* ---- small helpers; arguments below 2^62 ---- */

IE_FN int64_t ie_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
IE_FN int64_t ie_align_up(int64_t a, int64_t b) { return ie_div_up(a, b) * b; }
IE_FN int64_t ie_min(int64_t a, int64_t b) { return a < b ? a : b; }
IE_FN int64_t ie_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* First item of part i when n items are split over `parts`; part i is [split(i), split(i+1)). */
IE_FN int64_t ie_split(int64_t n, int64_t parts, int64_t i) { return n / parts * i + ie_min(i, n % parts); }

/* ---- interleaved weight layout ----
 * Row r of a matrix stands in lane r % 16 of row group r / 16. Tiles of one group (one per block along
 * K) follow each other in ascending K; groups in ascending row. Rows that do not fill a group are zero. */

IE_FN int64_t ie_groups(int64_t rows) { return ie_div_up(rows, IE_LANES); }
IE_FN int64_t ie_row_of(int64_t group, int64_t lane) { return group * IE_LANES + lane; }
IE_FN int64_t ie_tile_offset(int64_t group, int64_t block, int64_t blocks_per_row, int64_t tile_bytes)
{
    return (group * blocks_per_row + block) * tile_bytes;
}
IE_FN int64_t ie_matrix_bytes(int64_t rows, int64_t blocks_per_row, int64_t tile_bytes)
{
    return ie_groups(rows) * blocks_per_row * tile_bytes;
}
/* Byte of element e of a lane inside a tile's field of `unit`-byte elements: all lanes of an element side by side. */
IE_FN int64_t ie_field_offset(int64_t element, int64_t lane, int64_t unit)
{
    return (element * IE_LANES + lane) * unit;
}

/* Nibbles: byte j of a 32-value block holds value j in its low and value j + 16 in its high half, so
 * word w holds values 4w..4w+3 (low) and 16+4w..16+4w+3 (high). In what has a big name a word is a uint32_t or a vector
 * of them: lanes of weight rows. */
#define IE_NIBBLES_LOW(word) ((word) & 0x0F0F0F0Fu)
#define IE_NIBBLES_HIGH(word) (((word) >> 4) & 0x0F0F0F0Fu)
#define IE_BYTE(word, i) (((word) >> (8 * (i))) & 255u)
/* Signed codes are stored with their sign bit flipped: code + 128 as an unsigned byte. And back. */
#define IE_BIAS_CODES(word) ((word) ^ 0x80808080u)
#define IE_CODE_BIAS 128
/* Fifth bits of 32 values: bit 4w + b (value 4w + b) moves to bit 8b + w, so that shifting right by w leaves the
 * bits of word w's four values at the bottom of its bytes. A permutation of the 32 bits. */
IE_FN uint32_t ie_spread_bits(uint32_t bits)
{
    uint32_t out = 0;
    for (int w = 0; w < 8; w++)
        for (int b = 0; b < 4; b++)
            out |= ((bits >> (4 * w + b)) & 1u) << (8 * b + w);
    return out;
}

/* Formats whose codes index a grid. Bit 0 of a lane's group of `width` bits in a plane, counted from the field's start:
 * the groups of all lanes stand side by side. Four sign bits a lane make a byte mask of 16 words, two bits a lane one
 * of 32 half-words. */
IE_FN int64_t ie_plane_bit(int64_t plane, int64_t lane, int64_t width) { return (plane * IE_LANES + lane) * width; }
/* Index bytes 0, 1, 2, 3 of a word become 0, 2, 1, 3: shifted right by 8 i, its half-words end in bytes 2i and 2i +
 * 1. */
IE_FN uint32_t ie_pair_bytes(uint32_t word)
{
    return (word & 0xFF0000FFu) | (word >> 8 & 0xFF00u) | (word & 0xFF00u) << 8;
}
/* The same for the four bits of every nibble. */
IE_FN uint32_t ie_pair_bits(uint32_t bits)
{
    return (bits & 0x99999999u) | (bits >> 1 & 0x22222222u) | (bits & 0x22222222u) << 1;
}
/* Four codes of 7 bits, then 4 bits: byte l takes code l, and on top bit l of the 4. A permutation of the 32 bits. */
IE_FN uint32_t ie_sign_bytes(uint32_t a)
{
    uint32_t out = 0;
    for (int l = 0; l < 4; l++)
        out |= ((a >> (7 * l) & 127u) | (a >> (28 + l) & 1u) << 7) << (8 * l);
    return out;
}

/* Unsigned byte i of word a times signed byte i of b, a uint32_t. The sum of four, of type T, int32_t or a vector of
 * them, is an integer dot product: at most 4 * 255 * 128. */
#define IE_PRODUCT_US(T, a, b, i) ((T)IE_BYTE(a, (uint32_t)(i)) * (int32_t)(int8_t)IE_BYTE(b, i))

/* ---- Q8 activations: one row is K codes (int8), then per block of 32 a scale d (f32), the product
 * d * sum(codes) (f32) and minus the sums of its two halves (2 x i32), padded to 64 bytes. K is a multiple of
 * 32. ---- */

IE_FN int64_t ie_q8_blocks(int64_t k) { return ie_div_up(k, IE_BLOCK); }
IE_FN int64_t ie_q8_scale_offset(int64_t k) { return ie_q8_blocks(k) * IE_BLOCK; }
IE_FN int64_t ie_q8_dsum_offset(int64_t k) { return ie_q8_scale_offset(k) + 4 * ie_q8_blocks(k); }
IE_FN int64_t ie_q8_sums_offset(int64_t k) { return ie_q8_scale_offset(k) + 8 * ie_q8_blocks(k); }
IE_FN int64_t ie_q8_row_bytes(int64_t k) { return ie_align_up(ie_q8_scale_offset(k) + 16 * ie_q8_blocks(k), 64); }
IE_FN int64_t ie_f32_row_bytes(int64_t n) { return ie_align_up(4 * n, 64); }

/* ---- paged KV cache: F16. A block holds 32 positions of every KV head. Blocks lie in chunks, and a chunk holds the
 * keys and values of its blocks for all layers: a long context that is not used yet takes no memory, even in huge
 * pages. Within a chunk keys of a layer are [head][block][dim][position] (positions in lanes), values
 * [head][block][position][dim]: what attention goes through for one head lies in runs as long as blocks are handed out
 * in order, and a run is read faster than pieces. `chunk`: elements from one chunk to the next. ---- */

IE_FN int64_t ie_kv_block_of(int64_t pos) { return pos >> IE_KV_SHIFT; }
IE_FN int64_t ie_kv_slot_of(int64_t pos) { return pos & (IE_KV_BLOCK - 1); }
/* Elements of a chunk for keys (or values) of one layer with `heads` KV heads of `dim`. */
IE_FN int64_t ie_kv_chunk_elems(int64_t heads, int64_t dim) { return IE_KV_CHUNK * IE_KV_BLOCK * heads * dim; }
IE_FN int64_t ie_kv_index(int64_t chunk, int64_t block, int64_t dim, int64_t head)
{
    return block / IE_KV_CHUNK * chunk + (head * IE_KV_CHUNK + block % IE_KV_CHUNK) * dim * IE_KV_BLOCK;
}
IE_FN int64_t ie_k_index(int64_t chunk, int64_t block, int64_t dim, int64_t head, int64_t d, int64_t slot)
{
    return ie_kv_index(chunk, block, dim, head) + d * IE_KV_BLOCK + slot;
}
IE_FN int64_t ie_v_index(int64_t chunk, int64_t block, int64_t dim, int64_t head, int64_t slot, int64_t d)
{
    return ie_kv_index(chunk, block, dim, head) + slot * dim + d;
}
/* First visible position for a query at pos under a sliding window (0: no window). */
IE_FN int64_t ie_window_start(int64_t pos, int64_t window)
{
    return window > 0 && pos + 1 > window ? pos + 1 - window : 0;
}
/* Query head i of the `group` that read KV head kv. */
IE_FN int64_t ie_query_head(int64_t kv, int64_t group, int64_t i) { return kv * group + i; }
/* Rows [r, e) of one sequence, and the positions that any of them sees. */
typedef struct {
    int64_t r, e, first, last;
} ie_row_run;
/* The run of rows that begins with row r < end; it ends where the sequence does, or with `end`. */
IE_FN ie_row_run ie_next_run(const int32_t *pos, const int32_t *seq, int64_t window, int64_t r, int64_t end)
{
    ie_row_run run = {r, r, ie_window_start(pos[r], window), pos[r]};
    for (; run.e < end && seq[run.e] == seq[r]; run.e++) {
        run.first = ie_min(run.first, ie_window_start(pos[run.e], window));
        run.last = ie_max(run.last, pos[run.e]);
    }
    return run;
}

/* ---- recurrent state: `slots` copies in a ring. Row t of a segment that starts from slot `in` and keeps the states of
 * its last `keep` rows writes the slot below when t >= count - keep; in = -1 (zero state) counts as slot -1. ---- */

IE_FN int64_t ie_state_slot(int64_t in, int64_t count, int64_t keep, int64_t t, int64_t slots)
{
    return (in + 1 + (t - (count - keep)) + slots) % slots;
}
#define IE_CONV_RING 32 /* positions of raw convolution inputs kept; at least 16 rows and kernel - 1 before them */
IE_FN int64_t ie_conv_slot(int64_t pos) { return pos & (IE_CONV_RING - 1); }
#define IE_MAX_CONV 8   /* taps */

/* ---- geometry: number of independent tiles of a command. Tile indices below it are valid. ---- */

#define IE_COLS_PER_TILE 1024 /* columns that one tile of an element-wise op covers; whole Q8 blocks */

IE_FN int64_t ie_geom_rows(int64_t rows) { return rows; }
IE_FN int64_t ie_geom_matmul(int64_t rows, int64_t m) { return rows > 0 ? ie_groups(m) : 0; }
IE_FN int64_t ie_geom_cols(int64_t rows, int64_t n) { return rows * ie_div_up(n, IE_COLS_PER_TILE); }
/* `used` is half of route_cols; y has m columns for each of them. */
IE_FN int64_t ie_geom_experts(int64_t rows, int64_t y_cols, int64_t route_cols)
{
    const int64_t used = route_cols / 2;
    return rows * used * ie_groups(y_cols / used);
}
IE_FN int64_t ie_geom_heads(int64_t rows, int64_t heads) { return rows * heads; }
/* Attention: a tile has at most IE_ATTN_QUERIES queries of one KV head: some rows and some of the head's query heads.
 * In a step of few rows it has one of IE_ATTN_SHARES shares of the keys besides. With one segment of keys and few KV
 * heads its query heads are dealt out instead, over at most four shares, so that one row keeps several threads busy. */
#define IE_ATTN_QUERIES 32
#define IE_ATTN_SHARES 8
IE_FN int64_t ie_attn_shares(int64_t rows) { return rows <= IE_MAX_DECODE_ROWS ? IE_ATTN_SHARES : 1; }
IE_FN int64_t ie_attn_heads(int64_t group, int64_t kv_heads, int64_t rows)
{
    return ie_min(IE_ATTN_QUERIES, kv_heads > 1 || rows <= IE_MAX_DECODE_ROWS ? group : ie_div_up(group, 4));
}
IE_FN int64_t ie_attn_ways(int64_t heads, int64_t kv_heads) { return kv_heads > 1 ? 1 : ie_min(4, heads); }
IE_FN int64_t ie_attn_rows(int64_t heads) { return ie_min(8, ie_max(1, IE_ATTN_QUERIES / heads)); }
IE_FN int64_t ie_geom_attention(int64_t rows, int64_t heads, int64_t kv_heads)
{
    const int64_t group = heads / kv_heads, some = ie_attn_heads(group, kv_heads, rows);
    return ie_div_up(rows, ie_attn_rows(some)) * kv_heads * ie_div_up(group, some) * ie_attn_shares(rows);
}

/* Results of segments, kept until all of a row's are there: a counter of 64 bytes for each tile, then for each row,
 * head and segment the values, the maximum and the sum. */
IE_FN int64_t ie_attn_part_floats(int64_t dim) { return ie_align_up(dim, 16) + 16; }
/* In floats; at most a tile a row and head. */
IE_FN int64_t ie_attn_counters(int64_t heads) { return 16 * IE_MAX_DECODE_ROWS * heads; }
IE_FN int64_t ie_attn_part_offset(int64_t row, int64_t head, int64_t heads, int64_t dim, int64_t segments)
{
    return ie_attn_counters(heads) + (row * heads + head) * segments * ie_attn_part_floats(dim);
}
IE_FN int64_t ie_attn_parts_bytes(int64_t heads, int64_t dim, int64_t segments)
{
    return 4 * ie_attn_part_offset(IE_MAX_DECODE_ROWS, 0, heads, dim, segments);
}

/* ---- work accounting: bytes that must come from memory, weights, keys and values, states, and one row of activations
 * a row; floating-point operations, a multiply-add being two. pos, seq: of the command's rows; seg: int32 [segs][4], as
 * in the step inputs. What several rows share counts once. ---- */

IE_FN int64_t ie_bytes_matmul(int64_t rows, int64_t m, int64_t blocks_per_row, int64_t tile_bytes, int64_t lanes)
{
    return rows > 0 ? ie_div_up(m, lanes) * blocks_per_row * tile_bytes : 0;
}
IE_FN int64_t ie_bytes_experts(int64_t rows, int64_t route_cols, int64_t stride)
{
    return rows * (route_cols / 2) * stride;
}
IE_FN int64_t ie_bytes_rows(int64_t rows, int64_t n) { return rows * n * 4; }
IE_FN int64_t ie_flops_matmul(int64_t rows, int64_t m, int64_t k) { return 2 * rows * m * k; }
/* Keys and values are F16. q_cols: all query heads. */
IE_FN int64_t ie_bytes_attention(int64_t rows, const int32_t *pos, const int32_t *seq, int64_t window, int64_t q_cols,
                                 int64_t kv_heads, int64_t dim)
{
    int64_t seen = 0;
    for (int64_t r = 0; r < rows;) {
        const ie_row_run run = ie_next_run(pos, seq, window, r, rows);
        seen += run.last - run.first + 1;
        r = run.e;
    }
    return ie_bytes_rows(rows, q_cols) + 2 * 2 * seen * kv_heads * dim;
}
IE_FN int64_t ie_flops_attention(int64_t rows, const int32_t *pos, int64_t window, int64_t q_cols)
{
    int64_t seen = 0;
    for (int64_t r = 0; r < rows; r++)
        seen += pos[r] - ie_window_start(pos[r], window) + 1;
    return 2 * 2 * seen * q_cols;
}
IE_FN int64_t ie_rows_of_segments(int64_t segs, const int32_t *seg)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < segs; i++)
        rows += seg[4 * i + 1];
    return rows;
}
/* The state that a segment starts from, unless that is zero, and those that it keeps: F32 [heads][dim][dim]. */
IE_FN int64_t ie_bytes_deltanet(int64_t segs, const int32_t *seg, int64_t qkv_cols, int64_t heads, int64_t dim)
{
    int64_t states = 0;
    for (int64_t i = 0; i < segs; i++)
        states += (seg[4 * i + 2] >= 0) + seg[4 * i + 3];
    return ie_bytes_rows(ie_rows_of_segments(segs, seg), qkv_cols) + 4 * states * heads * dim * dim;
}
/* For each value of the state: its decay, and a multiply-add each for what it holds of k, the update, and what q
 * reads. */
IE_FN int64_t ie_flops_deltanet(int64_t segs, const int32_t *seg, int64_t heads, int64_t dim)
{
    return 7 * ie_rows_of_segments(segs, seg) * heads * dim * dim;
}
/* Of the ring a segment reads the positions before it that its taps reach, and writes as many as it has rows. */
IE_FN int64_t ie_bytes_conv(int64_t segs, const int32_t *seg, const int32_t *pos, int64_t cols, int64_t taps)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < segs; i++)
        rows += seg[4 * i + 1] + ie_min(taps - 1, pos[seg[4 * i]]) + ie_min(seg[4 * i + 1], IE_CONV_RING);
    return ie_bytes_rows(rows, cols);
}
IE_FN int64_t ie_flops_conv(int64_t segs, const int32_t *seg, int64_t cols, int64_t taps)
{
    return 2 * ie_rows_of_segments(segs, seg) * cols * taps;
}

/* ---- arena check: buffers i with byte ranges [offset, offset + size) that live in commands
 * [first, last]. Accepts (-1) iff every range is aligned, inside the arena, and no two buffers whose
 * lives meet overlap; else the index of the first offender. ---- */

IE_FN int64_t ie_plan_check(int64_t n, const int64_t *offset, const int64_t *size, const int64_t *first,
                            const int64_t *last, int64_t arena)
{
    for (int64_t i = 0; i < n; i++) {
        if (offset[i] < 0 || size[i] < 0 || offset[i] % IE_ALIGN != 0 || offset[i] > arena ||
            size[i] > arena - offset[i] || first[i] > last[i])
            return i;
        for (int64_t j = 0; j < i; j++) {
            int live = first[i] <= last[j] && first[j] <= last[i];
            int meet = offset[i] < offset[j] + size[j] && offset[j] < offset[i] + size[i];
            if (live && meet)
                return i;
        }
    }
    return -1;
}

/* ---- schedule check: access a belongs to command cmd[a] and touches bytes [lo[a], hi[a]) of space
 * space[a], writing iff write[a]. stage[c] is the stage of command c. Accepts (-1) iff stages never
 * decrease and no two commands of one stage conflict; else the index of the first offending access, or n when stages
 * decrease. ---- */

IE_FN int64_t ie_stage_check(int64_t n_cmds, const int64_t *stage, int64_t n, const int64_t *cmd, const int64_t *space,
                             const int64_t *lo, const int64_t *hi, const int64_t *write)
{
    for (int64_t c = 1; c < n_cmds; c++)
        if (stage[c] < stage[c - 1])
            return n;
    for (int64_t a = 0; a < n; a++) {
        if (cmd[a] < 0 || cmd[a] >= n_cmds || lo[a] > hi[a] || (a > 0 && cmd[a] < cmd[a - 1]))
            return a;
        /* Accesses come in command order, so only those of the same stage directly before need a look. */
        for (int64_t b = a - 1; b >= 0 && stage[cmd[b]] == stage[cmd[a]]; b--) {
            int conflict =
                cmd[a] != cmd[b] && space[a] == space[b] && lo[a] < hi[b] && lo[b] < hi[a] && (write[a] || write[b]);
            if (conflict)
                return a;
        }
    }
    return -1;
}

#endif
