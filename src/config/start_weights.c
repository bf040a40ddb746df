/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter's truth is the group "master" of a checkpoint, or "param" in a Hugging Face directory; both are read as
 * fp32 one parameter at a time. */
#include "config/start_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "hub/peft.h"
#include "state/packed.h"

/* The nearest of their architectures; DeepSeek-V2's router is the plain one. */
static enum hf_family hf_family_of(const struct model_config *m)
{
    bool plain = m->moe.score == SCORE_SOFTMAX && !m->moe.norm_topk && !m->moe.bias && m->mla.rope_pairs;
    return m->family == MODEL_DEEPSEEK && plain ? HF_DEEPSEEK_V2 : model_families[m->family].type;
}

struct hf_model source_hf_model(const struct model_config *m, int32_t bos, int32_t eos)
{
    struct hf_model h = hf_model_default(hf_family_of(m));
    h.model = *m;
    if (m->moe.groups <= 1) h.model.moe.groups = h.model.moe.top_groups = 0;
    if (m->moe.groups <= 1) h.model.moe.group_pairs = false;
    if (m->family == MODEL_MIXTRAL || m->family == MODEL_GPT_OSS) h.model.ffn = m->moe.ffn; /* one number there */
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

/* A model that tells classes goes on from one that told hidden tokens, and one that scores from one that writes: all
 * but the head is theirs. */
static bool has_new_head(const struct param_table *t, const struct weights *w)
{
    struct hf_model h;
    struct err none;
    bool tells = param_find(t, "embed.segment") >= 0 && param_find(t, "head.norm.weight") < 0;
    return tells && !weights_model(w, &h, &none) && model_unmasks(&h.model);
}

static bool is_left(const struct param *p, bool new_head, const struct weights *w)
{
    bool new_score = !strcmp(p->name, "score.weight") && weights_find_param(w, p->name) < 0;
    return new_score || (new_head && !strncmp(p->name, "head.", 5));
}

/* ---- bases in few bits ---- */
struct source_rows {
    struct weights *w;
    int64_t tensor, cols;
};

static int read_rows(void *ctx, int64_t first, int64_t n, float *out, struct err *e)
{
    const struct source_rows *x = ctx;
    struct region box = {.nd = 2, .lo = {first, 0}, .hi = {first + n, x->cols}};
    return weights_read(x->w, x->tensor, &box, DT_F32, out, e);
}

int source_load(struct store *s, const struct kernel_table *k, struct stream *st, struct weights *w, struct err *e)
{
    bool new_head = has_new_head(s->table, w);
    for (int i = 0; i < s->table->n; i++) {
        if (s->table->p[i].adapter) continue; /* begins as it is declared */
        if (is_left(&s->table->p[i], new_head, w)) continue;
        int rc = compare(&s->table->p[i], w, e);
        if (rc) return rc;
    }
    for (int i = 0; i < s->table->n; i++) {
        const struct param *p = &s->table->p[i];
        if (p->adapter) continue;
        if (is_left(p, new_head, w)) continue;
        int64_t at = weights_find_param(w, p->name);
        if (p->packed) {
            int rc = packed_fill(s, st, i, read_rows, &(struct source_rows){w, at, p->n[1]}, e);
            if (rc) return rc;
            continue;
        }
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

/* The box that is held here of a matrix, or a vector, that is there whole. */
static void write_box(struct store *s, const struct kernel_table *k, struct stream *st, int i, const float *whole)
{
    const struct param *p = &s->table->p[i];
    struct array_span x = store_held(s, i, STORE_MASTER);
    int64_t row = param_row_numel(p), at = 0, cols = p->nd > 1 ? p->n[1] : 1;
    if (!x.n) return;
    struct region box = param_rows(p, x.lo / row, x.n / row);
    if (p->nd == 1) box.lo[1] = 0, box.hi[1] = 1;
    float *v = xmalloc(to_size(x.n) * sizeof *v);
    for (int64_t r = box.lo[0]; r < box.hi[0]; r++)
        for (int64_t c = box.lo[1]; c < box.hi[1]; c++) v[at++] = whole[r * cols + c];
    store_write(s, k, st, i, STORE_MASTER, v);
    xfree(v);
}

/* What training added to the lengths of a matrix's rows: theirs, less those of w. */
static int added_lengths(struct weights *w, const char *matrix, int64_t n, const float *theirs, float *out,
                         struct err *e)
{
    int64_t at = weights_find_param(w, matrix);
    if (at < 0) return err_set(e, ERR_REQUEST, "%s: holds no parameter %s: another model", weights_path(w), matrix);
    double *own = xmalloc(to_size(n + 1) * sizeof *own);
    int rc = weights_lengths(w, at, 0, n, own, e);
    for (int64_t r = 0; r < n && !rc; r++) out[r] = (float)((double)theirs[r] - own[r]);
    xfree(own);
    return rc;
}

static int write_lengths(struct store *s, const struct kernel_table *k, struct stream *st, int i, struct weights *w,
                         const char *matrix, const float *theirs, struct err *e)
{
    const struct param *p = &s->table->p[i];
    float *v = xmalloc(to_size(p->n[0] + 1) * sizeof *v);
    int rc = added_lengths(w, matrix, p->n[0], theirs, v, e);
    if (!rc) write_box(s, k, st, i, v);
    xfree(v);
    return rc;
}

static int write_adapter(struct store *s, const struct kernel_table *k, struct stream *st, const struct peft *a,
                         struct weights *w, int64_t *n, struct err *e)
{
    for (int i = 0; i < s->table->n; i++) {
        const struct param *p = &s->table->p[i];
        struct peft_matrix own;
        char matrix[PARAM_NAME + 16];
        if (!p->adapter) continue;
        size_t stem = strlen(p->name) - strlen(".lora_a");
        snprintf(matrix, sizeof matrix, "%.*s.weight", (int)stem, p->name);
        if (!peft_find(a, matrix, &own))
            return err_set(e, ERR_REQUEST, "%s: holds no adapter of %s; name in adapter.targets what it has",
                           peft_path(a), matrix);
        char which = p->name[strlen(p->name) - 1];
        if (which != 'm') write_box(s, k, st, i, which == 'b' ? own.b : own.a);
        int rc = which == 'm' ? write_lengths(s, k, st, i, w, matrix, own.lengths, e) : OK;
        if (rc) return rc;
        *n += which == 'a';
    }
    return OK;
}

/* Of the kind that the config asks for, and beside weights whose lengths are known. */
static int check_lengths(const struct peft *a, const struct adapter *ours, const struct weights *w, struct err *e)
{
    if (peft_lengths(a) != ours->lengths)
        return err_set(e, ERR_REQUEST, "%s: %s lengths of rows (use_dora); choose adapter.kind: %s", peft_path(a),
                       peft_lengths(a) ? "has" : "has no", peft_lengths(a) ? "dora" : "lora");
    if (ours->lengths && !w)
        return err_set(e, ERR_REQUEST,
                       "%s: has the lengths of rows of the weights that it was trained beside; name these in "
                       "model.from",
                       peft_path(a));
    if (ours->lengths && ours->base)
        return err_set(e, ERR_REQUEST,
                       "%s: has the lengths of rows in its own base, and adapter.base: %s has others; choose none",
                       peft_path(a), packing_row(ours->base)->name);
    return OK;
}

int source_adapter(struct store *s, const struct kernel_table *k, struct stream *st, const struct model_config *m,
                   struct weights *w, const char *dir, struct err *e)
{
    struct hf_model h = source_hf_model(m, -1, -1);
    struct peft *a;
    int64_t n = 0;
    double times = model_adapter_times(m->adapter);
    int rc = peft_open(&a, dir, w, &h, e);
    if (rc) return rc;
    if (peft_rank(a) != m->adapter->rank || fabs(peft_times(a) - times) > 1e-12 * times)
        rc = err_set(e, ERR_REQUEST,
                     "%s: of rank %lld, added %.9g times; adapter.rank, adapter.alpha and adapter.stabilised say %lld "
                     "and "
                     "%.9g; choose the same",
                     dir, (long long)peft_rank(a), peft_times(a), (long long)m->adapter->rank, times);
    if (!rc) rc = check_lengths(a, m->adapter, w, e);
    if (!rc) rc = write_adapter(s, k, st, a, w, &n, e);
    if (!rc && n != peft_count(a))
        rc = err_set(e, ERR_REQUEST, "%s: has adapters of %lld matrices, adapter.targets names %lld; choose the same",
                     dir, (long long)peft_count(a), (long long)n);
    peft_close(a);
    return rc;
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
