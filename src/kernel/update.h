/* SPDX-License-Identifier: Apache-2.0 */
/* update.h: the table of elementwise updates: a row is a name and its operands, and a row of the operation table too
 * (OP_FIRST_UPDATE and on, in this order). A new optimizer that works element by element is a row here and one of enum
 * op, its arithmetic in ref/update.c (the specification) and in cpu/vec/update_body.h.
 *
 * Operands have n elements, or one, or one per block, and lie apart or are the same address. The compute copy is f32,
 * bf16 or f16; where it is NULL or equal to the master, nothing else is written.
 *
 * Invariants
 *   1. Elementwise in fp32, with the fused operations that ref/update.c spells out: neither a cut of the elements, nor
 *      the team, nor the family changes a bit.
 * Includes: words.h, and update_factors.h, which has the kinds. Order: Local.
 */
#ifndef TUTTI_KERNEL_UPDATE_H
#define TUTTI_KERNEL_UPDATE_H

#include "kernel/update_factors.h"
#include "kernel/words.h"

struct update_operand {
    void *p;
    enum dtype t;
};
struct update_args {
    enum update_kind kind;
    int64_t n;
    struct update_operand at[UPDATE_OPERANDS];
    float f[UPDATE_FACTORS];
    double g[UPDATE_NUMBERS];
    bool by_words;       /* some of f, and chance.stream, are made of a step's words */
    const double *words; /* on the device; NULL: of nobody, f is as it will be */
    bool flag;
    struct update_blocks blocks;
    struct update_chance chance;
};

/* How many elements an operand has (update_elements). */
enum update_count { UPDATE_EACH, UPDATE_ONE, UPDATE_BLOCK, UPDATE_ROW, UPDATE_ROW_PAIR, UPDATE_COL, UPDATE_TWO };
enum update_use { UPDATE_READS, UPDATE_CHANGES, UPDATE_WRITES }; /* WRITES: what was there means nothing */
struct update_row {
    const char *name;
    int n; /* operands */
    struct {
        const char *name;
        enum update_use use;
        enum update_count count;
    } at[UPDATE_OPERANDS];
    int param; /* the operand that is a compute copy of operand 0, or -1 */
    int scale; /* the factor that is WORD_SCALE where words say it, or -1 */
};
extern const struct update_row update_rows[UPDATE_KINDS];

/* The compute copy that a call writes beside operand 0: its type, or DT_N where there is none to write. */
static inline enum dtype update_copy(const struct update_args *a)
{
    int k = update_rows[a->kind].param;
    return k >= 0 && a->at[k].p && a->at[k].p != a->at[0].p ? a->at[k].t : DT_N;
}

static inline int64_t update_row_blocks(const struct update_args *a)
{
    return (a->blocks.cols + a->blocks.block - 1) / a->blocks.block;
}
static inline int64_t update_n_blocks(const struct update_args *a)
{
    return a->n ? a->n / a->blocks.cols * update_row_blocks(a) : 0;
}
/* The elements of block b: the first, and *n of them. */
static inline int64_t update_block(const struct update_args *a, int64_t b, int64_t *n)
{
    int64_t each = update_row_blocks(a), col = b % each * a->blocks.block, left = a->blocks.cols - col;
    *n = left < a->blocks.block ? left : a->blocks.block;
    return b / each * a->blocks.cols + col;
}
/* Elements of operand k. */
static inline int64_t update_elements(const struct update_args *a, int k)
{
    enum update_count c = update_rows[a->kind].at[k].count;
    switch (c) {
    case UPDATE_ONE: return 1;
    case UPDATE_TWO: return 2;
    case UPDATE_BLOCK: return update_n_blocks(a);
    case UPDATE_ROW: return a->n ? a->n / a->blocks.cols : 0;
    case UPDATE_ROW_PAIR: return a->n ? 2 * (a->n / a->blocks.cols) : 0;
    case UPDATE_COL: return a->blocks.cols;
    case UPDATE_EACH: break;
    }
    return a->n;
}

/* How many elements from i on have words in a row, at most n; *word: of the first. */
static inline int64_t update_words(const struct update_chance *c, int64_t i, int64_t n, uint64_t *word)
{
    return chance_words(c->at, c->cols, c->first, c->wide, i, n, word);
}

/* Of update_args.by_words: f (and chance.stream, of UPDATE_ROUND the stream of all steps) as they are at a step with
 * such words. ADAMW16's and ADAMW8's factor of decay is the decay before. */
void update_by(struct update_args *a, const double words[]);
/* The call of an update, and the update of a call: with its words where it has some. */
struct kernel_call update_call(const struct update_args *a);
struct update_args update_of(const struct kernel_call *c);
/* What an operand of a row of updates is: its output, or input i. */
const char *update_part(enum op op, bool output, int i);
/* On a stream. */
void flat_update(struct stream *s, const struct update_args *a);

#endif
