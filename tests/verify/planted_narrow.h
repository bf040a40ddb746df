/* SPDX-License-Identifier: Apache-2.0 */
/* planted_narrow.h: the faults that test_planted_narrow.c plants, one after the other, between the program and one of
 * its functions, which the linker calls here instead. Each is done on several ranks only, the oracle never has it; what
 * says "a shard" or "a rank" is done by the second rank alone. */
#ifndef TUTTI_TESTS_VERIFY_PLANTED_NARROW_H
#define TUTTI_TESTS_VERIFY_PLANTED_NARROW_H

#include "verify/toy_layouts.h"

#include <math.h>

#include "base/mem.h"
#include "engine/feed.h"
#include "kernel/codec_rows.h"
#include "kernel/flat.h"
#include "kernel/update.h"
#include "learn/policy.h"
#include "learn/preference.h"
#include "keep/run_checkpoint.h"
#include "site/site.h"
#include "train/trainer.h"
#include "state/route_run.h"
#include "verify/trial.h"

enum plant {
    NONE,
    /* What travels in codes. */
    NEIGHBOUR,       /* a block is read with its neighbour's scale */
    TERM_TWICE,      /* a shard has one rank's terms twice */
    TERM_LOST,       /* a shard is without one rank's terms */
    HALVED,          /* one bucket is divided by the number of ranks once more */
    TRUNCATED,       /* codes are rounded towards 0 */
    SATURATED,       /* a block's scale is too small for its largest numbers */
    COUNTED_ALONE,   /* the number of trained tokens is the rank's own times the ranks */
    TERM_LARGER,     /* one rank's terms are larger by a tenth, the others' smaller */
    HAIR,            /* a shard's sums are larger by a fiftieth */
    STALE,           /* one bucket of parameters arrives in the first step only */
    PARAM_SCALE,     /* parameters are read with the neighbouring block's scale */
    PARAM_TRUNCATED, /* parameters are rounded towards 0 */
    /* Moments. */
    STILL,         /* second moments of a rank stand still */
    SHIFTED,       /* blocks of moments begin elsewhere on one rank */
    RESHARDED,     /* scales of moments are a block further on after loading */
    DECAYED_TWICE, /* weights of a shard decay twice */
    FORGETS,       /* first moments of a shard have another decay */
    SHORT,         /* steps of a shard are a tenth shorter */
    /* Adafactor. */
    FACTORS_ALONE, /* factors are of the shard's own gradients */
    EXCHANGED,     /* factors of rows are those of columns on one shard */
    CLIPPED_ALONE, /* an update is clipped by its shard's own size */
    /* Recipes. */
    HISTORY_ALONE,   /* histories have the rank's own largest values */
    LARGEST_ALONE,   /* scales follow from the rank's own part of a tensor */
    NORM_ALONE,      /* a norm's gradient is not summed over the ranks that have a part */
    MICROBATCH_LOST, /* a microbatch's gradients are left out on one rank */
    /* Muon. */
    MATRIX_ALONE,   /* shards are orthogonalised with what others had a step ago */
    MOMENTUM_OTHER, /* momentum of one rank is another */
    SIZE_ALONE,     /* the factor of an update is by the shard's shape */
    /* Answers. */
    ADVANTAGE_ALONE, /* advantages are of a rank's answers */
    WEIGHT_ALONE,    /* the mean over answers is a rank's own */
    KL_LOST,         /* the distance to the reference weighs nothing */
    OTHER_ANSWER,    /* the reference's log-probability is the other answer's */
    PLANTS
};
static enum plant planted;
static const struct config *now; /* of the run at hand; NULL: the oracle, or none */
static bool ranks_train;         /* in the trainer itself */
static _Thread_local int me;     /* the rank of this thread */
static _Thread_local bool has_loaded;
static _Thread_local int times; /* how often the planted function was called by this rank */

static bool is(enum plant p) { return (now || ranks_train) && planted == p; }

int __real_trial_run(struct trial *t, struct err *e);
int __wrap_trial_run(struct trial *t, struct err *e);
int __wrap_trial_run(struct trial *t, struct err *e)
{
    now = config_ranks(t->c) > 1 ? t->c : NULL;
    int rc = __real_trial_run(t, e);
    now = NULL;
    return rc;
}

int __real_trainer_run(const char *path, char *const *keys, int n, int n_ranks, struct trainer_result *r,
                       struct err *e);
int __wrap_trainer_run(const char *path, char *const *keys, int n, int n_ranks, struct trainer_result *r,
                       struct err *e);
int __wrap_trainer_run(const char *path, char *const *keys, int n, int n_ranks, struct trainer_result *r, struct err *e)
{
    ranks_train = n_ranks > 1;
    int rc = __real_trainer_run(path, keys, n, n_ranks, r, e);
    ranks_train = false;
    return rc;
}

int __real_site_open(struct site *s, const struct site_config *x, struct err *e);
int __wrap_site_open(struct site *s, const struct site_config *x, struct err *e);
int __wrap_site_open(struct site *s, const struct site_config *x, struct err *e)
{
    int rc = __real_site_open(s, x, e);
    me = rc ? 0 : s->ranks.rank;
    has_loaded = false;
    times = 0;
    return rc;
}

int __real_save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e);
int __wrap_save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e);
int __wrap_save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e)
{
    has_loaded = true;
    return __real_save_resume(g, c, root, rc, said, e);
}

/* ---- codes ---- */
static bool in_blocks(const struct codec_args *a) { return a->codec >= CODEC_FP8 && a->shape.rows; }

/* Every block of a row gets the scale of the next one. */
static void next_scales(const struct codec_args *a)
{
    int64_t n = codec_blocks(&a->shape);
    for (int p = 0; p < a->parts; p++) {
        uint8_t *s = (uint8_t *)a->codes + (size_t)p * a->stride + codec_scales_at(a->codec, &a->shape);
        for (int64_t r = 0; r < a->shape.rows && n > 1; r++, s += n) {
            uint8_t first = s[0];
            memmove(s, s + 1, to_size(n - 1));
            s[n - 1] = first;
        }
    }
}

void __real_codec_decode(struct stream *s, const struct codec_args *a);
void __wrap_codec_decode(struct stream *s, const struct codec_args *a);
void __wrap_codec_decode(struct stream *s, const struct codec_args *a)
{
    struct codec_args more = *a;
    bool sums = in_blocks(a) && a->parts > 1 && me == 1;
    if (in_blocks(a) && is(NEIGHBOUR) && me == 1 && a->parts > 1) next_scales(a);
    if (in_blocks(a) && is(PARAM_SCALE)) next_scales(a);
    if (in_blocks(a) && is(STALE) && a->shape.cols == 52 && times++ >= 8) return;
    more.parts -= sums && is(TERM_LOST);
    more.add &= !(sums && is(MICROBATCH_LOST));
    __real_codec_decode(s, &more);
    more.parts = 1;
    more.codes = (char *)a->codes + a->stride;
    more.add = true;
    if (sums && is(TERM_TWICE)) __real_codec_decode(s, &more);
    float by = is(HALVED) && a->shape.cols == 52 ? 0.5f : is(HAIR) ? 1.02f : 1;
    for (int64_t i = 0; sums && i < a->shape.rows * a->shape.cols && a->t == DT_F32; i++) ((float *)a->x)[i] *= by;
}

static void truncate_codes(float *x, int64_t n, unsigned fraction)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        u &= ~((1u << (23 - fraction)) - 1);
        memcpy(x + i, &u, sizeof u);
    }
}

static void saturate(float *x, const struct codec_rows *shape)
{
    for (int64_t r = 0; r < shape->rows; r++)
        for (int64_t k = 0; k < codec_blocks(shape); k++) {
            float largest = 0;
            int exponent;
            int64_t lo = r * shape->cols + codec_block_at(shape, k),
                    hi = r * shape->cols + codec_block_at(shape, k + 1);
            for (int64_t i = lo; i < hi; i++) largest = fmaxf(largest, fabsf(x[i]));
            frexpf(largest, &exponent);
            for (int64_t i = lo; i < hi; i++)
                x[i] = fmaxf(fminf(x[i], ldexpf(1, exponent - 1)), -ldexpf(1, exponent - 1));
        }
}

void __real_codec_encode(struct stream *s, const struct codec_args *a);
void __wrap_codec_encode(struct stream *s, const struct codec_args *a);
void __wrap_codec_encode(struct stream *s, const struct codec_args *a)
{
    bool other = is(TRUNCATED) || is(SATURATED) || is(TERM_LARGER) || is(PARAM_TRUNCATED);
    if (!other || !in_blocks(a) || (a->t != DT_F32 && a->t != DT_BF16)) {
        __real_codec_encode(s, a);
        return;
    }
    struct codec_args y = *a;
    int64_t n = a->shape.rows * a->shape.cols;
    y.x = xmalloc(to_size(n) * sizeof(float));
    y.t = DT_F32;
    flat_cast(s, y.x, DT_F32, a->x, a->t, n);
    if (is(TRUNCATED) || is(PARAM_TRUNCATED)) truncate_codes(y.x, n, a->codec == CODEC_FP8 ? 3 : 2);
    if (is(SATURATED)) saturate(y.x, &a->shape);
    for (int64_t i = 0; is(TERM_LARGER) && i < n; i++) ((float *)y.x)[i] *= me ? 0.9f : 1.1f;
    __real_codec_encode(s, &y);
    xfree(y.x);
}

/* ---- optimizers ---- */
static bool steps(enum update_kind k)
{
    return k == UPDATE_ADAMW16 || k == UPDATE_ADAMW8 || k == UPDATE_FACTOR_APPLY || k == UPDATE_APPLY;
}

static void decay_twice(struct update_args *u)
{
    if (u->kind == UPDATE_ADAMW16 || u->kind == UPDATE_ADAMW8) u->f[ADAMW16_DECAY] *= 2;
    if (u->kind == UPDATE_FACTOR_APPLY) u->f[FACTOR_APPLY_DECAY] *= 2;
    if (u->kind == UPDATE_APPLY) u->g[BY_DECAY] *= 2;
}

static void rotate_scales(const struct update_args *u, int operand)
{
    float *s = u->at[operand].p;
    int64_t n = update_row_blocks(u);
    for (int64_t r = 0; r < u->n / u->blocks.cols && n > 1; r++, s += n) {
        float first = s[0];
        memmove(s, s + 1, to_size(n - 1) * sizeof *s);
        s[n - 1] = first;
    }
}

static void replace(struct update_args *u)
{
    struct update_operand *at = u->at;
    if (is(RESHARDED) && has_loaded && u->kind == UPDATE_ADAMW8) {
        rotate_scales(u, ADAMW8_M_SCALE);
        rotate_scales(u, ADAMW8_V_SCALE);
    }
    if (me != 1) return;
    if (is(SHIFTED) && u->kind == UPDATE_ADAMW8 && u->n % (2 * u->blocks.cols) == 0) u->blocks.cols *= 2;
    if (is(DECAYED_TWICE)) decay_twice(u);
    if (is(SHORT) && steps(u->kind)) u->g[BY_RATE] *= 0.9;
    if (is(FORGETS) && (u->kind == UPDATE_ADAMW8 || u->kind == UPDATE_ADAMW16)) u->f[ADAMW16_BETA1] = 0.8f;
    if (is(MOMENTUM_OTHER) && u->kind == UPDATE_MOMENTUM) u->f[MOMENTUM_MU] = 0.5f;
    if (is(SIZE_ALONE) && u->kind == UPDATE_APPLY) u->g[BY_SIZE] *= 0.7;
    if (is(EXCHANGED) && u->kind == UPDATE_FACTOR_APPLY && u->blocks.whole == 36 * 36) {
        struct update_operand rows = at[FACTOR_APPLY_ROWS];
        at[FACTOR_APPLY_ROWS] = at[FACTOR_APPLY_COLS];
        at[FACTOR_APPLY_COLS] = rows;
    }
    if (is(CLIPPED_ALONE) && u->kind == UPDATE_FACTOR_APPLY) {
        double *size = at[FACTOR_APPLY_SIZE].p;
        size[0] *= (double)u->blocks.whole / (double)u->n;
    }
}

void __real_kernel_enqueue(struct stream *s, struct kernel_call *c);
static void enqueue_other(struct stream *s, const struct update_args *u)
{
    bool still = is(STILL) && me == 1 && (u->kind == UPDATE_ADAMW8 || u->kind == UPDATE_ADAMW16);
    size_t v = still ? to_size(u->n) * dtype_bytes(u->at[ADAMW16_V].t) : 0,
           scales = still && u->kind == UPDATE_ADAMW8 ? to_size(update_n_blocks(u)) * sizeof(float) : 0;
    char *was = xmalloc(v + scales + 1);
    if (v) memcpy(was, u->at[ADAMW16_V].p, v);
    if (scales) memcpy(was + v, u->at[ADAMW8_V_SCALE].p, scales);
    struct update_args other = *u;
    replace(&other);
    struct kernel_call c = update_call(&other);
    __real_kernel_enqueue(s, &c);
    if (v && times++ >= 24) memcpy(u->at[ADAMW16_V].p, was, v);
    if (v && scales && times >= 24) memcpy(u->at[ADAMW8_V_SCALE].p, was + v, scales);
    xfree(was);
}

void __wrap_kernel_enqueue(struct stream *s, struct kernel_call *c);
void __wrap_kernel_enqueue(struct stream *s, struct kernel_call *c)
{
    if (c->op < OP_FIRST_UPDATE) {
        __real_kernel_enqueue(s, c);
        return;
    }
    const struct update_args u = update_of(c);
    enqueue_other(s, &u);
}

void __real_route_run_begin(struct route_run *x, const char *what);
void __wrap_route_run_begin(struct route_run *x, const char *what);
void __real_route_run_end(struct route_run *x);
void __wrap_route_run_end(struct route_run *x);
static _Thread_local bool left_out;
void __wrap_route_run_begin(struct route_run *x, const char *what)
{
    left_out = is(MATRIX_ALONE) && !strcmp(what, "matrices of muon");
    if (!left_out) __real_route_run_begin(x, what);
}
void __wrap_route_run_end(struct route_run *x)
{
    if (!left_out) __real_route_run_end(x);
    left_out = false;
}

/* ---- what ranks agree on ---- */
static bool alone(const char *what)
{
    return (is(FACTORS_ALONE) && !strcmp(what, "sums of adafactor")) ||
           (is(CLIPPED_ALONE) && !strcmp(what, "sizes of adafactor")) ||
           (is(HISTORY_ALONE) && !strcmp(what, "largest values of the step")) ||
           (is(LARGEST_ALONE) && !strcmp(what, "agree")) || (is(NORM_ALONE) && strstr(what, "norm"));
}

int64_t __real_comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                               const char *what);
int64_t __wrap_comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                               const char *what);
int64_t __wrap_comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                               const char *what)
{
    if (!alone(what)) return __real_comm_all_reduce(c, in, out, n, t, r, what);
    if (in != out) memcpy(out, in, to_size(n) * dtype_bytes(t));
    return 0;
}

struct step_info __real_feed_info(struct engine *g, const struct engine_batch *b, int64_t step, bool training,
                                  int64_t *n_trained);
struct step_info __wrap_feed_info(struct engine *g, const struct engine_batch *b, int64_t step, bool training,
                                  int64_t *n_trained);
struct step_info __wrap_feed_info(struct engine *g, const struct engine_batch *b, int64_t step, bool training,
                                  int64_t *n_trained)
{
    struct step_info info = __real_feed_info(g, b, step, training, n_trained);
    if (is(COUNTED_ALONE) && training && b->n_trained) info.loss_scale *= (float)*n_trained / (2 * (float)b->n_trained);
    return info;
}

/* ---- answers ---- */
void __real_preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                            double factor[2]);
void __wrap_preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                            double factor[2]);
void __wrap_preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                            double factor[2])
{
    const double other[2] = {reference[1], reference[0]};
    __real_preference_pair(beta, nats, is(OTHER_ANSWER) ? other : reference, s, factor);
    for (int i = 0; is(WEIGHT_ALONE) && i < 2; i++) factor[i] *= me ? 0.9 : 1.1;
}

void __real_policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group,
                              double *advantage);
void __wrap_policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group,
                              double *advantage);
void __wrap_policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group,
                              double *advantage)
{
    __real_policy_advantages(r, reward, n, is(ADVANTAGE_ALONE) ? n / 2 : group, advantage);
}

double __real_policy_token(const struct policy_rules *r, const struct policy_token *t, struct policy_sums *s);
double __wrap_policy_token(const struct policy_rules *r, const struct policy_token *t, struct policy_sums *s);
double __wrap_policy_token(const struct policy_rules *r, const struct policy_token *t, struct policy_sums *s)
{
    struct policy_rules rules = *r;
    if (is(KL_LOST)) rules.beta = 0;
    return __real_policy_token(&rules, t, s) * (is(WEIGHT_ALONE) ? me ? 0.9 : 1.1 : 1);
}

#endif
