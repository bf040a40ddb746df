/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the oracle, then one run per layout. What costs time is shared: the run that is compared also evaluates,
 * saves, reads what an earlier one saved, and makes its next step. */
#include "verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "config/config_codec.h"
#include "verify/compare.h"
#include "verify/layouts.h"
#include "verify/shelf.h"
#include "verify/unrounded.h"

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
    struct config asked; /* as it was given, for one rank; c is this with the layout at hand */
    struct trial t;
    struct replay replay;
    struct shelf shelf;
    struct param_table p;
    struct outcome want, ref; /* the oracle, and one rank with plain loops */
    struct str held_before;   /* how states lay that were handed over, one line each */
    bool has_ref;
    const struct trained_asked *trains; /* NULL: the trainer itself does not run */
    struct trained trained;             /* on a plain rank */
    const struct config *rounded;       /* struct verify_asked */
    bool wide;                          /* some layout's bounds are */
};

/* Whether a layout before this one holds the state in the same way: then only that one hands it over. */
static bool held_before(struct run *x)
{
    const struct config *c = &x->c;
    char line[128];
    const char *kind = c->parallel.pp > 1 ? c->parallel.schedule : "";
    bool plain = !strcmp(kind, "naive") || !strcmp(kind, "gpipe") || !strcmp(kind, "1f1b") || !strcmp(kind, "zbh1") ||
                 !strcmp(kind, "zbh2");
    snprintf(line, sizeof line, "%d %d %d %d %d %d %s %d %d %d %d %d\n", (int)c->parallel.dp_replicate,
             (int)c->parallel.dp_shard, (int)c->parallel.zero, (int)c->parallel.tp, (int)c->parallel.cp,
             (int)c->parallel.pp, plain ? "" : kind, (int)c->parallel.ep, (int)c->parallel.etp,
             (int)c->parallel.servers, (int)c->parallel.chunks, c->parallel.pp_layers.n);
    if (strstr(str_text(&x->held_before), line)) return true;
    str_puts(&x->held_before, line);
    return false;
}

static void tell(struct verify_layout *l, const struct differences *d, const struct outcome *want,
                 const struct outcome *got)
{
    const struct difference *worst = differences_worst(d);
    l->bound = worst->bound;
    l->max_rel_error = worst->error;
    snprintf(l->tensor, sizeof l->tensor, "%.111s", d->missing[0] ? d->missing : worst->what);
    l->bound_steps = d->step.bound;
    l->step_rel_error = d->step.error;
    snprintf(l->step_tensor, sizeof l->step_tensor, "%s", d->step.what);
    l->lean = d->lean.error;
    snprintf(l->lean_tensor, sizeof l->lean_tensor, "%s", d->lean.what);
    l->bit_identical = d->same_bits;
    l->bits = d->bits;
    l->loss_rel_error = d->loss;
    l->norm_rel_error = d->norm;
    l->eval_rel_error = d->eval;
    l->comm_bytes = got->comm_bytes;
    l->peak_bytes = got->peak_bytes;
    l->answer_tokens = got->answers.tokens;
    l->answers_unlike = got->answers.unlike;
    l->answers_most = got->answers.most;
    l->answers_identical = got->answers.written == want->answers.written && !got->answers.apart;
}

/* What has no bound: it is so, or it is not. */
static bool is_complete(const struct run *x, const struct verify_layout *l, const struct differences *d,
                        const struct shelf_place *from)
{
    const struct config *c = &x->c;
    bool ok = !d->missing[0], exact = c->numerics.exact_order && l->n_ranks == config_dp(c);
    if (l->answer_tokens) ok &= l->answers_identical && l->answers_most <= answers_bound(c);
    if (l->answer_tokens && answers_bound(c) == 0) ok &= !l->answers_unlike;
    /* What is computed again or put away has the bits of what is not. */
    if (exact || l->n_ranks == 1) ok &= l->bit_identical && l->norm_rel_error == 0;
    if (from) ok &= l->resume_identical;
    if (from && l->n_ranks == 1 && !strcmp(from->layout, "one rank"))
        ok &= l->resume_rel_error == 0; /* as if it had not stopped */
    return ok;
}

static bool judge(const struct run *x, struct verify_layout *l, const struct differences *d, const struct bounds *b,
                  const struct shelf_place *from)
{
    l->complete = is_complete(x, l, d, from);
    l->bound_resumed = from ? fmax(b->value, from->bounds.value) : b->value;
    bool resumed = !from || l->resume_rel_error <= l->bound_resumed;
    return l->complete && resumed && differences_within(d, b);
}

/* The same layout with plain loops, beside one rank with them. */
static int plain_loops(struct run *x, struct verify_layout *l, const struct bounds *b, struct err *e)
{
    struct differences d = {0};
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
    else outcomes_compare(&d, &x->p, &x->ref, &got, b, x->t.steps);
    l->ref_rel_error = larger(larger(differences_worst(&d)->error, d.loss), larger(d.norm, d.eval));
    l->ref_ok = !rc && differences_within(&d, b);
    l->ok &= l->ref_ok;
    outcome_fini(&got);
    return rc;
}

static int train(struct run *x, struct trained *out, struct err *e)
{
    char dir[sizeof x->shelf.dir + 16];
    snprintf(dir, sizeof dir, "%s/trained", x->shelf.dir);
    return trained_run(out, x->trains, &x->c, dir, x->v->eps, e);
}

/* The trainer in this layout beside the trainer on one rank. What it refuses, or ends with, is a difference: the layout
 * that was compared is not one that trains. */
static int train_layout(struct run *x, struct err *e)
{
    struct verify_layout *l = &x->v->layout[x->v->n - 1];
    const struct bounds b = bounds_of(&x->c);
    struct trained *got = xcalloc(1, sizeof *got);
    struct err why = {0};
    int rc = train(x, got, &why);
    if (!rc) {
        struct difference d = trained_compare(&x->trained, got, &b);
        l->trained_rel_error = d.error;
        l->ok &= d.error <= d.bound;
        snprintf(l->trained_where, sizeof l->trained_where, "%s", d.what);
    } else {
        l->trained_rel_error = INFINITY;
        l->ok = false;
        snprintf(l->trained_where, sizeof l->trained_where, "%.*s", (int)sizeof l->trained_where - 1, why.text);
    }
    x->v->n_trained++;
    x->v->ok &= l->ok;
    xfree(got);
    return rc == ERR_SIGNAL ? err_set(e, rc, "%s", why.text) : OK;
}

static int one_layout(struct run *x, bool hands_over, bool plain, struct err *e)
{
    struct verify_layout *l = layout_push(x->v);
    struct shelf_place *place = NULL;
    struct outcome got;
    struct differences d = {0};
    const struct bounds b = bounds_of(&x->c);
    l->n_ranks = config_ranks(&x->c);
    l->bound = b.value;
    l->bound_totals = b.totals;
    l->ref_rel_error = l->trained_rel_error = l->unrounded_rel_error = -1;
    x->wide |= !x->rounded && unrounded_is_wanted(&x->c);
    layout_name(&x->c, l->layout, sizeof l->layout);
    outcome_init(&got, &x->c, x->p.numel);
    x->t.out = &got;
    int rc = hands_over ? shelf_next(&x->shelf, x->t.steps, &place, e) : OK;
    const struct shelf_place *from = place ? shelf_pick(&x->shelf, place) : NULL;
    x->t.save_to = place ? place->root : NULL;
    x->t.load_from = from ? from->path : NULL;
    if (!rc) rc = trial_run(&x->t, e);
    if (rc) err_prefix(e, "layout %s", l->layout);
    else {
        outcomes_compare(&d, &x->p, &x->want, &got, &b, x->t.steps);
        tell(l, &d, &x->want, &got);
    }
    if (!rc && from) {
        const struct bounds both = bounds_most(b, from->bounds);
        snprintf(l->resumed, sizeof l->resumed, "%s", from->layout);
        l->resume_identical = outcome_state(&got, got.loaded) == from->state;
        l->resume_rel_error = outcomes_compare_next(&x->p, &x->want, &got, &both, x->t.steps);
    }
    l->routed = x->replay.routed;
    l->elsewhere = x->replay.elsewhere;
    l->ok = !rc && judge(x, l, &d, &b, from);
    if (place) {
        snprintf(place->layout, sizeof place->layout, "%s", l->layout);
        place->state = outcome_state(&got, got.value);
        place->bounds = b;
    }
    outcome_fini(&got);
    if (!rc && plain && x->has_ref) rc = plain_loops(x, l, &b, e);
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
        l->complete = l->ok = v->ok = false;
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

/* One rank that computes nothing twice, puts nothing away and sends nothing: what saves memory or time must change no
 * number, so the oracle has none of it. */
static struct config plain_of(const struct config *c)
{
    struct config p = *c;
    const struct layout_try one = {.dp_replicate = 1, .dp_shard = 1, .tp = 1, .cp = 1, .pp = 1};
    layouts_apply(&one, &p);
    p.parallel.ranks_here = 1;
    p.memory.chosen = (struct recompute){0};
    p.memory.away = 0;
    p.memory.offload_to = "host";
    p.memory.limit = NULL;
    p.memory.limit_bytes = 0;
    p.precision.keep_weights = false;
    p.comm.grad = p.comm.param = CODEC_KEPT;
    return p;
}

/* What all others are compared with. It writes down what its routers choose, and saves what the first layout goes on
 * from. */
static int run_oracle(struct run *x, struct err *e)
{
    struct shelf_place *place;
    x->t.out = &x->want;
    struct optim_config o = config_optim(&x->c);
    bool has_eps = optim_reads(&o, "eps");
    int rc = has_eps ? settle_eps(x, e) : OK;
    x->v->eps = has_eps ? x->c.optimizer.eps : 0;
    x->asked.optimizer.eps = x->c.optimizer.eps;
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
    place->bounds = bounds_of(&x->c);
    x->v->loss = x->want.loss[x->t.steps - 1];
    for (int s = 0; s < x->t.steps; s++) x->v->left_out += x->want.skipped[s];
    return rc;
}

/* The trainer itself on that rank. A config that it refuses is not an error here: it is said. */
static int train_oracle(struct run *x, const struct trained_asked *q, struct err *e)
{
    const char *why = trained_why_not(&x->c);
    struct err refused = {0};
    x->trains = q;
    int rc = why ? ERR_REQUEST : train(x, &x->trained, &refused);
    if (!rc) return OK;
    if (rc != ERR_REQUEST) return err_set(e, rc, "the trainer on one rank: %s", refused.text);
    snprintf(x->v->untrained, sizeof x->v->untrained, "%.399s", why ? why : refused.text);
    x->trains = NULL;
    return OK;
}

/* One rank with plain loops beside it. */
static int run_plain_oracle(struct run *x, struct err *e)
{
    struct differences d;
    const char *kernels = x->c.run.kernels;
    const struct bounds b = bounds_of_loops(&x->c);
    if (!strcmp(kernels, "ref")) return OK;
    x->c.run.kernels = "ref";
    x->t.save_to = NULL;
    x->t.out = &x->ref;
    int rc = trial_run(&x->t, e);
    x->c.run.kernels = kernels;
    if (rc) return err_prefix(e, "one rank with run.kernels ref");
    outcomes_compare(&d, &x->p, &x->want, &x->ref, &b, x->t.steps);
    x->v->ref_rel_error = larger(larger(differences_worst(&d)->error, d.loss), larger(d.norm, d.eval));
    x->v->ok &= differences_within(&d, &b);
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

/* Of the ways in which state lies, and of all layouts, so many go on from another's checkpoint, run with plain loops
 * too, and in the trainer itself; all of them where that decides what is learned. */
enum { HAND_OVER = 32, PLAIN = 4, TRAINED = 4 };

/* Applies it; false: it is none of those that are asked for. */
static bool is_run(struct run *x, const struct layout_try *t, unsigned axes)
{
    struct config rounded;
    if (layout_axes(t) & ~axes) return false;
    layouts_apply(t, &x->c);
    if (!x->rounded) return true;
    rounded = *x->rounded;
    layouts_apply(t, &rounded);
    return unrounded_is_wanted(&rounded);
}

static int run_layouts(struct run *x, const struct layouts *all, unsigned axes, struct err *e)
{
    int n = 0, ways = 0, at = 0, way = 0, rc = OK;
    bool *fresh = xcalloc(to_size(all->n) + 1, sizeof *fresh);
    for (int i = 0; i < all->n; i++) {
        if (!is_run(x, &all->at[i], axes)) continue;
        fresh[i] = !held_before(x);
        ways += fresh[i];
        n++;
    }
    for (int i = 0; !rc && i < all->n; i++) {
        if (!is_run(x, &all->at[i], axes)) continue;
        bool hands_over = fresh[i] && is_one_of(way, ways, HAND_OVER < ways ? HAND_OVER : ways);
        rc = one_layout(x, hands_over, at > 0 && is_one_of(at, n, PLAIN < n ? PLAIN : n), e);
        bool trains = x->c.train.objective != OBJECTIVE_NEXT || is_one_of(n - 1 - at, n, TRAINED < n ? TRAINED : n);
        if (!rc && x->trains && trains) rc = train_layout(x, e);
        way += fresh[i];
        at++;
    }
    xfree(fresh);
    return rc;
}

static void run_open(struct run *x, struct verify *v, const struct config *c, int32_t *tokens[2], int n_steps)
{
    *v = (struct verify){.ok = true};
    *x = (struct run){.v = v, .asked = *c};
    x->asked.optimizer.warmup_steps = 0;
    x->c = plain_of(&x->asked);
    struct model_config m = x->c.model;
    model_declare(&m, NULL, &x->p);
    outcome_init(&x->want, &x->c, x->p.numel);
    outcome_init(&x->ref, &x->c, x->p.numel);
    replay_init(&x->replay, &x->c, n_steps + 1);
    for (int i = 0; i < 2; i++) tokens[i] = trial_tokens(&x->c, i);
    x->t = (struct trial){.c = &x->c,
                          .tokens = tokens[0],
                          .unseen = tokens[1],
                          .steps = n_steps,
                          .global = &x->p,
                          .replay = &x->replay};
}

static void run_close(struct run *x, int32_t *tokens[2])
{
    shelf_close(&x->shelf);
    replay_free(&x->replay);
    outcome_fini(&x->want);
    outcome_fini(&x->ref);
    param_table_free(&x->p);
    str_free(&x->held_before);
    for (int i = 0; i < 2; i++) xfree(tokens[i]);
}

/* The layout that the config itself asks for, with all that it says of it. */
static int run_own(struct run *x, const struct config *own, struct err *e)
{
    double eps = x->asked.optimizer.eps;
    x->c = *own;
    x->c.optimizer.warmup_steps = 0;
    x->c.optimizer.eps = eps;
    x->c.parallel.ranks_here = config_ranks(own);
    int rc = one_layout(x, true, false, e);
    x->v->layout[x->v->n - 1].own = true;
    return rc || !x->trains ? rc : train_layout(x, e);
}

/* Whether the config's own layout uses none but these axes. */
static bool own_is_asked(const struct verify_asked *q)
{
    if (!q->own) return false;
    const struct layout_try t = {.dp_replicate = to_int(q->own->parallel.dp_replicate),
                                 .dp_shard = to_int(q->own->parallel.dp_shard),
                                 .tp = to_int(q->own->parallel.tp),
                                 .cp = to_int(q->own->parallel.cp),
                                 .pp = to_int(q->own->parallel.pp),
                                 .ep = to_int(q->own->parallel.ep),
                                 .servers = to_int(q->own->parallel.servers)};
    return !(layout_axes(&t) & ~q->axes);
}

int verify_all(struct verify *v, const struct verify_asked *q, struct err *e)
{
    CHECK(q->steps >= 1 && q->steps <= VERIFY_MAX_STEPS, "%d steps", q->steps);
    struct run x;
    struct layouts all = {0};
    struct config two = *q->config; /* ranks, that share out sequences */
    int32_t *tokens[2];
    run_open(&x, v, q->config, tokens, q->steps);
    two.parallel.dp_shard *= 2;
    v->bound = bounds_of(&two).value;
    x.rounded = q->rounded;
    int rc = run_oracle(&x, e);
    if (!rc && q->max_ranks && !q->rounded) rc = run_plain_oracle(&x, e);
    if (!rc && q->trains) rc = train_oracle(&x, q->trains, e);
    x.c = x.asked;
    const bool own = own_is_asked(q);
    if (!rc && own) rc = run_own(&x, q->own, e);
    x.c = x.asked;
    if (q->max_ranks && !q->only) layouts_enumerate(&all, q->rounded ? q->rounded : &x.asked, q->max_ranks);
    if (!rc) rc = run_layouts(&x, q->only ? q->only : &all, q->axes, e);
    if (!rc && v->n - own < 2 && q->max_ranks > 1 && !q->rounded) rc = nothing_to_compare(q->axes, q->max_ranks, e);
    if (!rc) check_zero_bits(v, q->config);
    layouts_free(&all);
    run_close(&x, tokens);
    return rc || !x.wide ? rc : unrounded_run(v, q, e);
}

int verify_run(struct verify *v, const struct config *c, int max_ranks, unsigned axes, int steps, struct err *e)
{
    return verify_all(v, &(struct verify_asked){.config = c, .max_ranks = max_ranks, .axes = axes, .steps = steps}, e);
}

void verify_free(struct verify *v)
{
    xfree(v->layout);
    memset(v, 0, sizeof *v);
}
