/* SPDX-License-Identifier: Apache-2.0 */
/* companions.c: files are copied byte for byte: a chat template, or a number of thirty digits, is not ours to write
 * again. Only where the tokenizer comes alone is its tokenizer_config.json of tutti's making, to say which token ends a
 * text.
 */
#include "config/companions.h"

#include <string.h>

#include "base/fs.h"
#include "base/mem.h"

enum { FILE_LIMIT = 256 << 20 };

/* The folder that the tokenizer was read from; NULL: none. xfree it. */
static char *folder_of(const char *tokenizer)
{
    if (!strcmp(tokenizer, "byte")) return NULL;
    if (fs_is_dir(tokenizer)) return xstrdup(tokenizer);
    const char *slash = strrchr(tokenizer, '/');
    return slash ? xstrndup(tokenizer, (size_t)(slash - tokenizer) + 1) : xstrdup(".");
}

static bool is_of_generation(const char *name) { return !strcmp(name, "generation_config.json"); }

/* Copies from/name, or removes what is in its place where there is none. */
static int copy(const char *from, const char *dir, const char *name, struct err *e)
{
    char *source = from ? fs_join(from, name) : NULL, *to = fs_join(dir, name), *text = NULL;
    size_t n;
    int rc = OK;
    if (source && fs_exists(source)) {
        rc = fs_read_all(source, FILE_LIMIT, &text, &n, e);
        if (!rc) rc = fs_write_atomic(to, text, n, e);
    } else {
        rc = fs_remove_tree(to, e);
    }
    xfree(text);
    xfree(source);
    xfree(to);
    return rc;
}

int companions_keep(const struct tokenizer *t, const struct config *c, const char *dir, struct err *e)
{
    char *from = folder_of(c->data.tokenizer), *config = from ? fs_join(from, "tokenizer_config.json") : NULL;
    bool whole = config && fs_exists(config);
    int rc = t ? tokenizer_save(t, dir, e) : OK;
    if (!t) { /* nothing is read */
        xfree(from);
        xfree(config);
        return fs_remove_tree(dir, e);
    }
    for (int i = 1; !rc && i < HF_BESIDE; i++) {
        bool generation = is_of_generation(hf_beside[i]);
        const char *source = generation ? c->from.dir : whole ? from : NULL;
        if (whole || generation || strcmp(hf_beside[i], "tokenizer_config.json"))
            rc = copy(source, dir, hf_beside[i], e);
    }
    xfree(config);
    xfree(from);
    return rc;
}

void companions_ends(const struct config *c, struct hf_model *h)
{
    bool shared = false;
    if (c && model_pairs(&h->model)) h->start = c->data.spans.start;
    if (c && c->from.dir) h->pad = c->from.pad;
    for (int i = 0; c && c->from.dir && i < c->from.n_eos; i++) shared |= h->n_eos && c->from.eos[i] == h->eos[0];
    if (!shared) return;
    h->n_eos = c->from.n_eos;
    for (int i = 0; i < h->n_eos; i++) h->eos[i] = c->from.eos[i];
    if (h->bos < 0) h->bos = c->from.bos;
}
