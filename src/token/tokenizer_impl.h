/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_impl.h: what a tokenizer is made of; for the files of tokenizer.h and the trainer only. */
#ifndef TUTTI_TOKEN_TOKENIZER_IMPL_H
#define TUTTI_TOKEN_TOKENIZER_IMPL_H

#include "token/added.h"
#include "token/bpe.h"
#include "token/char_bpe.h"
#include "token/detokenizer.h"
#include "token/normalizer.h"
#include "token/split.h"
#include "token/tokenizer.h"
#include "token/unigram.h"
#include "token/word_piece.h"

/* How text is cut into pieces before merging. */
struct cut_rules {
    struct added added[2];         /* cut out of the text as it comes; then, `normalized`, out of what is left */
    struct normalizer *normalizer; /* of what is left by the first; NULL: none */
    struct split *split;
    bool prefix_space; /* "add_prefix_space": a text that does not begin with a space gets one */
    bool repairs;      /* the model has no tokens for bytes: what is not UTF-8 is read as U+FFFD */
};

/* What an added token is called when text is decoded, where that is not its text. */
struct spoken {
    int32_t id;
    struct str text;
};

struct tokenizer {
    enum tokenizer_kind kind;
    char *json; /* the file, NUL-terminated */
    size_t json_n;
    int32_t vocab, eos, bos;
    char *bytes;                     /* the pieces, each followed by a NUL */
    int64_t *at;                     /* piece of id: bytes[at[id]] .. bytes[at[id + 1] - 1] */
    bool *special;                   /* [vocab] */
    struct piece_map ids;            /* text -> id, added tokens too */
    struct piece_map model_ids;      /* the model's own */
    struct tokens begin;             /* what the template puts before a text */
    int32_t template_end;            /* the special token that it puts behind one; -1: none */
    struct bpe bpe;                  /* kind BPE */
    struct char_bpe chars;           /* kind CHAR_BPE */
    struct unigram *unigram;         /* kind UNIGRAM */
    struct word_piece words;         /* kinds WORD_PIECE and WORD_LEVEL */
    struct detokenizer *detokenizer; /* NULL: the tokens' bytes, joined */
    struct spoken *spoken;
    int n_spoken, spoken_room;
    struct cut_rules cut;
};

/* tokenizer_json.c: fills all but json and json_n. */
int tokenizer_read_json(struct tokenizer *t, const char *what, struct err *e);
/* tokenizer_ends.c: fills eos and bos from the names in use and from the files in dir (NULL: none). */
int tokenizer_find_ends(struct tokenizer *t, const char *dir, struct err *e);
/* The same from the text of a tokenizer_config.json (NULL: none), and where that does not say from what the model has
 * (-1: none). */
int tokenizer_take_ends(struct tokenizer *t, const char *config, size_t n, int64_t eos, int64_t bos, const char *what,
                        struct err *e);

#endif
