/* SPDX-License-Identifier: Apache-2.0 */
/* families.h: every family of models, in its forms, as words of a configuration: small, and with what it cannot be
 * without. Whoever tries something with all of them goes through this list. */
#ifndef TUTTI_TESTS_FAMILIES_H
#define TUTTI_TESTS_FAMILIES_H

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define FAMILY_EXPERTS "model.moe.experts=4 model.moe.top_k=2 model.moe.ffn=16"
#define FAMILY_SPACES "model.ssm.heads=8 model.ssm.groups=4 model.ssm.head_dim=8 model.ssm.state=8"
#define FAMILY_TOWER                                                                                                   \
    "model.vision.layers=2 model.vision.hidden=32 model.vision.heads=4 model.vision.ffn=16 "                           \
    "model.vision.image_size=8 model.vision.patch_size=4 data.pack=padded"
/* What follows model.family=. */
static const char *const families[] = {
    "gpt2",
    "llama",
    "llama model.mtp.depth=1",
    "mistral model.attn.window=5",
    "qwen2",
    "qwen3",
    "smollm3",
    "olmo2",
    "phi3",
    "gemma2",
    "gemma3",
    "mixtral " FAMILY_EXPERTS,
    "qwen3_moe " FAMILY_EXPERTS,
    "gpt_oss " FAMILY_EXPERTS,
    "deepseek model.mla.kv_rank=8 model.mla.nope_dim=8 model.mla.rope_dim=4 model.mla.value_dim=8 " FAMILY_EXPERTS,
    "bert",
    "bert model.classes=3",
    "t5",
    "vit model.classes=3 model.image_size=8 model.patch_size=4 model.seq_len=5",
    "mamba2 " FAMILY_SPACES,
    "nemotron_h model.layers=4 model.pattern=M-*- " FAMILY_SPACES,
    "llava " FAMILY_TOWER,
};
enum { N_FAMILIES = (int)(sizeof families / sizeof *families) };

/* The words of `text`, behind the n that are there, `most` at most; returns how many there are then. */
static inline int add_words(char **words, int n, int most, struct arena *a, const char *text)
{
    for (size_t k; *text; text += k + (text[k] == ' ')) {
        k = strcspn(text, " ");
        if (!k) continue;
        CHECK(n < most, "more than %d words: %s", most, text);
        words[n++] = arena_printf(a, "%.*s", (int)k, text);
    }
    return n;
}

static inline int add_family(char **words, int n, int most, struct arena *a, const char *family)
{
    return add_words(words, n, most, a, arena_printf(a, "model.family=%s", family));
}

#endif
