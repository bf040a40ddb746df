/* SPDX-License-Identifier: Apache-2.0 */
/* Header (keys and values, places of tensors), then tensors in order, each part of one held at a time. */
#include "hub/gguf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "hub/gguf_chat.h"
#include "hub/gguf_family.h"
#include "hub/gguf_tokens.h"
#include "layout/dtype.h"

enum { ALIGN = 32, BLOCK = 32, BLOCK_BYTES = 2 + BLOCK };
/* The format's numbers of types of tensors. */
enum { TENSOR_F32 = 0, TENSOR_Q8_0 = 8, TENSOR_BF16 = 30 };

struct tensor_out {
    char theirs[96];
    const struct gguf_name *name; /* NULL: what frequencies are divided by */
    int64_t *entry;               /* of the weights, parts one behind the other */
    int64_t parts;
    int nd;
    int64_t n[3]; /* rows last: columns, rows, experts */
    int type;
    int64_t offset, bytes;
};

struct exporter {
    struct weights *w;
    struct hf_model m;
    const struct gguf_family *family;
    struct tensor_out *t;
    int64_t n;
    struct gguf_keys keys;
    float *divisors; /* NULL: none */
};

/* ---- keys ---- */

static void put_model(struct exporter *x, const char *name, enum gguf_type type)
{
    static const int file_type[] = {[GGUF_F32] = 0, [GGUF_BF16] = 32, [GGUF_Q8_0] = 7};
    struct gguf_keys *k = &x->keys;
    k->architecture = x->family->architecture;
    gguf_key_text(k, "general.architecture", k->architecture);
    gguf_key_text(k, "general.name", name);
    gguf_key_u32(k, "general.file_type", file_type[type]);
    gguf_key_u32(k, "general.quantization_version", 2);
    gguf_key_u32(k, "general.alignment", ALIGN);
    gguf_put_numbers(k, x->family, &x->m.model);
}

static int put_tokenizer(struct exporter *x, struct err *e)
{
    char *text = NULL;
    size_t n;
    int rc = weights_file(x->w, "tokenizer.json", &text, &n, e);
    if (!rc && !text) rc = err_set(e, ERR_REQUEST, "%s: has no tokenizer.json", weights_path(x->w));
    if (!rc) rc = gguf_tokens(&x->keys, &x->m, text, n, e);
    if (!rc) rc = gguf_chat(&x->keys, x->w, &x->m, e);
    xfree(text);
    return rc;
}

/* ---- tensors ---- */

static int64_t parts_of(const struct exporter *x, const struct gguf_name *name)
{
    static const int64_t parts[] = {[GGUF_ALONE] = 1, [GGUF_QKV] = 3, [GGUF_GATE_UP] = 2};
    return name->join == GGUF_EXPERTS ? x->m.model.moe.experts : parts[name->join];
}

/* The tables have a %d for the layer, and another for an expert, or none. */
static void put_name(char to[96], const char *of, int layer, int64_t expert)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    snprintf(to, 96, of, layer, (int)expert);
#pragma GCC diagnostic pop
}

/* The name of part p of theirs, a parameter of ours. */
static void name_part(char ours[96], const struct gguf_name *name, int layer, int64_t p)
{
    static const char *const qkv[] = {".q.", ".k.", ".v."}, *const gate_up[] = {".gate.", ".up."};
    char whole[96];
    put_name(whole, name->ours, layer, p);
    const char *const *word = name->join == GGUF_QKV ? qkv : name->join == GGUF_GATE_UP ? gate_up : NULL;
    const char *at = word ? strstr(whole, word[0]) : NULL;
    if (!at) snprintf(ours, 96, "%s", whole);
    else snprintf(ours, 96, "%.*s%s%s", (int)(at - whole), whole, word[p], at + strlen(word[0]));
}

static int type_of(const struct tensor_out *t, enum gguf_type type)
{
    bool few = t->nd < 2 || !strcmp(t->theirs, "position_embd.weight") || strstr(t->theirs, "ffn_gate_inp");
    if (few || type == GGUF_F32) return TENSOR_F32;
    if (type == GGUF_BF16) return TENSOR_BF16;
    return t->n[0] % BLOCK ? TENSOR_F32 : TENSOR_Q8_0;
}

static void append(struct exporter *x, struct tensor_out t, enum gguf_type type)
{
    int64_t numel = t.n[0] * t.n[1] * t.n[2];
    t.type = type_of(&t, type);
    t.bytes = t.type == TENSOR_F32 ? numel * 4 : t.type == TENSOR_BF16 ? numel * 2 : numel / BLOCK * BLOCK_BYTES;
    if (x->n) t.offset = (x->t[x->n - 1].offset + x->t[x->n - 1].bytes + ALIGN - 1) / ALIGN * ALIGN;
    x->t = xrealloc(x->t, to_size(x->n + 1) * sizeof *x->t);
    x->t[x->n++] = t;
}

static int add_tensor(struct exporter *x, const struct gguf_name *name, int layer, enum gguf_type type, struct err *e)
{
    if (!gguf_has(name, &x->m.model)) return OK;
    struct tensor_out t = {.name = name, .parts = parts_of(x, name), .n = {0, 0, 1}};
    int rc = OK;
    char ours[96];
    t.entry = xcalloc(to_size(t.parts), sizeof *t.entry);
    put_name(t.theirs, name->theirs, layer, 0);
    for (int64_t p = 0; p < t.parts && !rc; p++) {
        name_part(ours, name, layer, p);
        t.entry[p] = weights_find_param(x->w, ours);
        if (t.entry[p] < 0) {
            rc = err_set(e, ERR_REQUEST, "%s: holds no parameter %s", weights_path(x->w), ours);
            break;
        }
        struct shape s = weights_at(x->w, t.entry[p]).shape;
        bool vector = s.nd == 1, stacked = name->join == GGUF_EXPERTS;
        t.nd = stacked ? 3 : s.nd;
        t.n[0] = (vector ? t.n[0] : 0) + s.n[s.nd - 1];
        t.n[1] = vector ? 1 : (stacked ? 0 : t.n[1]) + s.n[0];
        t.n[2] = stacked ? t.parts : 1;
    }
    if (rc) xfree(t.entry);
    else append(x, t, type);
    return rc;
}

static int list_tensors(struct exporter *x, enum gguf_type type, struct err *e)
{
    int rc = OK;
    for (const struct gguf_name *n = x->family->names; n->ours && !rc; n++) { /* layer by layer where a name has one */
        if (!strstr(n->ours, "%d")) rc = add_tensor(x, n, 0, type, e);
        else if (n == x->family->names || !strstr(n[-1].ours, "%d"))
            for (int l = 0; l < x->m.model.layers && !rc; l++)
                for (const struct gguf_name *k = n; strstr(k->ours, "%d") && !rc; k++)
                    rc = add_tensor(x, k, l, type, e);
    }
    x->divisors = xcalloc(to_size(x->m.model.head_dim / 2 + 1), sizeof *x->divisors);
    struct tensor_out by = {.theirs = "rope_freqs.weight", .nd = 1, .n = {x->m.model.head_dim / 2, 1, 1}};
    if (!rc && gguf_rope_divisors(&x->m.model, x->divisors)) append(x, by, type);
    return rc;
}

/* Row r of a head in their order is pair r / 2, first or second half: ours has the halves one after the other. */
static int64_t our_row(const struct exporter *x, const struct tensor_out *t, int64_t row)
{
    if (!t->name->heads || !x->family->neighbours) return row;
    int64_t a = x->m.model.head_dim, in = row % a;
    return row - in + in % 2 * (a / 2) + in / 2;
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

static int write_row(struct fs_writer *f, int type, const float *row, int64_t n, unsigned char *room, struct err *e)
{
    if (type == TENSOR_F32) return fs_writer_write(f, row, to_size(n) * sizeof *row, e);
    for (int64_t i = 0; type == TENSOR_BF16 && i < n; i++) {
        bf16 b = bf16_from_f32(row[i]);
        memcpy(room + 2 * i, &b, sizeof b);
    }
    for (int64_t i = 0; type == TENSOR_Q8_0 && i < n; i += BLOCK) put_block(row + i, room + i / BLOCK * BLOCK_BYTES);
    return fs_writer_write(f, room, to_size(type == TENSOR_BF16 ? n * 2 : n / BLOCK * BLOCK_BYTES), e);
}

static int write_zeros(struct fs_writer *f, int64_t to, struct err *e)
{
    static const char zeros[ALIGN];
    int64_t n = to - fs_writer_offset(f);
    return n > 0 ? fs_writer_write(f, zeros, to_size(n), e) : OK;
}

/* Rows of a matrix; of a vector each number is one. */
static int write_part(struct exporter *x, struct fs_writer *f, const struct tensor_out *t, int64_t part, struct err *e)
{
    struct ckpt_entry entry = weights_at(x->w, t->entry[part]);
    struct region whole = region_whole(&entry.shape);
    int64_t numel = shape_numel(&entry.shape), wide = entry.shape.nd > 1 ? entry.shape.n[entry.shape.nd - 1] : 1;
    float *v = xmalloc(to_size(numel + 1) * sizeof *v);
    unsigned char *room = xmalloc(to_size(wide + 1) * sizeof *v);
    int rc = weights_read(x->w, t->entry[part], &whole, DT_F32, v, e);
    for (int64_t i = 0; i < numel && !rc && gguf_adds_one(t->name, &x->m.model); i++) v[i] += 1;
    for (int64_t r = 0; r < numel / wide && !rc; r++)
        rc = write_row(f, t->type, v + our_row(x, t, r) * wide, wide, room, e);
    xfree(v);
    xfree(room);
    return rc;
}

static int write_tensor(struct exporter *x, struct fs_writer *f, const struct tensor_out *t, struct err *e)
{
    if (!t->name) return fs_writer_write(f, x->divisors, to_size(t->bytes), e);
    int rc = OK;
    for (int64_t p = 0; p < t->parts && !rc; p++) rc = write_part(x, f, t, p, e);
    return rc;
}

static int write_all(struct exporter *x, struct fs_writer *f, struct err *e)
{
    struct str head = {0};
    str_puts(&head, "GGUF");
    gguf_put_u32(&head, 3);
    gguf_put_u64(&head, (uint64_t)x->n);
    gguf_put_u64(&head, x->keys.n);
    str_add(&head, str_text(&x->keys.s), x->keys.s.n);
    for (int64_t i = 0; i < x->n; i++) {
        const struct tensor_out *t = &x->t[i];
        gguf_put_text(&head, t->theirs, strlen(t->theirs));
        gguf_put_u32(&head, (uint32_t)t->nd);
        for (int d = 0; d < t->nd; d++) gguf_put_u64(&head, (uint64_t)t->n[d]);
        gguf_put_u32(&head, (uint32_t)t->type);
        gguf_put_u64(&head, (uint64_t)t->offset);
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

int gguf_export(struct weights *w, const char *path, const char *name, enum gguf_type type, struct err *e)
{
    struct exporter x = {.w = w};
    struct fs_writer *f = NULL;
    struct str part = {0};
    int rc = weights_model(w, &x.m, e);
    if (!rc) rc = gguf_family_of(&x.family, &x.m, weights_path(w), e);
    if (!rc) {
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
    str_free(&x.keys.s);
    for (int64_t i = 0; i < x.n; i++) xfree(x.t[i].entry);
    xfree(x.t);
    xfree(x.divisors);
    return rc;
}
