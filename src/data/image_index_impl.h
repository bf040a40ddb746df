/* SPDX-License-Identifier: Apache-2.0 */
/* image_index_impl.h: what the files of image_index.h share: the file's form, and what it is made of. Includes: base,
 * data, source. Order: Local. */
#ifndef TUTTI_DATA_IMAGE_INDEX_IMPL_H
#define TUTTI_DATA_IMAGE_INDEX_IMPL_H

#include "base/fs.h"
#include "data/energon_mix.h"
#include "data/image_index.h"
#include "data/image_scan.h"
#include "data/sample_keys.h"
#include "source/blob.h"
#include "source/source_list.h"

/* The file: a head, then a row of 40 bytes a sample. Integers are little-endian. */
#define IMAGE_INDEX_MAGIC "TUTTIIMG"
enum { IMAGE_INDEX_VERSION = 1 };
struct image_head {
    char magic[8];
    uint64_t version, key;
    int64_t n_rows, n_shards, n_bad;
    uint64_t rows_sum; /* of all rows */
    uint64_t sum;      /* of this head before it */
};

struct image_row {
    int64_t header, offset;
    uint32_t bytes, shard;
    int32_t label;
    uint32_t zero;
    uint64_t sum; /* of the row, with its number here */
};
_Static_assert(sizeof(struct image_row) == 40 && sizeof(struct image_head) == 64, "the file's form");

uint64_t image_row_sum(struct image_row r, int64_t i);

/* A sample's picture and label, as far as its shard has them. */
struct image_partner {
    int64_t header, offset;
    uint32_t bytes, shard;
    int32_t label;
};

/* Shards that belong together: all there are, or a folder of those that are joined. */
struct image_set {
    struct image_scan_options scan;
    int64_t first;          /* of the list's shards */
    struct energon energon; /* where it is one of Energon's */
    enum energon_nonmatch nonmatch;
    const char *folder;
    struct sample_keys keys;     /* of a folder that is joined, or joins: its samples */
    struct image_partner *found; /* [n] by the keys' values, of those that are joined to the first */
    int64_t n, room;
};

/* What an input is made of, before anything is read. */
struct image_input {
    struct source_list *list;
    struct image_set *set; /* [n_sets] */
    int n_sets;
    bool has_energon;
    struct energon_subset subset;
};
/* Folders are joined by key. */
static inline bool image_input_joined(const struct image_input *in) { return in->n_sets > 1; }

/* -- image_input.c -------------------------------------------------------------------------------------------- */

/* in->list is the caller's; in any case image_input_fini. */
int image_input_list(struct image_input *in, const struct image_index_options *o, struct err *e);
uint64_t image_input_key(const struct image_input *in, const struct image_index_options *o);
void image_input_fini(struct image_input *in);

/* -- image_index_make.c --------------------------------------------------------------------------------------- */

/* Until the file is there, made by this process (*made) or by another one. */
int image_index_make(struct image_input *in, const struct image_index_options *o, const char *path, uint64_t key,
                     bool *made, struct err *e);

/* -- image_index.c -------------------------------------------------------------------------------------------- */

/* A shard that is listed: read at places; from its beginning. */
int image_shard_file(struct fs_file *f, struct source_list *l, const struct source_file *listed, struct err *e);
int image_shard_blob(struct blob **b, struct source_list *l, const struct source_file *listed, struct err *e);

#endif
