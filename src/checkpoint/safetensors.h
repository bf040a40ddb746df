/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h: the file format of weights: an 8-byte length, a JSON header, then the tensors' bytes.
 *
 * Opening reads the header only; a tensor's bytes are read when they are asked for. A set of files behind an index
 * (model.safetensors.index.json) is opened like one file. Files come from outside: every number of the header is
 * checked before it is used. The format carries no checksums: who has some compares them (load.c).
 *
 * Invariants of an open file
 *   1. Every tensor's bytes lie inside its file, none overlap, none are left over, and their number is what
 *      dtype and shape say.
 *   2. Names are unique over all files of a set.
 * Writing streams: the header is known beforehand, the bytes follow in any pieces. The header is padded with
 * spaces so that the data begin at a multiple of SAFETENSORS_ALIGN bytes, a page, and tensors come in the order of the
 * largest power of two that divides their bytes (a page counts for all above it), the largest first: so every tensor
 * begins at a multiple of it, aligned for its type, and those of whole pages at pages, without padding between them,
 * which the format does not allow.
 * Includes: base, layout. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_SAFETENSORS_H
#define TUTTI_CHECKPOINT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "layout/dtype.h"
#include "layout/shape.h"

#define SAFETENSORS_ALIGN ((size_t)4096)
#define SAFETENSORS_HEADER_LIMIT ((size_t)100 << 20) /* the format's own limit */

/* -- reading ------------------------------------------------------------------------------------------------ */

struct safetensors_entry {
    const char *name;       /* borrowed from the open file */
    const char *dtype_text; /* as the header says: "BF16" */
    int dtype;              /* enum dtype, or -1: a type of the format that tutti does not compute with */
    struct shape shape;
    int64_t at; /* where its bytes begin in the file */
    size_t bytes;
    int file; /* position in the set */
};

struct safetensors;
/* path: a .safetensors file, an index (*.index.json), or a directory holding model.safetensors or
 * model.safetensors.index.json.
 *   fails   ERR_REQUEST no such file; ERR_CORRUPT names the file, the tensor and what is wrong with it */
int safetensors_open(struct safetensors **out, const char *path, struct err *e);
/* The same over bytes in memory, which must outlive *out. `what` names them in errors. */
int safetensors_open_memory(struct safetensors **out, const void *p, size_t bytes, const char *what, struct err *e);
void safetensors_close(struct safetensors *s);

int64_t safetensors_count(const struct safetensors *s);
const struct safetensors_entry *safetensors_at(const struct safetensors *s, int64_t i);          /* sorted by name */
const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name); /* or NULL */
/* The file that the set's index names for a tensor that is in none of its files; NULL: it names none. */
const char *safetensors_promised(const struct safetensors *s, const char *name);
int safetensors_n_files(const struct safetensors *s);
const char *safetensors_file(const struct safetensors *s, int file); /* its path */
/* XXH64 of length word and header of a file, which is what lies before the data; *bytes: their number. */
uint64_t safetensors_header(const struct safetensors *s, int file, size_t *bytes);
const char *safetensors_metadata(const struct safetensors *s, const char *key); /* first file; NULL: absent */
/* Bytes [at, at + n) of tensor t. One file of a set is open at a time.
 *   fails   ERR_IO with file and offset: it cannot be read, was cut short or replaced since the opening */
int safetensors_read(struct safetensors *s, const struct safetensors_entry *t, int64_t at, size_t n, void *out,
                     struct err *e);
/* Closes the descriptor; the next read opens it again. For who holds many. */
void safetensors_rest(struct safetensors *s);

/* -- writing ------------------------------------------------------------------------------------------------ */

struct safetensors_spec {
    const char *name;
    enum dtype dtype;
    struct shape shape;
};

struct safetensors_writer;
/* Starts `path` and writes its header. The specs must outlive the writer. metadata: n_metadata pairs
 * key, value, key, value ... (strings). */
int safetensors_writer_open(struct safetensors_writer **w, const char *path, const struct safetensors_spec *specs,
                            int64_t n, const char *const *metadata, int n_metadata, struct err *e);
/* The index of the tensor whose bytes are due, or -1 when all are written. Empty tensors are never due. */
int64_t safetensors_writer_next(const struct safetensors_writer *w);
/* The next bytes of that tensor; at most what is left of it. */
int safetensors_writer_write(struct safetensors_writer *w, const void *p, size_t n, struct err *e);
/* XXH64 of tensor i's bytes, once they are all written (not of one that has sums of chunks); and of length word and
 * header. */
uint64_t safetensors_writer_hash(const struct safetensors_writer *w, int64_t i);
/* The same without a sum of them, for all of that tensor: somebody else makes it. */
int safetensors_writer_put(struct safetensors_writer *w, const void *p, size_t n, struct err *e);
/* Before the first byte: wants an XXH64 of every `chunk` bytes of each tensor that has more. */
void safetensors_writer_chunks(struct safetensors_writer *w, int64_t chunk);
/* Those of tensor i, borrowed until the closing; NULL, *n = 0 when it has one chunk. */
const uint64_t *safetensors_writer_sums(const struct safetensors_writer *w, int64_t i, int64_t *n);
uint64_t safetensors_writer_header_hash(const struct safetensors_writer *w);
int64_t safetensors_writer_bytes(const struct safetensors_writer *w); /* the whole file */
/* Ends the file (synced when asked) and frees w, also on failure. Closing before all bytes are written is only
 * for giving up: the file is then not a valid one. */
int safetensors_writer_close(struct safetensors_writer *w, bool sync, struct err *e);

/* Gives rows [row, row + n_rows) of tensor i (indices of dimension 0; a scalar is one row). Called in file order,
 * with bands of up to 8 MiB, or of one row when that is more. */
typedef int safetensors_source_fn(void *ctx, int64_t i, int64_t row, int64_t n_rows, void *dst, struct err *e);
/* dir/STEM.safetensors when everything fits into shard_bytes, else dir/STEM-00001-of-0000N.safetensors ... and
 * dir/STEM.safetensors.index.json. A tensor is never split: one that is larger than a shard has its own. */
int safetensors_write_set(const char *dir, const char *stem, const struct safetensors_spec *specs, int64_t n,
                          int64_t shard_bytes, safetensors_source_fn *source, void *ctx, struct err *e);

#endif
