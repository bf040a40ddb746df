/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* suite: touches */
/* suite: wraps trial_run trainer_run kernel_enqueue stream_put_away route_run_begin route_run_end lr_at */
/* suite: wraps preference_pair policy_advantages dataset_eval_batches replicas_compare */
/* What tutti verify sees: one fault after the other is planted between the program and one of its functions, of the
 * kinds that a comparison of values, or an oracle that has the same fault, passes over; each must be called not equal,
 * and without it the same runs equal. A layout that did not make its steps, or whose ranks differ without a word, is
 * not equal either. */
#include "verify/toy_layouts.h"

#include <math.h>

#include "engine/replicas.h"
#include "kernel/update.h"
#include "optim/optim.h"
#include "learn/policy.h"
#include "learn/preference.h"
#include "train/trainer.h"
#include "state/route_run.h"
#include "verify/trial.h"

enum plant {
    NONE,
    RECOMPUTED,   /* norms that are computed again come out otherwise */
    MOMENTS_AWAY, /* moments that wait elsewhere are not put back */
    SHARDS,       /* Muon's matrices are orthogonalised with what the others had a step ago */
    AVERAGES,     /* the average of weights stands still */
    HAND_DEALT,   /* layers dealt by hand: another learning rate */
    CHUNKS,       /* more stages on a rank than the schedule has by itself: the same */
    ROUNDS,       /* rounds of another length: the same */
    PAIRS,        /* a pair's factors have other sizes */
    GROUPS,       /* advantages are of one group */
    VALIDATION,   /* its last batch is left out */
    SILENT,       /* ranks differ, and nothing says in what */
    NOT_FINITE,   /* a loss that is no number */
    UNDONE,       /* the last step is not made */
    PLANTS
};
static enum plant planted;
static const struct config *now; /* of the run at hand; NULL: the oracle, or none */

static bool is_of(const struct config *c)
{
    switch (planted) {
    case RECOMPUTED: return c->memory.chosen.again != 0;
    case MOMENTS_AWAY: return c->memory.away != 0;
    case HAND_DEALT: return c->parallel.pp_layers.n > 0;
    case CHUNKS: return c->parallel.chunks > 0;
    case ROUNDS: return c->parallel.round > 0;
    default: return config_ranks(c) > 1;
    }
}

int __real_trial_run(struct trial *t, struct err *e);
int __wrap_trial_run(struct trial *t, struct err *e);
int __wrap_trial_run(struct trial *t, struct err *e)
{
    now = is_of(t->c) ? t->c : NULL;
    int rc = __real_trial_run(t, e);
    if (now && planted == UNDONE) t->out->ran = t->steps - 1;
    if (now && planted == NOT_FINITE) t->out->loss[1] = NAN;
    now = NULL;
    return rc;
}

static bool ranks_train; /* in the trainer itself */
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

/* One microbatch of two layers: five norms forward, and those before the head again in backward. */
void __real_kernel_enqueue(struct stream *s, struct kernel_call *c);
void __wrap_kernel_enqueue(struct stream *s, struct kernel_call *c);
void __wrap_kernel_enqueue(struct stream *s, struct kernel_call *c)
{
    static int norms;
    if (!(now && planted == AVERAGES && c->op == OP_AVERAGE)) __real_kernel_enqueue(s, c);
    if (!now || planted != RECOMPUTED) norms = 0;
    else if (c->op == OP_RMSNORM && c->phase == KERNEL_FWD && norms++ % 9 >= 5) ((float *)c->out[0].p)[3] *= 1.5f;
}

void __real_stream_put_away(struct stream *s, void *there, const void *here, size_t n);
void __wrap_stream_put_away(struct stream *s, void *there, const void *here, size_t n);
void __wrap_stream_put_away(struct stream *s, void *there, const void *here, size_t n)
{
    if (!(now && planted == MOMENTS_AWAY)) __real_stream_put_away(s, there, here, n);
}

void __real_route_run_begin(struct route_run *x, const char *what);
void __wrap_route_run_begin(struct route_run *x, const char *what);
void __real_route_run_end(struct route_run *x);
void __wrap_route_run_end(struct route_run *x);
static _Thread_local bool left_out;
void __wrap_route_run_begin(struct route_run *x, const char *what)
{
    left_out = now && planted == SHARDS && !strcmp(what, "matrices of muon");
    if (!left_out) __real_route_run_begin(x, what);
}
void __wrap_route_run_end(struct route_run *x)
{
    if (!left_out) __real_route_run_end(x);
    left_out = false;
}

double __real_lr_at(const struct lr_config *c, int64_t step);
double __wrap_lr_at(const struct lr_config *c, int64_t step);
double __wrap_lr_at(const struct lr_config *c, int64_t step)
{
    bool other = now && (planted == HAND_DEALT || planted == CHUNKS || planted == ROUNDS);
    return __real_lr_at(c, step) * (other ? 1.01 : 1);
}

void __real_preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                            double factor[2]);
void __wrap_preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                            double factor[2]);
void __wrap_preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                            double factor[2])
{
    __real_preference_pair(beta, nats, reference, s, factor);
    if (ranks_train && planted == PAIRS) factor[1] *= 1.01;
}

void __real_policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group,
                              double *advantage);
void __wrap_policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group,
                              double *advantage);
void __wrap_policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group,
                              double *advantage)
{
    __real_policy_advantages(r, reward, n, ranks_train && planted == GROUPS ? n : group, advantage);
}

struct dataset;
int64_t __real_dataset_eval_batches(const struct dataset *d, int64_t global, int64_t most);
int64_t __wrap_dataset_eval_batches(const struct dataset *d, int64_t global, int64_t most);
int64_t __wrap_dataset_eval_batches(const struct dataset *d, int64_t global, int64_t most)
{
    return __real_dataset_eval_batches(d, global, most) - (ranks_train && planted == VALIDATION);
}

int __real_replicas_compare(struct engine *g, struct replicas_report *r, struct err *e);
int __wrap_replicas_compare(struct engine *g, struct replicas_report *r, struct err *e);
int __wrap_replicas_compare(struct engine *g, struct replicas_report *r, struct err *e)
{
    int rc = __real_replicas_compare(g, r, e);
    r->differ |= now && planted == SILENT;
    return rc;
}

/* ---- what is run ---- */
static const struct sight {
    enum plant plant;
    unsigned axes;
    bool trains;
    const char *key[8];
} sights[] = {
    {RECOMPUTED, VERIFY_DP, false, {"memory.recompute=[norms]", "batch.global=2"}},
    {MOMENTS_AWAY, VERIFY_DP, false, {"memory.offload=[optimizer]", "memory.offload_least=0", "batch.global=4"}},
    {SHARDS, VERIFY_TP, false, {"optimizer.name=muon", "optimizer.lr=0.005"}},
    {AVERAGES, VERIFY_DP, false, {"optimizer.ema=0.9", "batch.global=4"}},
    {HAND_DEALT, VERIFY_PP, false, {"model.layers=4"}},
    {CHUNKS, VERIFY_PP, false, {"model.layers=4"}},
    {ROUNDS, VERIFY_PP, false, {"model.layers=4"}},
    {PAIRS,
     VERIFY_DP,
     true,
     {"train.objective=dpo", "model.vocab=264", "batch.micro=1", "model.seq_len=32", "batch.global=6"}},
    {GROUPS,
     VERIFY_DP,
     true,
     {"train.objective=grpo", "train.grpo.reward=true", "train.grpo.tokens=6", "train.grpo.group=2",
      "model.vocab=264"}},
    {VALIDATION, VERIFY_DP, true, {"model.vocab=264", "batch.global=4"}},
    {SILENT, VERIFY_DP, false, {"batch.global=4"}},
    {NOT_FINITE, VERIFY_DP, false, {"batch.global=4"}},
    {UNDONE, VERIFY_DP, false, {"batch.global=4"}},
};

static bool equal(const struct sight *s, struct str *out)
{
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    struct err e = {0};
    char *words[32];
    int n = 0;
    while (s->key[n]) n++;
    resolve(&c, a, s->key, n);
    const struct trained_asked asked = {.keys = words, .n_keys = toy_words(words, a, s->key, n)};
    const struct verify_asked q = {.config = &c,
                                   .trains = s->trains ? &asked : NULL,
                                   .max_ranks = 2,
                                   .axes = s->axes,
                                   .steps = 3};
    if (verify_all(&v, &q, &e)) fail_msg("plant %d: %s", s->plant, e.text);
    verify_print(&v, out);
    bool ok = v.ok;
    if (s->trains && (v.untrained[0] || !v.n_trained)) fail_msg("plant %d: not trained: %s", s->plant, v.untrained);
    verify_free(&v);
    arena_free(a);
    return ok;
}

static void test_planted_faults_are_seen(void **state)
{
    (void)state;
    _Static_assert(sizeof sights / sizeof *sights == PLANTS - 1, "each is looked for");
    const struct sight *before = NULL;
    for (size_t i = 0; i < sizeof sights / sizeof *sights; i += CASE_STRIDE) {
        const struct sight *s = &sights[i];
        if (!drawn_half(i, CASE_STRIDE)) continue; /* every day half of them */
        struct str out = {0};
        bool again = before && s->axes == before->axes && s->trains == before->trains &&
                     !memcmp(s->key, before->key, sizeof s->key);
        before = s;
        planted = NONE;
        if (!again && !equal(s, &out)) fail_msg("without plant %d:\n%s", s->plant, str_text(&out));
        str_clear(&out);
        planted = s->plant;
        if (equal(s, &out)) fail_msg("plant %d is not seen:\n%s", s->plant, str_text(&out));
        str_free(&out);
    }
    planted = NONE;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted_faults_are_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
