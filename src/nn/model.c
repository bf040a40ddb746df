/* SPDX-License-Identifier: Apache-2.0 */
/* What the families share: checks, rotary angles, counts; and the walk embedding -> layers -> head. Each family
 * fills one row of a table (gpt2.c, llama.c). */
#include "nn/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "layout/sequence.h"
#include "nn/layers.h"

_Static_assert(SCORE_SOFTMAX == 0 && SCORE_SIGMOID == 1, "the words of moe.score in model/numbers.def");
_Static_assert(POOL_CLASS == 0 && POOL_MEAN == 1, "the words of pool in model/numbers.def");

static const struct family *const families[MODEL_N] = {[MODEL_GPT2] = &family_gpt2,
                                                       [MODEL_LLAMA] = &family_llama,
                                                       [MODEL_MIXTRAL] = &family_mixtral,
                                                       [MODEL_DEEPSEEK] = &family_deepseek,
                                                       [MODEL_VIT] = &family_vit};

const char *model_family_name(enum model_family f) { return families[f]->name; }

/* The number nearest to n that divides `of`. */
static int64_t nearest_divisor(int64_t of, int64_t n)
{
    for (int64_t d = 0;; d++) {
        if (n - d > 0 && of % (n - d) == 0) return n - d;
        if (n + d <= of && of % (n + d) == 0) return n + d;
    }
}

static int check_experts(const struct model_config *c, struct err *e)
{
    const struct moe_config *m = &c->moe;
    bool family = c->family == MODEL_MIXTRAL || c->family == MODEL_DEEPSEEK;
    if (!family && m->experts)
        return err_set(e, ERR_REQUEST, "model.moe.experts: %s has no experts; choose model.family mixtral or deepseek",
                       model_family_name(c->family));
    if (!m->experts)
        return family ? err_set(e, ERR_REQUEST, "model.moe.experts: %s wants a number of experts, 1 or more",
                                model_family_name(c->family))
                      : OK;
    if (m->top_k < 1 || m->top_k > m->experts)
        return err_set(e, ERR_REQUEST, "model.moe.top_k: wanted 1 to model.moe.experts = %" PRId64 ", got %" PRId64,
                       m->experts, m->top_k);
    if (c->family == MODEL_MIXTRAL && (m->score != SCORE_SOFTMAX || !m->norm_topk || m->scale != 1 || m->groups ||
                                       m->bias || m->shared || m->first_dense))
        return err_set(e, ERR_REQUEST,
                       "model.moe: mixtral has softmax scores scaled to sum 1, and no groups, bias, shared "
                       "experts or dense layers; the deepseek family has them");
    if (m->ffn < 1) return err_set(e, ERR_REQUEST, "model.moe.ffn: wanted 1 or more, got %lld", (long long)m->ffn);
    if (m->first_dense > c->layers)
        return err_set(e, ERR_REQUEST, "model.moe.first_dense: %" PRId64 " of %" PRId64 " layers; choose at most that",
                       m->first_dense, c->layers);
    if (!m->groups) return OK;
    if (m->experts % m->groups)
        return err_set(e, ERR_REQUEST,
                       "model.moe.groups: %" PRId64 " does not divide model.moe.experts = %" PRId64
                       "; the nearest that does is %" PRId64,
                       m->groups, m->experts,
                       nearest_divisor(m->experts, m->groups < m->experts ? m->groups : m->experts));
    if (m->top_groups < 1 || m->top_groups > m->groups || m->top_k > m->top_groups * (m->experts / m->groups))
        return err_set(e, ERR_REQUEST,
                       "model.moe.top_groups: wanted 1 to %" PRId64 " groups that together hold the %" PRId64
                       " chosen experts, got %" PRId64 " groups of %" PRId64,
                       m->groups, m->top_k, m->top_groups, m->experts / m->groups);
    if (m->group_pairs && m->experts / m->groups < 2)
        return err_set(e, ERR_REQUEST,
                       "model.moe.groups: a group that counts by its two largest scores needs two experts, %" PRId64
                       " groups of %" PRId64 " have fewer; choose at most %" PRId64,
                       m->groups, m->experts, m->experts / 2);
    return OK;
}

static int check_latent(const struct model_config *c, struct err *e)
{
    const struct mla_config *m = &c->mla;
    if ((m->kv_rank > 0) != (c->family == MODEL_DEEPSEEK))
        return err_set(e, ERR_REQUEST,
                       "model.mla.kv_rank: latent attention is the deepseek family's, and it has no other");
    if (!m->kv_rank) return OK;
    if (m->nope_dim < 1 || m->rope_dim < 2 || m->rope_dim % 2 || m->value_dim < 1)
        return err_set(e, ERR_REQUEST,
                       "model.mla.rope_dim: wanted an even number, and nope_dim and value_dim of 1 or more; "
                       "got %" PRId64 ", %" PRId64 ", %" PRId64,
                       m->rope_dim, m->nope_dim, m->value_dim);
    if (m->value_dim > m->nope_dim + m->rope_dim)
        return err_set(e, ERR_REQUEST,
                       "model.mla.value_dim: %" PRId64 " is more than a key's nope_dim + rope_dim = %" PRId64
                       "; choose at most that",
                       m->value_dim, m->nope_dim + m->rope_dim);
    if (c->head_dim != m->nope_dim + m->rope_dim || c->kv_heads != c->heads)
        return err_set(e, ERR_REQUEST,
                       "model.head_dim: latent attention has head_dim = nope_dim + rope_dim = %" PRId64 " and kv_heads "
                       "= heads = %" PRId64 "; leave both out",
                       m->nope_dim + m->rope_dim, c->heads);
    return OK;
}

/* What a model that reads text has, and one that sees pictures. */
static int check_vocabulary(const struct model_config *c, struct err *e)
{
    if (c->vocab < 2) return err_set(e, ERR_REQUEST, "model.vocab: wanted at least 2, got %lld", (long long)c->vocab);
    if (c->vocab > INT32_MAX)
        return err_set(e, ERR_REQUEST, "model.vocab: token ids are 32 bits, got %lld", (long long)c->vocab);
    return OK;
}

static int check_pictures(const struct model_config *c, struct err *e)
{
    if (c->classes < 2)
        return err_set(e, ERR_REQUEST,
                       "model.classes: %s wants to know how many kinds of pictures there are, 2 or more",
                       model_family_name(c->family));
    if (c->image_size % c->patch_size)
        return err_set(e, ERR_REQUEST,
                       "model.patch_size: %" PRId64 " does not divide model.image_size = %" PRId64
                       ", and pixels at the edges would be in no patch; the nearest that does is %" PRId64,
                       c->patch_size, c->image_size,
                       nearest_divisor(c->image_size, c->patch_size < c->image_size ? c->patch_size : c->image_size));
    if (model_places(c) > 1 << 24)
        return err_set(e, ERR_REQUEST,
                       "model.patch_size: pictures of %" PRId64 " rows in patches of %" PRId64 " make %" PRId64
                       " places, more than 2^24; choose larger patches",
                       c->image_size, c->patch_size, model_places(c));
    if (c->seq_len != model_places(c))
        return err_set(e, ERR_REQUEST,
                       "model.seq_len: %" PRId64 ", but a picture has %" PRId64 " places (its patches, and one for its "
                       "class); leave the key out",
                       c->seq_len, model_places(c));
    if (c->tie_embeddings)
        return err_set(e, ERR_REQUEST, "model.tie_embeddings: %s has no table of tokens to share; leave the key out",
                       model_family_name(c->family));
    if (c->document_mask)
        return err_set(e, ERR_REQUEST, "model.document_mask: %s sees one picture in a sequence; leave the key out",
                       model_family_name(c->family));
    if (c->kv_heads != c->heads)
        return err_set(e, ERR_REQUEST,
                       "model.kv_heads: %" PRId64 ", but %s has as many as model.heads = %" PRId64
                       "; leave the key out",
                       c->kv_heads, model_family_name(c->family), c->heads);
    return OK;
}

int model_check(const struct model_config *c, struct err *e)
{
    if (c->kv_heads > c->heads || c->heads % c->kv_heads)
        return err_set(e, ERR_REQUEST,
                       "model.kv_heads: %" PRId64 " does not divide model.heads = %" PRId64
                       "; the nearest that does is %" PRId64,
                       c->kv_heads, c->heads,
                       nearest_divisor(c->heads, c->kv_heads < c->heads ? c->kv_heads : c->heads));
    if (c->head_dim < 1)
        return err_set(e, ERR_REQUEST,
                       "model.heads: %" PRId64 " heads do not divide model.hidden = %lld; choose heads that do, "
                       "or give model.head_dim",
                       c->heads, (long long)c->hidden);
    if (families[c->family]->uses_rope && !c->mla.kv_rank && c->head_dim % 2)
        return err_set(e, ERR_REQUEST,
                       "model.head_dim: rotary positions turn pairs of numbers, so the head size must be even, got "
                       "%" PRId64 " (hidden %lld / heads %" PRId64 ")",
                       c->head_dim, (long long)c->hidden, c->heads);
    int rc = check_experts(c, e);
    if (!rc) rc = check_latent(c, e);
    if (rc) return rc;
    rc = model_sees(c) ? check_pictures(c, e) : check_vocabulary(c, e);
    if (rc) return rc;
    if (c->dropout < 0 || c->dropout >= 1)
        return err_set(e, ERR_REQUEST, "model.dropout: wanted 0 <= p < 1, got %g", c->dropout);
    return model_check_size(c, e);
}

void model_declare(const struct model_config *c, const struct par *par, struct param_table *t)
{
    struct par single = par_single();
    if (!par) par = &single;
    t->mesh = par_mesh(par, &t->rank);
    families[c->family]->declare(&(struct declare_ctx){c, par, t});
}

/* Llama 3.1's scaling: long wavelengths are stretched by `factor`, short ones kept, a smooth ramp between
 * (Grattafiori et al. 2024; the published reference settings). */
static double scaled_frequency(const struct rope_scaling_config *r, double freq)
{
    if (r->factor == 0) return freq;
    double wavelength = 2 * acos(-1.0) / freq;
    double low = (double)r->original_max_position / r->low_freq_factor;
    double high = (double)r->original_max_position / r->high_freq_factor;
    if (wavelength < high) return freq;
    if (wavelength > low) return freq / r->factor;
    double smooth = ((double)r->original_max_position / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

/* YaRN's: what turns many times over the original length is kept, what turns less than once is stretched, a ramp over
 * the pairs between. */
static double yarn_frequency(const struct model_config *c, int i, int64_t cols)
{
    const struct yarn_config *y = &c->yarn;
    double theta = c->rope_theta, freq = pow(theta, -2.0 * i / (double)cols),
           n = (double)c->rope_scaling.original_max_position, pi = acos(-1.0);
    double low = (double)cols * log(n / (y->beta_fast * 2 * pi)) / (2 * log(theta));
    double high = (double)cols * log(n / (y->beta_slow * 2 * pi)) / (2 * log(theta));
    low = fmax(y->truncate ? floor(low) : low, 0);
    high = fmin(y->truncate ? ceil(high) : high, (double)cols - 1);
    double ramp = fmin(1, fmax(0, (i - low) / (high == low ? 0.001 : high - low)));
    return freq / y->factor * ramp + freq * (1 - ramp);
}

static double yarn_mscale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1; }

double yarn_angles(const struct model_config *c)
{
    const struct yarn_config *y = &c->yarn;
    if (y->factor == 0) return 1;
    if (y->mscale != 0 && y->mscale_all_dim != 0)
        return yarn_mscale(y->factor, y->mscale) / yarn_mscale(y->factor, y->mscale_all_dim);
    return yarn_mscale(y->factor, 1);
}

double yarn_scores(const struct model_config *c)
{
    if (c->yarn.factor == 0 || c->yarn.mscale_all_dim == 0) return 1;
    double m = yarn_mscale(c->yarn.factor, c->yarn.mscale_all_dim);
    return m * m;
}

int64_t model_rope_cols(const struct model_config *c)
{
    if (!families[c->family]->uses_rope) return 0;
    return c->mla.kv_rank ? c->mla.rope_dim : c->head_dim;
}

void model_rope_table(const struct model_config *c, float *out)
{
    int64_t cols = model_rope_cols(c), half = cols / 2;
    double scale = yarn_angles(c);
    for (int i = 0; i < half; i++) {
        double freq = c->yarn.factor != 0
                          ? yarn_frequency(c, i, cols)
                          : scaled_frequency(&c->rope_scaling, pow(c->rope_theta, -2.0 * i / (double)cols));
        for (int64_t p = 0; p < c->max_positions; p++) {
            out[p * cols + i] = (float)(scale * cos((double)p * freq));
            out[p * cols + half + i] = (float)(scale * sin((double)p * freq));
        }
    }
}

/* Tokens differ along the data axes, and cp shares out those of every sequence; everything else is the same on every
 * rank. */
static struct spmd_type type_tokens(enum spmd over_cp)
{
    struct spmd_type t = spmd_all(SPMD_I);
    t = spmd_with(t, AXIS_DP_REPLICATE, SPMD_V);
    t = spmd_with(t, AXIS_DP_SHARD, SPMD_V);
    return spmd_with(t, AXIS_CP, over_cp);
}

/* Replicated over the data axes: the gradient is a sum over them. */
static struct layout weight_over(const struct mesh *m, struct shape n, const struct declare *d)
{
    struct layout l = layout_on(m, MESH_DENSE, n, SPMD_I);
    l = layout_with(layout_with(layout_with(l, AXIS_DP_REPLICATE, SPMD_R), AXIS_DP_SHARD, SPMD_R), AXIS_CP, SPMD_R);
    return d->unit && spmd_is_shard(d->over_tp) ? layout_with_unit(l, AXIS_TP, d->over_tp, d->unit)
                                                : layout_with(l, AXIS_TP, d->over_tp);
}

void layer_declare(struct declare_ctx *x, struct declare d, int nd, const int64_t *n, const char *fmt, ...)
{
    char name[PARAM_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    param_add(x->t, name, weight_over(&x->t->mesh, shape_of(nd, n), &d), d.init, d.std, d.layer);
}

struct vocab_attrs vocab_here(const struct model_config *c, const struct par *p)
{
    int64_t lo, hi;
    par_share(p, AXIS_TP, c->vocab, &lo, &hi);
    return (struct vocab_attrs){.first = lo, .whole = c->vocab, .n_parts = p->size[AXIS_TP]};
}

enum spmd over_vocab(const struct par *p) { return p->size[AXIS_TP] > 1 ? SPMD_S0 : SPMD_I; }

tid embed_tokens(struct layer_ctx *x, tid ids_T)
{
    tid w_VD = layer_param(x, 1, "embed.token");
    if (x->par->size[AXIS_TP] == 1) return op_embed(x->t, ids_T, w_VD, (struct vocab_attrs){0}, "embed.token");
    return region_leave(x, op_embed(x->t, ids_T, w_VD, vocab_here(x->c, x->par), "embed.token"));
}

/* What the stage before sends: the stream as it lies here. */
static tid stream_arrives(struct layer_ctx *x, struct spmd_type type)
{
    int64_t lo = 0, hi = x->tokens;
    if (x->par->sequence) {
        par_share(x->par, AXIS_TP, hi, &lo, &hi);
        type = spmd_with(type, AXIS_TP, SPMD_S0);
    }
    return tape_stage_in(x->t, "stage.in", SLOT_STAGE_IN, SLOT_STAGE_DIN, x->s->dtype, 2,
                         (int64_t[]){hi - lo, x->c->hidden}, type);
}

tid region_enter(struct layer_ctx *x, tid h_TD)
{
    if (x->par->sequence) return par_gather(x->t, x->par, h_TD, AXIS_TP, x->tokens);
    return par_enter(x->t, x->par, h_TD, AXIS_TP);
}

tid region_leave(struct layer_ctx *x, tid partial_TD)
{
    if (x->par->sequence) return par_scatter(x->t, x->par, partial_TD, AXIS_TP);
    return par_reduce(x->t, x->par, partial_TD, AXIS_TP);
}

tid layer_param(struct layer_ctx *x, int span, const char *fmt, ...)
{
    char name[PARAM_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    int i = param_find(x->params, name);
    CHECK(i >= 0, "the model declares no parameter %s", name);
    const struct param *p = &x->params->p[i];
    int64_t n[PARAM_MAX_DIM];
    for (int k = 0; k < p->nd; k++) n[k] = p->ln[k];
    for (int k = 1; k < span; k++) {
        const struct param *q = &x->params->p[i + k];
        CHECK(q->nd == p->nd && (p->nd < 2 || q->ln[1] == p->ln[1]) && spmd_equal(q->type, p->type),
              "%s and %s do not form one matrix", p->name, q->name);
        n[0] += q->ln[0];
    }
    if (x->param_tid[i] < 0 || span > 1)
        x->param_tid[i] = tape_param(x->t, p->name, slot_param(i), slot_grad(i), x->s->dtype, p->nd, n, p->type);
    return x->param_tid[i];
}

tid layer_rows(struct layer_ctx *x, int span, const char *name)
{
    int i = param_find(x->params, name);
    CHECK(i >= 0, "the model declares no parameter %s", name);
    const struct param *p = &x->params->p[i];
    for (int k = 0; k < span; k++) {
        const struct param *q = p + k;
        CHECK(q->nd == 1 && q->ln[0] == p->ln[0] && spmd_equal(q->type, p->type), "%s is no row beside %s", q->name,
              p->name);
    }
    return tape_param(x->t, p->name, slot_param(i), slot_grad(i), x->s->dtype, 2, (int64_t[]){span, p->ln[0]}, p->type);
}

/* Nats of a chunk of tokens; over tp each rank has the logits of its part of the vocabulary, and only three numbers per
 * token travel. */
static void record_chunk(struct layer_ctx *x, tid h_CD, tid w_VD, tid target_C)
{
    tid logits_CV = op_linear(x->t, h_CD, w_VD, TID_NONE, "logits");
    if (x->par->size[AXIS_TP] == 1) {
        op_xent(x->t, logits_CV, target_C, SLOT_STAT, "loss");
        return;
    }
    struct vocab_attrs v = vocab_here(x->c, x->par);
    tid stats_C3 = op_xent_part(x->t, logits_CV, target_C, v, "loss.part");
    int64_t rows = x->t->err.code ? 0 : tensor_rows(tape_tensor(x->t, stats_C3)) * v.n_parts;
    tid stats_N3 = par_collect(x->t, x->par, stats_C3, AXIS_TP, rows);
    op_xent_join(x->t, logits_CV, target_C, stats_N3, v, SLOT_STAT, "loss");
}

/* Head and loss in chunks of rows: logits live for one chunk, forward and backward at once. */
static void record_loss(struct layer_ctx *x, tid h_TD, tid w_VD, tid target_T)
{
    int64_t tokens = x->tokens;
    int64_t chunk = x->s->loss_rows > 0 && x->s->loss_rows < tokens ? x->s->loss_rows : tokens;
    if (x->par->size[AXIS_TP] > 1) h_TD = region_enter(x, h_TD);
    for (int64_t row = 0; row < tokens; row += chunk) {
        int64_t n = tokens - row < chunk ? tokens - row : chunk;
        tape_segment_begin(x->t, SEGMENT_LOSS);
        record_chunk(x, tape_rows(x->t, h_TD, row, n), w_VD, tape_rows(x->t, target_T, row, n));
        tape_segment_end(x->t);
    }
}

static void record_head(struct layer_ctx *x, tid h_TD, tid target_T)
{
    tid w_VD = layer_param(x, 1, "%s", x->c->tie_embeddings ? "embed.token" : "head.weight");
    if (x->s->mode == MODEL_TRAIN) {
        record_loss(x, h_TD, w_VD, target_T);
        return;
    }
    int64_t tokens = x->tokens;
    if (x->s->mode == MODEL_DECODE) h_TD = tape_rows(x->t, h_TD, tokens - 1, 1);
    tid logits = op_linear(x->t, h_TD, w_VD, TID_NONE, "logits");
    if (x->t->err.code) return;
    if (x->s->dtype != DT_F32) logits = op_cast(x->t, logits, DT_F32, "logits32");
    tape_bind(x->t, logits, SLOT_LOGITS);
}

/* Layers of a stage, each in its own segment where they are computed again. */
static tid record_layers(struct layer_ctx *x, const struct family *f, tid h_TD, int first, int end)
{
    const struct recompute *r = &x->s->recompute;
    for (int l = first; l < end; l++) {
        uint64_t again = !r->layers || l - first < r->layers ? r->again : r->rest;
        if (x->s->mode != MODEL_TRAIN) again = 0;
        x->t->layer = l;
        if (again) tape_recompute_begin(x->t, again);
        h_TD = f->block(x, h_TD, l);
        if (again) tape_segment_end(x->t);
    }
    x->t->layer = -1;
    return h_TD;
}

/* Rows are not tokens in order where cp or tp (sequence parallelism) shares them out. */
static tid record_index(struct layer_ctx *x)
{
    bool apart = x->par->sequence || x->par->size[AXIS_CP] > 1;
    if (!apart || x->c->dropout == 0 || x->s->mode == MODEL_DECODE) return TID_NONE;
    struct spmd_type type = spmd_with(spmd_all(SPMD_I), AXIS_CP, SPMD_S0);
    tid index_T = tape_input(x->t, "index", SLOT_INDEX, DT_I32, 1, &x->tokens, type);
    return x->par->sequence ? par_rows(x->t, x->par, index_T, AXIS_TP) : index_T;
}

/* What is embedded, and what is predicted: a text's tokens lie over cp, pictures and labels are whole on each rank. */
static tid record_input(struct layer_ctx *x, struct spmd_type type)
{
    int64_t n[2] = {x->s->batch, model_pixels(x->c)};
    if (!model_sees(x->c)) return tape_input(x->t, "tokens", SLOT_TOKENS, DT_I32, 1, &x->tokens, type);
    return tape_input(x->t, "pixels", SLOT_PIXELS, DT_F32, 2, n, type_tokens(SPMD_I));
}

static tid record_targets(struct layer_ctx *x, struct spmd_type type)
{
    if (!model_sees(x->c)) return tape_input(x->t, "targets", SLOT_TARGETS, DT_I32, 1, &x->tokens, type);
    return tape_input(x->t, "label", SLOT_LABEL, DT_I32, 1, &x->s->batch, type_tokens(SPMD_I));
}

void model_record(struct tape *t, const struct model_config *c, const struct param_table *p, const struct par *par,
                  const struct model_shape *s)
{
    const struct family *f = families[c->family];
    const struct model_stage whole = {0, c->layers, true, true}, *g = s->stage ? s->stage : &whole;
    CHECK(s->mode != MODEL_DECODE || !model_sees(c), "%s writes nothing", f->name);
    bool decode = s->mode == MODEL_DECODE; /* no loss of a whole sequence: its cache is on this rank */
    int64_t tokens = s->batch * (decode ? s->seq : context_rows(s->seq, par->size[AXIS_CP], par->rank[AXIS_CP], 1));
    int64_t all = s->batch * s->seq; /* on all ranks of cp */
    struct spmd_type type = type_tokens(decode ? SPMD_V : SPMD_S0);
    struct layer_ctx x = {.t = t, .c = c, .params = p, .par = par, .s = s, .tokens = tokens};
    CHECK(g->embeds || g->heads || g->end > g->first, "a stage with nothing in it");
    x.param_tid = arena_alloc(t->arena, sizeof *x.param_tid * (size_t)p->n);
    for (int i = 0; i < p->n; i++) x.param_tid[i] = TID_NONE;
    bool trains = s->mode == MODEL_TRAIN;
    bool weighs =
        c->moe.experts && g->end > g->first && g->end > c->moe.first_dense; /* balance is over trained tokens */
    tid in = g->embeds ? record_input(&x, type) : TID_NONE;
    x.target_T = trains && (g->heads || weighs) ? record_targets(&x, type) : TID_NONE;
    x.pos_T = model_sees(c) ? TID_NONE : tape_input(t, "positions", SLOT_POSITIONS, DT_I32, 1, &tokens, type);
    x.doc_T = c->document_mask && trains ? tape_input(t, "documents", SLOT_DOCS, DT_I32, 1, &all, type_tokens(SPMD_I))
                                         : TID_NONE;
    x.index_T = record_index(&x);
    if (f->uses_rope)
        x.rope_PA = tape_input(t, "rope", SLOT_ROPE, DT_F32, 2, (int64_t[]){c->max_positions, model_rope_cols(c)},
                               spmd_all(SPMD_I));
    tid h_TD = g->embeds ? f->embed(&x, in) : stream_arrives(&x, type);
    h_TD = record_layers(&x, f, h_TD, g->first, g->end);
    if (g->heads && f->head) f->head(&x, h_TD);
    else if (g->heads) record_head(&x, f->norm(&x, h_TD), x.target_T);
    else tape_stage_out(t, h_TD, SLOT_STAGE_OUT, SLOT_STAGE_DOUT);
}

bool model_stage_uses(const struct model_config *c, const struct model_stage *s, const struct param *p)
{
    if (p->layer >= 0) return p->layer >= s->first && p->layer < s->end;
    bool embedding = !strncmp(p->name, "embed.", 6);
    if (embedding && c->tie_embeddings && s->heads && !strcmp(p->name, "embed.token")) return true;
    return embedding ? s->embeds : s->heads;
}

/* Of an expert's matrices a token sees top_k / experts. */
static double share_used(const struct model_config *c, const struct param *p)
{
    return strstr(p->name, ".moe.experts.") ? (double)c->moe.top_k / c->moe.experts : 1;
}

/* Of a layer with experts, or without: declared as a model of its own, so that a deep model need not be. */
static double layer_cost(const struct model_config *c, int64_t seq, bool moe)
{
    struct model_config one = *c;
    struct param_table t = {0};
    double cost = (double)c->heads * c->head_dim * (double)(model_sees(c) ? 2 * seq : seq + 1);
    one.layers = 1;
    one.moe.first_dense = !moe;
    model_declare(&one, NULL, &t);
    for (int i = 0; i < t.n; i++)
        if (t.p[i].layer == 0 && t.p[i].nd >= 2) cost += (double)t.p[i].numel * share_used(c, &t.p[i]);
    param_table_free(&t);
    return cost;
}

void model_costs(const struct model_config *c, int64_t seq, double *layer, double *embed, double *head)
{
    bool last = model_layer_is_moe(c, c->layers - 1), first = model_layer_is_moe(c, 0);
    double of[2] = {0};
    of[last] = layer_cost(c, seq, last);
    if (first != last) of[first] = layer_cost(c, seq, first);
    for (int l = 0; l < c->layers; l++) layer[l] = of[model_layer_is_moe(c, l)];
    double D = (double)c->hidden;
    *embed = model_sees(c) ? (double)(c->channels * c->patch_size * c->patch_size) * D : 0; /* a table is looked up */
    *head = model_sees(c) ? (double)c->classes * D / (double)seq : (double)c->vocab * D;
}
