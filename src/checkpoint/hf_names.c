/* hf_names.c: which of our parameters is which of theirs: the one table per family that reading, writing and
 * checking go by.
 *
 * Three runs of rows (before the layers, per layer, after the layers) are enumerated in that order; %d is the
 * layer. Sizes are letters: V vocabulary, P positions, D hidden, F ffn, Q = heads x head size, K = kv heads x head
 * size. `part` numbers the pieces of one fused tensor of theirs, which all have the same first size.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "checkpoint/hf.h"

struct row {
    const char *ours, *theirs;
    char size[3]; /* ours: [size0] or [size0, size1] */
    bool transposed;
    int part, parts; /* parts 0: not fused */
    bool head;       /* absent when tied, and never prefixed */
};

#define PAIR(our, their, rows, cols)                                       \
    {our ".weight", their ".weight", {rows, cols, 0}, true, 0, 0, false},  \
    {our ".bias", their ".bias", {rows, 0, 0}, false, 0, 0, false}
#define NORM(our, their)                                                   \
    {our ".weight", their ".weight", {'D', 0, 0}, false, 0, 0, false},     \
    {our ".bias", their ".bias", {'D', 0, 0}, false, 0, 0, false}
#define FUSED(our, their, i) \
    {our ".weight", their ".weight", {'D', 'D', 0}, true, i, 3, false}
#define FUSED_BIAS(our, their, i) {our ".bias", their ".bias", {'D', 0, 0}, false, i, 3, false}
#define PLAIN(our, their, rows, cols) {our, their, {rows, cols, 0}, false, 0, 0, false}
#define END {NULL, NULL, {0, 0, 0}, false, 0, 0, false}

static const struct row gpt2_first[] = {
    PLAIN("embed.token", "wte.weight", 'V', 'D'),
    PLAIN("embed.position", "wpe.weight", 'P', 'D'),
    END,
};
static const struct row gpt2_layer[] = {
    NORM("layers.%d.norm1", "h.%d.ln_1"),
    FUSED("layers.%d.attn.q", "h.%d.attn.c_attn", 0),
    FUSED("layers.%d.attn.k", "h.%d.attn.c_attn", 1),
    FUSED("layers.%d.attn.v", "h.%d.attn.c_attn", 2),
    FUSED_BIAS("layers.%d.attn.q", "h.%d.attn.c_attn", 0),
    FUSED_BIAS("layers.%d.attn.k", "h.%d.attn.c_attn", 1),
    FUSED_BIAS("layers.%d.attn.v", "h.%d.attn.c_attn", 2),
    PAIR("layers.%d.attn.o", "h.%d.attn.c_proj", 'D', 'D'),
    NORM("layers.%d.norm2", "h.%d.ln_2"),
    PAIR("layers.%d.mlp.up", "h.%d.mlp.c_fc", 'F', 'D'),
    PAIR("layers.%d.mlp.down", "h.%d.mlp.c_proj", 'D', 'F'),
    END,
};
static const struct row gpt2_last[] = {
    NORM("norm", "ln_f"),
    {"head.weight", "lm_head.weight", {'V', 'D', 0}, false, 0, 0, true},
    END,
};

static const struct row llama_first[] = {
    PLAIN("embed.token", "embed_tokens.weight", 'V', 'D'),
    END,
};
static const struct row llama_layer[] = {
    PLAIN("layers.%d.norm1.weight", "layers.%d.input_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.attn.q.weight", "layers.%d.self_attn.q_proj.weight", 'Q', 'D'),
    PLAIN("layers.%d.attn.k.weight", "layers.%d.self_attn.k_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.v.weight", "layers.%d.self_attn.v_proj.weight", 'K', 'D'),
    PLAIN("layers.%d.attn.o.weight", "layers.%d.self_attn.o_proj.weight", 'D', 'Q'),
    PLAIN("layers.%d.norm2.weight", "layers.%d.post_attention_layernorm.weight", 'D', 0),
    PLAIN("layers.%d.mlp.gate.weight", "layers.%d.mlp.gate_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.up.weight", "layers.%d.mlp.up_proj.weight", 'F', 'D'),
    PLAIN("layers.%d.mlp.down.weight", "layers.%d.mlp.down_proj.weight", 'D', 'F'),
    END,
};
static const struct row llama_last[] = {
    PLAIN("norm.weight", "norm.weight", 'D', 0),
    {"head.weight", "lm_head.weight", {'V', 'D', 0}, false, 0, 0, true},
    END,
};

static const struct {
    const struct row *first, *layer, *last;
    const char *prefix;
    const char *ignored[4]; /* endings of tensors that are no parameters */
} families[HF_N] = {
    [HF_GPT2] = {gpt2_first, gpt2_layer, gpt2_last, "transformer.", {".attn.bias", ".attn.masked_bias", NULL}},
    [HF_LLAMA] = {llama_first, llama_layer, llama_last, "model.", {".rotary_emb.inv_freq", NULL}},
};

const char *hf_prefix(enum hf_family f)
{
    return families[f].prefix;
}

static int64_t count_rows(const struct row *r)
{
    int64_t n = 0;
    while (r[n].ours) n++;
    return n;
}

int64_t hf_n_params(const struct hf_model *m)
{
    /* The head is the last row of each family. */
    return count_rows(families[m->family].first) + m->layers * count_rows(families[m->family].layer) +
           count_rows(families[m->family].last) - m->tie;
}

static int64_t size_of(const struct hf_model *m, char letter)
{
    switch (letter) {
    case 'V': return m->vocab;
    case 'P': return m->max_pos;
    case 'D': return m->hidden;
    case 'F': return m->ffn;
    case 'Q': return m->heads * m->head_dim;
    case 'K': return m->kv_heads * m->head_dim;
    default: CHECK(0, "size letter %c", letter);
    }
}

/* The pattern with %d replaced by the layer. */
static void put_name(char *out, size_t room, const char *pattern, int64_t layer)
{
    const char *mark = strstr(pattern, "%d");
    if (!mark)
        snprintf(out, room, "%s", pattern);
    else
        snprintf(out, room, "%.*s%lld%s", (int)(mark - pattern), pattern, (long long)layer, mark + 2);
}

struct hf_param hf_param_at(const struct hf_model *m, int64_t i)
{
    CHECK(i >= 0 && i < hf_n_params(m), "parameter %lld", (long long)i);
    const struct row *first = families[m->family].first, *layer = families[m->family].layer;
    int64_t n_first = count_rows(first), n_layer = count_rows(layer), in_layers = m->layers * n_layer, number = 0;
    const struct row *r;
    if (i < n_first) {
        r = &first[i];
    } else if (i < n_first + in_layers) {
        number = (i - n_first) / n_layer;
        r = &layer[(i - n_first) % n_layer];
    } else {
        r = &families[m->family].last[i - n_first - in_layers];
    }
    struct hf_param p = {.prefixed = !r->head, .transposed = r->transposed};
    put_name(p.name, sizeof p.name, r->ours, number);
    put_name(p.theirs, sizeof p.theirs, r->theirs, number);
    for (; r->size[p.shape.nd]; p.shape.nd++) p.shape.n[p.shape.nd] = size_of(m, r->size[p.shape.nd]);
    p.their_shape = p.shape;
    p.offset = r->part * p.shape.n[0];
    if (r->parts) p.their_shape.n[0] *= r->parts;
    if (r->transposed) {
        int64_t rows = p.their_shape.n[0];
        p.their_shape.n[0] = p.their_shape.n[1];
        p.their_shape.n[1] = rows;
    }
    return p;
}

bool hf_is_ignored(const struct hf_model *m, const char *theirs)
{
    if (m->tie && strcmp(theirs, "lm_head.weight") == 0) return true;
    for (const char *const *end = families[m->family].ignored; *end; end++)
        if (str_ends(theirs, *end)) return true;
    return false;
}
