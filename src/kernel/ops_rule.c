/* SPDX-License-Identifier: Apache-2.0 */
/* Mesh types: what each operation makes of the types of its inputs, on one axis of the mesh.
 *
 * A rule is data: lines of {sets of letters, one per input} -> {one letter per output}; the first line that fits
 * decides. A combination that no line names is refused, with the first fitting line of a second table as text.
 * A line may stand only if backward, run rank by rank on gradients of the dual types, gives gradients of the
 * dual types (R <-> P, all others to themselves), because that is what makes a composition of layouts right
 * without looking at it:
 *
 *   linear   y = x w^T, dx = dy w, dw = dy^T x
 *     x I,  w I        -> I    all ranks do the same work on the same numbers, forward and backward
 *     x R,  w R        -> R    the same forward; dy is each rank's part of a sum (P), so dx and dw are parts too
 *     x V,  w R        -> V    other tokens on each rank: dw is a part of the sum over tokens, P, the dual of R
 *     x S0, w R        -> S0   the same, with the tokens named as a dim
 *     x R,  w S0       -> S1   a rank has some out-features; dx misses the others' contribution: P, the dual of R
 *     x S1, w S1       -> P    a rank has some in-features: y is a part of the sum; dy comes back whole (R)
 *     x P,  w R        -> P    linear in x: dy comes back whole (R), so does dx; dw is made of a part of x, a part of
 *                              its sum, P, the dual of R (the second product of an adapter behind S1)
 *     x I,  w S0 is refused: dx would be a part of a sum where the type promises the whole; par_enter (I -> R, whose
 *     backward reduces) makes x fit. A bias goes with the out-features; with a partial product it is invariant and
 *     one rank of the axis adds it (op_attrs.bias_off on the others): dy comes back whole, so every rank finds the
 *     whole gradient of the bias, as I promises.
 *
 *   norms    need whole rows: columns may not be split. Their weights are R where tokens differ by rank.
 *   elementwise operations keep the type. Nothing but a sum or a cast of partial values is linear enough to take P.
 *   attention: heads are independent, so q, k, v may be split by columns in whole heads (S1); batches may differ
 *     (V). S0 would cut sequences: that is context parallelism, an operation of its own.
 *   embed: a rank with some rows of the table (S0) gives zeros for other ids: the sum over ranks is y (P).
 *   xent: the loss is a sum over tokens: from V or S0 each rank has its part (P). R is refused: every rank would
 *     send back the whole gradient where R promises that the parts add up to it.
 *   Integers (ids, positions, masks) have no gradient: I and R mean the same for them.
 *
 *   Logits split by vocabulary (S1) need every rank's statistics (xent_part, collected): then each knows the whole loss
 *   (I).
 *
 * Dropout on rows that are sharded draws by the token's index (index_T), so every layout draws the same.
 * Rejected: code per operation (cannot be listed, tested or printed as a whole). */
#include "kernel/attention_heads.h"
#include "kernel/ops.h"

enum {
    I = 1 << SPMD_I,
    R = 1 << SPMD_R,
    S0 = 1 << SPMD_S0,
    S1 = 1 << SPMD_S1,
    V = 1 << SPMD_V,
    P = 1 << SPMD_P,
    ANY = (1 << SPMD_N) - 1,
    WHOLE = I | R, /* of integers and constant tables */
};

struct type_line {
    uint8_t in[KERNEL_MAX_IN];   /* sets of letters */
    uint8_t out[KERNEL_MAX_OUT]; /* enum spmd */
};
struct type_refusal {
    uint8_t in[KERNEL_MAX_IN];
    const char *why;
};
struct type_rule {
    const struct type_line *line;
    int n_lines;
    const struct type_refusal *refusal; /* the last fits everything */
};

static bool fits(const uint8_t *sets, int n_in, const enum spmd *in)
{
    for (int i = 0; i < n_in; i++)
        if (!(sets[i] >> in[i] & 1)) return false;
    return true;
}

static const char *apply(const struct type_rule *r, int n_in, const enum spmd *in, enum spmd *out, int n_out)
{
    for (int l = 0; l < r->n_lines; l++) {
        if (!fits(r->line[l].in, n_in, in)) continue;
        for (int o = 0; o < n_out; o++) out[o] = (enum spmd)r->line[l].out[o];
        return NULL;
    }
    const struct type_refusal *no = r->refusal;
    while (!fits(no->in, n_in, in)) no++;
    return no->why;
}

#define RULE(name)                                                                                                     \
    static const struct type_rule name = {name##_lines, (int)(sizeof name##_lines / sizeof *name##_lines),             \
                                          name##_refusals}

#define X_PARTIAL "x is partial: a sum over the axis is owed; reduce it first"
#define ELSE                                                                                                           \
    {                                                                                                                  \
        {ANY, ANY, ANY, ANY, ANY, ANY, ANY}, "these mesh types do not combine"                                         \
    }

static const struct type_line embed_lines[] = {
    {{WHOLE, I}, {SPMD_I}}, {{WHOLE, R}, {SPMD_R}},  {{V, R}, {SPMD_V}},
    {{S0, R}, {SPMD_S0}},   {{WHOLE, S0}, {SPMD_P}}, {{V, V}, {SPMD_V}}, /* rows of what differs by rank */
};
static const struct type_refusal embed_refusals[] = {
    {{P, ANY}, "ids cannot be partial"},
    {{V | S0, I}, "ids differ by rank, so w's gradient is a sum over the axis: w must be replicated (R)"},
    {{V | S0, S0}, "a table split by vocabulary needs the same ids on every rank: gather the ids first"},
    {{ANY, S1}, "a table split by columns is not supported: split it by vocabulary (S0)"},
    {{ANY, P}, "w is partial: reduce it first"},
    ELSE,
};
RULE(embed);

static const struct type_line linear_lines[] = {
    {{I, I, I}, {SPMD_I}},    {{R, R, R}, {SPMD_R}},   {{V, R, R}, {SPMD_V}}, {{S0, R, R}, {SPMD_S0}},
    {{R, S0, S0}, {SPMD_S1}}, {{S1, S1, I}, {SPMD_P}}, {{P, R, 0}, {SPMD_P}},
};
/* clang-format off */
static const struct type_refusal linear_refusals[] = {
    {{P, ANY, ANY}, X_PARTIAL},
    {{ANY, P, ANY}, "w is partial: reduce it first"},
    {{I, S0, ANY}, "x is invariant, w is split by out-features: enter the region with par_enter first, whose backward "
                   "reduces x's gradient"},
    {{I, R, ANY}, "x is invariant, w replicated: w's gradient would be whole on every rank where R promises a part; "
                  "make w invariant"},
    {{R, I, ANY}, "x is replicated, w invariant: w's gradient would be a part where I promises the whole; make w "
                  "replicated"},
    {{V | S0, I, ANY}, "x differs by rank, so w's gradient is a sum over the axis: w must be replicated (R)"},
    {{V | S0, S0 | S1, ANY}, "x and w are both split over the axis, but not along a common dim: gather one of them"},
    {{I | R, S1, ANY}, "w is split by in-features, x is whole: split x by columns first"},
    {{S1, I | R | S0, ANY}, "x is split by columns: w must be split by in-features (S1), or x gathered"},
    {{S1, S1, ANY}, "the product is partial: its bias must be invariant (I), and is added by one rank only"},
    {{R, S0, ANY}, "bias must be split like w's out-features (S0)"},
    {{I | R | V | S0, I | R, ANY}, "bias must have w's type"},
    ELSE,
};
/* clang-format on */
RULE(linear);

static const struct type_line norm_lines[] = {
    {{I, I, I}, {SPMD_I, SPMD_I}},
    {{R, R, R}, {SPMD_R, SPMD_R}},
    {{V, R, R}, {SPMD_V, SPMD_V}},
    {{S0, R, R}, {SPMD_S0, SPMD_S0}},
};
static const struct type_refusal norm_refusals[] = {
    {{P, ANY, ANY}, X_PARTIAL},
    {{S1, ANY, ANY}, "x is split by columns: a norm needs whole rows; gather x first"},
    {{I, R, ANY}, "x is invariant: the weights must be invariant too"},
    {{R, I, ANY}, "x is replicated: the weights must be replicated too"},
    {{V | S0, I, ANY},
     "x differs by rank, so the weights' gradient is a sum over the axis: they must be replicated (R)"},
    {{ANY, S0 | S1 | V | P, ANY}, "the norm's weights must be whole on every rank"},
    {{I | R | V | S0, I | R, ANY}, "both weights of the norm must have one type"},
    ELSE,
};
RULE(norm);

/* Heads are normalised one by one: those of a rank (S1), by weights that all ranks share. */
static const struct type_line headnorm_lines[] = {
    {{I, I}, {SPMD_I, SPMD_I}},    {{R, R}, {SPMD_R, SPMD_R}},    {{V, R}, {SPMD_V, SPMD_V}},
    {{S0, R}, {SPMD_S0, SPMD_S0}}, {{S1, R}, {SPMD_S1, SPMD_S1}},
};
static const struct type_refusal headnorm_refusals[] = {
    {{P, ANY}, X_PARTIAL},
    {{I, R}, "x is invariant: the weights must be invariant too"},
    {{R, I}, "x is replicated: the weights must be replicated too"},
    {{V | S0 | S1, I},
     "x differs by rank, so the weights' gradient is a sum over the axis: they must be replicated (R)"},
    {{ANY, S0 | S1 | V | P}, "the norm's weights must be whole on every rank"},
    ELSE,
};
RULE(headnorm);

/* Of some columns the squares are a part of the sum; what all ranks know then (R) sends back parts of its gradient. */
static const struct type_line squares_lines[] = {
    {{I}, {SPMD_I}}, {{R}, {SPMD_R}}, {{V}, {SPMD_V}}, {{S0}, {SPMD_S0}}, {{S1}, {SPMD_P}},
};
static const struct type_refusal squares_refusals[] = {{{P}, X_PARTIAL}, ELSE};
RULE(squares);
static const struct type_line norm_by_lines[] = {
    {{I, I, I}, {SPMD_I}},    {{R, R, R}, {SPMD_R}},    {{V, V, R}, {SPMD_V}},
    {{S0, S0, R}, {SPMD_S0}}, {{S1, R, S0}, {SPMD_S1}},
};
static const struct type_refusal norm_by_refusals[] = {
    {{P, ANY, ANY}, X_PARTIAL},
    {{S1, P, ANY}, "the squares are a part of the sum over the axis: reduce them first"},
    {{S1, I, ANY}, "x's columns are split, so each rank has a part of the sums' gradient: they must be replicated (R)"},
    {{S1, R, ANY}, "the norm's weights must be split like x's columns (S0)"},
    ELSE,
};
RULE(norm_by);

static const struct type_line rotary_lines[] = {
    {{I, WHOLE, WHOLE}, {SPMD_I}}, {{R, WHOLE, WHOLE}, {SPMD_R}},     {{S1, WHOLE, WHOLE}, {SPMD_S1}},
    {{S0, S0, WHOLE}, {SPMD_S0}},  {{V, V | WHOLE, WHOLE}, {SPMD_V}},
};
static const struct type_refusal rotary_refusals[] = {
    {{P, ANY, ANY}, X_PARTIAL},
    {{ANY, ANY, ANY & ~WHOLE}, "the table of angles must be whole on every rank"},
    {{S0, ANY, ANY}, "x is split by tokens: the positions must be split alike (S0)"},
    {{I | R | S1, ANY, ANY}, "every rank has all tokens of x: the positions must be whole too"},
    ELSE,
};
RULE(rotary);

static const struct type_line attention_lines[] = {
    {{I, I, I, WHOLE, I}, {SPMD_I, SPMD_I}},       {{R, R, R, WHOLE, R}, {SPMD_R, SPMD_R}},
    {{S1, S1, S1, WHOLE, S0}, {SPMD_S1, SPMD_S1}}, {{S1, R, R, WHOLE, S0}, {SPMD_S1, SPMD_S1}},
    {{V, V, V, V, R}, {SPMD_V, SPMD_V}},
};
static const struct type_refusal attention_refusals[] = {
    {{P, ANY, ANY, ANY}, "q is partial: reduce it first"},
    {{ANY, P, ANY, ANY}, "k is partial: reduce it first"},
    {{ANY, ANY, P, ANY}, "v is partial: reduce it first"},
    {{S0, ANY, ANY, ANY},
     "q is split by tokens: attention across ranks is an operation of its own (context parallelism)"},
    {{V, V, V, ANY}, "q, k, v differ by rank: the document ids must too (V)"},
    {{I, I, I, ANY}, "the document ids must be whole on every rank, as q, k and v are"},
    {{R, R, R, ANY}, "the document ids must be whole on every rank, as q, k and v are"},
    {{S1, S1, S1, V | S0 | S1 | P}, "q, k, v are split by heads: the document ids must be whole on every rank"},
    {{S1, S1 | R, S1 | R, WHOLE, ANY}, "q is split by heads: the sinks must be too (S0)"},
    {{V, V, V, V, ANY}, "q, k, v differ by rank, so the sinks' gradient is a sum over the axis: they must be R"},
    {{ANY, ANY, ANY, ANY}, "q, k and v must have one type: all split by heads (S1), or all R, I or V"},
    ELSE,
};
RULE(attention);

/* On cp the tokens are shared out and this is where they meet; par_attention sees to it that it is cp. */
static const struct type_line context_lines[] = {
    {{I, I, I, WHOLE, I}, {SPMD_I, SPMD_I}},      {{R, R, R, WHOLE, R}, {SPMD_R, SPMD_R}},
    {{S0, S0, S0, WHOLE, R}, {SPMD_S0, SPMD_S0}}, {{S1, S1, S1, WHOLE, S0}, {SPMD_S1, SPMD_S1}},
    {{S1, R, R, WHOLE, S0}, {SPMD_S1, SPMD_S1}}, /* key heads that several ranks read */
    {{V, V, V, V, R}, {SPMD_V, SPMD_V}},
};
static const struct type_refusal context_refusals[] = {
    {{P, ANY, ANY, ANY}, "q is partial: reduce it first"},
    {{ANY, P, ANY, ANY}, "k is partial: reduce it first"},
    {{ANY, ANY, P, ANY}, "v is partial: reduce it first"},
    {{S0, S0, S0, ANY}, "the document ids must be those of the whole sequence on every rank"},
    {{I | R | S0 | S1 | V, ANY, ANY, WHOLE | V, P | V | S1 | S0},
     "the sinks must be split as the heads are (S0 with S1), or R"},
    {{ANY, ANY, ANY, ANY}, "q, k and v must have one type, and the document ids be whole (or V with V)"},
    ELSE,
};
RULE(context);

static const struct type_line attention_cached_lines[] = {
    {{I, I, I, WHOLE, WHOLE, WHOLE, I}, {SPMD_I}},
    {{R, R, R, WHOLE, WHOLE, WHOLE, R}, {SPMD_R}},
    {{S1, S1, S1, WHOLE, S1, S1, S0}, {SPMD_S1}},
    {{S1, R, R, WHOLE, R, R, S0}, {SPMD_S1}}, /* key heads that several ranks read: each has all of them */
    {{V, V, V, V | WHOLE, V, V, R}, {SPMD_V}},
};
static const struct type_refusal attention_cached_refusals[] = {
    {{P, ANY, ANY, ANY, ANY, ANY}, "q is partial: reduce it first"},
    {{S1, S1, S1, WHOLE, ANY, ANY}, "q, k, v are split by heads: the caches must be too (S1)"},
    {{ANY, ANY, ANY, ANY, ANY, ANY}, "q, k, v and the caches must have one type: all S1, or all R, I or V"},
    ELSE,
};
RULE(attention_cached);

static const struct type_line keep_lines[] = {
    {{I, WHOLE}, {SPMD_I}},   {{R, WHOLE}, {SPMD_R}},     {{S0, S0}, {SPMD_S0}},
    {{S1, WHOLE}, {SPMD_S1}}, {{V, V | WHOLE}, {SPMD_V}},
};
static const struct type_refusal keep_refusals[] = {
    {{P}, X_PARTIAL},
    {{ANY & ~(I | R | S0 | S1 | V), ANY}, "x has two dims: it can be split along S0 or S1 only"},
    {{ANY, ANY}, "the index must say which tokens x's rows are: split alike, or whole"},
    ELSE,
};
RULE(keep);

static const struct type_line add_lines[] = {
    {{I, I, WHOLE}, {SPMD_I}},    {{R, R, WHOLE}, {SPMD_R}},     {{S0, S0, S0}, {SPMD_S0}},
    {{S1, S1, WHOLE}, {SPMD_S1}}, {{V, V, V | WHOLE}, {SPMD_V}}, {{P, P, WHOLE}, {SPMD_P}},
};
static const struct type_refusal add_refusals[] = {
    {{P, ANY, ANY}, "a is partial, b is not: the sum would count b once per rank; reduce a first"},
    {{ANY, P, ANY}, "b is partial, a is not: the sum would count a once per rank; reduce b first"},
    {{I, I, ANY}, "the index must be whole, as a and b are"},
    {{S0, S0, ANY}, "a and b are split by tokens: the index must be too (S0)"},
    {{ANY, ANY, ANY}, "a and b must have the same type"},
    ELSE,
};
RULE(add);

static const struct type_line xent_lines[] = {
    {{I, WHOLE, WHOLE}, {SPMD_I}},
    {{V, V, V}, {SPMD_P}},
    {{S0, S0, S0}, {SPMD_P}},
    {{S1, WHOLE, I}, {SPMD_I}}, /* part of the vocabulary on each rank, everybody's statistics */
};
/* clang-format off */
static const struct type_refusal xent_refusals[] = {
    {{P, ANY, ANY}, "logits are partial: reduce them first"},
    {{S1, WHOLE, ANY & ~I}, "logits are split by vocabulary: every rank's statistics must be collected first (xent_part)"},
    {{R, ANY, ANY}, "logits are replicated: every rank would send back the whole gradient where R promises a part; make "
               "them invariant, or split the tokens"},
    {{ANY, ANY, ANY}, "logits and targets must be split alike"},
    ELSE,
};
/* clang-format on */
RULE(xent);

static const struct type_line xent_part_lines[] = {
    {{I, WHOLE}, {SPMD_I}},
    {{V, V}, {SPMD_V}},
    {{S0, S0}, {SPMD_S0}},
    {{S1, WHOLE}, {SPMD_S0}},
};
static const struct type_refusal xent_part_refusals[] = {
    {{P, ANY}, "logits are partial: reduce them first"},
    {{ANY, ANY}, "logits and targets must be split alike"},
};
RULE(xent_part);

static const struct type_line copy_lines[] = {
    {{I}, {SPMD_I}},
    {{R}, {SPMD_R}},
    {{S0}, {SPMD_S0}},
    {{S1}, {SPMD_S1}},
    {{1 << SPMD_S2}, {SPMD_S2}},
    {{1 << SPMD_S3}, {SPMD_S3}},
    {{V}, {SPMD_V}},
    {{P}, {SPMD_P}},
};
static const struct type_refusal copy_refusals[] = {ELSE};
RULE(copy);

/* Experts. Picks, loads and row numbers have no gradient. Rows of a buffer of tokens sorted by expert are no dim of
 * anything: where tokens are split over ranks (S0), the buffers vary (V). Over ep, the experts of all ranks are one
 * matrix split by rows, and so is the buffer of all their tokens (S0). */
static const struct type_line router_lines[] = {
    {{I, I}, {SPMD_I, SPMD_I}},
    {{R, R}, {SPMD_R, SPMD_R}},
    {{S0, R}, {SPMD_S0, SPMD_S0}},
    {{V, R}, {SPMD_V, SPMD_V}},
};
static const struct type_refusal router_refusals[] = {
    {{P, ANY}, "logits are partial: reduce them first"},
    {{S1, ANY}, "logits are split by experts: every token must see them all; gather them first"},
    {{ANY, ANY}, "the bias must lie as a weight of the logits does: whole, I or R with them"},
    ELSE,
};
RULE(router);

static const struct type_line load_lines[] = {
    {{WHOLE, WHOLE}, {SPMD_I}},
    {{V, V}, {SPMD_V}},
    {{S0, S0 | WHOLE}, {SPMD_P}},
};
static const struct type_refusal load_refusals[] = {{{ANY, ANY}, "picks and targets must be split alike"}, ELSE};
RULE(load);

static const struct type_line balance_lines[] = {
    {{I, WHOLE, WHOLE, WHOLE}, {SPMD_I}},
    {{V, V, V, V}, {SPMD_P}},
    {{S0, S0, S0 | WHOLE, WHOLE}, {SPMD_P}},
};
static const struct type_refusal balance_refusals[] = {
    {{P, ANY, ANY, ANY}, "logits are partial: reduce them first"},
    {{R, ANY, ANY, ANY},
     "logits are replicated: every rank would send back the whole gradient where R promises a part; make them "
     "invariant, or split the tokens"},
    {{ANY, ANY, ANY, P}, "the load is partial: reduce it over the ranks that share a sequence first"},
    {{ANY, ANY, ANY, ANY}, "logits, picks and targets must be split alike"},
    ELSE,
};
RULE(balance);

static const struct type_line permute_lines[] = {
    {{I, WHOLE}, {SPMD_I, SPMD_I, SPMD_I}},
    {{R, WHOLE}, {SPMD_R, SPMD_R, SPMD_R}},
    {{V, V}, {SPMD_V, SPMD_V, SPMD_V}},
    {{S0, S0}, {SPMD_V, SPMD_V, SPMD_V}},
};
static const struct type_refusal permute_refusals[] = {
    {{P, ANY}, X_PARTIAL},
    {{S1, ANY}, "x is split by columns: gather it first"},
    {{ANY, ANY}, "x and the picks must be split alike"},
    ELSE,
};
RULE(permute);

/* A capacity counts over whole sequences, wherever x's tokens lie. */
static const struct type_line permute_capacity_lines[] = {
    {{I, WHOLE}, {SPMD_I, SPMD_I, SPMD_I}},
    {{R, WHOLE}, {SPMD_R, SPMD_R, SPMD_R}},
    {{V, V}, {SPMD_V, SPMD_V, SPMD_V}},
    {{S0, WHOLE}, {SPMD_V, SPMD_V, SPMD_V}},
};
static const struct type_refusal permute_capacity_refusals[] = {
    {{P, ANY}, X_PARTIAL},
    {{S1, ANY}, "x is split by columns: gather it first"},
    {{ANY, S0},
     "a capacity counts the picks of whole sequences: collect them from the ranks that share a sequence's tokens"},
    {{ANY, ANY}, "x and the picks must belong to the same sequences"},
    ELSE,
};
RULE(permute_capacity);

static const struct type_line grouped_lines[] = {
    {{I, I, WHOLE}, {SPMD_I}},   {{R, R, WHOLE}, {SPMD_R}},   {{V, R, V}, {SPMD_V}},     {{P, R, WHOLE}, {SPMD_P}},
    {{R, S0, WHOLE}, {SPMD_S1}}, {{S1, S1, WHOLE}, {SPMD_P}}, {{S0, S0, S0}, {SPMD_S0}},
};
static const struct type_refusal grouped_refusals[] = {
    {{P, ANY, ANY}, X_PARTIAL},
    {{I, S0, ANY},
     "x is invariant, w is split: enter the region first (par_enter), or dispatch the tokens to the ranks that hold "
     "their experts (par_dispatch)"},
    {{V, I | S0, ANY}, "x differs by rank, so w's gradient is a sum over the axis: w must be replicated (R)"},
    {{I | R, S1, ANY}, "w is split by in-features, x is whole: split x by columns first"},
    {{ANY, ANY, ANY}, "x, w and the rows per expert do not lie on the mesh as one"},
    ELSE,
};
RULE(grouped);

static const struct type_line unpermute_lines[] = {
    {{I, I, WHOLE}, {SPMD_I}}, {{R, R, WHOLE}, {SPMD_R}}, {{P, R, WHOLE}, {SPMD_P}},
    {{V, V, V}, {SPMD_V}},     {{V, S0, V}, {SPMD_S0}},
};
static const struct type_refusal unpermute_refusals[] = {
    {{P, I, ANY}, "y is partial, so the gates' gradient is a part of a sum: enter the gates (I -> R) first"},
    {{S0, ANY, ANY}, "y lies where its experts are: combine it first (par_combine)"},
    {{ANY, ANY, ANY}, "y, the gates and the row numbers must belong to the same tokens"},
    ELSE,
};
RULE(unpermute);

/* As a bias of LINEAR: with the columns, or invariant beside a partial product, where one rank adds it. */
static const struct type_line expert_bias_lines[] = {
    {{I, I, WHOLE}, {SPMD_I}},    {{R, R, WHOLE}, {SPMD_R}}, {{V, R, V}, {SPMD_V}},
    {{S1, S0, WHOLE}, {SPMD_S1}}, {{P, I, WHOLE}, {SPMD_P}}, {{S0, S0, S0}, {SPMD_S0}},
};
static const struct type_refusal expert_bias_refusals[] = {
    {{S1, ANY, ANY}, "x is split by columns: the bias must be too (S0)"},
    {{P, ANY, ANY}, "x is partial: the bias must be invariant (I), and one rank adds it"},
    {{ANY, ANY, ANY}, "x, the bias and the rows per expert do not lie on the mesh as one"},
    ELSE,
};
RULE(expert_bias);

static const struct type_line mla_kv_lines[] = {
    {{I, I}, {SPMD_I}},
    {{S0, S0}, {SPMD_S0}},
    {{V, V}, {SPMD_V}},
    {{S1, R}, {SPMD_S1}},
};
static const struct type_refusal mla_kv_refusals[] = {
    {{R, ANY}, "kv is made whole on every rank: split what opens it by heads (S0), or leave x invariant"},
    {{P, ANY}, "kv is partial: reduce it first"},
    {{S1, I}, "kv is split by heads: the rotated part must be replicated (R), its gradient is a sum over the heads"},
    {{ANY, ANY}, "kv and the rotated part must be split alike"},
    ELSE,
};
RULE(mla_kv);

static const struct type_line join_lines[] = {
    {{I, I}, {SPMD_I}},
    {{R, R}, {SPMD_R}},
    {{S0, S0}, {SPMD_S0}},
    {{V, V}, {SPMD_V}},
};
static const struct type_refusal join_refusals[] = {
    {{ANY, ANY}, "both must be split alike, by rows or not at all"},
    ELSE,
};
RULE(join);

/* Every rank that has a picture cuts it whole; which rows it keeps is said by the attributes, and par_patches gives
 * them the letter of the axes that share rows out. */
static const struct type_line patches_lines[] = {
    {{I}, {SPMD_I, SPMD_I, SPMD_I}},
    {{R}, {SPMD_R, SPMD_R, SPMD_R}},
    {{V}, {SPMD_V, SPMD_V, SPMD_V}},
};
static const struct type_refusal patches_refusals[] = {
    {{ANY}, "pictures must be whole on every rank, or others on each (V)"},
    ELSE,
};
RULE(patches);

/* Linear in x, and rows that lie elsewhere are missing from the sum. */
static const struct type_line pool_lines[] = {
    {{I}, {SPMD_I}}, {{R}, {SPMD_R}}, {{V}, {SPMD_V}}, {{S0 | P}, {SPMD_P}}, {{S1}, {SPMD_S1}},
};
static const struct type_refusal pool_refusals[] = {{{ANY}, "x has two dims: it can be split along S0 or S1 only"},
                                                    ELSE};
RULE(pool);

/* Texts that are cut over ranks: each has a part of what is wanted of the rows, and so of their gradient. */
static const struct type_line insert_lines[] = {
    {{I, WHOLE, I}, {SPMD_I}},
    {{R, WHOLE, R}, {SPMD_R}},
    {{S0, S0, R}, {SPMD_S0}},
    {{V, V, V}, {SPMD_V}},
};
static const struct type_refusal insert_refusals[] =
    {{{S0, S0, I | S0}, "rows of x are split: each rank may want any of what replaces them: gather it first (R)"},
     ELSE};
RULE(insert);

/* On the axes that they do not move along: the rows keep their letter. */
static const struct type_line travel_lines[] = {
    {{I, WHOLE | S0, WHOLE | S0}, {SPMD_I, SPMD_I, SPMD_I}},
    {{R, WHOLE, WHOLE}, {SPMD_R, SPMD_R, SPMD_R}},
    {{V, V, V}, {SPMD_V, SPMD_V, SPMD_V}},
    {{P, WHOLE, WHOLE}, {SPMD_P, SPMD_P, SPMD_P}},
    {{S0, WHOLE, S0}, {SPMD_S0, SPMD_S0, SPMD_S0}},
};
static const struct type_refusal travel_refusals[] = {{{ANY, ANY, ANY},
                                                       "rows and their numbers must belong to the same tokens"},
                                                      ELSE};
RULE(travel);

#define RULE_FN(op, table, n_out)                                                                                      \
    const char *rule_##op(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)                    \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        return apply(&table, n_in, in, out, n_out);                                                                    \
    }
RULE_FN(embed, embed, 1)
RULE_FN(linear, linear, 1)
RULE_FN(norm, norm, 2)
RULE_FN(headnorm, headnorm, 2)
RULE_FN(squares, squares, 1)
RULE_FN(norm_by, norm_by, 1)
RULE_FN(rotary, rotary, 1)
/* Sinks without documents: those that are absent lie as they would have to. Tokens lie as documents do. */
static const char *apply_attention(const struct type_rule *r, int n_in, const enum spmd *in, enum spmd *out)
{
    enum spmd all[ATTENTION_SINK + 1];
    int n = n_in;
    if (n > ATTENTION_TOKEN) {
        if (in[ATTENTION_TOKEN] != in[ATTENTION_DOC]) return "tokens' numbers and documents must lie alike";
        n = in[ATTENTION_SINK] == SPMD_N ? ATTENTION_SINK : ATTENTION_TOKEN;
    }
    for (int i = 0; i < n; i++) all[i] = in[i];
    if (n > ATTENTION_DOC && in[ATTENTION_DOC] == SPMD_N) all[ATTENTION_DOC] = in[0] == SPMD_V ? SPMD_V : SPMD_I;
    return apply(r, n, all, out, 2);
}
const char *rule_attention(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return apply_attention(&attention, n_in, in, out);
}
const char *rule_context(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    (void)at;
    return apply_attention(&context, n_in, in, out);
}
RULE_FN(attention_cached, attention_cached, 1)
RULE_FN(act, keep, 1)
RULE_FN(dropout, keep, 1)
RULE_FN(add, add, 1)
/* Without statistics (n_in 2) a part of the vocabulary is refused: the letter of an absent input is partial. */
const char *rule_xent(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    bool each = at_vocab(at)->each > 0;
    if (each && in[n_in - 1] != in[1]) return "factors and targets must be split alike";
    enum spmd all[3] = {in[0], in[1], n_in - each > 2 ? in[2] : in[0] == SPMD_S1 ? SPMD_P : in[0]};
    return apply(&xent, 3, all, out, 1);
}
RULE_FN(xent_part, xent_part, 1)
RULE_FN(copy, copy, 1)
RULE_FN(router, router, 2)
RULE_FN(load, load, 1)
RULE_FN(balance, balance, 1)
const char *rule_permute(const struct op_attrs *at, int n_in, const enum spmd *in, enum spmd *out)
{
    return apply(at_permute(at)->capacity ? &permute_capacity : &permute, n_in, in, out, 3);
}
RULE_FN(grouped, grouped, 1)
RULE_FN(unpermute, unpermute, 1)
RULE_FN(expert_bias, expert_bias, 1)
RULE_FN(mla_kv, mla_kv, 1)
RULE_FN(join, join, 1)
RULE_FN(patches, patches, 3)
RULE_FN(pool, pool, 1)
RULE_FN(insert, insert, 1)
RULE_FN(dispatch, travel, 3)
RULE_FN(combine, travel, 1)
