/* SPDX-License-Identifier: Apache-2.0 */
/* from.c: the model's description becomes a second config, of which one table of keys says what is copied, compared, refused.
 * A key's type, place and name of choices are those of its row in the one table of keys (config_rows). */
#include "run/from.h"

#include <string.h>

#include "base/log.h"
#include "run/key.h"
#include "run/source.h"

enum decides { SHAPE, USE, TABLE }; /* TABLE: rows of GPT-2's table of positions, a limit elsewhere */

static const struct {
    const char *key;
    enum decides of;
} keys[] = {
    {"model.family", SHAPE}, {"model.layers", SHAPE}, {"model.hidden", SHAPE}, {"model.heads", SHAPE}, {"model.kv_heads", SHAPE},
    {"model.head_dim", SHAPE}, {"model.ffn", SHAPE}, {"model.vocab", SHAPE}, {"model.tie_embeddings", SHAPE},
    {"model.max_positions", TABLE}, {"model.norm_eps", USE}, {"model.rope_theta", USE}, {"model.rope_scaling.factor", USE},
    {"model.rope_scaling.low_freq_factor", USE}, {"model.rope_scaling.high_freq_factor", USE},
    {"model.rope_scaling.original_max_position", USE}, {"model.yarn.factor", USE}, {"model.yarn.beta_fast", USE},
    {"model.yarn.beta_slow", USE}, {"model.yarn.mscale", USE}, {"model.yarn.mscale_all_dim", USE}, {"model.yarn.truncate", USE},
    {"model.moe.experts", SHAPE}, {"model.moe.ffn", SHAPE}, {"model.moe.shared", SHAPE}, {"model.moe.first_dense", SHAPE},
    {"model.moe.bias", SHAPE}, {"model.moe.top_k", USE}, {"model.moe.score", USE}, {"model.moe.norm_topk", USE},
    {"model.moe.scale", USE}, {"model.moe.groups", USE}, {"model.moe.top_groups", USE}, {"model.moe.group_pairs", USE},
    {"model.mla.q_rank", SHAPE}, {"model.mla.kv_rank", SHAPE}, {"model.mla.nope_dim", SHAPE}, {"model.mla.rope_dim", SHAPE},
    {"model.mla.value_dim", SHAPE}, {"model.mla.rope_pairs", USE}, {"model.mla.norm_eps", USE},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* What training adds (losses, speed of the bias, capacity) stays the config's. */
static void fill_experts(struct config *c, const struct model_config *m)
{
    c->model.moe.experts = m->moe.experts;
    c->model.moe.shared = m->moe.shared;
    c->model.moe.first_dense = m->moe.first_dense;
    c->model.moe.bias = m->moe.bias;
    if (!m->moe.experts) return; /* nothing else is looked at */
    c->model.moe.ffn = m->moe.ffn;
    c->model.moe.top_k = m->moe.top_k;
    c->model.moe.score = (int)m->moe.score;
    c->model.moe.norm_topk = m->moe.norm_topk;
    c->model.moe.scale = m->moe.scale;
    c->model.moe.groups = m->moe.groups;
    c->model.moe.top_groups = m->moe.top_groups ? m->moe.top_groups : 1;
    c->model.moe.group_pairs = m->moe.group_pairs;
}

/* Without scaling there is nothing to say of how: the config's own defaults stay, which are in their ranges. */
static void fill_rope(struct config *c, const struct rope_scaling *r)
{
    bool scaled = r->factor > 0;
    c->model.rope_factor = r->yarn ? 0 : r->factor;
    c->model.yarn.factor = r->yarn ? r->factor : 0;
    if (scaled) c->model.rope_original = r->original_max_position;
    if (scaled && !r->yarn) {
        c->model.rope_low = r->low_freq_factor;
        c->model.rope_high = r->high_freq_factor;
    }
    if (!r->yarn) return;
    c->model.yarn.beta_fast = r->beta_fast;
    c->model.yarn.beta_slow = r->beta_slow;
    c->model.yarn.mscale = r->mscale;
    c->model.yarn.mscale_all_dim = r->mscale_all_dim;
    c->model.yarn.truncate = !r->parts;
}

/* c with all that the model says in place of its own. */
static struct config filled(const struct config *c, const struct model_config *m)
{
    struct config t = *c;
    t.model.family = (int)m->family;
    t.model.layers = m->layers;
    t.model.hidden = m->hidden;
    t.model.heads = m->heads;
    t.model.kv_heads = m->kv_heads;
    t.model.head_dim = m->head_dim;
    t.model.ffn = m->ffn;
    t.model.vocab = m->vocab;
    t.model.max_positions = m->max_seq;
    t.model.tie_embeddings = m->tie;
    t.model.norm_eps = m->norm_eps;
    if (m->family != MODEL_GPT2) t.model.rope_theta = m->rope_theta;
    fill_rope(&t, &m->rope);
    fill_experts(&t, m);
    t.model.mla.q_rank = m->mla.q_rank;
    t.model.mla.kv_rank = m->mla.kv_rank;
    t.model.mla.nope = m->mla.nope;
    t.model.mla.rope = m->mla.rope;
    t.model.mla.value = m->mla.value;
    if (m->mla.kv_rank) t.model.mla.pairs = m->mla.pairs;
    if (m->mla.kv_rank) t.model.mla.norm_eps = m->mla.norm_eps;
    return t;
}

/* ---- one key ---- */
static bool is_shape(int i, const struct model_config *m)
{
    return keys[i].of == SHAPE || (keys[i].of == TABLE && m->family == MODEL_GPT2);
}

static int take(struct config *c, const struct conf *f, struct config *theirs, const struct model_config *m, int i, const char *dir,
                struct err *e)
{
    const struct conf_row *r = key_row(keys[i].key);
    char mine[64], other[64];
    if (key_given(f, r, key_value(r, c))) {
        if (key_same(r, key_value(r, c), key_value(r, theirs)) || !is_shape(i, m)) return OK;
        return conf_error(f, e, r->path, "%s, but model.from has %s, and the shapes of its weights (%s) follow from it; leave the key out",
                          key_show(r, key_value(r, c), mine), key_show(r, key_value(r, theirs), other), dir);
    }
    memcpy(key_value(r, c), key_value(r, theirs), key_bytes(r));
    return OK;
}

/* A run is as long as the model's positions, where the config does not say otherwise. */
static int take_length(struct config *c, const struct conf *f, const struct model_config *m, const char *dir, struct err *e)
{
    bool given = strcmp(conf_where(f, "model.seq_len"), "default") != 0;
    if (c->model.seq_len <= c->model.max_positions) return OK;
    if (!given) {
        c->model.seq_len = c->model.max_positions;
        return OK;
    }
    if (key_given(f, key_row("model.max_positions"), &c->model.max_positions)) return OK; /* the two keys are compared later */
    if (m->family == MODEL_GPT2)
        return conf_error(f, e, "model.seq_len", "%lld, but %s has a table of %lld positions; choose at most that", (long long)c->model.seq_len,
                          dir, (long long)m->max_seq);
    return conf_error(f, e, "model.seq_len", "%lld, but %s was made for %lld positions; choose at most that, or, to train it for longer "
                      "texts, say model.max_positions=%lld as well", (long long)c->model.seq_len, dir, (long long)m->max_seq,
                      (long long)c->model.seq_len);
}

static void take_ends(struct config *c, const struct hf_model *h)
{
    c->model.bos = h->bos;
    c->model.n_eos = h->n_eos;
    for (int i = 0; i < h->n_eos; i++) c->model.eos[i] = h->eos[i];
}

int from_take(struct config *c, const struct conf *f, const struct weights *w, struct err *e)
{
    struct hf_model h;
    int rc = weights_model(w, &h, e);
    if (rc) return rc;
    struct model_config m = source_model(&h);
    struct config theirs = filled(c, &m);
    for (int i = 0; !rc && i < N_KEYS; i++) rc = take(c, f, &theirs, &m, i, weights_path(w), e);
    if (!rc) rc = take_length(c, f, &m, weights_path(w), e);
    if (!rc) take_ends(c, &h);
    return rc;
}

/* ---- what is said ---- */
static void say_dropout(const struct hf_model *h, const struct weights *w, const struct config *c)
{
    double theirs = h->dropout > h->attention_dropout ? h->dropout : h->attention_dropout;
    if (theirs != c->model.dropout)
        log_info("%s has dropout %g; training goes by model.dropout, which is %g", weights_path(w), theirs, c->model.dropout);
}

static void say_tokenizer(const struct weights *w, const struct tokenizer *t)
{
    struct tokenizer *own;
    struct err ignored;
    if (source_tokenizer(w, &own, &ignored)) return;
    if (tokenizer_fingerprint(own) != tokenizer_fingerprint(t))
        log_warn("data.tokenizer is not the tokenizer that %s has: to its weights the ids mean something else", weights_path(w));
    tokenizer_free(own);
}

void from_say(const struct weights *w, const struct config *c, const struct tokenizer *t)
{
    struct hf_model h;
    struct err ignored;
    if (weights_model(w, &h, &ignored)) return;
    struct model_config m = source_model(&h);
    struct config mine = *c, theirs = filled(c, &m);
    char a[64], b[64];
    for (int i = 0; i < N_KEYS; i++) {
        const struct conf_row *r = key_row(keys[i].key);
        if (!key_same(r, key_value(r, &mine), key_value(r, &theirs)))
            log_info("%s is %s here, %s in %s: the config's counts", r->path, key_show(r, key_value(r, &mine), a), key_show(r, key_value(r, &theirs), b),
                     weights_path(w));
    }
    say_dropout(&h, w, c);
    say_tokenizer(w, t);
}
