/* SPDX-License-Identifier: Apache-2.0 */
/* The table of elementwise updates: what each reads and writes, as calls of the operation table. */
#include "kernel/update.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/flat_ops.h"
#include "kernel/ops.h"

#define READS UPDATE_READS
#define CHANGES UPDATE_CHANGES
#define WRITES UPDATE_WRITES
#define EACH UPDATE_EACH

/* clang-format off */
const struct update_row update_rows[UPDATE_KINDS] = {
    [UPDATE_ADAMW] = {"adamw", 5, {
        {"master", CHANGES, EACH},
        {"first moment", CHANGES, EACH},
        {"second moment", CHANGES, EACH},
        {"gradient", READS, EACH},
        {"parameter", WRITES, EACH}}, ADAMW_PARAM, ADAMW_SCALE},
    [UPDATE_SGD] = {"sgd", 4, {
        {"master", CHANGES, EACH},
        {"momentum", CHANGES, EACH},
        {"gradient", READS, EACH},
        {"parameter", WRITES, EACH}}, SGD_PARAM, SGD_SCALE},
    [UPDATE_LION] = {"lion", 4, {
        {"master", CHANGES, EACH},
        {"first moment", CHANGES, EACH},
        {"gradient", READS, EACH},
        {"parameter", WRITES, EACH}}, LION_PARAM, LION_SCALE},
    [UPDATE_MOMENTUM] = {"momentum", 3, {
        {"momentum", CHANGES, EACH},
        {"gradient", READS, EACH},
        {"what is stepped along", WRITES, EACH}}, -1, MOMENTUM_SCALE},
    [UPDATE_UNIT] = {"scale to a unit", 3, {
        {"to", WRITES, EACH},
        {"from", READS, EACH},
        {"sum of squares", READS, UPDATE_ONE}}, -1, -1},
    [UPDATE_BLEND] = {"blend", 3, {
        {"to", WRITES, EACH},
        {"first", READS, EACH},
        {"second", READS, EACH}}, -1, -1},
    [UPDATE_ADAMW16] = {"adamw", 5, {
        {"master", CHANGES, EACH},
        {"first moment", CHANGES, EACH},
        {"second moment", CHANGES, EACH},
        {"gradient", READS, EACH},
        {"parameter", WRITES, EACH}}, ADAMW16_PARAM, ADAMW16_SCALE},
    [UPDATE_AVERAGE] = {"average", 2, {
        {"average", CHANGES, EACH},
        {"of", READS, EACH}}, -1, -1},
    [UPDATE_ROUND] = {"round by chance", 2, {
        {"to", WRITES, EACH},
        {"from", READS, EACH}}, -1, -1},
    [UPDATE_ADAMW8] = {"adamw", 7, {
        {"master", CHANGES, EACH},
        {"first moment", CHANGES, EACH},
        {"second moment", CHANGES, EACH},
        {"scale of the first", CHANGES, UPDATE_BLOCK},
        {"scale of the second", CHANGES, UPDATE_BLOCK},
        {"gradient", READS, EACH},
        {"parameter", WRITES, EACH}}, ADAMW8_PARAM, ADAMW16_SCALE},
    [UPDATE_FACTOR_SUMS] = {"sums of a matrix", 3, {
        {"of rows", CHANGES, UPDATE_ROW},
        {"of columns", CHANGES, UPDATE_COL},
        {"gradient", READS, EACH}}, -1, -1},
    [UPDATE_FACTOR_KEEP] = {"factors", 2, {
        {"factors", CHANGES, EACH},
        {"sums", READS, EACH}}, -1, -1},
    [UPDATE_FACTOR_MEAN] = {"mean of factors", 2, {
        {"mean", WRITES, UPDATE_ONE},
        {"rows", READS, EACH}}, -1, -1},
    [UPDATE_FACTOR_SIZE] = {"size of a step", 7, {
        {"sums", CHANGES, UPDATE_TWO},
        {"of rows", WRITES, UPDATE_ROW_PAIR},
        {"row factors", READS, UPDATE_ROW},
        {"column factors", READS, UPDATE_COL},
        {"mean", READS, UPDATE_ONE},
        {"gradient", READS, EACH},
        {"master", READS, EACH}}, -1, FACTOR_SIZE_SCALE},
    [UPDATE_FACTOR_APPLY] = {"adafactor", 7, {
        {"master", CHANGES, EACH},
        {"row factors", READS, UPDATE_ROW},
        {"column factors", READS, UPDATE_COL},
        {"mean", READS, UPDATE_ONE},
        {"sums", READS, UPDATE_TWO},
        {"gradient", READS, EACH},
        {"parameter", WRITES, EACH}}, FACTOR_APPLY_PARAM, FACTOR_APPLY_SCALE},
    [UPDATE_APPLY] = {"apply an update", 3, {
        {"master", CHANGES, EACH},
        {"update", READS, EACH},
        {"parameter", WRITES, EACH}}, APPLY_PARAM, -1},
};
/* clang-format on */

/* Where operand k is in a call: *at-th of its outputs, or inputs. */
static bool is_output(const struct update_row *row, int k, int *at)
{
    bool out = row->at[k].use == UPDATE_WRITES;
    *at = 0;
    for (int i = 0; i < k; i++) *at += (row->at[i].use == UPDATE_WRITES) == out;
    return out;
}

static const struct view *view_of(const struct kernel_call *c, const struct update_row *row, int k)
{
    int at;
    return is_output(row, k, &at) ? &c->out[at] : &c->in[at];
}

const char *update_part(enum op op, bool output, int i)
{
    const struct update_row *row = &update_rows[op - OP_FIRST_UPDATE];
    for (int k = 0, at; k < row->n; k++)
        if (is_output(row, k, &at) == output && at == i) return row->at[k].name;
    return NULL;
}

struct kernel_call update_call(const struct update_args *a)
{
    const struct update_row *row = &update_rows[a->kind];
    struct kernel_call c = {.op = (enum op)(OP_FIRST_UPDATE + (int)a->kind),
                            .phase = KERNEL_FWD,
                            .at = ATTRS(update, .kind = (int)a->kind, .by_words = a->by_words, .flag = a->flag,
                                        .blocks = a->blocks, .chance = a->chance)};
    memcpy(edit_update(&c.at)->f, a->f, sizeof a->f);
    memcpy(edit_update(&c.at)->g, a->g, sizeof a->g);
    for (int k = 0, at; k < row->n; k++) {
        bool out = is_output(row, k, &at);
        struct view *v = out ? &c.out[at] : &c.in[at];
        *(out ? &c.n_out : &c.n_in) += 1;
        if (out) edit_update(&c.at)->to[at] = a->at[k].t;
        if (!a->at[k].p) continue;
        *v = dense1(a->at[k].t, update_elements(a, k));
        v->p = a->at[k].p;
    }
    if (!a->by_words || !a->words) return c;
    c.in[c.n_in] = dense1(DT_F64, STEP_WORDS);
    c.in[c.n_in++].p = (void *)(uintptr_t)a->words;
    return c;
}

/* ---- a step's words ---- */
void update_by(struct update_args *a, const double words[])
{
    if (!a->by_words) return;
    update_factors_by((int)a->kind, a->flag, update_rows[a->kind].scale, a->blocks.whole, a->f, a->g, words);
    if (a->kind == UPDATE_ROUND) a->chance.stream = rng_stream_at(a->chance.stream, (uint64_t)words[WORD_MADE]);
}

struct update_args update_of(const struct kernel_call *c)
{
    const struct update_attrs *at = at_update(&c->at);
    const struct update_row *row = &update_rows[at->kind];
    struct update_args a = {.kind = (enum update_kind)at->kind,
                            .flag = at->flag,
                            .blocks = at->blocks,
                            .chance = at->chance};
    memcpy(a.f, at->f, sizeof a.f);
    memcpy(a.g, at->g, sizeof a.g);
    a.by_words = at->by_words;
    for (int k = 0; k < row->n; k++) {
        const struct view *v = view_of(c, row, k);
        a.at[k] = (struct update_operand){v->p, v->dtype};
        if (v->nd && row->at[k].count == UPDATE_EACH) a.n = v->n[0];
    }
    const struct view *words = a.by_words ? &c->in[op_row((enum op)(OP_FIRST_UPDATE + at->kind))->min_in] : NULL;
    if (words && words->nd) a.words = words->p;
    return a;
}

/* As many elements as the attributes say for so many of a row's first whole operand. */
const char *infer_update(const struct op_attrs *attrs, int n_in, const struct view *in, struct view *out)
{
    const struct update_attrs *at = at_update(attrs);
    struct kernel_call c = {.at = *attrs, .n_in = n_in};
    NEED(at->kind >= 0 && at->kind < UPDATE_KINDS, "no such update");
    const struct update_row *row = &update_rows[at->kind];
    memcpy(c.in, in, to_size(n_in) * sizeof *in);
    struct update_args a = update_of(&c);
    int most = op_row((enum op)(OP_FIRST_UPDATE + at->kind))->min_in;
    NEED(n_in <= most || (at->by_words && in[most].dtype == DT_F64 && in[most].nd == 1 && in[most].n[0] == STEP_WORDS),
         "a step has so many words");
    for (int k = 0, i; k < row->n; k++) {
        enum update_count by = row->at[k].count;
        bool rows = by == UPDATE_ROW || by == UPDATE_ROW_PAIR || by == UPDATE_COL || by == UPDATE_BLOCK;
        NEED(!rows || a.blocks.cols > 0, "rows have no elements");
        NEED(by != UPDATE_BLOCK || a.blocks.block > 0, "blocks have no elements");
        bool output = is_output(row, k, &i);
        if (!output && !in[i].nd) {
            NEED(at->kind == UPDATE_SGD && k == SGD_M, "an operand is missing");
            continue;
        }
        if (output) out[i] = dense1(at->to[i], update_elements(&a, k));
        else NEED(in[i].nd == 1 && in[i].n[0] == update_elements(&a, k), "an operand has another length");
    }
    return NULL;
}

void flat_update(struct stream *s, const struct update_args *a)
{
    struct kernel_call c = update_call(a);
    kernel_enqueue(s, &c);
}
