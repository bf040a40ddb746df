/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/key.h"
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
        return conf_error(f, e, key, "false, but with data.pack: %s %s; leave it out", pack_name(c, name), why);
    *value = true;
    return OK;
}

static int check_group(const struct config *c, const struct conf *f, struct err *e)
{
    long long group = c->data.group, global = c->batch.global;
    if (group && c->data.pack == PACK_JOINED)
        return conf_error(f, e, "data.group",
                          "%lld, but samples of joined documents are all of one length; choose data.pack: "
                          "best_fit, data.pack: padded, or leave it out",
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
                          "%lld, but with data.group the samples of a group are of one source; choose 1, or "
                          "data.group: 0",
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

static bool is_given(const struct conf *f, const char *key) { return strcmp(conf_where(f, key), "default") != 0; }

/* Samples of texts with pictures: whole documents, none of whose pictures is cut, with room for those that fit. */
static int check_looks(struct config *c, const struct conf *f, struct err *e)
{
    int64_t fits = c->model.seq_len / vision_patches(&c->model.vision);
    bool all = c->model.vision.images == fits;
    if (!is_given(f, "data.pack")) c->data.pack = all ? PACK_BEST_FIT : PACK_PADDED;
    if (c->data.pack == PACK_JOINED)
        return conf_error(f, e, "data.pack",
                          "joined texts are cut anywhere, also in pictures; choose best_fit or padded");
    if (config_packs(c) && !all)
        return conf_error(f, e, "model.vision.images",
                          "%lld, but packed samples may hold as many pictures as fit into model.seq_len, %lld; choose "
                          "that, or data.pack: padded",
                          (long long)c->model.vision.images, (long long)fits);
    if (c->data.parts > 1) return conf_error(f, e, "data.parts", "samples with pictures are of one part; leave it out");
    if (c->data.fim.rate > 0)
        return conf_error(f, e, "data.fim.rate", "rearranges texts, and pictures are in them; leave it out");
    return OK;
}

/* What views of pictures are made of. */
static int check_image(struct config *c, const struct conf *f, struct err *e)
{
    bool looks = model_looks(&c->model);
    if (!model_sees(&c->model) && !looks) return OK;
    long long size = looks ? c->model.vision.image_size : c->model.image_size;
    long long channels = looks ? c->model.vision.channels : c->model.channels;
    if (looks && !is_given(f, "data.image.crop")) c->data.image.crop = CROP_CENTER; /* texts tell of what they show */
    if (!c->data.image.resize) c->data.image.resize = looks ? size : (size * 8 + 3) / 7;
    if (c->data.image.resize < size)
        return conf_error(f, e, "data.image.resize",
                          "%lld, of which more are seen (model.%simage_size); choose at least %lld",
                          (long long)c->data.image.resize, looks ? "vision." : "", size);
    if (c->data.image.scale[0] > c->data.image.scale[1])
        return conf_error(f, e, "data.image.scale", "from %g to %g; wanted the smaller one first",
                          c->data.image.scale[0], c->data.image.scale[1]);
    if (c->data.image.ratio[0] > c->data.image.ratio[1])
        return conf_error(f, e, "data.image.ratio", "from %g to %g; wanted the smaller one first",
                          c->data.image.ratio[0], c->data.image.ratio[1]);
    if (channels != 1 && channels != VIEW_CHANNELS && c->data.train.n)
        return conf_error(f, e, looks ? "model.vision.channels" : "model.channels",
                          "%lld; pictures of files have 1 (gray) or 3", channels);
    if (looks) return check_looks(c, f, e);
    if (c->data.pack != PACK_JOINED || c->data.group || c->data.fim.rate > 0)
        return conf_error(f, e,
                          c->data.fim.rate > 0 ? "data.fim.rate"
                          : c->data.group      ? "data.group"
                                               : "data.pack",
                          "is of texts, and this model's samples are pictures; leave it out");
    return OK;
}

/* Given, and not as it is anyway: a config that the program printed has every key. */
static bool is_changed(struct config *c, const struct conf *f, const char *key)
{
    struct config plain;
    struct arena *a = arena_new();
    const struct conf_row *r = key_row(key);
    const void *v = key_value(r, c);
    (void)conf_new(config_rows, &plain, a);
    bool changed = key_given(f, r, v) && !key_same(r, v, key_value(r, &plain));
    arena_free(a);
    return changed;
}

/* An encoder of text sees what is behind a place: padding must not be among it. */
static int check_encoder(struct config *c, const struct conf *f, struct err *e)
{
    bool tells = !model_sees(&c->model) && model_tells(&c->model);
    if (!model_encodes(&c->model)) return OK;
    if (c->data.mlm.mask + c->data.mlm.random > 1)
        return conf_error(f, e, "data.mlm.mask",
                          "%g, with data.mlm.random %g: more than all; choose at most 1 together", c->data.mlm.mask,
                          c->data.mlm.random);
    if (c->data.mlm.id >= c->model.vocab)
        return conf_error(f, e, "data.mlm.id",
                          "%lld is not among model.vocab = %lld numbers; choose a larger vocabulary",
                          (long long)c->data.mlm.id, (long long)c->model.vocab);
    if (c->data.fim.rate > 0)
        return conf_error(f, e, "data.fim.rate", "is of models that write; bert reads both ways; leave it out");
    if (tells && !is_given(f, "data.pack")) c->data.pack = PACK_PADDED;
    if (tells && c->data.pack != PACK_PADDED)
        return conf_error(f, e, "data.pack",
                          "a sample of a model that tells classes is one text; choose padded, or leave it out");
    if (tells && c->data.group)
        return conf_error(f, e, "data.group",
                          "a sample of a model that tells classes is one text, and padded ones of a group are several; "
                          "leave it out");
    if (tells && c->data.parts > 1)
        return conf_error(f, e, "data.parts", "a sample of a model that tells classes is one text; leave it out");
    return c->data.pack == PACK_JOINED ? OK
                                       : imply(c, f, "model.document_mask", "places would see the padding behind them",
                                               &c->model.document_mask, e);
}

/* Sources of pairs of texts: all are, or none. */
static int check_sides(const struct config *c, const struct conf *f, struct err *e)
{
    const struct conf_list *lists[] = {&c->data.train, &c->data.valid};
    bool pairs = model_pairs(&c->model), sides = config_sides(c);
    if (c->data.cut_pairs && !sides)
        return conf_error(f, e, "data.cut_pairs", "no source is pairs of texts (data.train[].target); leave it out");
    for (int l = 0; l < (config_held(c) > 0 ? 1 : 2); l++)
        for (int i = 0; i < lists[l]->n; i++) {
            const struct config_source *s = (const struct config_source *)lists[l]->items + i;
            if (s->target && !pairs)
                return conf_error(f, e, l ? "data.valid" : "data.train",
                                  "target is of a model of encoder and decoder (model.family: t5); leave it out");
            if (pairs && !s->target != !sides)
                return conf_error(f, e, l ? "data.valid" : "data.train",
                                  "%s is %s, and %s; give all sources a target, or none", s->path,
                                  s->target ? "pairs of texts" : "one text a record",
                                  s->target ? "data.train has texts" : "other sources are pairs of texts");
        }
    return OK;
}

/* Samples of encoder and decoder are made of joined texts, or of pairs of texts. */
static int check_pairs(const struct config *c, const struct conf *f, struct err *e)
{
    static const char *const spans[] = {"data.spans.rate", "data.spans.mean", "data.spans.id", "data.spans.start"};
    const struct conf_list *lists[] = {&c->data.train, &c->data.valid};
    bool pairs = model_pairs(&c->model);
    bool sides = config_sides(c);
    for (int i = 0; i < 3 && sides; i++)
        if (is_changed((struct config *)c, f, spans[i]))
            return conf_error(f, e, spans[i], "no spans are taken out of pairs of texts (target); leave it out");
    if (check_sides(c, f, e)) return e->code;
    if (!pairs) return OK;
    const int64_t said[] = {c->data.spans.id, c->data.spans.start};
    for (int i = 0; i < 2; i++)
        if (said[i] >= c->model.vocab)
            return conf_error(f, e, spans[2 + i],
                              "%lld is not among model.vocab = %lld numbers; choose a larger vocabulary",
                              (long long)said[i], (long long)c->model.vocab);
    if (c->data.group)
        return conf_error(f, e, "data.group",
                          "is of padded and packed samples, and those of t5 are neither; choose 0, or leave it out");
    if (c->data.pack != PACK_JOINED)
        return conf_error(f, e, "data.pack",
                          sides ? "a sample is one pair of texts; leave it out"
                                : "spans are taken out of joined documents, for padding is nothing to read; leave it "
                                  "out");
    if (c->data.fim.rate > 0)
        return conf_error(f, e, "data.fim.rate",
                          "is of models that write on; t5 writes what was taken out; leave it out");
    if (c->data.parts > 1)
        return conf_error(f, e, "data.parts",
                          sides ? "a sample is one pair of texts; leave it out"
                                : "spans are taken out of samples of one part; leave it out");
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->n; i++) {
            const struct config_source *s = (const struct config_source *)lists[l]->items + i;
            if (s->chat || s->label)
                return conf_error(f, e, l ? "data.valid" : "data.train",
                                  "t5 learns from texts here, not from %s; leave %s out",
                                  s->chat ? "conversations" : "classes", s->chat ? "chat" : "label");
        }
    return OK;
}

/* "5%" → 0.05; 0: it is a path. */
static double share_of(const char *path)
{
    char *end;
    if (!path || !*path || path[strspn(path, "0123456789.%")]) return 0;
    double v = strtod(path, &end);
    return end > path && !strcmp(end, "%") ? v / 100 : 0;
}

double config_held(const struct config *c)
{
    const struct config_source *s = c->data.valid.items;
    return c->data.valid.n == 1 ? share_of(s->path) : 0;
}

static int check_held(const struct config *c, const struct conf *f, struct err *e)
{
    const struct config_source *s = c->data.valid.items;
    bool any = false;
    for (int i = 0; i < c->data.valid.n; i++) any |= share_of(s[i].path) > 0;
    if (!any) return OK;
    if (c->data.valid.n > 1)
        return conf_error(f, e, "data.valid",
                          "a share of data.train stands alone; name a share, or text (a file of such a name is ./5%%)");
    if (config_held(c) > 0.5)
        return conf_error(f, e, "data.valid", "%s would hold out more than is trained on; choose 50%% or less",
                          s->path);
    if (s->column || s->chat || s->label || s->target || s->train_on || s->date || s->weight.n || s->weight.value != 1)
        return conf_error(f, e, "data.valid", "a share of data.train is read as data.train is; choose %s alone",
                          s->path);
    if (!model_sees(&c->model) && !model_looks(&c->model)) return OK;
    return conf_error(f, e, "data.valid", "a share of pictures is not held out; name shards that are not trained on");
}

bool config_sides(const struct config *c)
{
    const struct config_source *s = c->data.train.items;
    for (int i = 0; i < c->data.train.n; i++)
        if (s[i].target) return true;
    return false;
}

bool config_packs(const struct config *c)
{
    return c->data.pack == PACK_BEST_FIT || (c->data.pack == PACK_PADDED && c->data.group);
}

int config_resolve_data(struct config *c, const struct conf *f, struct err *e)
{
    const struct conf_list *lists[] = {&c->data.train, &c->data.valid};
    int rc = check_held(c, f, e);
    if (!rc) rc = check_image(c, f, e);
    if (!rc) rc = check_encoder(c, f, e);
    if (!rc) rc = check_pairs(c, f, e);
    if (!rc) rc = check_group(c, f, e);
    if (!rc) rc = check_parts(c, f, e);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->n && !rc; i++) {
            char key[64];
            snprintf(key, sizeof key, "%s[%d].weight", l ? "data.valid" : "data.train", i);
            rc = check_weight((const struct config_source *)lists[l]->items + i, f, key, e);
        }
    if (!rc && c->data.prefix_rate > 0 && model_both_ways(&c->model))
        rc = conf_error(f, e, "data.prefix_rate", "is of models that predict the next token of a text; leave it out");
    if (!rc && model_prefixes(&c->model)) {
        if (!c->model.document_mask && is_given(f, "model.document_mask"))
            return conf_error(f, e, "model.document_mask",
                              "false, but a prefix is one document's (model.attn.prefix); leave it out");
        c->model.document_mask = true;
    }
    if (rc || c->data.pack == PACK_JOINED) return rc;
    rc = imply(c, f, "data.reset_positions", "every document begins at position 0", &c->data.reset_positions, e);
    if (!rc)
        rc = imply(c, f, "data.mask_boundaries", "nothing is before a document's first token", &c->data.mask_boundaries,
                   e);
    if (!rc && config_packs(c))
        rc = imply(c, f, "model.document_mask", "no document sees another", &c->model.document_mask, e);
    return rc;
}
