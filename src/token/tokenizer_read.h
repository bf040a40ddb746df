/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_read.h: what the files that read a tokenizer.json share; for them only.
 *
 * Order of the parts: which kind it is (tokenizer_models.c), how text is changed and cut (tokenizer_steps.c), the
 * vocabulary, the added tokens, the model's rules, the decoder.
 */
#ifndef TUTTI_TOKEN_TOKENIZER_READ_H
#define TUTTI_TOKEN_TOKENIZER_READ_H

#include "base/json.h"
#include "token/tokenizer_impl.h"

/* One token while the file is read: its bytes are pool[at .. at + n). */
struct entry {
    uint32_t at, n; /* a document has less than 2 GiB */
    bool used;
    bool letters; /* of a byte-level vocabulary: all characters are of the byte alphabet, so merges can name it */
    bool model;   /* the model's own */
    bool special, added;
    bool renamed; /* an added token, whose text is not the bytes that the model's text stands for */
};

struct reader {
    struct tokenizer *t;
    const char *what;
    struct err *e;
    const struct json *root, *model;
    struct str pool;       /* with room for all texts, so that tables may point into it */
    struct entry *entries; /* by id */
    int64_t room;
    int64_t next_added; /* the id that the reference gives the next added token that the model does not have */
    int64_t most;       /* tokens: entries of the vocabulary and added ones */
    int64_t n_model;    /* entries of the vocabulary that were read */
    bool odd;           /* some token of the model is not of letters, or renamed */
    double *scores;     /* by id: Unigram's vocabulary is a list */
};

/* -- tokenizer_json.c: refusals, small questions, tokens ------------------------------------------------------- */

int reader_corrupt(struct reader *r, const char *where, const char *why);
int reader_unsupported(struct reader *r, const char *where, const char *what);
bool json_is(const struct json *v, enum json_kind kind);
bool json_is_set(const struct json *v);      /* there, and not null */
const char *json_type(const struct json *v); /* its "type", "(no type)" */
/* The id of a vocabulary entry is this text's; it is checked and its text kept. */
int reader_token(struct reader *r, const char *text, size_t n, int64_t id);

/* -- tokenizer_models.c ---------------------------------------------------------------------------------------- */

/* Finds the kind from "model" and "pre_tokenizer". */
int reader_kind(struct reader *r);
int reader_vocab(struct reader *r);
/* The token of this text in the model's vocabulary; -1: none. */
int64_t reader_find(const struct reader *r, const char *text, size_t n);
/* Merges, scores, ...: the vocabulary has been moved into the tokenizer. */
int reader_rules(struct reader *r);

/* -- tokenizer_steps.c ----------------------------------------------------------------------------------------- */

int reader_normalizer(struct reader *r);
int reader_pre_tokenizer(struct reader *r);
/* After the model's rules: cuts where no merge reaches across. */
int reader_cuts(struct reader *r);
int reader_decoder(struct reader *r);

#endif
