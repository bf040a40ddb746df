/* SPDX-License-Identifier: Apache-2.0 */
/* engine/recipes.h: which products of a model are computed by which recipe (tape/recipe.h), whether a layout can have
 * the scales of one rank, and what is kept from step to step for scales that follow from earlier ones.
 *
 * A product is asked for by the names of its parameters (nn/model.h), "layers.0.attn.*", where * stands for any text.
 * Several parameters that make one product (q, k, v; gate, up) are one tensor with one scale.
 *
 * History. fp8-delayed multiplies a tensor by MAX / (largest of the last `history` steps * 2^margin), 1 in the first
 * step (Micikevicius et al. 2022; Transformer Engine). An entry is the largest value over all microbatches and ranks of
 * a step. Entries are an array of the store, not stepped: values per parameter, of a product's first one; what scales
 * follow from is worked out anew from them, so a run that goes on has the scales of one that was not interrupted.
 *
 * Invariants
 *   1. What is chosen follows from names, layers and the config: every rank chooses the same.
 *   2. The array's numbers are the same on all ranks that hold a parameter, and in every layout.
 * Floor 6. Order: as said.
 */
#ifndef TUTTI_ENGINE_RECIPES_H
#define TUTTI_ENGINE_RECIPES_H

#include "nn/model.h"
#include "state/array.h"
#include "engine/fallback.h"
#include "tape/recipe.h"

struct engine;

struct recipe_choice {
    const char *layers; /* a pattern of names */
    int recipe;         /* enum recipe */
};
struct recipe_config {
    enum recipe recipe;
    const struct recipe_choice *choice; /* the last that fits decides */
    int n_choices;
    bool fp32_scales;  /* of fp8-block: not powers of two */
    bool keep_weights; /* what weights become is made once a step, not once a microbatch */
    int64_t history;   /* steps */
    int64_t margin;
    int64_t look_every; /* steps (engine/telemetry.h); 0: never */
    struct fallback_config fallback;
};

/* What there is to choose for: the matrix products on a tape, in its order. */
struct product {
    int node, first, n; /* its parameters: [first, first + n) of the table */
    /* The parameters that one rank alone would multiply by at once: [whole, whole + n_whole). They are more than these
     * where tp has more ranks than there are key heads, so that k and v are a product apart from q. They have one scale
     * in any case. */
    int whole, n_whole;
    bool layers, experts; /* of a layer, and no router's: it may be quantised; a product of experts */
    enum recipe recipe;
};
struct products {
    struct product *p;
    int n;
};
/* Local; after it products_free. An error names the pattern (*choice: its index) that matches nothing on a whole
 * model's tape, or parts of a product. partly: the tape is of one stage, where a pattern may match nothing. */
int products_choose(struct products *out, const struct tape *t, const struct param_table *params,
                    const struct model_config *m, const struct recipe_config *c, bool partly, int *choice,
                    struct err *e);
void products_free(struct products *p);
/* Whether ranks cut tensors where blocks are cut. *axis: whose boundary does not fit, of which a size of `each`
 * elements would. */
int products_fit(const struct products *p, const struct tape *t, const struct param_table *params,
                 const struct par *par, int64_t seq, enum axis *axis, struct err *e);

/* ---- of an engine ---- */
struct recipe_kept {
    int slot;                    /* of the weight */
    enum kernel_phase direction; /* the first that wants it so */
    size_t at;
};
struct recipe_state {
    struct recipe_rule rule;
    uint8_t *of_slot;         /* by slot; NULL: no product is quantised */
    int *together;            /* by the first parameter of a product: how many make it */
    int *whole, *n_whole;     /* the same way: struct product's */
    bool history, chance;     /* of some product here */
    int count[RECIPE_N];      /* products of layers here, by recipe */
    struct buffer now;        /* device, f32: largest values of this step, RECIPE_OPERANDS per parameter */
    struct buffer told;       /* device, f32: what scales follow from */
    struct buffer read;       /* the host's copy of now */
    struct recipe_kept *kept; /* what weights became, by number - 1 */
    int n_kept, room_kept;
    size_t kept_bytes;
    struct buffer kept_values; /* device: all of it */
    uint8_t *kept_made;        /* by number - 1: in this step */
};
/* What the products of a tape here are lowered by; *out NULL: as they are. */
int recipes_rule(struct engine *g, const struct tape *t, const struct recipe_rule **out, struct err *e);
/* Some products have scales from earlier steps. */
bool recipes_history(const struct recipe_config *c);
/* The array of histories, for the store; returns how many rows (0 or 1). */
int recipes_rows(const struct engine *g, struct array_row *rows);
int recipes_buffers(struct engine *g, struct err *e);
void recipes_bind(struct engine *g);
/* Of a step or an evaluation: what scales follow from, as the histories say. Collective(tp). */
void recipes_begin(struct engine *g);
/* After a step that is taken: its largest values, over all ranks, go into the histories. Collective(world). */
void recipes_end(struct engine *g);
void recipes_free(struct engine *g);
/* "fp8-current in 40 products of layers (...); bf16 in 10", for the first lines of a run. */
void recipes_text(const struct engine *g, struct str *out);

/* A history of n steps, newest first: the largest value that a scale follows from (times 2^margin), and a new entry. */
float recipes_told(const float *history, int64_t n, int64_t margin, float most);
void recipes_enter(float *history, int64_t n, float now);

#endif
