/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter's truth is the group "master" of a checkpoint, or "param" in a Hugging Face directory; both are read as
 * fp32 one parameter at a time. */
#include "config/start_weights.h"

#include "base/fs.h"
#include "base/mem.h"

/* The nearest of their architectures; DeepSeek-V2's router is the plain one. */
static enum hf_family hf_family_of(const struct model_config *m)
{
    static const enum hf_family family[MODEL_N] = {HF_GPT2, HF_LLAMA, HF_MIXTRAL, HF_DEEPSEEK_V3, HF_VIT};
    bool plain = m->moe.score == SCORE_SOFTMAX && !m->moe.norm_topk && !m->moe.bias && m->mla.rope_pairs;
    return m->family == MODEL_DEEPSEEK && plain ? HF_DEEPSEEK_V2 : family[m->family];
}

struct hf_model source_hf_model(const struct model_config *m, int32_t bos, int32_t eos)
{
    struct hf_model h = hf_model_default(hf_family_of(m));
    h.model = *m;
    if (m->moe.groups <= 1) h.model.moe.groups = h.model.moe.top_groups = 0;
    if (m->moe.groups <= 1) h.model.moe.group_pairs = false;
    if (m->family == MODEL_MIXTRAL) h.model.ffn = m->moe.ffn; /* one number there */
    h.embed_dropout = h.attention_dropout = m->dropout;
    h.bos = bos;
    h.n_eos = eos >= 0 ? 1 : 0;
    h.eos[0] = eos;
    return h;
}

static int compare(const struct param *p, const struct weights *w, struct err *e)
{
    int64_t i = weights_find_param(w, p->name);
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
        int64_t at = weights_find_param(w, p->name);
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
    if (!rc && !json)
        rc = err_set(e, ERR_REQUEST, "%s holds no tokenizer.json; give --tokenizer FILE", weights_path(w));
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
