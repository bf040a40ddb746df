/* SPDX-License-Identifier: Apache-2.0 */
/* added.h: added tokens, the words that are cut out of the text before anything else looks at it
 * (<|endoftext|>, <|begin_of_text|>, runs of spaces, ...), and found leftmost first, longest first.
 *
 * There are two sets, as in the reference: tokens with `normalized` false are cut out of the text as it comes, the
 * others out of what the first left over. (The reference normalizes in between; files with a normalizer are refused.)
 *
 * Includes: base. Order: Local; read-only after added_finish.
 */
#ifndef TUTTI_TOKEN_ADDED_H
#define TUTTI_TOKEN_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
    char *text; /* owned; n bytes and a NUL */
    size_t n;
    int32_t id;
    bool special;      /* left out when text is decoded for people */
    bool single_word;  /* only where no letter, digit, mark, joiner or "_" is before or after */
    bool strip_before; /* "lstrip": takes the white space before it along */
    bool strip_after;  /* "rstrip" */
};

struct added {
    struct added_token *tokens; /* after added_finish: by first byte, longer first */
    int n, room;
    size_t longest;
    bool any_strips_before;
    int32_t first[257];     /* tokens[first[c] .. first[c + 1]) begin with byte c */
    uint16_t common[256];   /* bytes that all tokens beginning with c have in common */
    uint64_t pairs[256][4]; /* some token begins with these two bytes, or is the first alone */
};

void added_put(struct added *a, const struct added_token *t); /* copies text */
void added_finish(struct added *a);                           /* sorts */
/* A token of a whose text some other token of b (which may be a) has too; *other gets that one. NULL: none. */
const struct added_token *added_twice(const struct added *a, const struct added *b, const struct added_token **other);
void added_fini(struct added *a);

/* The first token in p[from..n), whatever stands around it, or NULL. Unless `final`, only tokens that text after p[n)
 * cannot change are found; *sure then says up to where the text is known to hold no other beginning. */
const struct added_token *added_find(const struct added *a, const unsigned char *p, size_t from, size_t n, bool final,
                                     size_t *at, size_t *sure);

#endif
