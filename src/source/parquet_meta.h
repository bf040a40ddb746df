/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_meta.h: what the footer of a Parquet file says about one of its columns, and its schema.
 *
 *   a column is named by its path, "text" or "message.content"; what Parquet puts between a list and its items
 *   ("list.element") may be left out. It must be of strings or bytes (BYTE_ARRAY), at any depth of structs, in at most
 *   one list.
 *
 * Nothing is believed: offsets lie inside the file before its footer, counts are those of what is there.
 * Includes: base, blob.h. Order: Local.
 */
#ifndef TUTTI_SOURCE_PARQUET_META_H
#define TUTTI_SOURCE_PARQUET_META_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "source/blob.h"

enum parquet_codec {
    PARQUET_PLAIN,
    PARQUET_SNAPPY,
    PARQUET_GZIP,
    PARQUET_LZO,
    PARQUET_BROTLI,
    PARQUET_LZ4,
    PARQUET_ZSTD,
    PARQUET_LZ4_RAW
};

struct parquet_chunk { /* the column in one row group */
    enum parquet_codec codec;
    int64_t begin, end;  /* its pages, in bytes of the file */
    int64_t n_values;    /* with nulls, and one for each empty list */
    int64_t row, n_rows; /* the first row of the file in it; rows */
    const char *wrong;   /* why it cannot be read; NULL: nothing is known against it */
};
struct parquet_meta {
    char *column;         /* its path in full */
    int max_def, max_rep; /* Dremel's levels: a value that is there has max_def; max_rep is 1 in a list */
    struct parquet_chunk *chunks;
    int64_t n_chunks, n_rows;
    int64_t footer_at; /* where the footer begins */
};

/* ERR_CORRUPT: the file contradicts itself; ERR_REQUEST: it has no such column of text, or is encrypted. */
int parquet_meta_read(struct parquet_meta *m, struct blob *b, const char *column, struct err *e);
/* Of a leaf by its number, in any lists. */
int parquet_meta_read_leaf(struct parquet_meta *m, struct blob *b, int64_t leaf, struct err *e);
void parquet_meta_fini(struct parquet_meta *m);

/* The schema's tree, depth first: below node i are the nodes i + 1 .. after - 1. Node 0 is the row. Every group has
 * nodes below it. */
struct parquet_node {
    char *name;
    int64_t after, leaf;            /* leaf: its number; -1: a group */
    int def, rep;                   /* levels, its own counted */
    bool repeated, is_list, is_map; /* is_list: its one repeated node holds the items */
    bool is_text;                   /* a leaf of strings or bytes */
};
struct parquet_schema {
    struct parquet_node *node;
    int64_t n, n_leaves;
};
int parquet_schema_read(struct parquet_schema *s, struct blob *b, struct err *e);
void parquet_schema_fini(struct parquet_schema *s);

#endif
