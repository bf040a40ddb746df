/* SPDX-License-Identifier: Apache-2.0 */
/* image_index.h: where the pictures of shards lie, found once: a file of one row a sample in the cache, so that sample
 * i is one small read away, whatever the size of the shards, and nothing of it is kept in memory.
 *
 * A sample is the members of one key in a tar shard (source/format_tar.c says what a key is): a picture, and a label, a
 * whole number from 0 on. Finding them reads headers and labels and seeks over the pictures; with skip_bad every
 * picture is decoded, once, on all cores, so that what cannot be is left out and listed (cache.skipped), and the order
 * of samples stays a function of the files.
 *
 * Folders of Megatron-Energon that are joined by key are read one after the other: of all but the first, key and place
 * of each sample are in memory meanwhile (64 bytes a sample), of the first its key.
 *
 * Invariants: 1. rows are in the order of shards and of samples in them; 2. every row carries a checksum over itself
 * and its number; 3. an index is made anew when a shard is added, resized or written to, or other options are chosen.
 * Includes: base, media, source. Order: Local; threads may read at once. Who opens the same cache_dir waits for one who
 * makes it.
 */
#ifndef TUTTI_DATA_IMAGE_INDEX_H
#define TUTTI_DATA_IMAGE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "media/media.h"
#include "remote/remote.h"

struct energon_leaf;
struct image_index_options {
    const struct energon_leaf *energon; /* NULL: path is read. Else a folder of Megatron-Energon, or some joined by key
                                           (energon_mix.h), and path is for messages */
    const char *path;  /* a shard, several in braces, a folder of them, an address; or Megatron-Energon's folder
                          (energon.h) */
    const char *part;  /* of Energon's: "train", "val" */
    const char *label; /* where the label is: extensions, or values in a .json, the first that the sample has:
                          "cls,json[label],txt", which NULL is. Of Energon's its field_map says it */
    int64_t classes;   /* labels are below */
    bool skip_bad;
    struct media_limits limits;
    const char *cache_dir;
    const struct remote_options *remote;
    const atomic_int *give_up; /* as in dataset_options */
};

struct image_index;
/*   fails   ERR_REQUEST, ERR_CORRUPT with shard, sample and byte; ERR_IO; ERR_SIGNAL */
int image_index_open(struct image_index **x, const struct image_index_options *o, struct err *e);
void image_index_close(struct image_index *x); /* NULL is fine */

struct remote *image_index_remote(const struct image_index *x); /* that its shards come by; NULL: they are files */
int64_t image_index_n(const struct image_index *x);
uint64_t image_index_sum(const struct image_index *x); /* of all rows, sizes and labels: not of the pictures' bytes */
struct image_place {
    const char *shard;     /* its path, for messages */
    int64_t offset, bytes; /* of the picture, in the shard */
    int64_t header;        /* of its member */
    int32_t label;
    int shard_number;
};
int image_index_where(const struct image_index *x, int64_t i, struct image_place *p, struct err *e);
/* The picture's bytes into out. ERR_IO: the shard cannot be read, or is another than when the index was opened. */
int image_index_read(struct image_index *x, const struct image_place *p, struct str *out, struct err *e);
/* The sample's key, "folder/n0144_17"; read from its member. */
int image_index_key(struct image_index *x, const struct image_place *p, struct str *out, struct err *e);

#endif
