/* One run of the oracle, then one run per layout; ranks write their pieces of gradients and values into arrays of the
 * global shapes, so that comparing is the same loop for every layout. */
#include "verify/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"
#include "run/ranks.h"
#include "run/serve.h"
#include "verify/layouts.h"

enum { MAX_STEPS = 100 };

/* What a run leaves behind: global arrays, written piece by piece. */
struct outcome {
    float *grad, *value; /* [numel] */
    double loss[MAX_STEPS], norm[MAX_STEPS];
    int64_t comm_bytes, peak_bytes;
};

struct trial {
    const struct config *c; /* with this layout's degrees */
    const int32_t *tokens;  /* [4][global][seq]: tokens, targets, positions, documents */
    int steps;
    const struct param_table *global; /* as one rank holds it */
    struct outcome *out;
    int64_t began; /* bytes that rank 0 had sent to servers before the first step */
};

static void outcome_init(struct outcome *o, int64_t numel)
{
    memset(o, 0, sizeof *o);
    o->grad = xcalloc(to_size(numel), sizeof *o->grad);
    o->value = xcalloc(to_size(numel), sizeof *o->value);
}

static void outcome_fini(struct outcome *o)
{
    xfree(o->grad);
    xfree(o->value);
}

/* Every eighth target is not trained, and in larger batches of every fourth sequence none is: ranks have unlike numbers of
 * trained tokens, some have none. */
static int32_t *random_tokens(const struct config *c)
{
    int64_t n = c->batch.global * c->model.seq_len;
    int32_t *t = xcalloc(to_size(4 * n), sizeof *t);
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        t[i] = (int32_t)(rng_u32(7, 1, at) % (uint64_t)c->model.vocab);
        bool trained = rng_u32(7, 3, at) % 8 != 0 && (i / c->model.seq_len % 4 != 1 || c->batch.global < 4);
        t[n + i] = !trained ? -1 : (int32_t)(rng_u32(7, 2, at) % (uint64_t)c->model.vocab);
        t[2 * n + i] = (int32_t)(i % c->model.seq_len);
        t[3 * n + i] = (int32_t)(i % c->model.seq_len / 5);
    }
    return t;
}

static struct engine_batch part_of(const struct trial *t, int part)
{
    int64_t first, count, seq = t->c->model.seq_len, field = t->c->batch.global * seq;
    config_part(t->c, part, &first, &count);
    const int32_t *at = t->tokens + first * seq;
    struct engine_batch b = {.tokens = at, .targets = at + field, .positions = at + 2 * field, .docs = at + 3 * field,
                             .n = count, .first = first};
    for (int64_t i = 0; i < count * seq; i++) b.n_trained += b.targets[i] >= 0;
    return b;
}

/* This rank's piece of parameter i, from where it works on it to its place in the array of global shapes. */
static void keep(const struct trial *t, const struct engine *g, int i, const void *from, enum dtype dtype, float *to)
{
    const struct param *p = &g->params.p[i];
    const struct piece *q = &g->store.units.piece[i];
    if (!p->counted || !q->n) return;
    struct shape shape = shape_of(p->nd, p->n);
    struct region whole = region_whole(&shape), mine = param_rows(p, q->lo / param_row_numel(p), q->n / param_row_numel(p));
    struct region_run run;
    to += t->global->p[i].offset;
    for (bool more = region_run_first(&run, &mine, &mine, &whole); more; more = region_run_next(&run))
        g->kernels.flat->cast(NULL, to + run.b, DT_F32, (const char *)from + to_size(run.a) * dtype_bytes(dtype), dtype, run.n);
}

static void keep_gradients(const struct trial *t, const struct engine *g)
{
    for (int i = 0; i < g->params.n; i++) keep(t, g, i, store_piece_grad(&g->store, i), g->store.grad_dtype, t->out->grad);
}

static void keep_values(const struct trial *t, const struct engine *g)
{
    for (int i = 0; i < g->params.n; i++) keep(t, g, i, store_piece_state(&g->store, i, STORE_MASTER), DT_F32, t->out->value);
}

static void steps(struct trial *t, struct engine *g, struct serve *v, const struct ranks *r)
{
    struct lr_config lr = config_lr(t->c);
    struct engine_batch b = part_of(t, r->server < 0 ? r->part : 0);
    bool writes = r->writes;
    for (int s = 0; s < t->steps && engine_status(g, NULL) == OK; s++) {
        struct engine_report report;
        if (v) serve_step(v, r->server < 0 ? &b : NULL, s, lr_at(&lr, s), &report);
        else engine_step(g, &b, s, lr_at(&lr, s), &report);
        if (r->rank == 0) {
            t->out->loss[s] = report.loss;
            t->out->norm[s] = report.grad_norm;
        }
        if (s == 0 && writes) keep_gradients(t, g);
        if (s == 0 && r->rank == 0) {
            struct comm_traffic sent[AXIS_N];
            ranks_traffic(r, sent);
            for (int a = 0; a < AXIS_N; a++) t->out->comm_bytes += sent[a].bytes;
            t->out->comm_bytes += copies_traffic(&g->copies).bytes + (v ? serve_traffic(v) - t->began : 0);
        }
    }
    if (writes) keep_values(t, g);
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *t = arg;
    struct device *d = NULL;
    struct engine *g = NULL;
    struct ranks r;
    struct engine_config ec = config_engine(t->c);
    int rc = ranks_init(&r, world, t->c, e);
    if (rc) return rc;
    ranks_engine(&r, &ec);
    rc = device_cpu_new(&d, ec.threads, e);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    struct serve_config sc = {.optim = ec.optim, .lr = config_lr(t->c)};
    struct serve *v = NULL;
    if (!rc && r.n_servers) rc = serve_new(&v, &sc, g, &r, e);
    if (world) rc = comm_agree(world, rc, e);
    if (!rc) {
        engine_init(g);
        if (v) serve_begin(v, 0);
        if (v && r.rank == 0) t->began = serve_traffic(v);
        steps(t, g, v, &r);
        rc = engine_status(g, e);
        if (r.rank == 0) t->out->peak_bytes = (int64_t)d->ledger.peak_total;
    }
    serve_free(v);
    engine_free(g);
    ranks_fini(&r);
    if (d) device_free(d);
    return rc;
}

static int run_trial(struct trial *t, struct err *e)
{
    int n = config_ranks(t->c);
    struct comm_config cc = config_comm(t->c);
    return n > 1 ? comm_run_local(n, &cc, rank_main, t, e) : rank_main(NULL, t, e);
}

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

/* In fp32 only the order of sums differs. In bf16 too where ranks share out whole sequences, but partial products that are
 * summed over a model axis are rounded to 8 bits before the sum, which one rank does not do; so are the ranks' parts of bf16
 * gradients. */
static double bound_of(const struct config *c)
{
    if (c->precision.grad == GRAD_BF16) return 2e-2;
    if (c->precision.recipe == RECIPE_FP32) return 1e-5;
    return c->parallel.tp > 1 || c->parallel.cp > 1 || c->parallel.ep > 1 ? 2e-2 : 1e-3;
}

static void compare(struct verify_layout *l, const struct param_table *p, const struct outcome *want,
                    const struct outcome *got, int n_steps, bool rough)
{
    double global = norm_of(want->grad, p->numel);
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        double own = norm_of(want->grad + o, n), values = norm_of(want->value + o, n);
        worse(l, distance(got->grad + o, want->grad + o, n) / fmax(fmax(own, 1e-2 * global), 1e-30), "gradient",
              p->p[i].name);
        bool rounding = own <= 1e-6 * global || (rough && p->p[i].init == INIT_ZEROS);
        if (!rounding)
            worse(l, distance(got->value + o, want->value + o, n) / fmax(values, 1e-30), "value", p->p[i].name);
    }
    size_t bytes = to_size(p->numel) * sizeof(float), losses = (size_t)n_steps * sizeof(double);
    l->bit_identical = !memcmp(got->grad, want->grad, bytes) && !memcmp(got->value, want->value, bytes) &&
                       !memcmp(got->loss, want->loss, losses);
    for (int s = 0; s < n_steps; s++) {
        l->loss_rel_error = fmax(l->loss_rel_error, fabs(got->loss[s] - want->loss[s]) / fabs(want->loss[s]));
        l->norm_rel_error = fmax(l->norm_rel_error, fabs(got->norm[s] - want->norm[s]) / want->norm[s]);
    }
    l->bits = hash64(got->grad, bytes) * 31 + hash64(got->value, bytes) * 7 + hash64(got->loss, losses);
    l->comm_bytes = got->comm_bytes;
    l->peak_bytes = got->peak_bytes;
}

static struct verify_layout *layout_push(struct verify *v)
{
    v->layout = xrealloc(v->layout, sizeof *v->layout * (size_t)(v->n + 1));
    struct verify_layout *l = &v->layout[v->n++];
    memset(l, 0, sizeof *l);
    return l;
}

static int one_layout(struct verify *v, struct trial *t, const struct param_table *p, const struct outcome *want,
                      struct err *e)
{
    struct verify_layout *l = layout_push(v);
    const struct config *c = t->c;
    l->n_ranks = config_ranks(c);
    layout_name(c, l->layout, sizeof l->layout);
    struct outcome got;
    outcome_init(&got, p->numel);
    t->out = &got;
    int rc = run_trial(t, e);
    if (rc) err_prefix(e, "layout %s", l->layout);
    else compare(l, p, want, &got, t->steps, bound_of(c) > 1e-3);
    l->bound = bound_of(c);
    l->ok = !rc && l->max_rel_error <= l->bound && l->loss_rel_error <= l->bound && l->norm_rel_error <= l->bound;
    if (c->numerics.exact_order && l->n_ranks == config_dp(c)) l->ok &= l->bit_identical && l->norm_rel_error == 0;
    v->ok &= l->ok;
    outcome_fini(&got);
    return rc;
}

/* The layout that differs from l by being zero 0 and shares nothing but sequences; NULL: there is none. */
static const struct verify_layout *at_zero0(const struct verify *v, const struct verify_layout *l)
{
    char name[sizeof l->layout];
    memcpy(name, l->layout, sizeof name);
    char *zero = strstr(name, "zero");
    if (!zero || strchr(zero, ' ')) return NULL; /* model axes come after it */
    zero[4] = '0';
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->layout[i].layout, name)) return &v->layout[i];
    return NULL;
}

/* What zero shares out does not change in which order anything is added (state/exchange.h). */
static void check_zero_bits(struct verify *v)
{
    for (int i = 0; i < v->n; i++) {
        struct verify_layout *l = &v->layout[i];
        const struct verify_layout *zero0 = at_zero0(v, l);
        if (!zero0 || zero0->bits == l->bits) continue;
        l->ok = v->ok = false;
        snprintf(l->tensor, sizeof l->tensor, "bits: not those of zero 0");
    }
}

/* Adam divides a gradient by its own size, so where a gradient is rounding it makes full steps of rounding, and no two orders of
 * adding end alike. All runs take an eps that such elements drown in: a tenth of the gradient's mean size. */
static int settle_eps(struct trial *t, struct config *c, int64_t numel, struct err *e)
{
    int steps = t->steps;
    t->steps = 1;
    int rc = run_trial(t, e);
    double norm = t->out->norm[0];
    if (c->optimizer.clip > 0) norm = fmin(norm, c->optimizer.clip);
    c->optimizer.eps = fmax(c->optimizer.eps, 1e-1 * norm / sqrt((double)numel));
    t->steps = steps;
    t->out->comm_bytes = 0;
    return rc;
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
    int rc = err_set(e, ERR_REQUEST, "--axes %s: no layout of 2 to %d ranks uses these and no others; add dp (ep and zero levels share out "
                     "the ranks of others), or start more ranks (-n)", str_text(&list), max_ranks);
    str_free(&list);
    return rc;
}

int verify_run(struct verify *v, const struct config *config, int max_ranks, unsigned axes, int n_steps, struct err *e)
{
    CHECK(n_steps >= 1 && n_steps <= MAX_STEPS, "%d steps", n_steps);
    struct config c = *config;
    struct model_config m = config_model(&c);
    struct param_table p = {0};
    struct outcome want;
    *v = (struct verify){.ok = true, .bound = bound_of(config)};
    model_declare(&m, NULL, &p);
    outcome_init(&want, p.numel);
    int32_t *tokens = random_tokens(&c);
    struct trial t = {.c = &c, .tokens = tokens, .steps = n_steps, .global = &p, .out = &want};
    c.parallel.dp_replicate = c.parallel.dp_shard = 1;
    c.parallel.zero = 0;
    int rc = c.optimizer.name == OPTIM_ADAMW ? settle_eps(&t, &c, p.numel, e) : OK;
    v->eps = c.optimizer.name == OPTIM_ADAMW ? c.optimizer.eps : 0;
    if (!rc) rc = run_trial(&t, e);
    v->loss = want.loss[n_steps - 1];
    struct layouts all = {0};
    layouts_enumerate(&all, config, max_ranks);
    for (int i = 0; !rc && i < all.n; i++) {
        if (axes_of(&all.at[i]) & ~axes) continue;
        layouts_apply(&all.at[i], &c);
        rc = one_layout(v, &t, &p, &want, e);
    }
    if (!rc && v->n < 2 && max_ranks > 1) rc = nothing_to_compare(axes, max_ranks, e);
    if (!rc) check_zero_bits(v);
    layouts_free(&all);
    outcome_fini(&want);
    param_table_free(&p);
    xfree(tokens);
    return rc;
}

void verify_free(struct verify *v)
{
    xfree(v->layout);
    memset(v, 0, sizeof *v);
}

/* ---- telling ---- */
/* "same" as one rank, or a number that layouts with equal bits share; "-" when no other layout has them. */
static const char *bits_mark(const struct verify *v, int layout, char mark[16])
{
    const struct verify_layout *l = v->layout;
    int class = 0, others = 0;
    if (l[layout].bit_identical) return "same";
    for (int i = 0; i < v->n; i++) others += i != layout && l[i].bits == l[layout].bits;
    if (!others) return "-";
    for (int i = 0; l[i].bits != l[layout].bits; i++) {
        bool first = !l[i].bit_identical, again = false;
        for (int k = 0; k < i; k++) first &= l[k].bits != l[i].bits;
        for (int k = i + 1; k < v->n; k++) again |= l[k].bits == l[i].bits;
        class += first && again;
    }
    snprintf(mark, 16, "=%d", class + 1);
    return mark;
}

void verify_print(const struct verify *v, struct str *out)
{
    char a[32], b[32], mark[16];
    str_printf(out, "%-38s %5s  %-9s %-9s %-9s %-5s %12s %10s  %s\n", "layout", "ranks", "error", "loss", "norm", "bits",
               "sent/step", "peak", "largest error in");
    for (int i = 0; i < v->n; i++) {
        const struct verify_layout *l = &v->layout[i];
        str_printf(out, "%-38s %5d  %-9.2g %-9.2g %-9.2g %-5s %12s %10s  %s%s\n", l->layout, l->n_ranks, l->max_rel_error,
                   l->loss_rel_error, l->norm_rel_error, bits_mark(v, i, mark),
                   str_bytes(a, (double)l->comm_bytes), str_bytes(b, (double)l->peak_bytes), l->tensor,
                   l->ok ? "" : "  <-- DIFFERS");
    }
    if (v->eps > 0) str_printf(out, "optimizer.eps is %.2g in every run, that Adam makes no steps of rounding\n", v->eps);
    str_puts(out, "bits: same as one rank; layouts with one number have the same bits among them\n");
    str_printf(out, "%s: %d layouts against one rank, bound %g\n", v->ok ? "equal" : "NOT EQUAL", v->n, v->bound);
}

void verify_json(const struct verify *v, struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_document(&o, "verify", 1);
    json_put_bool(&o, "ok", v->ok);
    json_put_real(&o, "bound", v->bound);
    if (v->eps > 0) json_put_real(&o, "eps", v->eps);
    json_begin_array(&o, "layouts");
    for (int i = 0; i < v->n; i++) {
        const struct verify_layout *l = &v->layout[i];
        char bits[20];
        snprintf(bits, sizeof bits, "%016" PRIx64, l->bits);
        json_begin_object(&o, NULL);
        json_put_string(&o, "layout", l->layout);
        json_put_int(&o, "ranks", l->n_ranks);
        json_put_bool(&o, "ok", l->ok);
        json_put_real(&o, "max_rel_error", l->max_rel_error);
        json_put_string(&o, "tensor", l->tensor);
        json_put_bool(&o, "bit_identical", l->bit_identical);
        json_put_real(&o, "bound", l->bound);
        json_put_real(&o, "loss_rel_error", l->loss_rel_error);
        json_put_real(&o, "norm_rel_error", l->norm_rel_error);
        json_put_int(&o, "comm_bytes", l->comm_bytes);
        json_put_int(&o, "peak_bytes", l->peak_bytes);
        json_put_string(&o, "bits", bits);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
