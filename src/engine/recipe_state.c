/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes of an engine: what lowering is told, and the histories of largest values. An entry per step, newest first;
 * AMAX rows gather this step's on the device, the hosts agree on them once a step, and the next step's programs find
 * what their scales follow from in a buffer of their own. Cost: a message of three numbers per matrix a step. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "layout/region.h"
#include "layout/sequence.h"

static int first_param(int slot) { return (slot - SLOT_PARAM) / 2; }

/* Products that are one on one rank have its numbers and its words of chance. */
static int whole_param(const void *ctx, int slot)
{
    const struct engine *g = ctx;
    return g->recipes.whole[first_param(slot)];
}

static int whole_of(const void *ctx, int slot) { return slot_param(whole_param(ctx, slot)); }

static int64_t number_of(const void *ctx, int slot) { return (int64_t)whole_param(ctx, slot) * RECIPE_OPERANDS; }

static const char *name_of(const void *ctx, int slot)
{
    const struct engine *g = ctx;
    return g->params.p[whole_param(ctx, slot)].name;
}

static int params_of(const void *ctx, int slot)
{
    const struct engine *g = ctx;
    return g->recipes.together[first_param(slot)];
}

/* Ranks of ep are neighbours of dp_shard, and each has as many sequences as the next; where tokens are shared out over
 * cp and tp, the ranks that its rows are from are so many for each microbatch (products_fit). */
static struct parts_attrs expert_parts(const void *ctx, int slot)
{
    const struct engine *g = ctx;
    const struct engine_config *c = &g->cfg;
    int64_t lo, hi, experts = c->model.moe.experts;
    int together = c->par.size[AXIS_CP] * (par_experts_apart(&c->par) ? c->par.size[AXIS_TP] : 1);
    int copies = par_expert_copies(&c->par);
    int at = c->par.rank[AXIS_EP] * copies + (copies > 1 ? c->par.rank[AXIS_ETP] : 0);
    (void)slot;
    region_split(experts, c->par.rank[AXIS_EP], c->par.size[AXIS_EP], &lo, &hi);
    return (struct parts_attrs){.experts = to_int(experts),
                                .expert = to_int(lo),
                                .together = together,
                                .source = at / together,
                                .tokens = c->micro * c->seq,
                                .apart = c->n_microbatches * c->micro * c->seq};
}

/* Columns of dy: those of the parameters that make the product, one after the other. */
static int cols_of(const void *ctx, int slot, int experts, struct recipe_cols out[RECIPE_MOST_COLS])
{
    const struct engine *g = ctx;
    int first = first_param(slot), n = g->recipes.together[first] / (experts ? experts : 1);
    int w = g->recipes.whole[first], n_whole = experts ? n : g->recipes.n_whole[first];
    int64_t whole = 0, at = 0;
    CHECK(n <= RECIPE_MOST_COLS, "%d parameters make one product", n);
    for (int k = w; k < first; k++) whole += g->params.p[k].n[0];
    for (int k = 0; k < n; k++) {
        const struct param *p = &g->params.p[first + k];
        out[k] = (struct recipe_cols){.at = at, .n = p->ln[0], .first = whole + p->lo[0]};
        at += p->ln[0];
        whole += p->n[0];
    }
    for (int k = first + n; k < w + n_whole; k++) whole += g->params.p[k].n[0];
    for (int k = 0; k < n; k++) out[k].whole = whole;
    if (at == whole) out[0] = (struct recipe_cols){.n = whole, .whole = whole};
    return at == whole ? 1 : n;
}

/* Programs of one stage may be lowered more than once, and ask for the same. */
static int keep(const void *ctx, int slot, enum kernel_phase direction, size_t values, size_t scales, size_t *at)
{
    struct recipe_state *s = &((struct engine *)(uintptr_t)ctx)->recipes;
    int i = 0;
    while (i < s->n_kept && (s->kept[i].slot != slot || s->kept[i].direction != direction)) i++;
    if (i == s->n_kept) {
        GROW(s->kept, s->n_kept, s->room_kept, 1);
        s->kept[s->n_kept++] = (struct recipe_kept){slot, direction, s->kept_bytes};
        s->kept_bytes += values + (scales + 63) / 64 * 64;
    }
    *at = s->kept[i].at;
    return i + 1;
}

static void make_rule(struct engine *g)
{
    struct recipe_state *s = &g->recipes;
    int n = SLOT_PARAM + 2 * g->params.n;
    s->of_slot = xcalloc(to_size(n), 1);
    s->together = xcalloc(to_size(g->params.n) + 1, sizeof *s->together);
    s->whole = xcalloc(to_size(g->params.n) + 1, sizeof *s->whole);
    s->n_whole = xcalloc(to_size(g->params.n) + 1, sizeof *s->n_whole);
    memset(s->of_slot, RECIPE_BF16, to_size(n));
    bool apart = g->cfg.par.size[AXIS_CP] > 1;
    s->rule = (struct recipe_rule){.of_slot = s->of_slot,
                                   .n_slots = n,
                                   .fp32_scales = g->cfg.precision.fp32_scales,
                                   .falls_back = g->cfg.precision.fallback.after > 0,
                                   .slot_now = slot_recipe(g->params.n, to_int(model_blocks(&g->cfg.model))),
                                   .slot_told = slot_recipe(g->params.n, to_int(model_blocks(&g->cfg.model))) + 1,
                                   .number = number_of,
                                   .name = name_of,
                                   .params = params_of,
                                   .whole = whole_of,
                                   .parts = expert_parts,
                                   .cols = cols_of,
                                   .slot_index = apart ? SLOT_INDEX : -1,
                                   .tokens = g->cfg.micro * context_rows(g->cfg.seq, g->cfg.par.size[AXIS_CP],
                                                                         g->cfg.par.rank[AXIS_CP], 1),
                                   .batch = g->cfg.micro,
                                   .keep = g->cfg.precision.keep_weights ? keep : NULL,
                                   .slot_kept = slot_recipe(g->params.n, to_int(model_blocks(&g->cfg.model))) + 2,
                                   .experts_apart = par_experts_apart(&g->cfg.par),
                                   .experts_meet = g->cfg.par.size[AXIS_EP] * par_expert_copies(&g->cfg.par) > 1,
                                   .ctx = g};
    for (int a = 0; a < AXIS_N; a++) s->rule.axis[a] = par_ranks(&g->cfg.par, (enum axis)a);
}

static bool any_quantises(const struct recipe_config *c)
{
    bool any = recipe_quantises(c->recipe);
    for (int k = 0; k < c->n_choices; k++) any |= recipe_quantises((enum recipe)c->choice[k].recipe);
    return any;
}

int recipes_rule(struct engine *g, const struct tape *t, const struct recipe_rule **out, struct err *e)
{
    struct products all;
    enum axis axis;
    int choice;
    *out = NULL;
    if (!any_quantises(&g->cfg.precision)) return OK;
    if (!g->recipes.of_slot) make_rule(g);
    int rc = products_choose(&all, t, &g->params, &g->cfg.model, &g->cfg.precision, true, &choice, e);
    if (!rc) rc = products_fit(&all, t, &g->params, &g->cfg.par, g->cfg.seq, &axis, e);
    for (int i = 0; !rc && i < all.n; i++) {
        const struct product *x = &all.p[i];
        const struct recipe_row *r = recipe_row(x->recipe);
        g->recipes.of_slot[slot_param(x->first)] = (uint8_t)x->recipe;
        for (int k = 0; x->experts && k < x->n; k++) /* each expert has histories of its own */
            g->recipes.of_slot[slot_param(x->first + k)] = (uint8_t)x->recipe;
        g->recipes.together[x->first] = x->n;
        g->recipes.whole[x->first] = x->whole;
        g->recipes.n_whole[x->first] = x->n_whole;
        g->recipes.history |= r->history;
        for (int o = 0; o < RECIPE_OPERANDS; o++) g->recipes.chance |= r->use[KERNEL_BWD_W][o].chance;
        if (x->layers) g->recipes.count[x->recipe]++;
    }
    products_free(&all);
    *out = &g->recipes.rule;
    return rc;
}

int recipes_rows(const struct engine *g, struct array_row *rows)
{
    if (!recipes_history(&g->cfg.precision)) return 0;
    rows[0] = (struct array_row){.name = "amax",
                                 .title = "histories of largest values",
                                 .cat = MEM_OPTIMIZER,
                                 .dtype = DT_F32,
                                 .block = ARRAY_TENSOR,
                                 .each = RECIPE_OPERANDS * g->cfg.precision.history,
                                 .shared_from = ARRAY_NEVER_SHARED,
                                 .saved = true,
                                 .groups = 1u << PARAM_MATRICES};
    return 1;
}

bool recipes_history(const struct recipe_config *c)
{
    bool any = recipe_row(c->recipe)->history;
    for (int k = 0; k < c->n_choices; k++) any |= recipe_row((enum recipe)c->choice[k].recipe)->history;
    return any;
}

static int64_t numbers(const struct engine *g)
{
    return recipes_history(&g->cfg.precision) ? (int64_t)g->params.n * RECIPE_OPERANDS : 0;
}

int recipes_buffers(struct engine *g, struct err *e)
{
    size_t bytes = to_size(numbers(g)) * sizeof(float);
    int rc = buffer_new(&g->recipes.now, g->dev, MEM_DATA, bytes, e);
    if (!rc) rc = buffer_new(&g->recipes.told, g->dev, MEM_DATA, bytes, e);
    g->recipes.kept_made = xcalloc(to_size(g->recipes.n_kept) + 1, 1);
    if (!rc) rc = buffer_new(&g->recipes.kept_values, g->dev, MEM_PARAM, g->recipes.kept_bytes, e);
    return rc ? rc : buffer_new_host(&g->recipes.read, g->dev, MEM_DATA, bytes, e);
}

void recipes_bind(struct engine *g)
{
    int slot = slot_recipe(g->params.n, to_int(model_blocks(&g->cfg.model)));
    g->slot[slot] = g->recipes.now.p;
    g->slot[slot + 1] = g->recipes.told.p;
    g->slot[slot + 2] = g->recipes.kept_values.p;
}

/* ---- from step to step ---- */
static enum recipe recipe_of_param(const struct engine *g, int i)
{
    return (enum recipe)g->recipes.of_slot[slot_param(i)];
}

/* The format that an operand of a recipe with histories has: one in all directions. */
static float most_of(enum recipe r, int operand)
{
    for (int ph = 0; ph < KERNEL_N_PHASES; ph++) {
        const struct recipe_use *u = &recipe_row(r)->use[ph][operand];
        if (u->on) return (float)format_info(u->format).max;
    }
    return 1;
}

float recipes_told(const float *history, int64_t n, int64_t margin, float most)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (history[i] > largest) largest = history[i];
    return largest > 0 ? ldexpf(largest, (int)margin) : most; /* none yet: a scale of 1 */
}

static bool has(const struct engine *g, const struct array *a, int param)
{
    return array_held(a, &g->store.units, param).n > 0;
}

static float *read_histories(const struct engine *g, const struct array *a)
{
    float *h = xmalloc(a->buf.bytes + 1);
    device_to_host(g->stream, h, &a->buf, 0, a->buf.bytes);
    stream_sync(g->stream);
    return h;
}

/* A rank without heads has a part of a product and holds nothing of what its numbers are kept with: it hears them from
 * those that do. */
static void hear(struct engine *g, float *told)
{
    struct comm *tp = g->cfg.host.tp;
    if (tp) comm_wait(tp, comm_all_reduce(tp, told, told, numbers(g), DT_F32, COMM_MAX, "what scales follow from"));
}

static void tell_of(const struct engine *g, float *told)
{
    const struct array *a = store_array(&g->store, store_find(&g->store, "amax"));
    int64_t H = g->cfg.precision.history;
    float *h = read_histories(g, a);
    for (int i = 0; i < g->params.n; i++) {
        if (!recipe_row(recipe_of_param(g, i))->history || !has(g, a, i)) continue;
        for (int o = 0; o < RECIPE_OPERANDS; o++)
            told[i * RECIPE_OPERANDS + o] =
                recipes_told(h + a->at[i] + o * H, H, g->cfg.precision.margin, most_of(recipe_of_param(g, i), o));
    }
    xfree(h);
}

void recipes_begin(struct engine *g)
{
    if (g->recipes.n_kept) memset(g->recipes.kept_made, 0, to_size(g->recipes.n_kept)); /* weights are other ones */
    if (!numbers(g)) return;
    float *told = xcalloc(to_size(numbers(g)), sizeof *told);
    if (!g->dev->counts_only) tell_of(g, told);
    hear(g, told);
    if (!g->dev->counts_only) {
        device_from_host(g->stream, &g->recipes.told, 0, told, g->recipes.told.bytes);
        device_zero(g->stream, &g->recipes.now, 0, g->recipes.now.bytes);
        stream_sync(g->stream);
    }
    xfree(told);
}

/* Nothing of it was looked at. */
static bool fell_back(const struct engine *g, int param)
{
    int layer = g->params.p[param].layer;
    return layer >= 0 && layer < g->fallback.n && g->fallback.fallen[layer];
}

void recipes_enter(float *history, int64_t n, float now)
{
    if (!(now < INFINITY)) return; /* not finite: the step before stands for it */
    memmove(history + 1, history, to_size(n - 1) * sizeof *history);
    history[0] = now;
}

void recipes_end(struct engine *g)
{
    if (!numbers(g) || g->dev->counts_only) return;
    struct array *a = &g->store.array[store_find(&g->store, "amax")];
    int64_t H = g->cfg.precision.history, n = numbers(g);
    device_to_host(g->stream, g->recipes.read.p, &g->recipes.now, 0, g->recipes.now.bytes);
    float *h = read_histories(g, a), *now = g->recipes.read.p;
    for (int64_t i = 0; i < n; i++) /* NaN has no place in an order */
        if (!(now[i] < INFINITY)) now[i] = INFINITY;
    if (g->cfg.world)
        comm_wait(g->cfg.world,
                  comm_all_reduce(g->cfg.world, now, now, n, DT_F32, COMM_MAX, "largest values of the step"));
    for (int i = 0; i < g->params.n; i++)
        for (int o = 0; o < RECIPE_OPERANDS && has(g, a, i) && !fell_back(g, i); o++)
            recipes_enter(h + a->at[i] + o * H, H, now[i * RECIPE_OPERANDS + o]);
    device_from_host(g->stream, &a->buf, 0, h, a->buf.bytes);
    stream_sync(g->stream);
    xfree(h);
}

void recipes_free(struct engine *g)
{
    buffer_free(&g->recipes.now);
    buffer_free(&g->recipes.told);
    buffer_free(&g->recipes.read);
    buffer_free(&g->recipes.kept_values);
    xfree(g->recipes.kept_made);
    xfree(g->recipes.kept);
    xfree(g->recipes.of_slot);
    xfree(g->recipes.together);
    xfree(g->recipes.whole);
    xfree(g->recipes.n_whole);
}

void recipes_text(const struct engine *g, struct str *out)
{
    const struct recipe_state *s = &g->recipes;
    for (int r = 0; r < RECIPE_N; r++)
        if (recipe_quantises((enum recipe)r) && s->count[r])
            str_printf(out, "%s%s in %d products of layers (%s)", out->n ? "; " : "", recipe_row((enum recipe)r)->name,
                       s->count[r], recipe_row((enum recipe)r)->text);
    if (s->count[RECIPE_BF16]) str_printf(out, "; bf16 in %d", s->count[RECIPE_BF16]);
    str_puts(out, "; embeddings, head and routers in bf16");
    const struct recipe_config *c = &g->cfg.precision;
    char bytes[32];
    if (s->n_kept)
        str_printf(out, "; what weights become is made once a step and kept (%s)",
                   str_bytes(bytes, (double)s->kept_bytes));
    if (!c->look_every) str_puts(out, "; what rounding does is not looked at");
    else str_printf(out, "; what rounding does is looked at every %lld steps", (long long)c->look_every);
    if (!g->fallback.n) str_puts(out, "; no layer falls back");
    else if (c->look_every)
        str_printf(out,
                   ", and a layer falls back to bf16 after %lld looks in a row in which it saturates more than %g %% "
                   "or is moved by more than %g %%",
                   (long long)c->fallback.after, 100 * c->fallback.saturated, 100 * c->fallback.error);
    struct str fallen = {0};
    fallback_text(&g->fallback, &fallen);
    if (fallen.n) str_printf(out, "; fell back to bf16 before: layer %s", str_text(&fallen));
    str_free(&fallen);
}
