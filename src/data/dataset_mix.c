/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset_mix.h"

#include <string.h>

#include "base/mem.h"
#include "remote/remote.h"

/* Its weights times its share of the mix, by steps too. */
static void scale(struct dataset_mix *m, struct dataset_source *s, double share)
{
    struct dataset_point *p = arena_alloc(m->arena, (size_t)(s->n_points + 1) * sizeof *p);
    for (int i = 0; i < s->n_points; i++) p[i] = (struct dataset_point){s->points[i].step, s->points[i].weight * share};
    s->points = p;
    s->weight *= share;
}

static int refuse_texts(const struct dataset_source *s, bool file, struct err *e)
{
    return err_set(e, ERR_REQUEST,
                   "%s: is a %s of Megatron-Energon, whose parts and exclusions are read for a model that sees (vit, "
                   "llava); for a model of texts name its shards, such as {path: "
                   "\"FOLDER/shard-{000..099}.tar\", column: txt}",
                   s->path, file ? "metadataset" : "folder");
}

/* What is counted in samples means pictures there, and texts are packed. */
static int check_leaf(const struct energon_leaf *l, struct err *e)
{
    const struct energon_subset all = ENERGON_ALL, *s = &l->subset;
    const char *what = l->n_refs > 1        ? "join"
                       : l->repetitions > 0 ? "blend_epochized"
                       : s->first != all.first || s->last != all.last || s->from > all.from || s->to < all.to ? "subset"
                                                                                                              : NULL;
    if (!what) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: %s: is read for a model of pictures and classes alone (vit); for texts with pictures folders "
                   "are put together by blend and weight, whole",
                   l->name, what);
}

static int add_source(struct dataset_mix *m, const struct dataset_options *o, int i, struct err *e)
{
    const struct dataset_source *s = &o->sources[i];
    struct energon_mix *mix = &m->mixes[i];
    bool texts = o->images.view.size < 1, file = energon_mix_is(s->path);
    char *shown = remote_hidden(s->path);
    int code = OK;
    if (texts && (file || (!remote_is(s->path) && energon_is(s->path)))) code = refuse_texts(s, file, e);
    if (!code && file) code = energon_mix_read(mix, s->path, o->images.part, e);
    for (int k = 0; k < mix->n && !code && o->pictures.patches; k++) code = check_leaf(&mix->leaf[k], e);
    int n = !file ? 1 : mix->n;
    m->sources = xrealloc(m->sources, (size_t)(m->n + n) * sizeof *m->sources);
    m->about = xrealloc(m->about, (size_t)(m->n + n) * sizeof *m->about);
    for (int k = 0; k < n && !code; k++, m->n++) {
        m->sources[m->n] = *s;
        m->about[m->n] = (struct mix_source){.name = arena_strdup(m->arena, file ? mix->leaf[k].name : shown),
                                             .leaf = file ? &mix->leaf[k] : NULL,
                                             .share = file ? mix->leaf[k].weight : 1,
                                             .of = i};
        if (file) scale(m, &m->sources[m->n], mix->leaf[k].weight);
    }
    xfree(shown);
    return code;
}

int dataset_mix_init(struct dataset_mix *m, const struct dataset_options *o, struct err *e)
{
    int code = OK;
    *m = (struct dataset_mix){.n_options = o->n_sources, .arena = arena_new()};
    m->mixes = xcalloc((size_t)o->n_sources, sizeof *m->mixes);
    for (int i = 0; i < o->n_sources && !code; i++) code = add_source(m, o, i, e);
    return code;
}

void dataset_mix_weigh(struct dataset_mix *m, const int64_t *n_samples)
{
    double *all = xcalloc((size_t)m->n_options, sizeof *all);
    for (int i = 0; i < m->n; i++)
        if (m->about[i].leaf) all[m->about[i].of] += m->about[i].leaf->repetitions * (double)n_samples[i];
    for (int i = 0; i < m->n; i++) {
        const struct mix_source *a = &m->about[i];
        if (!a->leaf || a->leaf->repetitions <= 0) continue;
        m->about[i].share = a->leaf->repetitions * (double)n_samples[i] / all[a->of];
        scale(m, &m->sources[i], m->about[i].share);
    }
    xfree(all);
}

void dataset_mix_fini(struct dataset_mix *m)
{
    for (int i = 0; i < m->n_options; i++) energon_mix_free(&m->mixes[i]);
    xfree(m->mixes);
    xfree(m->sources);
    xfree(m->about);
    if (m->arena) arena_free(m->arena);
    *m = (struct dataset_mix){0};
}
