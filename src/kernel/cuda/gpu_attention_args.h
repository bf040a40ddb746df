/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_attention_args.h: what ATTENTION and ATTENTION_PART launch with. C11 and C++.
 *
 * A block has an outer tile of rows, 16 for each of its warps, and walks inner tiles of the other side: queries and
 * keys forward and for dq, keys and queries for dk and dv. Heads are padded to `wide` columns: 64, 128 or 256. */
#ifndef TUTTI_KERNEL_CUDA_GPU_ATTENTION_ARGS_H
#define TUTTI_KERNEL_CUDA_GPU_ATTENTION_ARGS_H

#include <stddef.h>
#include <stdint.h>

/* By bytes of an element: so that what a block holds fits into its shared memory and its threads' registers. */
#define ATTENTION_WARPS(bytes, wide) ((bytes) == 4 && (wide) > 128 ? 2 : 4)
#define ATTENTION_OUTER(bytes, wide) (16 * ATTENTION_WARPS(bytes, wide))
#define ATTENTION_INNER(bytes, wide, backward) (((wide) > ((backward) ? 64 : 128) ? 32 : 64) / ((bytes) == 4 ? 2 : 1))
/* Backward: how many inner tiles are there at once, so that the next one comes while one is used. */
#define ATTENTION_STAGES(bytes, wide) ((bytes) == 2 && (wide) <= 128 ? 2 : 1)
enum { ATTENTION_THREADS = 128, ATTENTION_WIDEST = 256 };

/* What is asked of a row when it is decided who sees whom. */
struct attention_row {
    int32_t place; /* in its sequence; -1: it is behind the last one */
    int32_t doc;   /* as it stands in the input; 0 where there are none */
    int32_t token; /* its number in its sequence, the place where nothing says otherwise */
};
/* The same of a tile's rows: bounds. */
struct attention_tile {
    int32_t place_lo, place_hi, doc_lo, doc_hi, token_lo, token_hi;
    int32_t in_prefix, rows; /* how many rows are in a prefix, and how many there are */
};

struct attention_rows { /* of q, or of k and v: `rows` of each sequence */
    int64_t rows;
    const int32_t *place;               /* [rows] of a sequence; NULL: the row's number */
    const struct attention_tile *outer; /* [batch][tiles] */
    const struct attention_tile *inner;
};

struct attention_args {
    const void *q, *k, *v, *grad, *o; /* grad: of o */
    int64_t q_step, k_step, v_step, grad_step, o_step;
    void *to[3];         /* o forward; dq, dk, dv backward, NULL: not wanted */
    const void *from[3]; /* what is added to: acc; NULL: nothing */
    int64_t to_step[3], from_step[3];
    float *lse; /* [rows of q][heads] */
    int64_t lse_step;
    float *delta;               /* [rows of q][heads]: o . grad */
    const void *sink;           /* NULL: none */
    const int32_t *doc, *token; /* [batch][seq]; NULL: none */
    struct attention_rows queries, keys;
    int64_t seq, batch, window;
    int heads, kv_heads, head_dim, head_first, kv_first, group;
    int causal, prefix, more;
    int wide_out; /* `to` and `from` are f32, whatever q is */
    float scale, cap;
    int drops;
    float drop_scale;
    uint32_t drop_below;                         /* words below are dropped */
    uint64_t seed, stream, drop_row, drop_heads; /* drop_row: of the call's first sequence and head */
};

struct attention_tiles_args {
    const int32_t *doc, *token, *place;
    struct attention_tile *tile;
    int64_t rows, seq, tiles, all; /* all: tiles of all sequences */
    int each, prefix;              /* rows of a tile */
};

/* Places of the rows of parts `first` and on (layout/sequence.h). */
struct attention_places_args {
    int32_t *place;
    int64_t rows, seq;
    int parts, first;
};

struct attention_sink_args {
    const void *sink;
    const float *lse, *delta, *from;
    float *to;
    int64_t lse_step, rows;
    int heads;
};
struct attention_sink_shared {
    float room[ATTENTION_THREADS / 32];
};

#endif
