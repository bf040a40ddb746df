/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the oracle, then one run per layout. What costs time is shared: the run that is compared also evaluates,
 * saves, reads what an earlier one saved, and makes its next step. */
#include "verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "config/config_codec.h"
#include "config/config_recipe.h"
#include "verify/layouts.h"
#include "verify/shelf.h"
#include "verify/trial.h"

/* ---- comparing ---- */
static double norm_of(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * x[i];
    return sqrt(s);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(s);
}

static void worse(struct verify_layout *l, double error, const char *what, const char *name)
{
    if (!(error > l->max_rel_error) && !isnan(error)) return;
    l->max_rel_error = error;
    snprintf(l->tensor, sizeof l->tensor, "%s of %s", what, name);
}

/* In fp32 only the order of sums differs. In bf16 too where ranks share out whole sequences, but partial products that
 * are summed over a model axis are rounded to 8 bits before the sum, which one rank does not do (fp16: to 11); so are
 * the ranks' parts of bf16 gradients. */
/* Newton-Schulz in bf16 multiplies what is small beside the largest singular value by up to 3.44^5 = 485: an element of
 * a matrix of low rank that was rounded the other way, 2^-9 of it, comes out as a part of a whole update. With equal
 * gradients the layouts' bits are equal (tests/run/test_updates.c). */
static double bound_of_muon(const struct config *c)
{
    struct optim_config o = config_optim(c);
    return optim_of(&o, PARAM_MATRICES)->whole ? 5e-2 : 0;
}

/* Scales are those of one rank, to the bit where what they follow from is (tests/run/test_same_scales.c). Over tp and
 * cp sums are rounded to bf16 in another order, 2^-9 of a number, and what lies that near to the middle between two
 * codes becomes the other one: in E5M2 one of 64, in E2M1 one of 128 in each product that follows, for half a number
 * and less. Ranks of ep share out whole parts of tensors, and add up nothing. */
static bool recipe_sums(const struct config *c) { return c->parallel.tp > 1 || c->parallel.cp > 1; }

static double bound_of_recipes(const struct config *c)
{
    const struct recipe_choice *x = c->precision.layers.items;
    bool four = c->precision.recipe == RECIPE_NVFP4;
    for (int i = 0; i < c->precision.layers.n; i++) four |= x[i].recipe == RECIPE_NVFP4;
    return recipe_sums(c) ? (four ? 3e-1 : 1.5e-1) : 2e-3;
}

/* What travels encoded is off by up to a half step, and a tensor by less than that in the mean of its elements: at most
 * 2^-4 of an element in E4M3, 2^-3 in E5M2, 1/127 of a block's largest in int8. Terms of ranks that nearly cancel leave
 * more of it, the sum goes through once more, and gradients of weights that were rounded are another function's. */
static double bound_of_codec(const struct config *c)
{
    static const double of[CODEC_N] =
        {[CODEC_BF16] = 1e-2, [CODEC_FP8] = 0.1, [CODEC_FP8_E5M2] = 0.2, [CODEC_INT8] = 5e-2};
    double grad = of[config_comm_grad(c)], param = of[config_comm_param(c)];
    return config_dp(c) * c->parallel.cp * c->parallel.tp > 1 ? grad + param : 0;
}

static double bound_of_layout(const struct config *c)
{
    double recipe = config_quantises(c) ? bound_of_recipes(c) : 0;
    if (bound_of_muon(c) > 0) return fmax(bound_of_muon(c), recipe);
    if (c->precision.grad == GRAD_BF16) return fmax(2e-2, recipe);
    if (recipe > 0) return recipe;
    if (c->precision.recipe == RECIPE_FP32) return 1e-5;
    bool sums = c->parallel.tp > 1 || c->parallel.cp > 1 || c->parallel.ep > 1;
    if (c->precision.recipe == RECIPE_FP16) return sums ? 5e-3 : 1e-3;
    return sums ? 2e-2 : 1e-3;
}

static double bound_of(const struct config *c) { return bound_of_layout(c) + bound_of_codec(c); }

/* Of losses and norms, to which all elements add up: codes that are others by chance are too large as often as too
 * small. */
static double bound_of_totals(const struct config *c)
{
    return config_quantises(c) ? fmin(bound_of(c), 1e-2 + bound_of_codec(c)) : bound_of(c);
}

/* Gradients that are rounding, or may be: Adam makes full steps of those (verify.h). */
static bool is_rounding(const struct param *p, double own, double global, bool rough)
{
    return own <= 1e-6 * global || (rough && p->init == INIT_ZEROS);
}

static double relative(double got, double want) { return fabs(got - want) / fmax(fabs(want), 1e-30); }

static void compare(struct verify_layout *l, const struct param_table *p, const struct outcome *want,
                    const struct outcome *got, int n_steps, bool rough)
{
    double global = norm_of(want->grad, p->numel);
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        double own = norm_of(want->grad + o, n), values = norm_of(want->value + o, n);
        worse(l, distance(got->grad + o, want->grad + o, n) / fmax(fmax(own, 1e-2 * global), 1e-30), "gradient",
              p->p[i].name);
        if (!is_rounding(&p->p[i], own, global, rough))
            worse(l, distance(got->value + o, want->value + o, n) / fmax(values, 1e-30), "value", p->p[i].name);
    }
    size_t bytes = to_size(p->numel) * sizeof(float), losses = (size_t)n_steps * sizeof(double);
    l->bit_identical = !memcmp(got->grad, want->grad, bytes) && !memcmp(got->value, want->value, bytes) &&
                       !memcmp(got->loss, want->loss, losses);
    for (int s = 0; s < n_steps; s++) {
        if (got->skipped[s] != want->skipped[s]) worse(l, INFINITY, "left-out steps", "the run");
        if (want->skipped[s]) continue; /* not finite, in every layout */
        l->loss_rel_error = fmax(l->loss_rel_error, relative(got->loss[s], want->loss[s]));
        l->norm_rel_error = fmax(l->norm_rel_error, relative(got->norm[s], want->norm[s]));
    }
    l->eval_rel_error = got->eval_tokens == want->eval_tokens ? relative(got->eval_loss, want->eval_loss) : INFINITY;
    l->bits = hash64(got->grad, bytes) * 31 + hash64(got->value, bytes) * 7 + hash64(got->loss, losses);
    l->comm_bytes = got->comm_bytes;
    l->answer_tokens = got->answers.tokens;
    l->answers_unlike = got->answers.unlike;
    l->answers_most = got->answers.most;
    l->answers_identical = got->answers.written == want->answers.written && !got->answers.apart;
    l->peak_bytes = got->peak_bytes;
}

/* What another layout saved was read, and the next step is the oracle's. */
static void compare_resumed(struct verify_layout *l, const struct param_table *p, const struct outcome *want,
                            const struct outcome *got, const struct shelf_place *from, int n_steps, bool rough)
{
    double global = norm_of(want->grad, p->numel);
    snprintf(l->resumed, sizeof l->resumed, "%s", from->layout);
    l->resume_identical = outcome_state(got, got->loaded) == from->state;
    l->resume_rel_error = relative(got->loss[n_steps], want->loss[n_steps]);
    if (got->skipped[n_steps] != want->skipped[n_steps]) l->resume_rel_error = INFINITY;
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        if (is_rounding(&p->p[i], norm_of(want->grad + o, n), global, rough)) continue;
        l->resume_rel_error = fmax(l->resume_rel_error, distance(got->next + o, want->next + o, n) /
                                                            fmax(norm_of(want->next + o, n), 1e-30));
    }
}

static struct verify_layout *layout_push(struct verify *v)
{
    GROW(v->layout, v->n, v->room, 1);
    struct verify_layout *l = &v->layout[v->n++];
    memset(l, 0, sizeof *l);
    return l;
}

/* ---- one layout ---- */
struct run { /* of verify_run */
    struct verify *v;
    struct config c;
    struct trial t;
    struct replay replay;
    struct shelf shelf;
    struct param_table p;
    struct outcome want, ref; /* the oracle, and one rank with plain loops */
    struct str held_before;   /* how states lay that were handed over, one line each */
    bool has_ref;
};

/* Whether a layout before this one holds the state in the same way: then only that one hands it over. */
static bool held_before(struct run *x)
{
    const struct config *c = &x->c;
    char line[128];
    const char *kind = c->parallel.pp > 1 ? c->parallel.schedule : "";
    bool plain = !strcmp(kind, "naive") || !strcmp(kind, "gpipe") || !strcmp(kind, "1f1b") || !strcmp(kind, "zbh1") ||
                 !strcmp(kind, "zbh2");
    snprintf(line, sizeof line, "%d %d %d %d %d %d %s %d %d %d\n", (int)c->parallel.dp_replicate,
             (int)c->parallel.dp_shard, (int)c->parallel.zero, (int)c->parallel.tp, (int)c->parallel.cp,
             (int)c->parallel.pp, plain ? "" : kind, (int)c->parallel.ep, (int)c->parallel.etp,
             (int)c->parallel.servers);
    if (strstr(str_text(&x->held_before), line)) return true;
    str_puts(&x->held_before, line);
    return false;
}

static bool judge(const struct run *x, const struct verify_layout *l, const struct outcome *got,
                  const struct shelf_place *from)
{
    const struct config *c = &x->c;
    bool ok = l->max_rel_error <= l->bound && l->loss_rel_error <= l->bound_totals &&
              l->norm_rel_error <= l->bound_totals && l->eval_rel_error <= l->bound_totals;
    bool exact = c->numerics.exact_order && l->n_ranks == config_dp(c);
    if (l->answer_tokens) ok &= l->answers_identical && l->answers_most <= answers_bound(c);
    if (l->answer_tokens && answers_bound(c) == 0) ok &= !l->answers_unlike;
    if (exact) ok &= l->bit_identical && l->norm_rel_error == 0;
    if (from) ok &= l->resume_identical && l->resume_rel_error <= fmax(l->bound, from->bound);
    if (from && l->n_ranks == 1 && !strcmp(from->layout, "one rank"))
        ok &= l->resume_rel_error == 0; /* as if it had not stopped */
    return ok && !got->replicas[0];
}

/* The same layout with plain loops, beside one rank with them. */
static int plain_loops(struct run *x, struct verify_layout *l, struct err *e)
{
    struct verify_layout plain = {0};
    struct outcome got;
    const char *kernels = x->c.run.kernels, *root = x->t.save_to;
    outcome_init(&got, &x->c, x->p.numel);
    x->c.run.kernels = "ref";
    x->t.save_to = NULL;
    x->t.out = &got;
    int rc = trial_run(&x->t, e);
    x->c.run.kernels = kernels;
    x->t.save_to = root;
    if (rc) err_prefix(e, "layout %s with run.kernels ref", l->layout);
    else compare(&plain, &x->p, &x->ref, &got, x->t.steps, l->bound > 1e-3);
    l->ref_rel_error =
        fmax(fmax(plain.max_rel_error, plain.loss_rel_error), fmax(plain.norm_rel_error, plain.eval_rel_error));
    l->ok &= !rc && l->ref_rel_error <= l->bound;
    outcome_fini(&got);
    return rc;
}

static int one_layout(struct run *x, bool hands_over, bool plain, struct err *e)
{
    struct verify_layout *l = layout_push(x->v);
    struct shelf_place *place = NULL;
    struct outcome got;
    l->n_ranks = config_ranks(&x->c);
    l->bound = bound_of(&x->c);
    l->bound_totals = bound_of_totals(&x->c);
    l->ref_rel_error = -1;
    layout_name(&x->c, l->layout, sizeof l->layout);
    outcome_init(&got, &x->c, x->p.numel);
    x->t.out = &got;
    int rc = hands_over ? shelf_next(&x->shelf, x->t.steps, &place, e) : OK;
    const struct shelf_place *from = place ? shelf_pick(&x->shelf, place) : NULL;
    x->t.save_to = place ? place->root : NULL;
    x->t.load_from = from ? from->path : NULL;
    if (!rc) rc = trial_run(&x->t, e);
    if (rc) err_prefix(e, "layout %s", l->layout);
    else compare(l, &x->p, &x->want, &got, x->t.steps, l->bound > 1e-3);
    if (!rc && from) compare_resumed(l, &x->p, &x->want, &got, from, x->t.steps, fmax(l->bound, from->bound) > 1e-3);
    l->routed = x->replay.routed;
    l->elsewhere = x->replay.elsewhere;
    l->ok = !rc && judge(x, l, &got, from);
    if (got.replicas[0]) snprintf(l->tensor, sizeof l->tensor, "replicas: %.80s", got.replicas);
    if (place) {
        snprintf(place->layout, sizeof place->layout, "%s", l->layout);
        place->state = outcome_state(&got, got.value);
        place->bound = l->bound;
    }
    outcome_fini(&got);
    if (!rc && plain && x->has_ref) rc = plain_loops(x, l, e);
    x->v->ok &= l->ok;
    return rc;
}

/* The layout that differs from l by being at this zero level and shares nothing but sequences; NULL: there is none. */
static const struct verify_layout *at_zero(const struct verify *v, const struct verify_layout *l, char level)
{
    char name[sizeof l->layout];
    memcpy(name, l->layout, sizeof name);
    char *zero = strstr(name, "zero");
    if (!zero || strchr(zero, ' ')) return NULL; /* model axes come after it */
    zero[4] = level;
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->layout[i].layout, name)) return &v->layout[i];
    return NULL;
}

/* What zero shares out does not change in which order anything is added (state/exchange.h). With comm.param only levels
 * that send parameters round them. */
static void check_zero_bits(struct verify *v, const struct config *c)
{
    char level = config_comm_param(c) == CODEC_KEPT ? '0' : '1';
    for (int i = 0; i < v->n; i++) {
        struct verify_layout *l = &v->layout[i];
        const struct verify_layout *first = strstr(l->layout, "zero0") ? NULL : at_zero(v, l, level);
        if (!first || first->bits == l->bits) continue;
        l->ok = v->ok = false;
        snprintf(l->tensor, sizeof l->tensor, "bits: not those of zero %c", level);
    }
}

/* Adam divides a gradient by its own size, so where a gradient is rounding it makes full steps of rounding, and no two
 * orders of adding end alike. All runs take an eps that such elements drown in: a tenth of the gradient's mean size. */
static int settle_eps(struct run *x, struct err *e)
{
    struct config *c = &x->c;
    x->t.measure = true;
    int rc = trial_run(&x->t, e);
    x->t.measure = false;
    double norm = x->t.out->norm[0];
    if (c->optimizer.clip > 0) norm = fmin(norm, c->optimizer.clip);
    c->optimizer.eps = fmax(c->optimizer.eps, 1e-1 * norm / sqrt((double)x->p.numel));
    return rc;
}

/* One rank: what all others are compared with. It writes down what its routers choose, and saves what the first layout
 * goes on from. */
static int run_oracle(struct run *x, struct err *e)
{
    struct shelf_place *place;
    x->t.out = &x->want;
    struct optim_config o = config_optim(&x->c);
    bool has_eps = optim_reads(&o, "eps");
    int rc = has_eps ? settle_eps(x, e) : OK;
    x->v->eps = has_eps ? x->c.optimizer.eps : 0;
    if (!rc) rc = shelf_open(&x->shelf, x->p.numel * 4 * (1 + x->want.moments), e);
    if (!rc) rc = shelf_next(&x->shelf, x->t.steps, &place, e);
    if (rc) return rc;
    x->t.save_to = place->root;
    x->replay.record = true;
    rc = trial_run(&x->t, e);
    x->replay.record = false;
    x->replay.force = x->c.precision.recipe != RECIPE_FP32;
    x->v->replayed = x->replay.pick && x->replay.force;
    snprintf(place->layout, sizeof place->layout, "one rank");
    place->state = outcome_state(&x->want, x->want.value);
    x->v->loss = x->want.loss[x->t.steps - 1];
    for (int s = 0; s < x->t.steps; s++) x->v->left_out += x->want.skipped[s];
    return rc;
}

/* One rank with plain loops beside it. In bf16 they round in other places; so do gradients that are kept in bf16. */
static int run_plain_oracle(struct run *x, struct err *e)
{
    struct verify_layout l = {0};
    const char *kernels = x->c.run.kernels;
    bool quantises = config_quantises(&x->c);
    double bound = x->c.precision.recipe == RECIPE_FP32 && x->c.precision.grad == GRAD_FP32 ? 1e-5 : 2e-2;
    bound = fmax(bound, bound_of_muon(&x->c));
    if (quantises) bound = 2e-1;
    if (!strcmp(kernels, "ref")) return OK;
    x->c.run.kernels = "ref";
    x->t.save_to = NULL;
    x->t.out = &x->ref;
    int rc = trial_run(&x->t, e);
    x->c.run.kernels = kernels;
    if (rc) return err_prefix(e, "one rank with run.kernels ref");
    compare(&l, &x->p, &x->want, &x->ref, x->t.steps, bound > 1e-3);
    x->v->ref_rel_error = fmax(fmax(l.max_rel_error, l.loss_rel_error), fmax(l.norm_rel_error, l.eval_rel_error));
    x->v->ok &= x->v->ref_rel_error <= bound;
    x->has_ref = true;
    return OK;
}

static const char *const axis_names[] = {"tp", "cp", "pp", "ep", "servers", "dp"}; /* by bit */
enum { N_AXES = (int)(sizeof axis_names / sizeof *axis_names) };

bool verify_axes_parse(const char *text, unsigned *axes)
{
    *axes = 0;
    for (size_t n; *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        int i = 0;
        while (i < N_AXES && (strlen(axis_names[i]) != n || strncmp(axis_names[i], text, n))) i++;
        if (i == N_AXES) return false;
        *axes |= 1U << i;
    }
    return true;
}

static unsigned axes_of(const struct layout_try *t)
{
    bool dp = t->dp_replicate * t->dp_shard > 1 && !t->servers; /* a parameter server's workers are part of it */
    return (t->tp > 1 ? VERIFY_TP : 0U) | (t->cp > 1 ? VERIFY_CP : 0U) | (t->pp > 1 ? VERIFY_PP : 0U) |
           (t->ep > 1 ? VERIFY_EP : 0U) | (t->servers ? VERIFY_SERVERS : 0U) | (dp ? VERIFY_DP : 0U);
}

/* Asked for axes that no layout uses alone. */
static int nothing_to_compare(unsigned axes, int max_ranks, struct err *e)
{
    struct str list = {0};
    for (int i = 0; i < N_AXES; i++)
        if (axes & 1U << i) str_printf(&list, "%s%s", list.n ? "," : "", axis_names[i]);
    int rc =
        err_set(e, ERR_REQUEST,
                "--axes %s: no layout of 2 to %d ranks uses these and no others; add dp (ep and zero levels share out "
                "the ranks of others), or start more ranks (-n)",
                str_text(&list), max_ranks);
    str_free(&list);
    return rc;
}

/* Whether entry `at` of n is one of `some` that are spread evenly over all. */
static bool is_one_of(int at, int n, int some)
{
    return at == 0 || (int64_t)at * some / n != (int64_t)(at - 1) * some / n;
}

/* Of the ways in which state lies, and of all layouts, so many go on from another's checkpoint and run with plain loops
 * too. */
enum { HAND_OVER = 32, PLAIN = 4 };

static int run_layouts(struct run *x, const struct layouts *all, unsigned axes, struct err *e)
{
    int n = 0, ways = 0, at = 0, way = 0, rc = OK;
    bool *fresh = xcalloc(to_size(all->n) + 1, sizeof *fresh);
    for (int i = 0; i < all->n; i++) {
        if (axes_of(&all->at[i]) & ~axes) continue;
        layouts_apply(&all->at[i], &x->c);
        fresh[i] = !held_before(x);
        ways += fresh[i];
        n++;
    }
    for (int i = 0; !rc && i < all->n; i++) {
        if (axes_of(&all->at[i]) & ~axes) continue;
        layouts_apply(&all->at[i], &x->c);
        bool hands_over = fresh[i] && is_one_of(way, ways, HAND_OVER < ways ? HAND_OVER : ways);
        rc = one_layout(x, hands_over, at > 0 && is_one_of(at, n, PLAIN < n ? PLAIN : n), e);
        way += fresh[i];
        at++;
    }
    xfree(fresh);
    return rc;
}

int verify_run(struct verify *v, const struct config *config, int max_ranks, unsigned axes, int n_steps, struct err *e)
{
    CHECK(n_steps >= 1 && n_steps <= VERIFY_MAX_STEPS, "%d steps", n_steps);
    struct run x = {.v = v, .c = *config};
    struct model_config m = x.c.model;
    struct layouts all = {0};
    struct config two = *config; /* ranks, that share out sequences */
    two.parallel.dp_shard *= 2;
    *v = (struct verify){.ok = true, .bound = bound_of(&two)};
    model_declare(&m, NULL, &x.p);
    outcome_init(&x.want, &x.c, x.p.numel);
    outcome_init(&x.ref, &x.c, x.p.numel);
    replay_init(&x.replay, &x.c, n_steps + 1);
    int32_t *tokens = trial_tokens(&x.c, 0), *unseen = trial_tokens(&x.c, 1);
    x.t = (struct trial){.c = &x.c,
                         .tokens = tokens,
                         .unseen = unseen,
                         .steps = n_steps,
                         .global = &x.p,
                         .replay = &x.replay};
    x.c.parallel.dp_replicate = x.c.parallel.dp_shard = 1;
    x.c.parallel.zero = 0;
    int rc = run_oracle(&x, e);
    if (!rc) rc = run_plain_oracle(&x, e);
    layouts_enumerate(&all, config, max_ranks);
    if (!rc) rc = run_layouts(&x, &all, axes, e);
    if (!rc && v->n < 2 && max_ranks > 1) rc = nothing_to_compare(axes, max_ranks, e);
    if (!rc) check_zero_bits(v, config);
    layouts_free(&all);
    shelf_close(&x.shelf);
    replay_free(&x.replay);
    outcome_fini(&x.want);
    outcome_fini(&x.ref);
    param_table_free(&x.p);
    str_free(&x.held_before);
    xfree(tokens);
    xfree(unseen);
    return rc;
}

void verify_free(struct verify *v)
{
    xfree(v->layout);
    memset(v, 0, sizeof *v);
}
