/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor of theirs is called base_model.model.NAME.lora_A.weight, NAME being their matrix's without .weight; A is
 * [r, K] and B [N, r] as here, also for GPT-2, whose matrices they keep the other way round. A matrix of theirs that is
 * several of ours (GPT-2's c_attn) has one A for all of them, which is another model than one for each: refused.
 * Lengths (DoRA) are NAME.lora_magnitude_vector [N], whole ones; ours are what is added to those of W. */
#include "hub/peft.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/convert.h"
#include "hub/peft_keys.h"
#include "checkpoint/safetensors.h"

enum { CONFIG_LIMIT = 16 << 20, NAME = 192 };

struct pair {
    char name[80]; /* of the matrix, ours */
    float *a, *b, *lengths;
};
struct peft {
    char *dir;
    int64_t rank;
    double alpha, times;
    bool lengths;
    struct pair *pair;
    int64_t n;
};

const char *peft_path(const struct peft *p) { return p->dir; }
int64_t peft_rank(const struct peft *p) { return p->rank; }
double peft_times(const struct peft *p) { return p->times; }
int64_t peft_count(const struct peft *p) { return p->n; }

bool peft_lengths(const struct peft *p) { return p->lengths; }

bool peft_find(const struct peft *p, const char *matrix, struct peft_matrix *out)
{
    for (int64_t i = 0; i < p->n; i++)
        if (!strcmp(p->pair[i].name, matrix)) {
            *out = (struct peft_matrix){p->pair[i].a, p->pair[i].b, p->pair[i].lengths};
            return true;
        }
    return false;
}

void peft_close(struct peft *p)
{
    for (int64_t i = 0; p && i < p->n; i++) {
        xfree(p->pair[i].a);
        xfree(p->pair[i].b);
        xfree(p->pair[i].lengths);
    }
    if (p) xfree(p->pair), xfree(p->dir);
    xfree(p);
}

/* ---- adapter_config.json ---- */
static int read_config(struct peft *p, const struct json *c, const char *path, struct err *e)
{
    const char *kind;
    int rc = json_need_string(c, "peft_type", &kind, path, e);
    if (!rc && strcmp(kind, "LORA"))
        return err_set(e, ERR_REQUEST, "%s: peft_type: %.40s; tutti reads LORA", path, kind);
    if (!rc) rc = json_need_int(c, "r", 1, 1 << 20, &p->rank, path, e);
    if (rc) return rc;
    rc = peft_keys_check(c, path, e);
    if (rc) return rc;
    if (json_real(json_get(c, "lora_dropout"), 0) != 0)
        log_warn("%s: lora_dropout: nothing is dropped in front of adapters here; training goes on without it", path);
    p->alpha = json_real(json_get(c, "lora_alpha"), NAN);
    if (!(p->alpha > 0 && p->alpha < 1e9))
        return err_set(e, ERR_REQUEST, "%s: lora_alpha: wanted a number above 0", path);
    double r = (double)p->rank;
    p->lengths = json_bool(json_get(c, "use_dora"), false);
    p->times = p->alpha / (json_bool(json_get(c, "use_rslora"), false) ? sqrt(r) : r);
    return OK;
}

/* ---- names ---- */
enum part { PART_A, PART_B, PART_LENGTHS };
static const char *const their_end[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};

/* Theirs, of a part of parameter q; false: it is no matrix with a name of its own. */
static bool their_name(const struct hf_model *m, const struct hf_param *q, enum part which, char out[NAME])
{
    size_t n = strlen(q->theirs), end = strlen(".weight");
    if (q->shape.nd != 2 || n <= end || strcmp(q->theirs + n - end, ".weight")) return false;
    if (!strncmp(q->name, "embed.", 6)) return false;
    snprintf(out, NAME, "base_model.model.%s%.*s.%s", q->prefixed ? hf_prefix(m->family) : "", (int)(n - end),
             q->theirs, their_end[which]);
    return true;
}

static bool is_part(const struct hf_param *q)
{
    int64_t outs = q->transposed ? q->their_shape.n[1] : q->their_shape.n[0];
    return outs != q->shape.n[0];
}

/* ---- tensors ---- */
/* cols 0: a vector. */
static int read_one(struct safetensors *s, const struct safetensors_entry *t, int64_t rows, int64_t cols, float **out,
                    struct err *e)
{
    const struct shape want = cols ? (struct shape){.nd = 2, .n = {rows, cols}} : (struct shape){.nd = 1, .n = {rows}};
    const char *path = safetensors_file(s, t->file);
    char text[128], wanted[128];
    int64_t n = shape_numel(&want);
    if (t->dtype < 0 || !dtype_info((enum dtype)t->dtype)->is_float)
        return err_set(e, ERR_REQUEST, "%s: %.100s: %.20s; F32, BF16 or F16 is wanted", path, t->name, t->dtype_text);
    if (!shape_equal(&t->shape, &want))
        return err_set(e, ERR_REQUEST,
                       "%s: %.100s is %s, and this model and adapter_config.json's r make it %s: an adapter of another "
                       "base",
                       path, t->name, shape_print(text, &t->shape), shape_print(wanted, &want));
    void *bytes = xmalloc(t->bytes + 1);
    int rc = safetensors_read(s, t, 0, t->bytes, bytes, e);
    if (!rc) {
        *out = xmalloc(to_size(n) * sizeof **out + 1);
        convert(*out, DT_F32, bytes, (enum dtype)t->dtype, n);
    }
    xfree(bytes);
    return rc;
}

static int read_pair(struct peft *p, struct safetensors *s, const struct hf_model *m, const struct hf_param *q,
                     bool *used, struct err *e)
{
    char name[3][NAME];
    const struct safetensors_entry *t[3];
    int want = p->lengths ? 3 : 2, n = 0, rc = OK;
    for (int k = 0; k < want; k++) {
        if (!their_name(m, q, (enum part)k, name[k])) return OK;
        t[k] = safetensors_find(s, name[k]);
        n += t[k] != NULL;
    }
    if (!n) return OK;
    for (int k = 0; k < want; k++)
        if (!t[k]) return err_set(e, ERR_REQUEST, "%s: %s is missing beside its other half", p->dir, name[k]);
    if (is_part(q))
        return err_set(e, ERR_REQUEST,
                       "%s: %s: one adapter for several matrices of tutti (%s and its neighbours), which have one each",
                       p->dir, name[PART_A], q->name);
    struct pair *x = &p->pair[p->n++];
    snprintf(x->name, sizeof x->name, "%s", q->name);
    for (int k = 0; k < want; k++) used[t[k] - safetensors_at(s, 0)] = true;
    rc = read_one(s, t[PART_A], p->rank, q->shape.n[1], &x->a, e);
    if (!rc) rc = read_one(s, t[PART_B], q->shape.n[0], p->rank, &x->b, e);
    return rc || !p->lengths ? rc : read_one(s, t[PART_LENGTHS], q->shape.n[0], 0, &x->lengths, e);
}

/* ---- the base's own ---- */
/* peft saves the matrix beneath an adapter of the output matrix beside it (lm_head.base_layer.weight), and tables of
 * tokens where these grew. Whether it is the base's or was trained is not said, so they are compared. */
static bool is_of_base(const struct hf_model *m, const struct hf_param *q, const char *name)
{
    static const char before[] = "base_model.model.", layer[] = ".base_layer.";
    char own[NAME];
    if (!str_starts(name, before)) return false;
    snprintf(own, sizeof own, "%s", name + strlen(before));
    char *inner = strstr(own, layer);
    if (inner) memmove(inner, inner + strlen(layer) - 1, strlen(inner + strlen(layer) - 1) + 1);
    const char *prefix = q->prefixed ? hf_prefix(m->family) : "";
    return str_starts(own, prefix) && !strcmp(own + strlen(prefix), q->theirs) && !is_part(q) && !q->transposed &&
           q->step == 1 && !q->first;
}

/* Rows of ours, as the file's type has them, against the file's. */
static int compare_rows(struct weights *w, int64_t i, struct safetensors *s, const struct safetensors_entry *t,
                        int64_t row, int64_t n, bool *same, struct err *e)
{
    struct shape shape = t->shape;
    struct region box = region_whole(&shape);
    box.lo[0] = row;
    box.hi[0] = row + n;
    size_t bytes = to_size(region_volume(&box)) * dtype_bytes((enum dtype)t->dtype), each = bytes / to_size(n);
    void *ours = xmalloc(bytes + 1), *theirs = xmalloc(bytes + 1);
    int rc = weights_read(w, i, &box, (enum dtype)t->dtype, ours, e);
    if (!rc) rc = safetensors_read(s, t, row * (int64_t)each, bytes, theirs, e);
    *same = !rc && !memcmp(ours, theirs, bytes);
    xfree(ours);
    xfree(theirs);
    return rc;
}

static int compare_base(const struct peft *p, struct weights *w, const struct hf_param *q, struct safetensors *s,
                        const struct safetensors_entry *t, struct err *e)
{
    int64_t i = w ? weights_find_param(w, q->name) : -1, rows = t->shape.nd ? t->shape.n[0] : 1;
    if (i < 0)
        return err_set(e, ERR_REQUEST,
                       "%s: holds %.120s, a matrix of the base itself, and there is no base to compare it with; name "
                       "its "
                       "weights in model.from",
                       p->dir, t->name);
    bool same = t->dtype >= 0 && dtype_info((enum dtype)t->dtype)->is_float && shape_equal(&t->shape, &q->shape);
    for (int64_t row = 0; row < rows && same; row += 64) {
        int rc = compare_rows(w, i, s, t, row, rows - row < 64 ? rows - row : 64, &same, e);
        if (rc) return rc;
    }
    if (same) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: %.120s is another than %s of %s: peft puts it in the place of the base's own, so the adapter "
                   "is "
                   "one of another base, or that matrix was trained, too; merge it in peft (merge_and_unload, "
                   "save_pretrained) and name that model instead",
                   p->dir, t->name, q->name, weights_path(w));
}

/* What a tensor without a place is, if that is known. */
static const char *known_as(const struct hf_model *m, const char *name)
{
    if (strstr(name, ".lora_embedding_"))
        return "an adapter of a table of tokens, which tutti does not compute; leave it out of target_modules, or "
               "merge "
               "it in peft (merge_and_unload, save_pretrained) and name that model instead";
    if (strstr(name, ".experts.") && (strstr(name, ".lora_A.") || strstr(name, ".lora_B.")))
        return "an adapter of all experts in one tensor (target_parameters in peft), which tutti has one for each of; "
               "merge it in peft (merge_and_unload, save_pretrained) and name that model instead";
    if (strstr(name, "lm_head.") && m->model.tie_embeddings)
        return "an adapter of the output matrix, which is the embedding in this model (tie_word_embeddings), and then "
               "tutti computes none; merge it in peft (merge_and_unload, save_pretrained) and name that model instead";
    return "has no matrix in this model: an adapter of another base";
}

/* A tensor that is no adapter's: the base's own, or refused. */
static int check_other(const struct peft *p, struct weights *w, struct safetensors *s, const struct hf_model *m,
                       const struct safetensors_entry *t, struct err *e)
{
    for (int64_t i = 0, n = hf_n_params(m); i < n; i++) {
        struct hf_param q = hf_param_at(m, i);
        if (is_of_base(m, &q, t->name)) return compare_base(p, w, &q, s, t, e);
    }
    return err_set(e, ERR_REQUEST, "%s: %.120s %s", p->dir, t->name, known_as(m, t->name));
}

static int read_tensors(struct peft *p, struct weights *w, struct safetensors *s, const struct hf_model *m,
                        struct err *e)
{
    int64_t n = hf_n_params(m), files = safetensors_count(s);
    bool *used = xcalloc(to_size(files) + 1, sizeof *used);
    int rc = OK;
    p->pair = xcalloc(to_size(n) + 1, sizeof *p->pair);
    for (int64_t i = 0; i < n && !rc; i++) {
        struct hf_param q = hf_param_at(m, i);
        rc = read_pair(p, s, m, &q, used, e);
    }
    for (int64_t i = 0; i < files && !rc; i++)
        if (!used[i]) rc = check_other(p, w, s, m, safetensors_at(s, i), e);
    if (!rc && !p->n) rc = err_set(e, ERR_REQUEST, "%s: holds no adapter", p->dir);
    xfree(used);
    return rc;
}

static int make(struct peft **out, const char *dir, const struct json *config, const char *path, struct safetensors *s,
                struct weights *w, const struct hf_model *m, struct err *e)
{
    struct peft *p = xcalloc(1, sizeof *p);
    p->dir = xstrdup(dir);
    int rc = read_config(p, config, path, e);
    if (!rc) rc = read_tensors(p, w, s, m, e);
    *out = rc ? NULL : p;
    if (rc) peft_close(p);
    return rc;
}

int peft_open(struct peft **out, const char *dir, struct weights *w, const struct hf_model *m, struct err *e)
{
    struct json *config = NULL;
    struct safetensors *s = NULL;
    char *path = fs_join(dir, "adapter_config.json"), *tensors = fs_join(dir, "adapter_model.safetensors");
    *out = NULL;
    int rc = fs_exists(path) ? json_parse_published_file(&config, path, CONFIG_LIMIT, e)
                             : err_set(e, ERR_REQUEST,
                                       "%s: holds no adapter_config.json; a folder that peft saved was wanted", dir);
    if (!rc) rc = safetensors_open(&s, tensors, e);
    if (!rc) rc = make(out, dir, config, path, s, w, m, e);
    safetensors_close(s);
    json_free(config);
    xfree(path);
    xfree(tensors);
    return rc;
}

int peft_open_memory(struct peft **out, const char *config, size_t n_config, const void *tensors, size_t n_tensors,
                     const char *what, const struct hf_model *m, struct err *e)
{
    struct json *root = NULL;
    struct safetensors *s = NULL;
    *out = NULL;
    int rc = json_parse_published(&root, config, n_config, what, e);
    if (!rc) rc = safetensors_open_memory(&s, tensors, n_tensors, what, e);
    if (!rc) rc = make(out, what, root, what, s, NULL, m, e);
    safetensors_close(s);
    json_free(root);
    return rc;
}

/* ---- writing ---- */
struct writing {
    struct weights *w;
    int64_t *tensor; /* of the checkpoint, by tensor of theirs */
    int64_t *matrix; /* of lengths: of which matrix of the checkpoint; else -1 */
    enum dtype dtype;
};

/* Of rows [row, row + n) of a matrix, with what was added to them. */
static int read_lengths(const struct writing *x, int64_t i, int64_t row, int64_t n, void *dst, struct err *e)
{
    struct region part = {.nd = 1, .lo = {row}, .hi = {row + n}};
    double *w = xmalloc(to_size(2 * n + 1) * sizeof *w), *m = w + n;
    int rc = weights_lengths(x->w, x->matrix[i], row, n, w, e);
    if (!rc) rc = weights_read(x->w, x->tensor[i], &part, DT_F64, m, e);
    for (int64_t r = 0; r < n && !rc; r++) m[r] += w[r];
    if (!rc) convert(dst, x->dtype, m, DT_F64, n);
    xfree(w);
    return rc;
}

static int source(void *ctx, int64_t i, int64_t row, int64_t n_rows, void *dst, struct err *e)
{
    const struct writing *x = ctx;
    struct ckpt_entry t = weights_at(x->w, x->tensor[i]);
    if (x->matrix[i] >= 0) return read_lengths(x, i, row, n_rows, dst, e);
    struct region box = {.nd = 2, .lo = {row, 0}, .hi = {row + n_rows, t.shape.n[1]}};
    return weights_read(x->w, x->tensor[i], &box, x->dtype, dst, e);
}

/* Ours of a part of a matrix; -1: it has none. */
static int64_t ours_of(const struct weights *w, const struct hf_param *q, enum part which)
{
    char name[128];
    size_t n = strlen(q->name), end = strlen(".weight");
    if (n <= end || strcmp(q->name + n - end, ".weight")) return -1;
    snprintf(name, sizeof name, "%.*s.lora_%c", (int)(n - end), q->name, "abm"[which]);
    return weights_find_param(w, name);
}

/* The last word of their matrix: q_proj of ...self_attn.q_proj.lora_A.weight. */
static void module_of(const char *name, char out[NAME])
{
    snprintf(out, NAME, "%.*s", (int)(strlen(name) - strlen(".lora_A.weight")), name);
    const char *dot = strrchr(out, '.');
    if (dot) memmove(out, dot + 1, strlen(dot + 1) + 1);
}

/* Each once; `each` names are of one matrix. */
static void put_modules(struct json_out *o, char (*names)[NAME], int64_t n, int each)
{
    char word[NAME], before[NAME];
    json_begin_array(o, "target_modules");
    for (int64_t i = 0; i < n; i += each) {
        bool again = false;
        module_of(names[i], word);
        for (int64_t k = 0; k < i && !again; k += each) {
            module_of(names[k], before);
            again = !strcmp(word, before);
        }
        if (!again) json_put_string(o, NULL, word);
    }
    json_end_array(o);
}

static int write_config(const char *dir, const struct json *ours, char (*names)[NAME], int64_t n, int each,
                        bool transposed, struct err *e)
{
    struct str s = {0};
    struct json_out o = {.s = &s, .pretty = true};
    char *path = fs_join(dir, "adapter_config.json");
    json_begin_object(&o, NULL);
    json_put_string(&o, "peft_type", "LORA");
    json_put_string(&o, "task_type", "CAUSAL_LM");
    json_put_null(&o, "base_model_name_or_path");
    json_put_int(&o, "r", json_int(json_get(ours, "rank"), 0));
    json_put_real(&o, "lora_alpha", json_real(json_get(ours, "alpha"), 0));
    json_put_bool(&o, "use_rslora", json_bool(json_get(ours, "stabilised"), false));
    json_put_bool(&o, "use_dora", each > 2);
    json_put_int(&o, "lora_dropout", 0);
    json_put_string(&o, "bias", "none");
    json_put_bool(&o, "fan_in_fan_out", transposed);
    json_put_bool(&o, "inference_mode", true);
    put_modules(&o, names, n, each);
    json_end_object(&o);
    str_putc(&s, '\n');
    int rc = fs_write_atomic(path, str_text(&s), s.n, e);
    xfree(path);
    str_free(&s);
    return rc;
}

static int claim(const char *dir, struct err *e)
{
    char **names;
    int n;
    if (!fs_exists(dir)) return fs_mkdirs(dir, e);
    int rc = fs_list(dir, &names, &n, e);
    if (rc < 0) return rc;
    fs_list_free(names, n);
    return n ? err_set(e, ERR_REQUEST, "%s: is not empty; export into a new directory", dir) : OK;
}

int peft_export(const char *dir, const struct weights *w, enum dtype dtype, struct err *e)
{
    struct hf_model m;
    const struct json *extra = weights_ckpt(w) ? ckpt_extra(weights_ckpt(w)) : NULL,
                      *ours = extra ? json_get(extra, "adapter") : NULL;
    if (!ours)
        return err_set(e, ERR_REQUEST, "%s: holds no adapter; it was not trained with adapter.kind: lora or dora",
                       weights_path(w));
    int rc = weights_model(w, &m, e);
    if (rc) return rc;
    int each = !strcmp(json_string(json_get(ours, "kind"), NULL, ""), "dora") ? 3 : 2;
    int64_t all = hf_n_params(&m), n = 0;
    char(*names)[NAME] = xcalloc(to_size(each * all) + 1, sizeof *names);
    struct safetensors_spec *spec = xcalloc(to_size(each * all) + 1, sizeof *spec);
    struct writing x = {.w = (struct weights *)(uintptr_t)w,
                        .tensor = xcalloc(to_size(each * all) + 1, sizeof *x.tensor),
                        .matrix = xcalloc(to_size(each * all) + 1, sizeof *x.matrix),
                        .dtype = dtype};
    bool transposed = false;
    for (int64_t i = 0; i < all && !rc; i++) {
        struct hf_param q = hf_param_at(&m, i);
        for (int k = 0; k < each && ours_of(w, &q, PART_A) >= 0 && !rc; k++, n++) {
            x.tensor[n] = ours_of(w, &q, (enum part)k);
            x.matrix[n] = k == PART_LENGTHS ? weights_find_param(w, q.name) : -1;
            if (x.tensor[n] < 0 || is_part(&q) || !their_name(&m, &q, (enum part)k, names[n]))
                rc = err_set(e, ERR_REQUEST, "%s: peft has no name for an adapter of %s alone; export it merged",
                             weights_path(w), q.name);
            else spec[n] = (struct safetensors_spec){names[n], dtype, weights_at(w, x.tensor[n]).shape};
            transposed |= q.transposed;
        }
    }
    if (!rc) rc = claim(dir, e);
    if (!rc) rc = safetensors_write_set(dir, "adapter_model", spec, n, INT64_MAX, source, &x, e);
    if (!rc) rc = write_config(dir, ours, names, n, each, transposed, e);
    xfree(names);
    xfree(spec);
    xfree(x.tensor);
    xfree(x.matrix);
    return rc;
}
