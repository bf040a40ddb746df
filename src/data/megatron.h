/* SPDX-License-Identifier: Apache-2.0 */
/* megatron.h: token files of Megatron-LM (its IndexedDataset, version 1): PREFIX.bin beside PREFIX.idx.
 *
 *   PREFIX.bin   the tokens of all sequences, one type, little-endian
 *   PREFIX.idx   magic "MMIDIDX\0\0", version (8 bytes), type (1), sequences S (8), entries D of the documents' table
 *                (8), then S lengths (4 bytes each), S offsets into .bin (8), D sequence numbers at which documents
 *                begin, the last one S (8), and of multimodal files S modes (1)
 *
 * A file is believed when all that fits: sizes of both files, offsets one behind the other, documents in order.
 * Import: documents become those of a token file. A document of several sequences is their tokens one after the other.
 * An end of text at a document's end stands for the token file's own; where there is none it gets one. Ids are compared
 * with the vocabulary. Export: a document is one sequence, its end of text in it or left out.
 * Includes: base, tokenfile.h, tokenizer.h. Order: Local.
 */
#ifndef TUTTI_DATA_MEGATRON_H
#define TUTTI_DATA_MEGATRON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"
#include "data/tokenfile.h"
#include "token/tokenizer.h"

#define MEGATRON_TYPES "uint8|int8|int16|int32|int64|uint16"

/* -- read ---------------------------------------------------------------------------------------------------- */

/* The prefix that `path` means: itself when path.bin and path.idx are there and it is not, or without its .bin or .idx.
 * NULL when it is none; xfree it. */
char *megatron_find(const char *path);

struct megatron {
    struct fs_file bin, idx;
    int type;  /* row of the table of types */
    int width; /* bytes per token */
    int64_t n_sequences, n_documents, n_tokens;
};
/* Opens both and compares sizes and counts; the tables are compared while they are read. ERR_CORRUPT: they do not fit.
 */
int megatron_open(struct megatron *m, const char *prefix, struct err *e);
void megatron_close(struct megatron *m);
const char *megatron_type(const struct megatron *m); /* "uint16" */

struct megatron_result {
    int64_t documents, tokens; /* of the token file; ends of text included */
    int64_t ended;             /* documents that had an end of text */
    int64_t empty;             /* documents without a token, which are left out */
};
/* Writes the token file path. `give_up` as in tokenize_cached. */
int megatron_import(const struct tokenizer *t, const char *prefix, const char *path, const atomic_int *give_up,
                    struct megatron_result *r, struct err *e);
/* The token file of the prefix in cache_dir, as tokenize_cached has it of texts. *path is to be xfreed. */
int megatron_cached(const struct tokenizer *t, const char *prefix, const char *cache_dir, const atomic_int *give_up,
                    char **path, struct err *e);

/* -- write --------------------------------------------------------------------------------------------------- */

struct megatron_export {
    const char *type; /* one of MEGATRON_TYPES; NULL: as Megatron chooses: uint16 for a vocabulary below 65500, else
                         int32 */
    bool no_eod;      /* documents without their end of text */
};
/* PREFIX.bin and PREFIX.idx of the token file, whole under their names or not at all. Memory: 4 bytes per document.
 * *type is what was written. */
int megatron_write(struct tokenfile *f, const char *prefix, const struct megatron_export *o, struct megatron_result *r,
                   const char **type, struct err *e);

#endif
