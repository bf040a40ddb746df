/* SPDX-License-Identifier: Apache-2.0 */
/* tutti checkpoint import and export: from and to the form of Hugging Face.
 *
 * Neither holds a model: import hands the writer an access function that reads pieces of their files when they are
 * due, export hands the other writer one that reads boxes of ours. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/gguf.h"
#include "hub/peft.h"
#include "hub/weights.h"
#include "cli/cmd_checkpoint.h"

/* -- import ------------------------------------------------------------------------------------------------- */

struct lazy {
    struct weights *w;
    int64_t i;
};

static int read_range(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    const struct lazy *l = ctx;
    struct ckpt_entry t = weights_at(l->w, l->i);
    struct region whole = region_whole(&t.shape);
    return weights_range(l->w, l->i, &whole, offset, bytes, dst, e);
}
static const struct ckpt_access lazy_access = {.to_host = read_range};

static int import_weights(struct weights *w, const char *out, struct err *e)
{
    struct hf_model model;
    int rc = weights_model(w, &model, e);
    if (rc < 0) return rc;
    struct str extra = {0};
    struct json_out o = {.s = &extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &model, weights_dtype(w));
    json_put_string(&o, "imported_from", weights_path(w));
    json_end_object(&o);

    struct ckpt_attachment attachments[HF_BESIDE];
    char *paths[HF_BESIDE];
    int n_attachments = 0;
    for (int k = 0; k < HF_BESIDE; k++) {
        paths[k] = fs_join(weights_path(w), hf_beside[k]);
        if (fs_exists(paths[k]))
            attachments[n_attachments++] = (struct ckpt_attachment){.name = hf_beside[k], .copy_from = paths[k]};
    }
    int64_t n = weights_count(w);
    struct ckpt_tensor *t = xcalloc(to_size(n), sizeof *t);
    struct lazy *lazy = xcalloc(to_size(n), sizeof *lazy);
    for (int64_t i = 0; i < n; i++) {
        struct ckpt_entry x = weights_at(w, i);
        lazy[i] = (struct lazy){.w = w, .i = i};
        t[i] = (struct ckpt_tensor){.group = x.group,
                                    .name = x.name,
                                    .dtype = x.dtype,
                                    .shape = x.shape,
                                    .box = region_whole(&x.shape),
                                    .access = &lazy_access,
                                    .ctx = &lazy[i]};
    }
    struct ckpt_info info = {.extra = extra.p, .attachments = attachments, .n_attachments = n_attachments};
    rc = ckpt_clean(out, e);
    if (rc == OK) rc = ckpt_save(out, &info, t, n, e);
    for (int k = 0; k < HF_BESIDE; k++) xfree(paths[k]);
    xfree(lazy);
    xfree(t);
    str_free(&extra);
    return rc;
}

struct request {
    const char *from, *to, *ignore, *dtype, *format;
    int64_t shard_bytes;
    bool ema, adapter;
};
static const struct cli_option import_options[] = {CLI_IGNORE(struct request, ignore)};
static const struct cli_word import_words[] = {{.name = "HF_DIR", .at = offsetof(struct request, from)},
                                               {.name = "OUT", .at = offsetof(struct request, to)}};
static const struct cli_table import_table = {
    .command = "checkpoint import",
    .usage = "HF_DIR OUT [--ignore KEY,KEY]",
    .about = "A Hugging Face model as a checkpoint of step 0 in directory OUT.\n",
    CLI_OPTIONS(import_options),
    CLI_WORDS(import_words),
};

int checkpoint_import(int argc, char **argv)
{
    struct request q = {0};
    struct err e;
    struct weights *w;
    struct cli_ignore ignore;
    int rc;
    if (!cli_read(&import_table, argc, argv, &q, &rc)) return rc;
    cli_ignore_init(&ignore, q.ignore);
    rc = weights_open_ignoring(&w, q.from, &ignore.list, &e);
    if (!rc && weights_ckpt(w)) {
        rc = err_set(&e, ERR_REQUEST, "%s: is a checkpoint of tutti already; a folder with a config.json was wanted",
                     q.from);
        weights_close(w);
    }
    char *config = fs_join(q.from, "config.json");
    if (rc && !fs_exists(config)) err_prefix(&e, "not a Hugging Face model");
    xfree(config);
    cli_ignore_fini(&ignore);
    if (rc < 0) return cli_fail(&e);
    rc = import_weights(w, q.to, &e);
    if (rc == OK) log_info("%s: %" PRId64 " tensors imported into %s", q.from, weights_count(w), q.to);
    weights_close(w);
    return rc < 0 ? cli_fail(&e) : 0;
}

/* -- export ------------------------------------------------------------------------------------------------- */

static int get_param(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    struct weights *w = ctx;
    return weights_read(w, weights_find_param(w, name), box, as, dst, e);
}

static int get_file(void *ctx, const char *name, char **text, size_t *n, struct err *e)
{
    return weights_file(ctx, name, text, n, e);
}

/* Every parameter of the model is there, with its shape, before the first byte is written. */
static int check_params(const struct weights *w, const struct hf_model *m, struct err *e)
{
    char x[128], y[128];
    for (int64_t k = 0; k < hf_n_params(m); k++) {
        struct hf_param p = hf_param_at(m, k);
        int64_t i = weights_find_param(w, p.name);
        if (i < 0) return err_set(e, ERR_REQUEST, "%s: holds no parameter %s", weights_path(w), p.name);
        struct ckpt_entry t = weights_at(w, i);
        if (!shape_equal(&t.shape, &p.shape))
            return err_set(e, ERR_REQUEST, "%s: %s is %s, the model makes it %s", weights_path(w), p.name,
                           shape_print(x, &t.shape), shape_print(y, &p.shape));
    }
    return OK;
}

static const struct cli_option export_options[] = {
    {"--dtype", "D", CLI_CHOICE, offsetof(struct request, dtype), .choices = "f32|bf16|f16|q8_0",
     .help = "default: what the checkpoint has; q8_0 (8 bits, blocks of 32) is GGUF's"},
    {"--format", "F", CLI_CHOICE, offsetof(struct request, format), .choices = "hf|gguf",
     .help = "gguf: OUT is one file, for llama.cpp and its relatives (default: gguf where OUT ends so, else hf)"},
    {"--shard-bytes", "N", CLI_INT, offsetof(struct request, shard_bytes), .hi = INT64_MAX,
     .help = "no file of weights is larger (default 0: one file)"},
    {"--ema", NULL, CLI_FLAG, offsetof(struct request, ema),
     .help = "the average of weights (optimizer.ema), not the last ones"},
    {"--adapter", NULL, CLI_FLAG, offsetof(struct request, adapter),
     .help = "the adapters alone, as a folder of peft; else they are merged into the weights"},
};
static const struct cli_word export_words[] = {{.name = "CHECKPOINT", .at = offsetof(struct request, from)},
                                               {.name = "OUT", .at = offsetof(struct request, to)}};
static const struct cli_table export_table = {
    .command = "checkpoint export",
    .usage = "CHECKPOINT OUT [--format hf|gguf] [--dtype D] [--shard-bytes N] [--ema] [--adapter]",
    .about = "config.json, safetensors and tokenizer.json into a new directory OUT; or one GGUF file OUT.\n",
    CLI_OPTIONS(export_options),
    CLI_WORDS(export_words),
};

static int export_gguf(struct weights *w, const struct request *q, struct err *e)
{
    static const struct {
        const char *name;
        enum gguf_type type;
    } types[] = {{"f32", GGUF_F32}, {"bf16", GGUF_BF16}, {"q8_0", GGUF_Q8_0}};
    const char *want = q->dtype ? q->dtype : weights_dtype(w) == DT_F32 ? "f32" : "bf16";
    size_t i = 0, n = sizeof types / sizeof *types;
    while (i < n && strcmp(types[i].name, want)) i++;
    if (i == n) return err_set(e, ERR_REQUEST, "--dtype %s: GGUF files are written as f32, bf16 or q8_0", want);
    if (q->shard_bytes) return err_set(e, ERR_REQUEST, "--shard-bytes: a GGUF is one file; leave it out");
    const char *slash = strrchr(q->to, '/');
    return gguf_export(w, q->to, slash ? slash + 1 : q->to, types[i].type, e);
}

/* The form that OUT's name and --format say together: a file called m.gguf is one, and a folder is called otherwise. */
static int form_of(const struct request *q, bool *gguf, struct err *e)
{
    static const char *const files[] = {".safetensors", ".bin", ".pt", ".json"};
    bool named = str_ends(q->to, ".gguf");
    *gguf = q->format ? !strcmp(q->format, "gguf") : named;
    if (named && (!*gguf || q->adapter))
        return err_set(e, ERR_REQUEST,
                       "%s: is the name of a GGUF file, and %s would make it a folder; name a folder, or "
                       "leave %s out",
                       q->to, *gguf ? "--adapter" : "--format hf", *gguf ? "--adapter" : "--format hf");
    for (size_t i = 0; !*gguf && i < sizeof files / sizeof *files; i++)
        if (str_ends(q->to, files[i]))
            return err_set(e, ERR_REQUEST,
                           "%s: is the name of a file, and a folder is written (config.json, weights, "
                           "tokenizer); name a folder, or a file of --format gguf",
                           q->to);
    return OK;
}

int checkpoint_export(int argc, char **argv)
{
    struct request q = {0};
    struct err e;
    struct weights *w;
    struct hf_model model;
    int rc;
    if (!cli_read(&export_table, argc, argv, &q, &rc)) return rc;
    struct hf_export x = {.model = &model, .get = get_param, .file = get_file, .shard_bytes = q.shard_bytes};
    bool gguf, q8 = q.dtype && !strcmp(q.dtype, "q8_0");
    if (form_of(&q, &gguf, &e)) return cli_fail(&e);
    if (weights_open(&w, q.from, &e) < 0) return cli_fail(&e);
    rc = weights_model(w, &model, &e);
    if (rc == OK && q.ema) rc = weights_average(w, &e);
    if (rc == OK && !q.adapter) rc = weights_merge(w, &e);
    if (rc == OK && !q.adapter) rc = check_params(w, &model, &e);
    if (rc == OK && q.adapter && (gguf || q8))
        rc = err_set(&e, ERR_REQUEST,
                     "--adapter: a folder of peft has safetensors of f32, bf16 or f16; leave out --format and q8_0");
    if (rc == OK && model.model.scores && (gguf || q.adapter))
        rc = err_set(&e, ERR_REQUEST, "%s: is a reward model, whose score has no place in %s; leave out %s",
                     weights_path(w), gguf ? "a GGUF file" : "a folder of adapters alone",
                     gguf ? "--format gguf" : "--adapter");
    if (rc == OK && q.adapter) {
        x.dtype = q.dtype ? cli_dtype(q.dtype) : DT_F32;
        rc = peft_export(q.to, w, x.dtype, &e);
    }
    if (rc == OK && gguf) rc = export_gguf(w, &q, &e);
    if (rc == OK && !gguf && q8)
        rc = err_set(&e, ERR_REQUEST, "--dtype q8_0: is a type of GGUF files; give --format gguf, or f32, bf16, f16");
    if (rc == OK && !gguf && !q.adapter) {
        x.ctx = w;
        x.dtype = q.dtype ? cli_dtype(q.dtype) : weights_dtype(w);
        rc = hf_export(q.to, &x, &e);
    }
    if (rc == OK) log_info("%s: exported to %s as %s", weights_path(w), q.to, gguf ? "gguf" : dtype_name(x.dtype));
    weights_close(w);
    return rc < 0 ? cli_fail(&e) : 0;
}
