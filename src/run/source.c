/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter's truth is the group "master" of a checkpoint, or "param" in a Hugging Face directory; both are read as
 * fp32 one parameter at a time. */
#include "run/source.h"

#include "base/fs.h"
#include "base/mem.h"

struct model_config source_model(const struct hf_model *h)
{
    static const enum model_family family[HF_N] = {MODEL_GPT2, MODEL_LLAMA, MODEL_MIXTRAL, MODEL_DEEPSEEK, MODEL_DEEPSEEK};
    return (struct model_config){
        .family = family[h->family],
        .layers = to_int(h->layers),
        .hidden = h->hidden,
        .heads = to_int(h->heads),
        .kv_heads = to_int(h->kv_heads),
        .head_dim = to_int(h->head_dim),
        .ffn = h->ffn,
        .vocab = h->vocab,
        .max_seq = h->max_pos,
        .tie = h->tie,
        .dropout = h->dropout,
        .norm_eps = h->norm_eps,
        .rope_theta = h->rope_theta,
        .rope = {h->rope_factor, h->rope_low_freq_factor, h->rope_high_freq_factor, h->rope_original_max_pos, h->yarn,
                 h->yarn_beta_fast, h->yarn_beta_slow, h->yarn_mscale, h->yarn_mscale_all_dim,
                 h->yarn_parts},
        .moe = {.experts = to_int(h->moe.experts), .top_k = to_int(h->moe.top_k), .ffn = h->moe.ffn,
                .shared = to_int(h->moe.shared), .first_dense = to_int(h->moe.first_dense),
                .score = h->moe.sigmoid ? SCORE_SIGMOID : SCORE_SOFTMAX, .norm_topk = h->moe.norm_topk,
                .groups = to_int(h->moe.groups), .top_groups = to_int(h->moe.top_groups),
                .group_pairs = h->moe.group_pairs, .scale = h->moe.scale, .bias = h->moe.bias},
        .mla = {h->mla.q_rank, h->mla.kv_rank, to_int(h->mla.nope), to_int(h->mla.rope), to_int(h->mla.value), h->mla.pairs,
                h->mla.norm_eps},
    };
}

/* The nearest of their architectures; DeepSeek-V2's router is the plain one. */
static enum hf_family hf_family_of(const struct model_config *m)
{
    static const enum hf_family family[MODEL_N] = {HF_GPT2, HF_LLAMA, HF_MIXTRAL, HF_DEEPSEEK_V3};
    bool plain = m->moe.score == SCORE_SOFTMAX && !m->moe.norm_topk && !m->moe.bias && m->mla.pairs;
    return m->family == MODEL_DEEPSEEK && plain ? HF_DEEPSEEK_V2 : family[m->family];
}

struct hf_model source_hf_model(const struct model_config *m, int32_t bos, int32_t eos)
{
    struct hf_model h = hf_model_default(hf_family_of(m));
    h.moe.experts = m->moe.experts;
    h.moe.top_k = m->moe.top_k;
    h.moe.ffn = m->moe.ffn;
    h.moe.shared = m->moe.shared;
    h.moe.first_dense = m->moe.first_dense;
    h.moe.groups = m->moe.groups > 1 ? m->moe.groups : 0;
    h.moe.top_groups = h.moe.groups ? m->moe.top_groups : 0;
    h.moe.sigmoid = m->moe.score == SCORE_SIGMOID;
    h.moe.norm_topk = m->moe.norm_topk;
    h.moe.group_pairs = h.moe.groups && m->moe.group_pairs;
    h.moe.bias = m->moe.bias;
    h.moe.scale = m->moe.scale;
    h.mla.q_rank = m->mla.q_rank;
    h.mla.kv_rank = m->mla.kv_rank;
    h.mla.nope = m->mla.nope;
    h.mla.rope = m->mla.rope;
    h.mla.value = m->mla.value;
    h.mla.pairs = m->mla.pairs;
    if (m->mla.kv_rank) h.mla.norm_eps = m->mla.norm_eps;
    h.yarn = m->rope.yarn;
    h.yarn_parts = m->rope.parts;
    h.yarn_beta_fast = m->rope.beta_fast;
    h.yarn_beta_slow = m->rope.beta_slow;
    h.yarn_mscale = m->rope.mscale;
    h.yarn_mscale_all_dim = m->rope.mscale_all_dim;
    h.layers = m->layers;
    h.hidden = m->hidden;
    h.heads = m->heads;
    h.kv_heads = m->kv_heads;
    h.head_dim = m->head_dim;
    h.ffn = m->ffn;
    if (m->family == MODEL_MIXTRAL) h.ffn = m->moe.ffn; /* one number there */
    h.vocab = m->vocab;
    h.max_pos = m->max_seq;
    h.norm_eps = m->norm_eps;
    h.rope_theta = m->rope_theta;
    h.rope_factor = m->rope.factor;
    h.rope_low_freq_factor = m->rope.low_freq_factor;
    h.rope_high_freq_factor = m->rope.high_freq_factor;
    h.rope_original_max_pos = m->rope.original_max_position;
    h.tie = m->tie;
    h.dropout = h.embed_dropout = h.attention_dropout = m->dropout;
    h.bos = bos;
    h.n_eos = eos >= 0 ? 1 : 0;
    h.eos[0] = eos;
    return h;
}

static int64_t find(const struct weights *w, const char *name)
{
    int64_t i = weights_find(w, "master", name);
    return i >= 0 ? i : weights_find(w, "param", name);
}

static int compare(const struct param *p, const struct weights *w, struct err *e)
{
    int64_t i = find(w, p->name);
    if (i < 0) return err_set(e, ERR_REQUEST, "%s: holds no parameter %s: another model", weights_path(w), p->name);
    struct ckpt_entry x = weights_at(w, i);
    struct shape want = shape_of(p->nd, p->n);
    if (shape_equal(&x.shape, &want)) return OK;
    char theirs[128], ours[128];
    return err_set(e, ERR_REQUEST, "%s: %s is %s there and %s in this model: another model", weights_path(w), p->name,
                   shape_print(theirs, &x.shape), shape_print(ours, &want));
}

int source_load(struct store *s, const struct kernel_table *k, struct stream *st, struct weights *w, struct err *e)
{
    for (int i = 0; i < s->table->n; i++) {
        int rc = compare(&s->table->p[i], w, e);
        if (rc) return rc;
    }
    for (int i = 0; i < s->table->n; i++) {
        const struct param *p = &s->table->p[i];
        int64_t at = find(w, p->name);
        int64_t row = param_row_numel(p);
        struct array_span x = store_held(s, i, STORE_MASTER);
        if (!x.n) continue;
        struct region box = param_rows(p, x.lo / row, x.n / row);
        float *v = xmalloc(to_size(x.n) * sizeof *v + 1);
        int rc = weights_read(w, at, &box, DT_F32, v, e);
        if (!rc) store_write(s, k, st, i, STORE_MASTER, v);
        xfree(v);
        if (rc) return rc;
    }
    return OK;
}

/* A directory's may ask its config.json too; of a checkpoint what is parsed is what was compared with its checksum. */
int source_tokenizer(const struct weights *w, struct tokenizer **t, struct err *e)
{
    char *json = NULL, *config = NULL, *path = fs_join(weights_path(w), "tokenizer.json");
    size_t n, config_n = 0;
    *t = NULL;
    int rc = weights_file(w, "tokenizer.json", &json, &n, e);
    if (!rc && !json) rc = err_set(e, ERR_REQUEST, "%s holds no tokenizer.json; give --tokenizer FILE", weights_path(w));
    if (!rc && !weights_ckpt(w)) {
        rc = tokenizer_open(t, path, e);
    } else if (!rc) {
        rc = weights_file(w, "tokenizer_config.json", &config, &config_n, e);
        struct hf_model h = {.bos = -1};
        struct err ignored;
        if (weights_model(w, &h, &ignored)) h = (struct hf_model){.bos = -1};
        if (!rc) rc = tokenizer_parse_files(t, json, n, config, config_n, h.n_eos ? h.eos[0] : -1, h.bos, path, e);
    }
    xfree(config);
    xfree(json);
    xfree(path);
    return rc;
}
