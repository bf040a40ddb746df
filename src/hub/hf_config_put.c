/* SPDX-License-Identifier: Apache-2.0 */
/* hf_config_put.c: struct hf_model as config.json, and whether their code would compute this model from it. */
#include <string.h>

#include "hub/hf_config_impl.h"
#include "hub/hf_keys.h"
#include "hub/hf_layers.h"
#include "hub/hf_llava.h"
#include "hub/hf_own.h"
#include "hub/hf_rope.h"
#include "kernel/kernel.h"

/* No groups are one of all experts; the size of a head is of what is turned. */
static struct model_config in_their_words(const struct model_config *c)
{
    struct model_config t = *c;
    if (!t.moe.groups) t.moe.groups = t.moe.top_groups = 1;
    t.head_dim = c->mla.kv_rank ? c->mla.rope_dim : c->head_dim;
    if (t.attn.scale_dim <= 0) t.attn.scale_dim = (double)c->head_dim;
    if (t.attn.local_theta <= 0) t.attn.local_theta = c->rope_theta;
    return t;
}

static void put_steps(struct json_out *o, const struct hf_put *p)
{
    const struct ssm_config *s = &((const struct model_config *)p->of)->ssm;
    json_begin_array(o, p->key);
    json_put_real(o, NULL, s->step_least);
    json_put_real(o, NULL, s->step_most);
    json_end_array(o);
}

/* Their inner width is a multiple of hidden; another is said in a checkpoint's own description only. */
static void put_expand(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    int64_t inner = c->ssm.heads * c->ssm.head_dim;
    if (inner % c->hidden) json_put_real(o, p->key, (double)inner / (double)c->hidden);
    else json_put_int(o, p->key, inner / c->hidden);
}

static void put_decoder_layers(struct json_out *o, const struct hf_put *p)
{
    const struct model_config *c = p->of;
    json_put_int(o, p->key, c->layers - c->encoder_layers);
}

static void put_head_scale(struct json_out *o, const struct hf_put *p)
{
    json_put_bool(o, p->key, model_scales_head(p->of));
}

static void put_start(struct json_out *o, const struct hf_put *p)
{
    json_put_int(o, p->key, ((const struct hf_model *)p->of)->start);
}

static void put_method(struct json_out *o, const struct hf_put *p)
{
    const struct moe_config *x = &((const struct model_config *)p->of)->moe;
    json_put_string(o, p->key, x->bias ? "noaux_tc" : x->groups > 1 ? "group_limited_greedy" : "greedy");
}

static void put_pairs(struct json_out *o, const struct hf_put *p)
{
    json_put_bool(o, p->key, ((const struct model_config *)p->of)->moe.group_pairs);
}

/* A decoder's number that their files do not name is what their code has. */
static int decoder_expressible(const struct hf_model *m, struct err *e)
{
    double only;
    bool scaled = m->model.rope_scaling.factor > 0 || m->model.yarn.factor > 0;
    if (m->family == HF_PHI3 && scaled && !model_long_rope(&m->model))
        return err_set(e, ERR_REQUEST,
                       "phi3: their code scales positions by longrope only (model.rope_scaling, model.yarn)");
    for (const struct number *n = model_numbers; n->row.path; n++)
        if (hf_own_has(m, n, &only))
            return err_set(e, ERR_REQUEST, "%s: their code has no key for %s, and another value there than this model",
                           hf_family_name(m->family), n->row.path);
    return OK;
}

int hf_config_expressible(const struct hf_model *m, struct err *e)
{
    if (m->family == HF_LLAVA && !hf_llava_tower(m))
        return err_set(e, ERR_REQUEST,
                       "llava: their towers are CLIP's (a place for the class, a norm before, no bias of patches) and "
                       "SigLIP's (none, none, a bias); this model's is neither (model.vision)");
    int rc = model_decodes(&m->model) ? decoder_expressible(m, e) : OK;
    if (rc) return rc;
    if (m->model.scores && !hf_rows[m->family].scores)
        return err_set(e, ERR_REQUEST, "%s: their code has no form with a score", hf_family_name(m->family));
    if (m->model.scores && m->model.score_at == SCORE_AT_TEXT && !m->n_eos)
        return err_set(e, ERR_REQUEST,
                       "model.score_at: text: their code passes over what is the padding's, which would be the end of "
                       "text; this model names none");
    if (m->family == HF_VIT && m->model.pool)
        return err_set(e, ERR_REQUEST,
                       "vit: their code reads the class off its own place, this model off the mean of the patches "
                       "(model.pool)");
    if (m->family == HF_MAMBA2 && m->model.ssm.heads * m->model.ssm.head_dim % m->model.hidden)
        return err_set(e, ERR_REQUEST,
                       "mamba2: their inner width is a whole multiple of hidden, this model's %lld is not "
                       "(model.ssm.heads)",
                       (long long)(m->model.ssm.heads * m->model.ssm.head_dim));
    if (m->family == HF_NEMOTRON_H && m->model.tie_embeddings)
        return err_set(e, ERR_REQUEST,
                       "nemotron_h: their code has an output matrix of its own, whatever tie_word_embeddings says, "
                       "this model has none (model.tie_embeddings)");
    if (model_both_ways(&m->model) && !model_pairs(&m->model) && m->model.head_dim * m->model.heads != m->model.hidden)
        return err_set(e, ERR_REQUEST,
                       "%s: their code has heads of hidden / heads columns, this model of %lld (model.head_dim)",
                       hf_family_name(m->family), (long long)m->model.head_dim);
    if (m->family != HF_DEEPSEEK_V2 && m->family != HF_DEEPSEEK_V3) return OK;
    if (m->model.moe.shared == 0)
        return err_set(e, ERR_REQUEST, "%s: their code wants shared experts, this model has none",
                       hf_family_name(m->family));
    if (m->model.mla.norm_eps != 1e-6)
        return err_set(e, ERR_REQUEST,
                       "%s: their code adds 1e-6 in the norms of short vectors, this model %g (model.mla.norm_eps)",
                       hf_family_name(m->family), m->model.mla.norm_eps);
    if (m->family == HF_DEEPSEEK_V2)
        return m->model.moe.score == SCORE_SIGMOID || m->model.moe.norm_topk || m->model.moe.bias ||
                       !m->model.mla.rope_pairs
                   ? err_set(e, ERR_REQUEST,
                             "deepseek_v2: their code computes softmax scores that are not scaled to sum 1")
                   : OK;
    if (m->model.moe.score != SCORE_SIGMOID || !m->model.moe.bias || (m->model.moe.groups && !m->model.moe.group_pairs))
        return err_set(e, ERR_REQUEST,
                       "deepseek_v3: their code computes sigmoid scores with a bias of choice and groups by "
                       "their two largest; this model's router is another (model.moe.score, bias, group_pairs)");
    return OK;
}

static const char *torch_dtype(enum dtype t) { return t == DT_BF16 ? "bfloat16" : t == DT_F16 ? "float16" : "float32"; }

static void put_ids(struct json_out *o, const struct hf_model *m)
{
    if (m->bos >= 0) json_put_int(o, "bos_token_id", m->bos);
    else json_put_null(o, "bos_token_id"); /* absent would mean the library's default id */
    if (m->n_eos == 0) json_put_null(o, "eos_token_id");
    if (m->n_eos == 1) json_put_int(o, "eos_token_id", m->eos[0]);
    if (m->n_eos > 1) {
        json_begin_array(o, "eos_token_id");
        for (int i = 0; i < m->n_eos; i++) json_put_int(o, NULL, m->eos[i]);
        json_end_array(o);
    }
}

/* The one label that makes a score of what would be classes. */
static void put_label(struct json_out *o)
{
    json_begin_object(o, "id2label");
    json_put_string(o, "0", "LABEL_0");
    json_end_object(o);
    json_begin_object(o, "label2id");
    json_put_int(o, "LABEL_0", 0);
    json_end_object(o);
}

/* Said in any case: absent it would be their class's default, which a smaller vocabulary does not have, and then their
 * code makes no model. A reward model's score is read at the last token that is not the padding's; where that has no
 * id, their code takes one text at a time. */
static void put_pad(struct json_out *o, const struct hf_model *m)
{
    bool scores = m->model.scores, at_text = scores && m->model.score_at == SCORE_AT_TEXT && m->n_eos;
    int64_t pad = at_text ? m->eos[0] : scores ? -1 : m->pad;
    if (pad >= 0 && pad < m->model.vocab) json_put_int(o, "pad_token_id", pad);
    else json_put_null(o, "pad_token_id");
}

void hf_config_put(struct json_out *o, const char *key, const struct hf_model *m, enum dtype dtype)
{
    const struct hf_row *f = &hf_rows[m->family];
    if (m->family == HF_LLAVA) hf_llava_put(o, key, m, f->architecture, torch_dtype(dtype));
    else hf_config_put_as(o, key, m, f->architecture, f->name, dtype);
}

void hf_config_put_as(struct json_out *o, const char *key, const struct hf_model *m, const char *architecture,
                      const char *type, enum dtype dtype)
{
    struct model_config theirs = in_their_words(&m->model);
    struct hf_puts puts = {.n = 0};
    hf_keys_add(&puts, 1u << m->family);
    hf_puts_add_numbers(&puts, &theirs, model_numbers, 1u << m->family);
    hf_puts_add_numbers(&puts, m, hf_more_numbers, 1u << m->family);
    bool writes = !model_both_ways(&m->model), told = m->family == HF_BERT && m->model.classes;
    hf_layers_add(&puts, m);
    hf_own_add(&puts, m);
    if (m->family == HF_T5) {
        hf_puts_add(&puts, (struct hf_put){41, "num_decoder_layers", put_decoder_layers, &theirs, NULL});
        hf_puts_add(&puts, (struct hf_put){901, "scale_decoder_outputs", put_head_scale, &theirs, NULL});
        hf_puts_add(&puts, (struct hf_put){1000, "decoder_start_token_id", put_start, m, NULL});
        hf_puts_add(&puts, (struct hf_put){1001, "pad_token_id", put_start, m, NULL});
    }
    if (m->family == HF_MAMBA2) hf_puts_add(&puts, (struct hf_put){51, "expand", put_expand, &theirs, NULL});
    if (model_scans(&m->model) && (m->model.ssm.step_least > 0 || m->model.ssm.step_most > 0))
        hf_puts_add(&puts,
                    (struct hf_put){m->family == HF_MAMBA2 ? 64 : 89, "time_step_limit", put_steps, &theirs, NULL});
    if (writes && m->family != HF_GPT2 && !model_scans(&m->model)) hf_rope_add(&puts, &theirs);
    if (m->model.mla.kv_rank) hf_puts_add(&puts, (struct hf_put){310, "topk_method", put_method, &theirs, NULL});
    bool otherwise = m->model.moe.groups && m->model.moe.group_pairs != m->model.moe.bias;
    if (m->model.mla.kv_rank && otherwise)
        hf_puts_add(&puts, (struct hf_put){390, "tutti_group_pairs", put_pairs, &theirs, NULL});
    json_begin_object(o, key);
    json_begin_array(o, "architectures");
    json_put_string(o, NULL, told ? BERT_TELLS : m->model.scores ? hf_rows[m->family].scores : architecture);
    json_end_array(o);
    json_put_string(o, "model_type", type);
    hf_puts_write(&puts, o);
    if (writes || m->family == HF_T5) put_ids(o, m);
    if (writes) put_pad(o, m);
    if (m->model.scores) put_label(o);
    json_put_string(o, "torch_dtype", torch_dtype(dtype));
    if (writes) json_put_bool(o, "use_cache", true);
    json_end_object(o);
}
