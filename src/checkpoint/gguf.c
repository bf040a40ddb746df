/* SPDX-License-Identifier: Apache-2.0 */
/* Header (keys and values, places of tensors), then tensors in order, each held one at a time. */
#include "checkpoint/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "layout/dtype.h"

enum { ALIGN = 32, BLOCK = 32, BLOCK_BYTES = 2 + BLOCK };
/* The format's numbers of types, of values and of tensors. */
enum { VALUE_U32 = 4, VALUE_I32 = 5, VALUE_F32 = 6, VALUE_BOOL = 7, VALUE_STRING = 8, VALUE_ARRAY = 9 };
enum { TENSOR_F32 = 0, TENSOR_Q8_0 = 8, TENSOR_BF16 = 30 };

/* Our parameters and theirs; %d is the layer. heads: rows are reordered, 'q' or 'k'; parts: so many parameters that
 * follow each other are one tensor. */
struct gguf_name {
    const char *ours, *theirs;
    char heads;
    int parts;
};
static const struct gguf_name llama_names[] = {
    {"embed.token", "token_embd.weight", 0, 1},
    {"layers.%d.norm1.weight", "blk.%d.attn_norm.weight", 0, 1},
    {"layers.%d.attn.q.weight", "blk.%d.attn_q.weight", 'q', 1},
    {"layers.%d.attn.k.weight", "blk.%d.attn_k.weight", 'k', 1},
    {"layers.%d.attn.v.weight", "blk.%d.attn_v.weight", 0, 1},
    {"layers.%d.attn.o.weight", "blk.%d.attn_output.weight", 0, 1},
    {"layers.%d.norm2.weight", "blk.%d.ffn_norm.weight", 0, 1},
    {"layers.%d.mlp.gate.weight", "blk.%d.ffn_gate.weight", 0, 1},
    {"layers.%d.mlp.up.weight", "blk.%d.ffn_up.weight", 0, 1},
    {"layers.%d.mlp.down.weight", "blk.%d.ffn_down.weight", 0, 1},
    {"norm.weight", "output_norm.weight", 0, 1},
    {"head.weight", "output.weight", 0, 1},
    {NULL, NULL, 0, 0},
};
static const struct gguf_name gpt2_names[] = {
    {"embed.token", "token_embd.weight", 0, 1},
    {"embed.position", "position_embd.weight", 0, 1},
    {"layers.%d.norm1.weight", "blk.%d.attn_norm.weight", 0, 1},
    {"layers.%d.norm1.bias", "blk.%d.attn_norm.bias", 0, 1},
    {"layers.%d.attn.q.weight", "blk.%d.attn_qkv.weight", 0, 3},
    {"layers.%d.attn.q.bias", "blk.%d.attn_qkv.bias", 0, 3},
    {"layers.%d.attn.o.weight", "blk.%d.attn_output.weight", 0, 1},
    {"layers.%d.attn.o.bias", "blk.%d.attn_output.bias", 0, 1},
    {"layers.%d.norm2.weight", "blk.%d.ffn_norm.weight", 0, 1},
    {"layers.%d.norm2.bias", "blk.%d.ffn_norm.bias", 0, 1},
    {"layers.%d.mlp.up.weight", "blk.%d.ffn_up.weight", 0, 1},
    {"layers.%d.mlp.up.bias", "blk.%d.ffn_up.bias", 0, 1},
    {"layers.%d.mlp.down.weight", "blk.%d.ffn_down.weight", 0, 1},
    {"layers.%d.mlp.down.bias", "blk.%d.ffn_down.bias", 0, 1},
    {"norm.weight", "output_norm.weight", 0, 1},
    {"norm.bias", "output_norm.bias", 0, 1},
    {"head.weight", "output.weight", 0, 1},
    {NULL, NULL, 0, 0},
};

struct tensor_out {
    char theirs[96];
    int64_t entry[3], rows[3]; /* of the weights */
    int n_parts, nd;
    int64_t n_rows, n_cols; /* a vector: 1 row */
    int type;
    int64_t offset, bytes;
    char heads;
};

struct exporter {
    struct weights *w;
    struct hf_model m;
    const struct gguf_name *names;
    struct tensor_out *t;
    int64_t n;
    struct str keys; /* keys and values */
    int64_t n_keys;
};

/* ---- values ---- */

static void put_u32(struct str *s, uint32_t v)
{
    unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                          (unsigned char)(v >> 24)};
    str_add(s, b, sizeof b);
}
static void put_u64(struct str *s, uint64_t v)
{
    put_u32(s, (uint32_t)v);
    put_u32(s, (uint32_t)(v >> 32));
}
static void put_text(struct str *s, const char *text, size_t n)
{
    put_u64(s, n);
    str_add(s, text, n);
}
static void key(struct exporter *x, const char *name, uint32_t type)
{
    put_text(&x->keys, name, strlen(name));
    put_u32(&x->keys, type);
    x->n_keys++;
}
static void key_u32(struct exporter *x, const char *name, int64_t v)
{
    key(x, name, VALUE_U32);
    put_u32(&x->keys, (uint32_t)v);
}
static void key_f32(struct exporter *x, const char *name, double v)
{
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    key(x, name, VALUE_F32);
    put_u32(&x->keys, u);
}
static void key_text(struct exporter *x, const char *name, const char *v)
{
    key(x, name, VALUE_STRING);
    put_text(&x->keys, v, strlen(v));
}
static void key_array(struct exporter *x, const char *name, uint32_t type, uint64_t n)
{
    key(x, name, VALUE_ARRAY);
    put_u32(&x->keys, type);
    put_u64(&x->keys, n);
}

static void put_model(struct exporter *x, const char *name, enum gguf_type type)
{
    const struct model_config *m = &x->m.model;
    static const int file_type[] = {[GGUF_F32] = 0, [GGUF_BF16] = 32, [GGUF_Q8_0] = 7};
    bool llama = m->family == MODEL_LLAMA;
    char k[64];
#define KEY(suffix) (snprintf(k, sizeof k, "%s." suffix, llama ? "llama" : "gpt2"), k)
    key_text(x, "general.architecture", llama ? "llama" : "gpt2");
    key_text(x, "general.name", name);
    key_u32(x, "general.file_type", file_type[type]);
    key_u32(x, "general.quantization_version", 2);
    key_u32(x, "general.alignment", ALIGN);
    key_u32(x, KEY("context_length"), m->max_positions);
    key_u32(x, KEY("embedding_length"), m->hidden);
    key_u32(x, KEY("block_count"), m->layers);
    key_u32(x, KEY("feed_forward_length"), m->ffn);
    key_u32(x, KEY("attention.head_count"), m->heads);
    key_u32(x, KEY("vocab_size"), m->vocab);
    if (!llama) {
        key_f32(x, KEY("attention.layer_norm_epsilon"), m->norm_eps);
        return;
    }
    key_u32(x, KEY("attention.head_count_kv"), m->kv_heads);
    key_u32(x, KEY("attention.key_length"), m->head_dim);
    key_u32(x, KEY("attention.value_length"), m->head_dim);
    key_f32(x, KEY("attention.layer_norm_rms_epsilon"), m->norm_eps);
    key_u32(x, KEY("rope.dimension_count"), m->head_dim);
    key_f32(x, KEY("rope.freq_base"), m->rope_theta);
#undef KEY
}

/* ---- tokenizer.json ---- */

struct vocabulary {
    const char **text;   /* by id, in the spelling of the file */
    unsigned char *kind; /* 1 normal, 3 control, 4 of a person */
    int64_t n;
};

static int take_token(struct vocabulary *v, const char *text, int64_t id, unsigned char kind, struct err *e)
{
    if (id < 0 || id >= v->n)
        return err_set(e, ERR_REQUEST, "tokenizer.json: token %.60s is %lld, the model's vocabulary has %lld", text,
                       (long long)id, (long long)v->n);
    v->text[id] = text;
    v->kind[id] = kind;
    return OK;
}

static void put_merge(struct str *s, const struct json *m)
{
    if (json_kind(m) != JSON_ARRAY) {
        const char *text = json_string(m, NULL, "");
        put_text(s, text, strlen(text));
        return;
    }
    struct str pair = {0};
    str_printf(&pair, "%s %s", json_string(json_at(m, 0), NULL, ""), json_string(json_at(m, 1), NULL, ""));
    put_text(s, str_text(&pair), pair.n);
    str_free(&pair);
}

/* Which expression cuts texts before merging, in the words that readers know. */
static const char *cutting_of(const char *text)
{
    return strstr(text, "\\\\p{N}{1,3}") ? "llama-bpe" : strstr(text, "(?i:'s|'t") ? "dbrx" : "gpt-2";
}

static int put_vocabulary(struct exporter *x, const struct json *root, const char *text, struct err *e)
{
    const struct json *model = json_get(root, "model"), *vocab = json_get(model, "vocab"),
                      *merges = json_get(model, "merges"), *added = json_get(root, "added_tokens");
    if (strcmp(json_string(json_get(model, "type"), NULL, ""), "BPE") || !strstr(text, "\"ByteLevel\""))
        return err_set(e, ERR_REQUEST,
                       "tokenizer.json: the tokenizer is no byte-level BPE, and no other is written into a GGUF");
    struct vocabulary v = {.n = x->m.model.vocab};
    v.text = xcalloc(to_size(v.n), sizeof *v.text);
    v.kind = xcalloc(to_size(v.n), 1);
    int rc = OK;
    for (void *it = json_iter(vocab); it && !rc; it = json_iter_next(vocab, it))
        rc = take_token(&v, json_iter_key(it), json_int(json_iter_value(it), -1), 1, e);
    for (size_t i = 0; added && !rc && i < json_size(added); i++) {
        const struct json *a = json_at(added, i);
        rc = take_token(&v, json_string(json_get(a, "content"), NULL, ""), json_int(json_get(a, "id"), -1),
                        json_bool(json_get(a, "special"), false) ? 3 : 4, e);
    }
    if (!rc) {
        char room[32];
        key_text(x, "tokenizer.ggml.model", "gpt2");
        key_text(x, "tokenizer.ggml.pre", cutting_of(text));
        key_array(x, "tokenizer.ggml.tokens", VALUE_STRING, (uint64_t)v.n);
        for (int64_t i = 0; i < v.n; i++) {
            if (!v.text[i]) snprintf(room, sizeof room, "[PAD%lld]", (long long)i);
            put_text(&x->keys, v.text[i] ? v.text[i] : room, strlen(v.text[i] ? v.text[i] : room));
        }
        key_array(x, "tokenizer.ggml.token_type", VALUE_I32, (uint64_t)v.n);
        for (int64_t i = 0; i < v.n; i++) put_u32(&x->keys, v.text[i] ? v.kind[i] : 5 /* unused */);
        size_t n = merges ? json_size(merges) : 0;
        key_array(x, "tokenizer.ggml.merges", VALUE_STRING, n);
        for (size_t i = 0; i < n; i++) put_merge(&x->keys, json_at(merges, i));
        if (x->m.bos >= 0) key_u32(x, "tokenizer.ggml.bos_token_id", x->m.bos);
        if (x->m.n_eos) key_u32(x, "tokenizer.ggml.eos_token_id", x->m.eos[0]);
        key(x, "tokenizer.ggml.add_bos_token", VALUE_BOOL);
        str_putc(&x->keys, 0);
    }
    xfree(v.text);
    xfree(v.kind);
    return rc;
}

static int put_tokenizer(struct exporter *x, struct err *e)
{
    char *text = NULL;
    size_t n;
    struct json *root = NULL;
    int rc = weights_file(x->w, "tokenizer.json", &text, &n, e);
    if (!rc && !text) rc = err_set(e, ERR_REQUEST, "%s: has no tokenizer.json", weights_path(x->w));
    if (!rc) rc = json_parse_published(&root, text, n, "tokenizer.json", e);
    if (!rc) rc = put_vocabulary(x, root, text, e);
    json_free(root);
    xfree(text);
    return rc;
}

/* ---- tensors ---- */

static int add_tensor(struct exporter *x, const struct gguf_name *name, int layer, enum gguf_type type, struct err *e)
{
    struct tensor_out t = {.heads = name->heads, .n_parts = name->parts};
    char ours[96];
    /* the tables above have one %d, for the layer, or none */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    snprintf(ours, sizeof ours, name->ours, layer);
    snprintf(t.theirs, sizeof t.theirs, name->theirs, layer);
#pragma GCC diagnostic pop
    static const char *const part[3] = {".q.", ".k.", ".v."};
    for (int p = 0; p < t.n_parts; p++) {
        char *at = strstr(ours, ".q.");
        if (p && at) memcpy(at, part[p], 3);
        int64_t i = weights_find_param(x->w, ours);
        if (i < 0 && !strcmp(ours, "head.weight") && x->m.model.tie_embeddings) return OK;
        if (i < 0) return err_set(e, ERR_REQUEST, "%s: holds no parameter %s", weights_path(x->w), ours);
        struct ckpt_entry entry = weights_at(x->w, i);
        t.entry[p] = i;
        t.nd = entry.shape.nd;
        t.rows[p] = t.nd > 1 ? entry.shape.n[0] : 1;
        t.n_cols = (t.nd > 1 ? 0 : t.n_cols) + entry.shape.n[t.nd - 1];
        t.n_rows += t.nd > 1 ? entry.shape.n[0] : 0;
        if (p && at) memcpy(at, part[0], 3);
    }
    if (t.nd == 1) t.n_rows = 1;
    bool matrix = t.nd == 2 && strcmp(name->ours, "embed.position");
    t.type = !matrix || type == GGUF_F32 ? TENSOR_F32
             : type == GGUF_BF16         ? TENSOR_BF16
             : t.n_cols % BLOCK          ? TENSOR_F32
                                         : TENSOR_Q8_0;
    t.bytes = t.type == TENSOR_F32    ? t.n_rows * t.n_cols * 4
              : t.type == TENSOR_BF16 ? t.n_rows * t.n_cols * 2
                                      : t.n_rows * t.n_cols / BLOCK * BLOCK_BYTES;
    if (x->n) t.offset = (x->t[x->n - 1].offset + x->t[x->n - 1].bytes + ALIGN - 1) / ALIGN * ALIGN;
    x->t = xrealloc(x->t, to_size(x->n + 1) * sizeof *x->t);
    x->t[x->n++] = t;
    return OK;
}

static int list_tensors(struct exporter *x, enum gguf_type type, struct err *e)
{
    int rc = OK;
    for (const struct gguf_name *n = x->names; n->ours && !rc; n++) { /* layer by layer where a name has one */
        if (!strstr(n->ours, "%d")) rc = add_tensor(x, n, 0, type, e);
        else if (n == x->names || !strstr(n[-1].ours, "%d"))
            for (int l = 0; l < x->m.model.layers && !rc; l++)
                for (const struct gguf_name *k = n; strstr(k->ours, "%d") && !rc; k++)
                    rc = add_tensor(x, k, l, type, e);
    }
    return rc;
}

/* Row r of a head in their order is pair r / 2, first or second half: ours has the halves one after the other. */
static int64_t our_row(const struct exporter *x, char heads, int64_t row)
{
    int64_t a = x->m.model.head_dim, in = row % a;
    return heads ? row - in + in % 2 * (a / 2) + in / 2 : row;
}

/* 32 numbers: the largest magnitude is 127 steps. */
static void put_block(const float *v, unsigned char *to)
{
    float most = 0;
    for (int i = 0; i < BLOCK; i++) most = fmaxf(most, fabsf(v[i]));
    float step = most / 127, by = step > 0 ? 1 / step : 0;
    uint16_t half = f16_from_f32(step);
    to[0] = (unsigned char)half;
    to[1] = (unsigned char)(half >> 8);
    for (int i = 0; i < BLOCK; i++) to[2 + i] = (unsigned char)(signed char)roundf(v[i] * by);
}

static int write_row(struct fs_writer *f, const struct tensor_out *t, const float *row, unsigned char *room,
                     struct err *e)
{
    size_t bytes = to_size(t->bytes / t->n_rows);
    if (t->type == TENSOR_F32) return fs_writer_write(f, row, bytes, e);
    for (int64_t i = 0; t->type == TENSOR_BF16 && i < t->n_cols; i++) {
        bf16 b = bf16_from_f32(row[i]);
        memcpy(room + 2 * i, &b, sizeof b);
    }
    for (int64_t i = 0; t->type == TENSOR_Q8_0 && i < t->n_cols; i += BLOCK)
        put_block(row + i, room + i / BLOCK * BLOCK_BYTES);
    return fs_writer_write(f, room, bytes, e);
}

static int write_zeros(struct fs_writer *f, int64_t to, struct err *e)
{
    static const char zeros[ALIGN];
    int64_t n = to - fs_writer_offset(f);
    return n > 0 ? fs_writer_write(f, zeros, to_size(n), e) : OK;
}

static int write_tensor(struct exporter *x, struct fs_writer *f, const struct tensor_out *t, struct err *e)
{
    float *v = xmalloc(to_size(t->n_rows * t->n_cols) * sizeof *v);
    unsigned char *room = xmalloc(to_size(t->n_cols) * sizeof *v);
    int64_t at = 0;
    int rc = OK;
    for (int p = 0; p < t->n_parts && !rc; p++) {
        struct ckpt_entry entry = weights_at(x->w, t->entry[p]);
        struct region whole = region_whole(&entry.shape);
        rc = weights_read(x->w, t->entry[p], &whole, DT_F32, v + at, e);
        at += shape_numel(&entry.shape);
    }
    for (int64_t r = 0; r < t->n_rows && !rc; r++)
        rc = write_row(f, t, v + our_row(x, t->heads, r) * t->n_cols, room, e);
    xfree(v);
    xfree(room);
    return rc;
}

static int write_all(struct exporter *x, struct fs_writer *f, struct err *e)
{
    struct str head = {0};
    str_puts(&head, "GGUF");
    put_u32(&head, 3);
    put_u64(&head, (uint64_t)x->n);
    put_u64(&head, (uint64_t)x->n_keys);
    str_add(&head, str_text(&x->keys), x->keys.n);
    for (int64_t i = 0; i < x->n; i++) {
        const struct tensor_out *t = &x->t[i];
        put_text(&head, t->theirs, strlen(t->theirs));
        put_u32(&head, (uint32_t)t->nd);
        put_u64(&head, (uint64_t)t->n_cols); /* the fastest first */
        if (t->nd > 1) put_u64(&head, (uint64_t)t->n_rows);
        put_u32(&head, (uint32_t)t->type);
        put_u64(&head, (uint64_t)t->offset);
    }
    int64_t data = ((int64_t)head.n + ALIGN - 1) / ALIGN * ALIGN;
    int rc = fs_writer_write(f, head.p, head.n, e);
    for (int64_t i = 0; i < x->n && !rc; i++) {
        rc = write_zeros(f, data + x->t[i].offset, e);
        if (!rc) rc = write_tensor(x, f, &x->t[i], e);
    }
    if (!rc) rc = write_zeros(f, (fs_writer_offset(f) + ALIGN - 1) / ALIGN * ALIGN, e);
    str_free(&head);
    return rc;
}

/* A Llama as its first files were: no other number of a decoder's. */
static bool is_plain(const struct hf_model *h)
{
    const struct model_config *m = &h->model;
    struct err ignored;
    return hf_config_expressible(h, &ignored) == OK && !m->attn.qkv_bias && !m->attn.o_bias && !m->mlp_bias &&
           m->gate != GATE_GELU_TANH;
}

static int check(const struct exporter *x, struct err *e)
{
    const struct model_config *m = &x->m.model;
    if (m->family != MODEL_LLAMA && m->family != MODEL_GPT2)
        return err_set(e, ERR_REQUEST, "%s: only Llama's and GPT-2's models are written as GGUF", weights_path(x->w));
    if (m->family == MODEL_LLAMA && !is_plain(&x->m))
        return err_set(e, ERR_REQUEST,
                       "%s: has numbers that Llama's GGUF does not say (model.attn, mlp_bias, gate, norm_place, moe, "
                       "...)",
                       weights_path(x->w));
    if (m->family == MODEL_LLAMA &&
        (m->rope_scaling.factor != 0 || m->yarn.factor != 0 || model_turned(m) != m->head_dim))
        return err_set(e, ERR_REQUEST,
                       "%s: scaled rotary positions (rope_scaling), or of a part of a head, are not written into a "
                       "GGUF",
                       weights_path(x->w));
    return OK;
}

int gguf_export(struct weights *w, const char *path, const char *name, enum gguf_type type, struct err *e)
{
    struct exporter x = {.w = w};
    struct fs_writer *f = NULL;
    struct str part = {0};
    int rc = weights_model(w, &x.m, e);
    if (!rc) rc = check(&x, e);
    if (!rc) {
        x.names = x.m.model.family == MODEL_LLAMA ? llama_names : gpt2_names;
        put_model(&x, name, type);
        rc = put_tokenizer(&x, e);
    }
    if (!rc) rc = list_tensors(&x, type, e);
    str_printf(&part, "%s.part", path);
    if (!rc) rc = fs_writer_open(&f, str_text(&part), e);
    if (!rc) rc = write_all(&x, f, e);
    if (f) {
        struct err other;
        int closed = fs_writer_close(f, !rc, rc ? &other : e);
        if (!rc) rc = closed;
        if (!rc) rc = fs_rename(str_text(&part), path, e);
        if (rc) remove(str_text(&part));
    }
    str_free(&part);
    str_free(&x.keys);
    xfree(x.t);
    return rc;
}
