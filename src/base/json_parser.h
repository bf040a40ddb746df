/* SPDX-License-Identifier: Apache-2.0 */
/* json_parser.h: a document while it is read; for json_read.c, json_text.c and json_index.c only.
 * Includes: json_read.h. Order: Local.
 */
#ifndef TUTTI_BASE_JSON_PARSER_H
#define TUTTI_BASE_JSON_PARSER_H

#include <stddef.h>
#include <string.h>

#include "base/json_read.h"

enum {
    JSON_FEW = 8,              /* members that are found by looking at each */
    JSON_WIDE = 16,            /* bytes looked at together */
    JSON_SLACK = 2 * JSON_WIDE /* behind the texts: JSON_WIDE bytes are written where fewer count */
};

struct block {
    struct block *next;
    size_t unused;
};
_Static_assert(sizeof(struct block) % 16 == 0, "what follows a block's head is aligned");

struct json_document {
    struct json root; /* first: the root is what callers hold */
    struct block *blocks;
};

struct parser {
    const unsigned char *text, *p, *end;
    bool published;
    bool has_nul; /* some text or key has one */
    int depth;
    char *strings; /* where the next text goes */
    struct json_document *doc;
    unsigned char *room, *room_end; /* of the newest block */
    size_t block;                   /* bytes of one: as many as the values of a 4th of the document may take */
    unsigned char *stack;
    size_t stack_n, stack_room;
    const unsigned char *bad; /* where the mistake is */
    const char *why;          /* NULL: none */
    unsigned byte;            /* the one that was not understood, where `why` asks for it */
};

static inline bool fail(struct parser *x, const unsigned char *at, const char *why)
{
    x->bad = at;
    x->why = why;
    return false;
}

/* 16-byte aligned, not zeroed; lives as long as the document. */
void *json_keep(struct parser *x, size_t bytes);

/* The text whose quote x->p is at. */
bool json_read_text(struct parser *x, const char **text, uint32_t *n);

/* A key that holds NUL has a spelling that holds none, for whoever compares it with names. */
void json_spell_key(struct parser *x, struct json_member *m);

/* Bytes that the table of so many members takes behind them. */
size_t json_table_bytes(size_t n);

/* Of equal keys the first place and the last value stay (an error where keys given twice are one), and all that is left
 * is in the table. *n: how many; then how many are left. */
bool json_index(struct parser *x, struct json_member *m, uint32_t *n);

/* Sixteen bytes at once, in the vectors that gcc and clang have for every machine. */
typedef signed char wide __attribute__((vector_size(JSON_WIDE)));

static inline wide load_wide(const unsigned char *p)
{
    wide v;
    memcpy(&v, p, JSON_WIDE);
    return v;
}

/* A bit for each byte that is negative: those that comparisons mark are. */
#ifdef __SSE2__
#include <emmintrin.h>
static inline unsigned marked(wide v) { return (unsigned)_mm_movemask_epi8((__m128i)v); }
#else
static inline unsigned marked(wide v)
{
    unsigned bits = 0;
    for (int i = 0; i < JSON_WIDE; i++) bits |= (unsigned)(v[i] < 0) << i;
    return bits;
}
#endif

#endif
