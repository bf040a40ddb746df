/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_data.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/pack.h"
#include "media/view.h"
#include "remote/remote.h"

static const char *pack_name(const struct config *c, char out[16])
{
    const char *name = PACK_NAMES;
    for (int i = c->data.pack; i > 0; i--) name = strchr(name, '|') + 1;
    snprintf(out, 16, "%.*s", (int)strcspn(name, "|"), name);
    return out;
}

/* A key that packing decides. */
static int imply(const struct config *c, const struct conf *f, const char *key, const char *why, bool *value,
                 struct err *e)
{
    char name[16];
    if (!*value && strcmp(conf_where(f, key), "default") != 0)
        return conf_error(f, e, key, "false, but with data.pack: %s %s; leave this key out", pack_name(c, name), why);
    *value = true;
    return OK;
}

static int check_group(const struct config *c, const struct conf *f, struct err *e)
{
    long long group = c->data.group, global = c->batch.global;
    if (group && c->data.pack == PACK_JOINED)
        return conf_error(f, e, "data.group",
                          "%lld, but samples of joined documents are all of one length; choose data.pack: best_fit or "
                          "padded, or leave this key out",
                          group);
    if (!group || global % group == 0) return OK;
    long long near = group < global ? group : global;
    while (global % near) near--;
    return conf_error(f, e, "data.group", "%lld does not divide batch.global = %lld; choose %lld", group, global, near);
}

static int check_parts(const struct config *c, const struct conf *f, struct err *e)
{
    long long parts = c->data.parts, seq = c->model.seq_len, near = parts < seq ? parts : seq;
    if (parts > 1 && c->data.group)
        return conf_error(f, e, "data.parts",
                          "%lld, but with data.group the samples of a group are of one source; leave one of both keys "
                          "out",
                          parts);
    if (seq % parts == 0) return OK;
    while (seq % near) near--;
    return conf_error(f, e, "data.parts", "%lld does not divide model.seq_len = %lld; choose %lld", parts, seq, near);
}

static int check_weight(const struct config_source *s, const struct conf *f, const char *key, struct err *e)
{
    bool used = !s->weight.n && s->weight.value > 0;
    for (int i = 0; i < s->weight.n; i++) used |= s->weight.p[i].value > 0;
    if (used) return OK;
    char *path = remote_hidden(s->path);
    int code = conf_error(f, e, key, "0%s: %s would never be used; leave it out, or choose a number above 0",
                          s->weight.n ? " at all steps" : "", path);
    xfree(path);
    return code;
}

/* What views of pictures are made of. */
static int check_image(struct config *c, const struct conf *f, struct err *e)
{
    if (!model_sees(&c->model)) return OK;
    long long size = c->model.image_size;
    if (!c->data.image.resize) c->data.image.resize = (size * 8 + 3) / 7;
    if (c->data.image.resize < size)
        return conf_error(f, e, "data.image.resize",
                          "%lld, of which %lld are seen (model.image_size); choose at least that",
                          (long long)c->data.image.resize, size);
    if (c->data.image.scale[0] > c->data.image.scale[1])
        return conf_error(f, e, "data.image.scale", "from %g to %g; wanted the smaller one first",
                          c->data.image.scale[0], c->data.image.scale[1]);
    if (c->data.image.ratio[0] > c->data.image.ratio[1])
        return conf_error(f, e, "data.image.ratio", "from %g to %g; wanted the smaller one first",
                          c->data.image.ratio[0], c->data.image.ratio[1]);
    if (c->model.channels != 1 && c->model.channels != VIEW_CHANNELS && c->data.train.n)
        return conf_error(f, e, "model.channels", "%lld; pictures of files have 1 (gray) or 3",
                          (long long)c->model.channels);
    if (c->data.pack != PACK_JOINED || c->data.group || c->data.fim.rate > 0)
        return conf_error(f, e,
                          c->data.fim.rate > 0 ? "data.fim.rate"
                          : c->data.group      ? "data.group"
                                               : "data.pack",
                          "is of texts, and this model's samples are pictures; leave it out");
    return OK;
}

int config_resolve_data(struct config *c, const struct conf *f, struct err *e)
{
    const struct conf_list *lists[] = {&c->data.train, &c->data.valid};
    int rc = check_image(c, f, e);
    if (!rc) rc = check_group(c, f, e);
    if (!rc) rc = check_parts(c, f, e);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->n && !rc; i++) {
            char key[64];
            snprintf(key, sizeof key, "%s[%d].weight", l ? "data.valid" : "data.train", i);
            rc = check_weight((const struct config_source *)lists[l]->items + i, f, key, e);
        }
    if (rc || c->data.pack == PACK_JOINED) return rc;
    rc = imply(c, f, "data.reset_positions", "every document begins at position 0", &c->data.reset_positions, e);
    if (!rc)
        rc = imply(c, f, "data.mask_boundaries", "nothing is before a document's first token", &c->data.mask_boundaries,
                   e);
    if (!rc && c->data.pack == PACK_BEST_FIT)
        rc = imply(c, f, "model.document_mask", "no document sees another", &c->model.document_mask, e);
    return rc;
}
