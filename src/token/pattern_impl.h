/* SPDX-License-Identifier: Apache-2.0 */
/* pattern_impl.h: a pattern as a graph of steps; for pattern.c, which makes it, and pattern_find.c, which walks it. */
#ifndef TUTTI_TOKEN_PATTERN_IMPL_H
#define TUTTI_TOKEN_PATTERN_IMPL_H

#include <stdint.h>

#include "token/pattern.h"

/* pattern_seam.c: fills x->seams, when all else is there. */
struct pattern;
void pattern_find_seams(struct pattern *x);

enum pattern_step_kind {
    STEP_ACCEPT,
    STEP_CHAR, /* one character of class `set` */
    STEP_LOOP, /* min to max of them, as many as there are, fewer when what follows fails (unless possessive) */
    STEP_FORK, /* `other` first, then `next` */
    STEP_LOOK  /* what begins at `other` matches here (negated: does not); nothing is used up */
};

struct pattern_step {
    enum pattern_step_kind kind;
    int next, other;
    int set;
    int32_t min, max;
    bool flag;         /* LOOP: as many as there are, never fewer (possessive, or fewer cannot help); LOOK: negated */
    bool beyond_ascii; /* a match from this step may begin with a character beyond ASCII, or with none */
    uint64_t first[2]; /* and with these ASCII characters */
};

/* What pattern_parts_before (pattern.h) goes by, for one byte of ASCII. */
struct pattern_seam {
    bool parts;      /* no repetition, look-ahead or failed try tells this byte from the end of the text */
    bool begins;     /* and some match begins with it, whatever follows */
    uint32_t within; /* sets of which a character may stand right before it inside a match */
};

enum { PATTERN_SETS = 32, PATTERN_STEPS = 1024, PAGE = 256, N_PAGES = 0x110000 / PAGE };

struct pattern {
    struct pattern_step steps[PATTERN_STEPS];
    int n_steps, start;
    int16_t enter[128]; /* the step to begin with at an ASCII character: forks that cannot are passed already */
    /* Bit k of a code point's mask: it is in set k. Equal pages are stored once. */
    uint16_t page_of[N_PAGES];
    uint32_t (*pages)[PAGE];
    int n_pages, room_pages;
    struct pattern_seam seams[PATTERN_SEAMS];
};

#endif
