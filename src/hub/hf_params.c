/* SPDX-License-Identifier: Apache-2.0 */
/* hf_params.c: a model's parameters one after the other, by the table of its family (hf_names.h): how many there are,
 * what each is called on both sides and where it lies among theirs; and what else their files may hold. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "hub/hf_names.h"

static bool is_there(const struct hf_model *m, const struct hf_name *r)
{
    switch (r->when) {
    case 'q': return m->model.mla.q_rank > 0;
    case 'n': return m->model.mla.q_rank == 0;
    case 'b': return m->model.moe.bias;
    case 's': return m->model.moe.shared > 0;
    case 'v': return m->model.qkv_bias;
    case 'u': return model_unmasks(&m->model);
    case 'l': return model_tells(&m->model);
    case 'r': return m->model.scores;
    case 'w': return !m->model.scores;
    case 'a': return m->model.attn.qkv_bias;
    case 'o': return m->model.attn.o_bias;
    case 'm': return m->model.mlp_bias;
    case 'S': return m->model.attn.sinks;
    case 'h': return m->model.attn.qk_norm == QK_NORM_HEAD;
    case 'H': return m->model.attn.qk_norm == QK_NORM_ALL;
    case 'G': return m->model.feed_forward == FEED_FORWARD_GATED;
    case 'U': return m->model.feed_forward == FEED_FORWARD_RELU;
    case 'z': return m->model.ssm.bias;
    case 'y': return m->model.ssm.conv_bias;
    case 'c': return m->model.vision.class_place;
    case 'p': return m->model.vision.norm_before;
    case 'P': return m->model.vision.patch_bias;
    default: return true;
    }
}

static int64_t count_rows(const struct hf_model *m, const struct hf_name *r)
{
    int64_t n = 0;
    for (; r->ours; r++) n += is_there(m, r);
    return n;
}

static const struct hf_name_run *layer_runs(const struct hf_model *m, int64_t layer)
{
    const struct hf_family_names *f = hf_family_names[m->family];
    if (model_mixes(&m->model)) return hf_kind_names[model_layer_kind(&m->model, layer)];
    return model_layer_is_moe(&m->model, layer) ? f->moe : f->dense;
}

static int64_t count_run(const struct hf_model *m, const struct hf_name_run *r)
{
    return count_rows(m, r->rows) * (r->each ? m->model.moe.experts : 1);
}

/* Before a layer's runs, in a module. */
static int64_t count_beside(const struct hf_model *m, int64_t layer)
{
    return layer >= m->model.layers ? count_rows(m, hf_mtp_names) : 0;
}

static int64_t count_layer(const struct hf_model *m, int64_t layer)
{
    const struct hf_name_run *r = layer_runs(m, layer);
    int64_t n = count_beside(m, layer);
    for (int k = 0; k < HF_LAYER_RUNS && r[k].rows; k++) n += count_run(m, &r[k]);
    return n;
}

static int64_t count_tower(const struct hf_model *m)
{
    const struct hf_name *r = hf_family_names[m->family]->tower;
    int64_t layers = model_pairs(&m->model) ? m->model.encoder_layers : m->model.vision.layers;
    return r ? count_rows(m, r) * layers : 0;
}

/* Layers that are named one after the other: of encoder and decoder, the decoder's. */
static int64_t stack_layers(const struct hf_model *m)
{
    return m->model.layers - (model_pairs(&m->model) ? m->model.encoder_layers : 0);
}

int64_t hf_n_params(const struct hf_model *m)
{
    int64_t n = count_tower(m) + count_rows(m, hf_family_names[m->family]->first) +
                count_rows(m, hf_family_names[m->family]->last),
            of[LAYER_KINDS][2];
    for (int k = 0; k < LAYER_KINDS; k++) of[k][0] = of[k][1] = -1;
    for (int64_t l = 0; l < stack_layers(m); l++) { /* a layer has experts or has none, and is of a kind */
        int64_t *each = &of[model_layer_kind(&m->model, l)][model_layer_is_moe(&m->model, l)];
        if (*each < 0) *each = count_layer(m, l);
        n += *each;
    }
    for (int64_t l = m->model.layers; l < model_blocks(&m->model); l++) n += count_layer(m, l);
    return n - m->model.tie_embeddings; /* the head is the last row of each family */
}

static int64_t size_of(const struct hf_model *m, char letter)
{
    const struct ssm_config *s = &m->model.ssm;
    const struct vision_config *v = &m->model.vision;
    int64_t inner = s->heads * s->head_dim, bc = s->groups * s->state;
    switch (letter) {
    case 'V': return m->model.vocab;
    case 'P': return m->model.max_positions;
    case 'D': return m->model.hidden;
    case 'G': return 2 * m->model.hidden;
    case 'F': return m->model.ffn;
    case 'Q': return m->model.heads * m->model.head_dim;
    case 'K': return m->model.kv_heads * m->model.head_dim;
    case 'A': return m->model.head_dim;
    case 'H': return m->model.heads;
    case 'i': return (m->model.heads + m->model.kv_heads) * m->model.head_dim;
    case 'j': return (m->model.heads + 2 * m->model.kv_heads) * m->model.head_dim;
    case 'f': return 2 * m->model.ffn;
    case 'E': return m->model.moe.experts;
    case 'X': return m->model.moe.ffn;
    case 'S': return m->model.moe.ffn * m->model.moe.shared;
    case 'a': return m->model.mla.q_rank;
    case 'c': return m->model.mla.kv_rank;
    case 'r': return m->model.mla.rope_dim;
    case 'k': return m->model.mla.kv_rank + m->model.mla.rope_dim;
    case 'B': return m->model.heads * (m->model.mla.nope_dim + m->model.mla.value_dim);
    case 'O': return m->model.heads * m->model.mla.value_dim;
    case 'C': return m->model.classes;
    case 'h': return m->model.channels;
    case 'p': return m->model.patch_size;
    case 'U': return m->model.channels * m->model.patch_size * m->model.patch_size;
    case 'Y': return m->model.types;
    case 'b': return m->model.buckets;
    case 'g': return s->heads;
    case 't': return s->conv;
    case 'I': return inner;
    case 'N': return bc;
    case 'd': return 2 * inner;
    case 'n': return 2 * inner + bc;
    case 'w': return 2 * (inner + bc);
    case 'm': return inner + bc;
    case 'x': return inner + 2 * bc;
    case 'Z': return 2 * (inner + bc) + s->heads;
    case 'v': return v->hidden;
    case 'u': return v->channels * v->patch_size * v->patch_size;
    case 'e': return v->channels;
    case 'R': return v->patch_size;
    case 'l': return vision_places(v);
    case 'M': return v->ffn;
    case '1': return 1;
    case 0: return 0;
    default: CHECK(0, "size letter %c", letter);
    }
}

/* The pattern with its first %d replaced by the layer, its second by the expert. */
static void put_name(char *out, size_t room, const char *pattern, int64_t layer, int64_t expert)
{
    const int64_t number[2] = {layer, expert};
    size_t n = 0;
    for (int k = 0; *pattern && n + 24 < room;) {
        if (strncmp(pattern, "%d", 2) == 0 && k < 2) {
            n += (size_t)snprintf(out + n, room - n, "%lld", (long long)number[k++]);
            pattern += 2;
        } else {
            out[n++] = *pattern++;
        }
    }
    out[n] = 0;
    CHECK(!*pattern, "a name that is too long");
}

static const struct hf_name *row_at(const struct hf_model *m, const struct hf_name *r, int64_t i)
{
    for (;; r++) {
        CHECK(r->ours, "no such row");
        if (is_there(m, r) && i-- == 0) return r;
    }
}

/* The i-th parameter, counted through layers and experts: its row, and which of them. */
struct counted_row {
    const struct hf_name *row;
    int64_t layer, expert;
};

static struct counted_row counted_row_of(const struct hf_model *m, int64_t i)
{
    const struct hf_family_names *f = hf_family_names[m->family];
    int64_t n = count_rows(m, f->first);
    if (i < n) return (struct counted_row){row_at(m, f->first, i), 0, 0};
    i -= n;
    if (i < count_tower(m)) {
        n = count_rows(m, f->tower);
        return (struct counted_row){row_at(m, f->tower, i % n), i / n, 0};
    }
    i -= count_tower(m);
    for (int64_t l = 0; l < stack_layers(m) + m->model.mtp.depth; l++) {
        n = count_layer(m, l);
        if (i >= n) {
            i -= n;
            continue;
        }
        if (i < count_beside(m, l)) return (struct counted_row){row_at(m, hf_mtp_names, i), l, 0};
        i -= count_beside(m, l);
        for (const struct hf_name_run *r = layer_runs(m, l);; r++) {
            int64_t each = count_rows(m, r->rows);
            if (i < count_run(m, r)) return (struct counted_row){row_at(m, r->rows, i % each), l, i / each};
            i -= count_run(m, r);
        }
    }
    return (struct counted_row){row_at(m, f->last, i), 0, 0};
}

/* Ours is one expert's: rows of theirs from the expert's first on, every stack-th column. */
static void stack_experts(const struct hf_model *m, const struct hf_name *r, int64_t expert, struct hf_param *p)
{
    int64_t ins = p->shape.nd > 1 ? p->shape.n[1] : 1, outs = p->shape.n[0] * r->stack, E = m->model.moe.experts;
    p->their_shape = (struct shape){.nd = 2, .n = {E * ins, outs}};
    p->file_shape = p->shape.nd > 1 ? (struct shape){.nd = 3, .n = {E, ins, outs}} : p->their_shape;
    p->first = expert * ins;
    p->offset = r->part;
    p->step = r->stack;
}

struct hf_param hf_param_at(const struct hf_model *m, int64_t i)
{
    CHECK(i >= 0 && i < hf_n_params(m), "parameter %lld", (long long)i);
    struct counted_row at = counted_row_of(m, i);
    const struct hf_name *r = at.row;
    struct hf_param p = {.prefixed = !r->head, .transposed = r->transposed, .step = 1};
    put_name(p.name, sizeof p.name, r->ours, at.layer, at.expert);
    put_name(p.theirs, sizeof p.theirs, r->theirs, at.layer, at.expert);
    for (; r->size[p.shape.nd]; p.shape.nd++) p.shape.n[p.shape.nd] = size_of(m, r->size[p.shape.nd]);
    if (r->stack) {
        stack_experts(m, r, at.expert, &p);
        return p;
    }
    p.their_shape = p.shape;
    p.offset = r->whole ? size_of(m, r->before) : r->part * p.shape.n[0];
    if (r->parts) p.their_shape.n[0] *= r->parts;
    if (r->whole) p.their_shape.n[0] = size_of(m, r->whole);
    if (r->transposed) {
        int64_t rows = p.their_shape.n[0];
        p.their_shape.n[0] = p.their_shape.n[1];
        p.their_shape.n[1] = rows;
    }
    p.file_shape = p.their_shape;
    for (int k = 0; k < 4 && r->file[k]; k++) {
        p.file_shape.nd = k + 1;
        p.file_shape.n[k] = size_of(m, r->file[k]);
    }
    return p;
}

const char *const hf_mtp_copies[HF_MTP_COPIES][2] = {{"embed_tokens.weight", "embed.token"},
                                                     {"shared_head.head.weight", "head.weight"}};

/* Layers beyond the model's and its modules' (a config may leave these out), and of modules the tables that are the
 * model's own. */
static bool is_beyond(const struct hf_model *m, const char *theirs)
{
    long long layer;
    int at = 0;
    if (!m->model.mla.kv_rank || sscanf(theirs, "model.layers.%lld.%n", &layer, &at) != 1 || !at) return false;
    bool copy = false;
    for (int i = 0; i < HF_MTP_COPIES; i++) copy |= !strcmp(theirs + at, hf_mtp_copies[i][0]);
    return layer >= model_blocks(&m->model) || (layer >= m->model.layers && copy);
}

/* Of a tower, what the text does not see: layers behind, the last norm, a head. */
static bool behind_features(const struct hf_model *m, const char *theirs)
{
    long long layer;
    if (m->family != HF_LLAVA || !str_starts(theirs, "vision_tower.")) return false;
    const char *in = theirs + strlen("vision_tower.");
    if (str_starts(in, "vision_model.")) in += strlen("vision_model.");
    if (sscanf(in, "encoder.layers.%lld.", &layer) == 1) return layer >= m->model.vision.layers;
    return str_starts(in, "post_layernorm.") || str_starts(in, "head.");
}

bool hf_is_ignored(const struct hf_model *m, const char *theirs)
{
    /* An output matrix that is the embedding: hf_read.c has compared them. */
    const char *head = m->family == HF_LLAVA ? "language_model.lm_head.weight" : "lm_head.weight";
    if (m->model.tie_embeddings && !strcmp(theirs, head)) return true;
    if (m->family == HF_BERT && m->model.tie_embeddings && !strcmp(theirs, "cls.predictions.decoder.weight"))
        return true;
    if (model_unmasks(&m->model) && strstr(theirs, "pooler.dense.")) return true; /* of a head beside this one */
    if (is_beyond(m, theirs) || behind_features(m, theirs)) return true;
    for (const char *const *end = hf_family_names[m->family]->ignored; *end; end++)
        if (str_ends(theirs, *end)) return true;
    return false;
}
