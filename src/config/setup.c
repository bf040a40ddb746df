/* SPDX-License-Identifier: Apache-2.0 */
/* model.from names a directory in Hugging Face's form: its config.json decides the architecture; what the file leaves
 * open (dropout, sequence length) stays the config's. What of it the config may decide otherwise is from.h's. */
#include "config/setup.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/from.h"
#include "config/start_weights.h"

int setup_weights(struct weights **w, const struct config *c, struct err *e)
{
    const struct config_key *keys = c->from.ignore.items;
    struct hf_ignore ignore = {.n = c->from.ignore.n};
    const char **names = xcalloc((size_t)ignore.n + 1, sizeof *names);
    for (int i = 0; i < ignore.n; i++) names[i] = keys[i].name;
    ignore.keys = names;
    int rc = weights_open_ignoring(w, c->from.dir, &ignore, e);
    xfree(names);
    return rc;
}

/* Without data.tokenizer the model's own, compared with its checksum where it has one; *t stays NULL where it has
 * none. */
static int own_tokenizer(struct tokenizer **t, struct config *c, const struct conf *f, const struct weights *w,
                         struct arena *a, struct err *e)
{
    char *json = NULL;
    size_t n;
    bool given = strcmp(conf_where(f, "data.tokenizer"), "default") != 0;
    if (given && strcmp(c->data.tokenizer, weights_path(w))) return tokenizer_open(t, c->data.tokenizer, e);
    int rc = weights_file(w, "tokenizer.json", &json, &n, e);
    bool has = json != NULL;
    xfree(json);
    if (rc || (!has && !given)) return rc;
    c->data.tokenizer = arena_strdup(a, weights_path(w));
    return source_tokenizer(w, t, e);
}

int setup_no_tokenizer(const struct config *c, const struct conf *f, struct err *e)
{
    static const char *const other[] = {"tokenizer.model", "vocab.json", "merges.txt", "tekken.json", "spiece.model"};
    struct str has = {0};
    if (model_sees(&c->model))
        return conf_error(f, e, "model.family", "sees pictures; this command is for models that read text");
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char *path = fs_join(c->from.dir, other[i]);
        if (fs_exists(path)) str_printf(&has, "%s%s", has.n ? ", " : "; it has ", other[i]);
        xfree(path);
    }
    int rc =
        conf_error(f, e, "data.tokenizer",
                   "model.from, %s, holds no tokenizer.json%s. Name one: a tokenizer.json, or the folder of a model "
                   "with the same tokenizer (in transformers, AutoTokenizer.from_pretrained(...).save_pretrained(...) "
                   "writes one)",
                   c->from.dir, str_text(&has));
    str_free(&has);
    return rc;
}

int setup_model(struct config *c, const struct conf *f, struct arena *a, struct tokenizer **t, struct err *e)
{
    struct weights *w = NULL;
    *t = NULL;
    int rc = c->from.dir ? setup_weights(&w, c, e) : OK;
    if (rc) return err_prefix(e, "%s: model.from", conf_where(f, "model.from"));
    if (w) rc = from_take(c, f, w, e);
    if (rc) {
        weights_close(w);
        return rc;
    }
    if (!model_sees(&c->model)) rc = w ? own_tokenizer(t, c, f, w, a, e) : tokenizer_open(t, c->data.tokenizer, e);
    weights_close(w);
    return rc ? err_prefix(e, "%s: data.tokenizer", conf_where(f, "data.tokenizer")) : OK;
}
