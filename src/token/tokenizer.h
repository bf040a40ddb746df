/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h: text to token ids and back, without holding the text in memory.
 *
 * `byte`: ids 0..255 are the bytes, 256 separates documents, vocabulary 257. Every other kind is read from a Hugging
 * Face tokenizer.json: BPE over bytes (GPT-2, Llama 3, Qwen, DeepSeek), BPE over characters (Llama 2, Mistral, Gemma),
 * Unigram (T5, ALBERT), WordPiece (BERT), WordLevel, with their normalizers, pre-tokenizers, decoders and added tokens,
 * and with the ids the `tokenizers` library gives. What a file asks for beyond that is refused by name, never ignored.
 *
 * Of a template (post_processor) what it puts before a text counts (tokenizer_begin): documents of training data begin
 * with it, and so does a text that a model is asked with. What it puts behind one does not: documents end with the
 * end-of-text token, and a text that is to be continued with nothing. `truncation` and `padding` of a file are for a
 * library's callers and have no effect.
 *
 * Invariants
 *   1. decode(encode(x)) == x for any bytes x, valid UTF-8 or not, except where the file itself asks for text to be
 *      dropped or added (lstrip, rstrip, add_prefix_space, normalizers, unknown tokens, ...).
 *   2. The ids do not depend on how the text was parted into encoder_feed calls.
 *   3. Memory does not grow with the text, except by runs that a step has to see whole (white space at a text's end,
 *      and what split.h and normalizer.h name). Where a kind has no rule that cuts text, and merges would reach across
 *      all of it, pieces of SPLIT_PIECE_MAX bytes are cut.
 *   4. Where a vocabulary has tokens for bytes and text is not valid UTF-8 each offending byte is a piece of its own,
 *      and the valid text around it is encoded as if it stood alone. Where it has none, that text is read with U+FFFD
 *      for as much as begins like a character, as Python decodes it with "replace".
 *   5. The byte tokenizer never looks for its end-of-text id in the text: bytes in, the same bytes out.
 * Includes: base, tokens.h. Order: Local; a tokenizer is read-only after opening and may be shared by threads; an
 * encoder or decoder belongs to one thread.
 */
#ifndef TUTTI_TOKEN_TOKENIZER_H
#define TUTTI_TOKEN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "token/tokens.h"

enum tokenizer_kind {
    TOKENIZER_BYTE,
    TOKENIZER_BPE,        /* over bytes */
    TOKENIZER_CHAR_BPE,   /* over characters: SentencePiece's BPE */
    TOKENIZER_UNIGRAM,    /* SentencePiece's Unigram */
    TOKENIZER_WORD_PIECE, /* BERT */
    TOKENIZER_WORD_LEVEL
};

/* -- create ------------------------------------------------------------------------------------------------- */

struct tokenizer;
/* `what`: "byte", a tokenizer.json, or a directory that holds one. A tokenizer_config.json and a config.json beside
 * it are asked for the end-of-text and begin-of-text tokens (tokenizer_ends.c). */
int tokenizer_open(struct tokenizer **t, const char *what, struct err *e);
/* From the text of a tokenizer.json; `what` names it in errors. */
int tokenizer_parse(struct tokenizer **t, const char *json, size_t n, const char *what, struct err *e);
/* The same with the text of its tokenizer_config.json (NULL: none), for who has compared both with their checksums.
 * Where that says nothing of an end or a beginning of a text, eos and bos are taken, which the model has; -1: it has
 * none. */
int tokenizer_parse_files(struct tokenizer **t, const char *json, size_t n, const char *config, size_t config_n,
                          int64_t eos, int64_t bos, const char *what, struct err *e);
struct tokenizer *tokenizer_new_byte(void);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

/* Writes dir/tokenizer.json (byte for byte what was read; for the byte tokenizer a file that tutti reads back as
 * such and other libraries read as BPE without merges) and dir/tokenizer_config.json naming eos and bos. */
int tokenizer_save(const struct tokenizer *t, const char *dir, struct err *e);

/* -- inspect ------------------------------------------------------------------------------------------------ */

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t);
int32_t tokenizer_vocab(const struct tokenizer *t); /* ids are 0 .. vocab - 1 */
int32_t tokenizer_eos(const struct tokenizer *t);   /* separates documents; -1: the files name none */
int32_t tokenizer_bos(const struct tokenizer *t);   /* what the files call so; -1: none */
/* What the tokenizer itself puts before a text (its template; often one token or none): the ids that the `tokenizers`
 * library puts there. Borrowed. */
const struct tokens *tokenizer_begin(const struct tokenizer *t);
/* The same of a tokenizer.json that was parsed, whose ids are below vocab, and the last token behind a text (*end; -1:
 * none). Adds to begin. */
int tokenizer_template(const struct json *root, int64_t vocab, const char *what, struct tokens *begin, int32_t *end,
                       struct err *e);
/* What stands before a text where something must and tokenizer_begin has none (an empty prompt, the first token's
 * probability): bos, else eos; -1: none that a model of `vocab` tokens has. */
int32_t tokenizer_start(const struct tokenizer *t, int64_t vocab);
/* Equal for equal tokenizer.json, byte for byte. */
uint64_t tokenizer_fingerprint(const struct tokenizer *t);
/* What the ids of a whole text hang on, for keys of what was made of them: the fingerprint, and where something stands
 * before a text that as well. What was made before it was put there has another key, and is made again. */
uint64_t tokenizer_key(const struct tokenizer *t);
/* The bytes a token stands for (NUL-terminated; borrowed); "" for an id that is not in use. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *n);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The id of the token with exactly these bytes, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *piece, size_t n);

/* -- use: encode -------------------------------------------------------------------------------------------- */

/* One document at a time: feed any number of parts, then end; ids are added to `out` as soon as they are certain.
 * Fails only when a regular expression of the file exceeds the matcher's limits. */
struct encoder;
struct encoder *encoder_new(const struct tokenizer *t);
void encoder_free(struct encoder *c);
int encoder_feed(struct encoder *c, const void *text, size_t n, struct tokens *out, struct err *e);
int encoder_end(struct encoder *c, struct tokens *out, struct err *e);

/* A whole text at once, or a part of one: nothing is put around it. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, struct tokens *out, struct err *e);
/* A whole text as a document of training data begins, and a prompt: with tokenizer_begin before it. Texts that a
 * template of conversations wrote are not encoded so: it writes its own beginning. */
int tokenizer_encode_text(const struct tokenizer *t, const char *text, size_t n, struct tokens *out, struct err *e);

/* -- use: decode -------------------------------------------------------------------------------------------- */

/* Adds the bytes of n ids; special tokens too when asked for. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n, bool with_special, struct str *out);

/* Text as ids come: what is added to `out` is valid UTF-8 always. A character whose last bytes have not come yet is
 * held back; bytes that can no longer become valid are replaced by U+FFFD. Zero-initialised with `t` set; whoever
 * pushes calls decoder_end. */
struct decoder {
    const struct tokenizer *t;
    bool with_special;
    unsigned char held[4];
    int n_held;
    struct detok_state *chain; /* made by the first push, freed by decoder_end */
};
void decoder_push(struct decoder *d, int32_t id, struct str *out);
/* Tokens that are not shown: what comes next looks as it does behind them. */
void decoder_pass(struct decoder *d, const int32_t *ids, int64_t n);
void decoder_end(struct decoder *d, struct str *out);

#endif
