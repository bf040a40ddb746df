/* SPDX-License-Identifier: Apache-2.0 */
/* model.from names a directory in Hugging Face's form: its config.json decides the architecture; what the file leaves
 * open (dropout, sequence length) stays the config's. Keys given beside it are compared, not silently overridden. */
#include "run/setup.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#include "run/source.h"

struct taken {
    const char *key;
    int64_t *mine;
    int64_t theirs;
};

static int take(const struct conf *f, const struct taken *k, struct err *e)
{
    const char *where = conf_where(f, k->key);
    if (strcmp(where, "default") && *k->mine && *k->mine != k->theirs)
        return conf_error(f, e, k->key, "%lld, but model.from has %lld; leave the key out", (long long)*k->mine,
                          (long long)k->theirs);
    *k->mine = k->theirs;
    return OK;
}

/* What training adds (losses, speed of the bias, capacity) stays the config's. */
static void take_experts(struct config *c, const struct model_config *m)
{
    c->model.moe.experts = m->moe.experts;
    c->model.moe.top_k = m->moe.experts ? m->moe.top_k : c->model.moe.top_k;
    c->model.moe.ffn = m->moe.ffn;
    c->model.moe.shared = m->moe.shared;
    c->model.moe.first_dense = m->moe.first_dense;
    c->model.moe.groups = m->moe.groups;
    c->model.moe.top_groups = m->moe.top_groups ? m->moe.top_groups : 1;
    c->model.moe.group_pairs = m->moe.group_pairs;
    c->model.moe.score = (int)m->moe.score;
    if (m->moe.experts) c->model.moe.norm_topk = m->moe.norm_topk;
    if (m->moe.experts) c->model.moe.scale = m->moe.scale;
    c->model.moe.bias = m->moe.bias;
    c->model.mla.q_rank = m->mla.q_rank;
    c->model.mla.kv_rank = m->mla.kv_rank;
    c->model.mla.nope = m->mla.nope;
    c->model.mla.rope = m->mla.rope;
    c->model.mla.value = m->mla.value;
    if (m->mla.kv_rank) c->model.mla.pairs = m->mla.pairs;
    if (m->mla.kv_rank) c->model.mla.norm_eps = m->mla.norm_eps;
}

int setup_weights(struct weights **w, const struct config *c, struct err *e)
{
    const struct config_key *keys = c->model.ignore.items;
    struct hf_ignore ignore = {.n = c->model.ignore.n};
    const char **names = xcalloc((size_t)ignore.n + 1, sizeof *names);
    for (int i = 0; i < ignore.n; i++) names[i] = keys[i].name;
    ignore.keys = names;
    int rc = weights_open_ignoring(w, c->model.from, &ignore, e);
    xfree(names);
    return rc;
}

void setup_say_dropout(const struct weights *w, const struct config *c)
{
    struct hf_model h;
    struct err ignored;
    if (weights_model(w, &h, &ignored)) return;
    double theirs = h.dropout > h.attention_dropout ? h.dropout : h.attention_dropout;
    if (theirs != c->model.dropout)
        log_info("%s has dropout %g; training goes by model.dropout, which is %g", weights_path(w), theirs, c->model.dropout);
}

static int from_directory(struct config *c, const struct conf *f, struct err *e)
{
    struct weights *w;
    struct hf_model h;
    int rc = setup_weights(&w, c, e);
    if (rc) return err_prefix(e, "%s: model.from", conf_where(f, "model.from"));
    rc = weights_model(w, &h, e);
    weights_close(w);
    if (rc) return rc;
    struct model_config m = source_model(&h);
    int64_t family = c->model.family;
    const struct taken keys[] = {
        {"model.family", &family, m.family},
        {"model.layers", &c->model.layers, m.layers},
        {"model.hidden", &c->model.hidden, m.hidden},
        {"model.heads", &c->model.heads, m.heads},
        {"model.kv_heads", &c->model.kv_heads, m.kv_heads},
        {"model.head_dim", &c->model.head_dim, m.head_dim},
        {"model.ffn", &c->model.ffn, m.ffn},
        {"model.vocab", &c->model.vocab, m.vocab},
        {"model.max_positions", &c->model.max_positions, m.max_seq},
    };
    if (strcmp(conf_where(f, "model.family"), "default") && family != (int64_t)m.family)
        return conf_error(f, e, "model.family", "%s, but model.from is a %s; leave the key out",
                          model_family_name((enum model_family)family), model_family_name(m.family));
    for (size_t i = 0; !rc && i < sizeof keys / sizeof *keys; i++) rc = take(f, &keys[i], e);
    if (rc) return rc;
    c->model.family = (int)m.family;
    c->model.tie_embeddings = m.tie;
    c->model.norm_eps = m.norm_eps;
    c->model.rope_theta = m.rope_theta;
    take_experts(c, &m);
    c->model.rope_factor = m.rope.yarn ? 0 : m.rope.factor;
    c->model.yarn.factor = m.rope.yarn ? m.rope.factor : 0;
    c->model.yarn.beta_fast = m.rope.beta_fast;
    c->model.yarn.beta_slow = m.rope.beta_slow;
    c->model.yarn.mscale = m.rope.mscale;
    c->model.yarn.mscale_all_dim = m.rope.mscale_all_dim;
    c->model.yarn.truncate = !m.rope.parts;
    c->model.rope_low = m.rope.low_freq_factor;
    c->model.rope_high = m.rope.high_freq_factor;
    c->model.rope_original = m.rope.original_max_position;
    if (!strcmp(conf_where(f, "model.seq_len"), "default") && c->model.seq_len > m.max_seq) c->model.seq_len = m.max_seq;
    return OK;
}

int setup_model(struct config *c, const struct conf *f, struct arena *a, struct tokenizer **t, struct err *e)
{
    (void)a;
    *t = NULL;
    int rc = c->model.from ? from_directory(c, f, e) : OK;
    if (rc) return rc;
    rc = tokenizer_open(t, c->data.tokenizer, e);
    if (rc) return err_prefix(e, "%s: data.tokenizer", conf_where(f, "data.tokenizer"));
    return OK;
}
