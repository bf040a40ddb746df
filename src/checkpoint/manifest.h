/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.h: what a checkpoint directory holds, as data, and its text form manifest.json.
 *
 * A tensor is known by (group, name): group says which of a parameter's companions it is ("param", "master",
 * "m", "v"). Its elements lie in boxes, each a tensor of some safetensors file. The text is one JSON object
 *
 *   {"format": "tutti checkpoint", "version": 2, "tutti": "0.1.0", "step": 500, "tokens": 4096000, "seed": 1,
 *    "publication": 7, "run": "0123456789abcdef", "chunk": 4194304,
 *    "files": [{"name": "boxes-00000.safetensors", "bytes": 1234, "xxh64": "..."}, ...],
 *    "tensors": [{"group": "param", "name": "norm.weight", "dtype": "bf16", "shape": [256],
 *                 "boxes": [{"file": 0, "lo": [0], "n": [256], "bytes": 512, "xxh64": "..."}]}, ...],
 *    "extra": {...},
 *    "xxh64": "of every byte before the comma that precedes this member"}
 *
 * A box of more than "chunk" bytes also has "chunks": the xxh64 of each of its chunks, 16 digits after 16 digits, so
 * that who reads a part of it compares what it reads and no more; its "xxh64" is then that of its chunks' sums, 8 bytes
 * each, little-endian (manifest_root). In version 1 a box's "xxh64" is of its bytes, whether it has chunks or not; the
 * first of them, without "chunk", are read whole. A box's "state" and the manifest's, which may be missing, are sums of
 * values that no layout changes (state_sum.h); "run", which older writers left out, is the name of the run that saved
 * it (keep/run_name.h). docs/checkpoint-format.md is the specification. A file's xxh64 covers
 * its header when its name ends in .safetensors (the boxes have their own), else all of it: every byte of a checkpoint
 * is under some checksum, the manifest's own bytes included.
 *
 * Invariants of a parsed manifest
 *   1. Every box lies in its tensor; bytes = elements x element size.
 *   2. Unless it is a part (one rank's list), (group, name) pairs are unique and the boxes of each tensor tile
 *      it: no element twice, none missing.
 * Includes: base, layout. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_MANIFEST_H
#define TUTTI_CHECKPOINT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "layout/dtype.h"
#include "layout/region.h"

#define MANIFEST_NAME "manifest.json"
#define MANIFEST_VERSION 2
#define MANIFEST_LIMIT ((size_t)1 << 30)
#define MANIFEST_CHUNK ((int64_t)4 << 20) /* what is written: 16 digits of manifest for each 4 MiB */

struct manifest_box {
    struct region box;
    int file; /* position in files */
    int64_t bytes;
    uint64_t hash;          /* of its bytes; where there are chunks, from version 2 on, of their sums */
    const uint64_t *chunks; /* of every m.chunk bytes; NULL: none, and compare all of it with hash */
    int64_t n_chunks;
    bool has_state; /* what older writers left out */
    uint64_t state; /* of its values and their places (state_sum.h) */
};

struct manifest_tensor {
    const char *group, *name;
    enum dtype dtype;
    struct shape shape;
    struct manifest_box *boxes;
    int n_boxes;
};

struct manifest_file {
    const char *name;
    int64_t bytes;
    uint64_t hash;
};

struct manifest {
    int version;       /* of the format; of what is built MANIFEST_VERSION */
    const char *tutti; /* version of the program that wrote it */
    int64_t step;      /* optimizer steps done */
    int64_t tokens;    /* trained so far */
    int64_t seed;
    int64_t publication; /* grows by one with every publication in a directory: which one is newest */
    uint64_t run;        /* name of the run that saved it; 0: it has none, or an older writer left it out */
    int64_t chunk;       /* bytes under one sum of a box's chunks; 0: there are none */
    struct manifest_file *files;
    int n_files;
    struct manifest_tensor *tensors; /* in the writer's order */
    int n_tensors;
    int *by_name;             /* tensor positions sorted by (group, name) */
    uint64_t hash;            /* of the text that was parsed */
    const struct json *extra; /* the writer's own object; NULL when there is none */
    struct json *root;        /* owns extra; NULL for a manifest that was built, not parsed */
    struct arena *arena;      /* owns everything else */
};

void manifest_init(struct manifest *m);
void manifest_fini(struct manifest *m);

/* what: the file's name in errors. part: one rank's list, whose boxes need not tile the tensors.
 *   fails   ERR_CORRUPT with the place; ERR_REQUEST for a version that this program does not know */
int manifest_parse(struct manifest *m, const char *text, size_t n, const char *what, bool part, struct err *e);
int manifest_read(struct manifest *m, const char *path, bool part, struct err *e);
void manifest_print(const struct manifest *m, struct str *out);

/* Sorts by_name and checks invariants 1 and 2; manifest_parse does it, builders call it themselves. */
int manifest_finish(struct manifest *m, const char *what, bool part, struct err *e);
/* Position of a tensor, or -1. */
int manifest_find(const struct manifest *m, const char *group, const char *name);

/* The sum of a tensor's values over all its boxes (state_sum.h); false: not all boxes have one. */
bool manifest_tensor_state(const struct manifest_tensor *t, uint64_t *state);
/* One number of the whole state: every tensor's name, type, shape and sum, step, tokens, seed and loss scale; the same
 * for every layout and number of ranks. After manifest_finish. False: not all tensors have a sum. */
bool manifest_state(const struct manifest *m, uint64_t *state);

/* File fa of a holds, by name, size and the checksums of all of it, what file fb of b does: some boxes, all of them the
 * same. */
bool manifest_same_file(const struct manifest *a, int fa, const struct manifest *b, int fb);

/* The sum of a box from those of its chunks. */
uint64_t manifest_root(const uint64_t *chunks, int64_t n);

/* The key of a box in its safetensors file: "param/norm.weight", or "param/norm.weight[0:128]" when the box is
 * not the whole tensor. */
void manifest_key(struct str *s, const struct manifest_tensor *t, const struct region *box);

#endif
