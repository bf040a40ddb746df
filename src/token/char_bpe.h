/* SPDX-License-Identifier: Apache-2.0 */
/* char_bpe.h: byte-pair merging that begins with characters, as SentencePiece's models do (Llama 2, Mistral, Gemma) and
 * the first BPE did (suffixes at the end of a word).
 *
 * A piece starts as its characters, each a token; a character without a token becomes its bytes (byte_fallback), or the
 * unknown token, or nothing. Then pairs are merged as in bpe.h.
 * Includes: base, bpe.h. Order: Local; struct char_bpe is read-only once finished and shared, a work belongs to one
 * thread.
 */
#ifndef TUTTI_TOKEN_CHAR_BPE_H
#define TUTTI_TOKEN_CHAR_BPE_H

#include "base/str.h"
#include "token/bpe.h"

struct joins; /* below */

struct char_bpe {
    const struct piece_map *ids; /* text -> id; borrowed */
    struct bpe rules;
    bool fallback, fuse_unknown, whole; /* whole: a piece that is a token stays whole ("ignore_merges") */
    int32_t unknown;                    /* -1: characters that have no token are dropped */
    int32_t byte_token[256];            /* "<0xE2>"; -1: none */
    int32_t byte_least, byte_most;      /* of byte_token; no id lies between where there is none */
    struct str prefix, suffix;          /* of tokens that do not begin, that end a piece; owned */
    int32_t *plain;                     /* [0x10000]: the token of a character alone; -1: none */
    struct joins *joins;                /* which characters a merge may bring together; NULL: any */
};
void char_bpe_fini(struct char_bpe *b);
/* ids, fallback, fuse_unknown, whole, unknown and the affixes are set: fills the rest, for n rules. */
void char_bpe_start(struct char_bpe *b, int64_t n_rules);
/* A rule's sides as text, and what `ids` has for the left one, the right one, and both joined without the right one's
 * prefix (-1: none). NULL, or which token is missing ("the left part", "the right part", "the result"). */
const char *char_bpe_put(struct char_bpe *b, const char *left, size_t left_n, const char *right, size_t right_n,
                         const int32_t id[3], int32_t rank);
/* All rules are there. */
void char_bpe_finish(struct char_bpe *b);

/* Pairs of characters that some rule joins. */
enum { RECENT_JOINS = 4096 };
struct joins {
    uint64_t *slots; /* left << 32 | right, plus 1; 0: empty */
    uint64_t mask, n;
    uint64_t recent[RECENT_JOINS]; /* some that are there: most rules join what others do */
    const struct char_bpe *bpe;
    uint64_t ascii[128][2]; /* of ASCII characters, what joins_never says: bit `right` of row `left` */
};
bool joins_never_looked_up(const struct joins *j, uint32_t left, uint32_t right);
/* No merge joins something that ends with `left` to something that begins with `right`, and `right` is a token: text
 * may be cut between them without changing the ids. */
static inline bool joins_never(const struct joins *j, uint32_t left, uint32_t right)
{
    if (left < 128 && right < 128) return j->ascii[left][right / 64] >> right % 64 & 1;
    return joins_never_looked_up(j, left, right);
}

struct char_bpe_work;
struct char_bpe_work *char_bpe_work_new(void);
void char_bpe_work_free(struct char_bpe_work *w);
/* A piece is valid UTF-8, or one byte that is none, which becomes its byte's token. */
void char_bpe_encode(const struct char_bpe *b, struct char_bpe_work *w, const unsigned char *p, size_t n,
                     struct tokens *out);

#endif
