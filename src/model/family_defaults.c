/* SPDX-License-Identifier: Apache-2.0 */
/* family_defaults.c: sizes are not here: they are a model's, not a family's. Sources: the config classes of the
 * transformers library, and the papers (docs/models.md). */
#include "model/family_defaults.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    enum model_family family;
    const char *path, *value;
} rows[] = {
    {MODEL_T5, "model.norm_eps", "1e-6"},
    {MODEL_MISTRAL, "model.attn.window", "4096"},
    {MODEL_QWEN2, "model.attn.qkv_bias", "true"},
    {MODEL_QWEN2, "model.norm_eps", "1e-6"},
    {MODEL_QWEN2, "model.rope_theta", "1e6"},
    {MODEL_QWEN3, "model.attn.qk_norm", "head"},
    {MODEL_QWEN3, "model.norm_eps", "1e-6"},
    {MODEL_QWEN3, "model.rope_theta", "1e6"},
    {MODEL_QWEN3_MOE, "model.attn.qk_norm", "head"},
    {MODEL_QWEN3_MOE, "model.norm_eps", "1e-6"},
    {MODEL_QWEN3_MOE, "model.rope_theta", "1e6"},
    {MODEL_QWEN3_MOE, "model.moe.top_k", "8"},
    {MODEL_SMOLLM3, "model.attn.rope", "3xo"},
    {MODEL_SMOLLM3, "model.norm_eps", "1e-6"},
    {MODEL_SMOLLM3, "model.rope_theta", "5e6"},
    {MODEL_SMOLLM3, "model.tie_embeddings", "true"},
    {MODEL_OLMO2, "model.attn.qk_norm", "all"},
    {MODEL_OLMO2, "model.norm_place", "after"},
    {MODEL_OLMO2, "model.norm_eps", "1e-6"},
    {MODEL_OLMO2, "model.rope_theta", "5e5"},
    {MODEL_GEMMA2, "model.attn.window", "4096"},
    {MODEL_GEMMA2, "model.attn.local", "xo"},
    {MODEL_GEMMA2, "model.attn.cap", "50"},
    {MODEL_GEMMA2, "model.logit_cap", "30"},
    {MODEL_GEMMA3, "model.attn.window", "1024"},
    {MODEL_GEMMA3, "model.attn.local", "5xo"},
    {MODEL_GEMMA3, "model.attn.local_theta", "1e4"},
    {MODEL_GEMMA3, "model.attn.qk_norm", "head"},
    {MODEL_GEMMA3, "model.rope_theta", "1e6"},
    {MODEL_GPT_OSS, "model.attn.qkv_bias", "true"},
    {MODEL_GPT_OSS, "model.attn.o_bias", "true"},
    {MODEL_GPT_OSS, "model.attn.sinks", "true"},
    {MODEL_GPT_OSS, "model.attn.window", "128"},
    {MODEL_GPT_OSS, "model.attn.local", "xo"},
    {MODEL_GPT_OSS, "model.rope_theta", "1.5e5"},
    {MODEL_GPT_OSS, "model.gate_limit", "7"},
    {MODEL_GPT_OSS, "model.moe.top_k", "4"},
    {MODEL_GPT_OSS, "model.moe.router_bias", "true"},
    {MODEL_GPT_OSS, "model.moe.expert_bias", "true"},
    {MODEL_GPT_OSS, "model.yarn.truncate", "false"},
#define GEMMA(family)                                                                                                  \
    {family, "model.norm_place", "both"}, {family, "model.norm_plus_one", "true"}, {family, "model.norm_eps", "1e-6"}, \
        {family, "model.gate", "gelu_pytorch_tanh"}, {family, "model.scale_embedding", "true"},                        \
    {                                                                                                                  \
        family, "model.tie_embeddings", "true"                                                                         \
    }
    GEMMA(MODEL_GEMMA2),
    GEMMA(MODEL_GEMMA3),
};

static int word(const char *words, const char *name)
{
    size_t n = strlen(name);
    int i = 0;
    for (; strncmp(words, name, n) || (words[n] && words[n] != '|'); i++) words = strchr(words, '|') + 1;
    return i;
}

static void set(struct model_config *c, const struct number *n, const char *value)
{
    void *at = (char *)c + n->row.offset;
    switch (n->row.type) {
    case CONF_INT: *(int64_t *)at = (int64_t)strtod(value, NULL); break;
    case CONF_REAL: *(double *)at = strtod(value, NULL); break;
    case CONF_BOOL: *(bool *)at = !strcmp(value, "true"); break;
    case CONF_CHOICE: *(int *)at = word(n->row.choices, value); break;
    default: memset(at, 0, LAYER_PATTERN_BYTES); memcpy(at, value, strlen(value));
    }
}

const char *family_default(enum model_family f, const char *path)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].family == f && !strcmp(rows[i].path, path)) return rows[i].value;
    return NULL;
}

void family_defaults(struct model_config *c, number_said_fn *said, const void *ctx)
{
    for (const struct number *n = model_numbers; n->row.path; n++) {
        const char *value = family_default(c->family, n->row.path);
        if (value && !said(ctx, n->row.path)) set(c, n, value);
    }
}
