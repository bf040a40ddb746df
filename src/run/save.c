/* One descriptor per parameter and group, pointing straight into the buffers: nothing is copied before the writer has
 * it. Loading writes the same places and derives the compute copy. */
#include "run/save.h"

#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "run/source.h"

static const char *const moment_name[STORE_MAX_MOMENTS] = {"m", "v"};

static int64_t describe(const struct engine *g, struct ckpt_tensor **out)
{
    const struct store *s = &g->store;
    int groups = 1 + s->n_moments;
    struct ckpt_tensor *t = xcalloc((size_t)(g->params.n * groups) + 1, sizeof *t);
    int64_t n = 0;
    for (int what = 0; what < groups; what++) {
        const struct buffer *b = what ? &s->moment[what - 1] : store_master(s);
        for (int i = 0; i < g->params.n; i++) {
            const struct param *p = &g->params.p[i];
            struct ckpt_tensor *x = &t[n++];
            x->group = what ? moment_name[what - 1] : "master";
            x->name = p->name;
            x->dtype = DT_F32;
            x->shape = shape_of(p->nd, p->n);
            x->box = region_whole(&x->shape);
            x->p = (float *)b->p + p->offset;
        }
    }
    *out = t;
    return n;
}

static void describe_model(const struct engine *g, const struct save_info *s, struct str *extra)
{
    struct hf_model h = source_hf_model(&g->cfg.model, s->bos, s->eos);
    struct json_out o = {.s = extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &h, g->cfg.dtype);
    json_end_object(&o);
}

int save_checkpoint(const struct engine *g, const struct save_info *s, struct err *e)
{
    struct ckpt_attachment files[3] = {{.name = "config.yaml", .p = s->config_text, .bytes = strlen(s->config_text)}};
    char *paths[2] = {NULL, NULL};
    static const char *const names[2] = {"tokenizer.json", "tokenizer_config.json"};
    int n_files = 1;
    for (int i = 0; s->tokenizer_dir && i < 2; i++) {
        paths[i] = fs_join(s->tokenizer_dir, names[i]);
        if (fs_exists(paths[i])) files[n_files++] = (struct ckpt_attachment){.name = names[i], .copy_from = paths[i]};
    }
    struct str extra = {0};
    describe_model(g, s, &extra);
    struct ckpt_tensor *t;
    int64_t n = describe(g, &t);
    struct ckpt_info info = {
        .step = s->step,
        .tokens = s->tokens,
        .seed = (int64_t)g->cfg.seed,
        .extra = str_text(&extra),
        .attachments = files,
        .n_attachments = n_files,
        .keep = to_int(s->keep),
    };
    int rc = ckpt_save(s->root, &info, t, n, e);
    xfree(t);
    xfree(paths[0]);
    xfree(paths[1]);
    str_free(&extra);
    return rc;
}

int save_resume(struct engine *g, const char *path, int64_t *step, int64_t *tokens, struct err *e)
{
    struct ckpt *c;
    int rc = ckpt_open(&c, path, e);
    if (rc) return err_prefix(e, "cannot resume");
    struct ckpt_tensor *t;
    int64_t n = describe(g, &t);
    rc = ckpt_check(c, t, n, e); /* also that it holds nothing more: a model of fewer layers is another model */
    if (!rc) rc = ckpt_load(c, t, n, e);
    if (!rc && g->store.dtype != DT_F32)
        g->kernels.flat->cast(g->dev->team, g->store.param.p, g->store.dtype, g->store.master.p, DT_F32, g->params.numel);
    *step = ckpt_step(c);
    *tokens = ckpt_tokens(c);
    if (rc) err_prefix(e, "cannot resume");
    xfree(t);
    ckpt_close(c);
    return rc;
}
