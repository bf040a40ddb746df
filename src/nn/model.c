/* SPDX-License-Identifier: Apache-2.0 */
/* A model: what computes its family, what it declares, and the walk embedding -> layers -> head, of a stage with a
 * microbatch, of a step of decoding, of what is read before it. */
#include "nn/model.h"

#include <string.h>

#include "kernel/cache_runs.h"
#include "layout/sequence.h"
#include "nn/adapter.h"
#include "nn/layers.h"

static const struct blocks *const blocks[BLOCKS_N] = {
#define BLOCKS(id, code) [BLOCKS_##id] = &blocks_##code,
#include "model/families.def"
};

const struct blocks *blocks_of(const struct model_config *c) { return blocks[model_made_of(c)]; }

void model_declare(const struct model_config *c, const struct par *par, struct param_table *t)
{
    struct par single = par_single();
    if (!par) par = &single;
    t->mesh = par_mesh(par, &t->rank);
    struct declare_ctx x = {c, par, t, ""};
    blocks_of(c)->declare(&x);
    if (c->adapter) adapter_declare(&x);
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

/* What of a stage's i-th layer is computed again. */
static uint64_t again_in(const struct layer_ctx *x, int i)
{
    const struct recompute *r = &x->s->recompute;
    if (x->s->mode != MODEL_TRAIN) return 0;
    return !r->layers || i < r->layers ? r->again : r->rest;
}

/* Layers of a stage, each in its own segment where they are computed again. */
static tid record_layers(struct layer_ctx *x, const struct blocks *b, tid h_TD, int first, int end)
{
    if (model_pairs(x->c) && x->s->mode == MODEL_DECODE) first = to_int(x->c->encoder_layers); /* it was read */
    for (int l = first; l < end; l++) {
        uint64_t again = again_in(x, l - first);
        x->t->layer = l;
        if (model_pairs(x->c) && x->s->mode != MODEL_DECODE && l == x->c->encoder_layers) h_TD = pairs_between(x, h_TD);
        if (again) tape_recompute_begin(x->t, again);
        h_TD = b->block(x, h_TD, l);
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

/* Of the texts' pictures; in decoding rows of the stream that were made of them before. */
static tid record_pixels(struct layer_ctx *x)
{
    int64_t n[2] = {x->s->batch * x->c->vision.images, model_pixels(x->c) / x->c->vision.images};
    if (x->s->mode == MODEL_DECODE) {
        int64_t rows[2] = {x->decode->pictures, x->c->hidden};
        return tape_input(x->t, "pictures", SLOT_PIXELS, x->s->dtype, 2, rows, type_tokens(SPMD_V));
    }
    return tape_input(x->t, "pixels", SLOT_PIXELS, DT_F32, 2, n, type_tokens(SPMD_R));
}

static tid record_targets(struct layer_ctx *x, struct spmd_type type)
{
    if (!model_sees(x->c)) return tape_input(x->t, "targets", SLOT_TARGETS, DT_I32, 1, &x->tokens, type);
    return tape_input(x->t, "label", SLOT_LABEL, DT_I32, 1, &x->s->batch, type_tokens(SPMD_I));
}

/* The next token of each, and those after it. */
static void record_heads(struct layer_ctx *x, tid h_TD, const struct model_stage *g)
{
    head_record(x, h_TD, TID_NONE);
    if (x->s->mode == MODEL_TRAIN && x->c->mtp.depth) mtp_record(x, h_TD, again_in(x, g->end - g->first));
}

/* Nothing is on the tape yet. */
static struct layer_ctx ctx_new(struct tape *t, const struct model_config *c, const struct param_table *p,
                                const struct par *par, const struct model_shape *s, int64_t tokens)
{
    struct layer_ctx x = {.t = t, .c = c, .params = p, .par = par, .s = s, .tokens = tokens, .prefix = ""};
    x.pos_T = x.doc_T = x.target_T = x.factor_T = x.segment_T = x.index_T = x.patch_T = x.pixels = TID_NONE;
    x.token_W = x.rope_PA = x.near_rope_PA = x.runs_SX = x.reads_SX = TID_NONE;
    x.stat_slot = SLOT_STAT;
    x.param_tid = arena_alloc(t->arena, sizeof *x.param_tid * (size_t)p->n);
    for (int i = 0; i < p->n; i++) x.param_tid[i] = TID_NONE;
    return x;
}

static void record_model(struct tape *t, const struct model_config *c, const struct param_table *p,
                         const struct par *par, const struct model_shape *s, const struct decode_shape *d)
{
    const struct blocks *b = blocks_of(c);
    const struct model_stage whole = {0, c->layers, true, true}, *g = s->stage ? s->stage : &whole;
    CHECK(s->mode != MODEL_DECODE || !model_both_ways(c) || model_pairs(c), "%s writes nothing",
          model_family_name(c->family));
    CHECK((s->mode == MODEL_DECODE) == (d != NULL), "decoding is recorded by model_record_decode");
    bool decode = s->mode == MODEL_DECODE; /* no loss of a whole sequence: its cache is on this rank */
    int64_t tokens = s->batch * (decode ? s->seq : context_rows(s->seq, par->size[AXIS_CP], par->rank[AXIS_CP], 1));
    int64_t all = s->batch * s->seq; /* on all ranks of cp */
    struct spmd_type type = type_tokens(decode ? SPMD_V : SPMD_S0);
    struct layer_ctx x = ctx_new(t, c, p, par, s, tokens);
    x.decode = d;
    CHECK(g->embeds || g->heads || g->end > g->first, "a stage with nothing in it");
    bool trains = s->mode == MODEL_TRAIN;
    bool weighs = false; /* balance is over trained tokens */
    for (int l = g->first; l < g->end; l++) weighs = weighs || model_layer_is_moe(c, l);
    tid in = g->embeds ? record_input(&x, type) : TID_NONE;
    if (trains && (g->heads || weighs)) x.target_T = record_targets(&x, type);
    if (c->by_token && trains && g->heads) x.factor_T = tape_input(t, "factor", SLOT_FACTOR, DT_F32, 1, &tokens, type);
    t->same_rows = c->by_token;
    if (!model_sees(c)) x.pos_T = tape_input(t, "positions", SLOT_POSITIONS, DT_I32, 1, &tokens, type);
    if (c->document_mask && trains)
        x.doc_T = tape_input(t, "documents", SLOT_DOCS, DT_I32, 1, &all, type_tokens(SPMD_I));
    if (s->reordered && model_wants_order(c))
        x.token_W = tape_input(t, "order", SLOT_ORDER, DT_I32, 1, &all, type_tokens(SPMD_I));
    if (model_looks(c) && g->embeds && (!decode || d->pictures)) {
        x.patch_T = tape_input(t, "patches", SLOT_PATCHES, DT_I32, 1, &tokens, type);
        x.pixels = record_pixels(&x);
    }
    if (model_takes(c, BATCH_SEGMENTS) && g->embeds)
        x.segment_T = tape_input(t, "segments", SLOT_SEGMENTS, DT_I32, 1, &tokens, type);
    x.index_T = record_index(&x);
    if (decode) {
        int64_t n[2] = {d->sequences, RUN_PAGES + d->most};
        x.runs_SX = tape_input(t, "runs", SLOT_RUNS, DT_I32, 2, n, type);
        if (model_pairs(c)) x.reads_SX = tape_input(t, "reads", SLOT_READS, DT_I32, 2, n, type);
    }
    if (b->uses_rope) rotary_record(&x);
    tid h_TD = g->embeds ? b->embed(&x, in) : stream_arrives(&x, type);
    h_TD = record_layers(&x, b, h_TD, g->first, g->end);
    if (g->heads && b->head) b->head(&x, h_TD);
    else if (g->heads) record_heads(&x, b->norm(&x, h_TD), g);
    else tape_stage_out(t, h_TD, SLOT_STAGE_OUT, SLOT_STAGE_DOUT);
    for (int i = 0; i < p->n && !t->err.code; i++)
        if (p->p[i].adapter && p->p[i].held && x.param_tid[i] < 0 && model_stage_uses(c, g, &p->p[i]))
            err_set(&t->err, ERR_REQUEST, "adapter.targets: %s: %s computes nothing with it; leave its matrix out",
                    p->p[i].name, model_family_name(c->family));
}

void model_record(struct tape *t, const struct model_config *c, const struct param_table *p, const struct par *par,
                  const struct model_shape *s)
{
    record_model(t, c, p, par, s, NULL);
}

void model_record_decode(struct tape *t, const struct model_config *c, const struct param_table *p,
                         const struct par *par, const struct decode_shape *s)
{
    struct model_shape shape = {.mode = MODEL_DECODE,
                                .dtype = s->dtype,
                                .batch = 1,
                                .seq = s->tokens,
                                .cache_rows = s->cache_rows,
                                .stage = s->stage};
    record_model(t, c, p, par, &shape, s);
}

void model_record_pictures(struct tape *t, const struct model_config *c, const struct param_table *p,
                           const struct par *par, enum dtype dtype)
{
    struct model_shape shape = {.mode = MODEL_LOGITS, .dtype = dtype, .batch = 1, .seq = 1};
    struct layer_ctx x = ctx_new(t, c, p, par, &shape, 1);
    struct op_attrs none = op_attrs_zero(OP_COPY);
    tid rows_RD = vision_rows(&x, record_pixels(&x)); /* may be another's memory */
    if (!t->err.code) rows_RD = tape_record(t, OP_COPY, &none, 1, &rows_RD, dtype, "pictures");
    if (!t->err.code) tape_bind(t, rows_RD, SLOT_LOGITS);
}

void model_record_reading(struct tape *t, const struct model_config *c, const struct param_table *p,
                          const struct par *par, enum dtype dtype, int64_t n)
{
    struct decode_shape d = {.dtype = dtype, .tokens = n};
    struct model_shape shape = {.mode = MODEL_DECODE, .dtype = dtype, .batch = 1, .seq = n};
    struct layer_ctx x = ctx_new(t, c, p, par, &shape, n);
    x.decode = &d;
    pairs_read(&x, tape_input(t, "tokens", SLOT_TOKENS, DT_I32, 1, &n, type_tokens(SPMD_S0)));
}

bool model_stage_uses(const struct model_config *c, const struct model_stage *s, const struct param *p)
{
    if (p->layer >= c->layers) return s->heads; /* of what predicts further tokens */
    if (p->layer >= 0) return p->layer >= s->first && p->layer < s->end;
    bool embedding = p->layer <= LAYER_TOWER || !strncmp(p->name, "embed.", 6) || !strncmp(p->name, "vision.", 7) ||
                     !strncmp(p->name, "projector.", 10);
    if (embedding && (c->tie_embeddings || c->mtp.depth) && s->heads && !strcmp(p->name, "embed.token")) return true;
    return embedding ? s->embeds : s->heads;
}
