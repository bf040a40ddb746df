/* added.h: added tokens, the words that are cut out of the text before anything else looks at it
 * (<|endoftext|>, <|begin_of_text|>, runs of spaces, ...), and found leftmost first, longest first.
 *
 * Includes: base. Order: Local; read-only after added_finish.
 */
#ifndef TUTTI_DATA_ADDED_H
#define TUTTI_DATA_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct added_token {
    char *text; /* owned; n bytes and a NUL */
    size_t n;
    int32_t id;
    bool special;      /* left out when text is decoded for people */
    bool normalized;   /* searched in a second pass by the reference; see added_finish */
    bool strip_before; /* "lstrip": takes the white space before it along */
    bool strip_after;  /* "rstrip" */
};

struct added {
    struct added_token *tokens; /* after added_finish: by first byte, longer first */
    int n, room;
    size_t longest;
    bool any_strips_before;
    int32_t first[257];   /* tokens[first[c] .. first[c + 1]) begin with byte c */
    uint16_t common[256]; /* bytes that all tokens beginning with c have in common */
};

void added_put(struct added *a, const struct added_token *t); /* copies text */
/* Sorts. The reference makes two passes, first over tokens with normalized false, then over the others; one pass is
 * the same unless a token of one kind overlaps one of the other, which is refused. */
int added_finish(struct added *a, const char *what, struct err *e);
void added_fini(struct added *a);

/* The first token in p[from..n), or NULL. Unless `final`, only tokens that text after p[n) cannot change are
 * found; *sure then says up to where the text is known to hold no other beginning. */
const struct added_token *added_find(const struct added *a, const unsigned char *p, size_t from, size_t n, bool final,
                                     size_t *at, size_t *sure);

#endif
