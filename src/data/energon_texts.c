/* SPDX-License-Identifier: Apache-2.0 */
#include "data/energon_texts.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static bool excludes(const void *ctx, int64_t file, const char *key)
{
    return energon_excludes(&((const struct energon *)ctx)->shards[file], key);
}

static int64_t samples(const void *ctx, int64_t file) { return ((const struct energon *)ctx)->shards[file].samples; }

/* Of what is left out; which shards there are, their list says. */
static uint64_t key_of(const struct energon *g)
{
    struct hash64 h;
    hash64_init(&h);
    for (int64_t i = 0; i < g->n; i++) {
        hash64_add(&h, &g->shards[i].n_excluded, sizeof g->shards[i].n_excluded);
        for (int64_t k = 0; k < g->shards[i].n_excluded; k++)
            hash64_add(&h, g->shards[i].excluded[k], strlen(g->shards[i].excluded[k]) + 1);
    }
    return hash64_value(&h);
}

static int check(const struct energon *g, const char *folder, struct err *e)
{
    if (!energon_tells(g->type))
        return err_set(e, ERR_REQUEST,
                       "%s: holds samples of the type %s, and this model trains on pictures with texts (wanted "
                       "CaptioningSample or VQASample)",
                       folder, g->type);
    if (g->weights)
        return err_set(e, ERR_REQUEST,
                       "%s: its field_map names answer_weights, and every answer is trained on alike here; leave that "
                       "field out of dataset.yaml",
                       folder);
    bool captions = strstr(g->type, "Caption") != NULL;
    const char *lacks = !g->image                  ? "image"
                        : captions && !g->caption  ? "caption"
                        : !captions && !g->context ? "context"
                        : !captions && !g->answers ? "answers"
                                                   : NULL;
    if (!lacks) return OK;
    return err_set(e, ERR_REQUEST, "%s: its field_map names no %s; wanted %s", folder, lacks,
                   captions ? "{image: jpg, caption: txt}"
                            : "{image: jpg, context: \"json[question]\", answers: \"json[answers]\"}");
}

int energon_texts_open(struct energon_texts *t, const struct energon_ref *ref, struct err *e)
{
    const struct energon *g = &t->folder;
    *t = (struct energon_texts){0};
    int code = energon_read(&t->folder, ref, e);
    if (!code) code = check(g, ref->folder, e);
    if (code) return code;
    t->shards = xcalloc(to_size(g->n) + 1, sizeof *t->shards);
    for (int64_t i = 0; i < g->n; i++) t->shards[i] = g->shards[i].path;
    t->fields = (struct source_fields){.image = g->image,
                                       .caption = g->caption,
                                       .context = g->context,
                                       .answers = g->answers,
                                       .excludes = excludes,
                                       .samples = samples,
                                       .ctx = g,
                                       .key = key_of(g)};
    return OK;
}

void energon_texts_free(struct energon_texts *t)
{
    if (t->folder.arena) energon_free(&t->folder);
    xfree(t->shards);
    *t = (struct energon_texts){0};
}
