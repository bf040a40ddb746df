/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h: precision recipes: what the operands of a layer's products become before they are multiplied, and the pass
 * that puts it into a program.
 *
 * A recipe is a row of recipes.def. The pass (recipe.c) walks the lowered lists; before each direction of a chosen
 * product it puts rows that look for the largest number (AMAX), agree on it (AGREE) and round (QUANTISE), and the
 * product becomes LINEAR_SCALED; experts' have rows of their own for the same (GROUPED_SCALED). Layers know nothing of
 * it.
 *
 * The same scales in every layout: a tensor's largest number is agreed over the axes of its microbatch on which it is
 * shared out; blocks are cut by the index in the whole tensor, so layouts whose boundaries cut a block are refused
 * (engine/recipes.h).
 *
 * A weight is the same for all microbatches of a step: where the rule says so (rule.keep), what it becomes is made with
 * the first of them and kept, for each direction that wants it otherwise.
 *
 * What always stays as it was: embeddings, the head, routers, and biases' gradients (from what was not rounded).
 * Order: Same(mesh). Floors 0-2.
 */
#ifndef TUTTI_TAPE_RECIPE_H
#define TUTTI_TAPE_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "kernel/kernel.h"
#include "layout/dtype.h"

enum recipe {
#define RECIPE(id, ...) RECIPE_##id,
#define USE(...)
#define END
#include "tape/recipes.def"
    RECIPE_N
};
/* "fp32|bf16|...": the words of precision.recipe. */
#define RECIPE_WORDS (&recipe_bar_words[1])
extern const char recipe_bar_words[];
extern const char recipe_texts[]; /* "fp32: compute in fp32; bf16: ..." */

enum recipe_operand { OPERAND_X, OPERAND_W, OPERAND_DY, RECIPE_OPERANDS };
const char *recipe_operand_name(enum recipe_operand o); /* "x" */

/* What an operand becomes in one direction. */
struct recipe_use {
    bool on; /* it is an operand of this direction, and becomes something */
    enum format format;
    enum scaling scaling;
    int rows, cols; /* of a block; 0: the tensor is one */
    bool power_of_two, up, chance;
    bool rotate; /* along what the direction sums over */
};
struct recipe_row {
    const char *name;
    enum dtype dtype;
    const char *text; /* one line, for --help and the first lines of a run */
    int first_layers, last_layers;
    double last_share;
    bool history;
    struct recipe_use use[KERNEL_N_PHASES][RECIPE_OPERANDS];
};
const struct recipe_row *recipe_row(enum recipe r);
static inline bool recipe_quantises(enum recipe r) { return recipe_row(r)->use[KERNEL_FWD][OPERAND_X].on; }
/* Whether a layer stays in the recipe's dtype because of where it is. */
bool recipe_leaves_layer(enum recipe r, int layer, int n_layers);
/* The table as Markdown: what docs/precision.md shows. */
void recipe_print_table(struct str *out);

/* ---- lowering ---- */
/* Columns [at, at + n) of a matrix of several parameters are [first, ...) of `whole` in the matrix of one rank. */
struct recipe_cols {
    int64_t at, n, first, whole;
};
enum { RECIPE_MOST_COLS = 8 }; /* five are most: a state space's way in */
struct recipe_rule {
    const uint8_t *of_slot; /* [n_slots] by the slot of a product's weight: enum recipe */
    int n_slots;
    struct axis_ranks axis[AXIS_N]; /* n_parts 0 or 1: nothing to agree on */
    bool experts_apart;             /* their rows are shared out over tp, and their columns over etp (parallel.h) */
    bool experts_meet; /* and the rows of one microbatch, of all its ranks, come together where experts are */
    bool fp32_scales;  /* BLOCK: not powers of two */
    bool falls_back;   /* the product as it would be without is there, too (instr.when) */
    /* Scales that follow from earlier steps: f32 by product and operand, RECIPE_OPERANDS numbers from that of the
     * weight's slot on. */
    int slot_now;                                   /* the largest values of this step, so far */
    int slot_told;                                  /* and what scales follow from */
    int64_t (*number)(const void *ctx, int slot);   /* of the weight at a slot: its first number in the two */
    const char *(*name)(const void *ctx, int slot); /* whose words of chance it draws */
    int (*params)(const void *ctx, int slot);       /* how many parameters lie in the weight at a slot */
    int (*whole)(const void *ctx, int slot); /* of products that one rank has as one: the slot of that one's weight */
    struct parts_attrs (*parts)(const void *ctx, int slot); /* of experts' rows, but for how many are from where */
    /* experts: of so many the weight is, whose columns are alike; 0: it is none */
    int (*cols)(const void *ctx, int slot, int experts, struct recipe_cols out[RECIPE_MOST_COLS]);
    /* NULL: nothing is. What a weight becomes is kept from microbatch to microbatch, in memory at slot_kept:
     * `direction` is the first that wants it so. Gives where it lies, of bytes for values and then for scales, and its
     * number, from 1; the same for the same. */
    int (*keep)(const void *ctx, int slot, enum kernel_phase direction, size_t values, size_t scales, size_t *at);
    int slot_kept;
    int slot_index; /* which row of the microbatch each row is; -1: rows are in order */
    int64_t tokens; /* of a microbatch, on this rank of cp */
    int64_t batch;  /* sequences of a microbatch */
    const void *ctx;
};

#endif
