/* SPDX-License-Identifier: Apache-2.0 */
#include "train/datasets.h"

#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config_data.h"
#include "config/config_feed.h"

/* Points of a config as those of a dataset, in the arena. */
static const struct dataset_point *points_of(const struct conf_points *p, struct arena *a)
{
    struct dataset_point *out = arena_alloc(a, ((size_t)p->n + 1) * sizeof *out);
    for (int i = 0; i < p->n; i++) out[i] = (struct dataset_point){p->p[i].step, p->p[i].value};
    return out;
}

/* How pictures are seen; those of validation in the middle. */
static struct image_rule images_of(const struct config *c, bool valid)
{
    bool looks = model_looks(&c->model);
    const struct vision_config *v = &c->model.vision;
    if (!model_sees(&c->model) && !looks) return (struct image_rule){0};
    struct image_rule r = {.classes = c->model.classes,
                           .limits = media_limits_usual(),
                           .part = valid ? "val" : "train"};
    r.limits.max_pixels = c->data.image.max_pixels;
    r.view = (struct view_rule){.size = looks ? v->image_size : c->model.image_size,
                                .channels = (int)(looks ? v->channels : c->model.channels),
                                .crop = valid ? CROP_CENTER : (enum view_crop)c->data.image.crop,
                                .filter = (enum resize_filter)c->data.image.filter,
                                .resize = c->data.image.resize,
                                .flip = c->data.image.flip};
    memcpy(r.view.scale, c->data.image.scale, sizeof r.view.scale);
    memcpy(r.view.ratio, c->data.image.ratio, sizeof r.view.ratio);
    memcpy(r.view.mean, c->data.image.mean, sizeof r.view.mean);
    memcpy(r.view.std, c->data.image.std, sizeof r.view.std);
    return r;
}

static struct text_pictures_rule pictures_of(const struct config *c)
{
    const struct vision_config *v = &c->model.vision;
    if (!model_looks(&c->model)) return (struct text_pictures_rule){0};
    return (struct text_pictures_rule){.patches = vision_patches(v),
                                       .places = vision_places(v),
                                       .lead = v->class_place,
                                       .most = v->images,
                                       .token = (int32_t)v->token};
}

/* All but who reads and where to: what is the config's own. */
static struct dataset_options options_of(const struct config *c, const struct conf_list *list, struct arena *a)
{
    bool valid = list == &c->data.valid;
    const struct conf_list *from = config_held(c) > 0 ? &c->data.train : list; /* of a share both sides are in there */
    const struct config_source *items = from->items;
    struct dataset_source *s = arena_alloc(a, ((size_t)from->n + 1) * sizeof *s);
    for (int i = 0; i < from->n; i++)
        s[i] = (struct dataset_source){.path = items[i].path,
                                       .column = items[i].column,
                                       .weight = items[i].weight.value,
                                       .points = points_of(&items[i].weight, a),
                                       .n_points = items[i].weight.n,
                                       .skip_bad = c->data.skip_bad,
                                       .chat = items[i].chat,
                                       .train_on = items[i].train_on,
                                       .date = items[i].date,
                                       .label = items[i].label,
                                       .target = items[i].target};
    return (struct dataset_options){
        .sources = s,
        .n_sources = from->n,
        .tokenizer_path = c->data.tokenizer,
        .fim = {c->data.fim.rate, c->data.fim.spm_rate, c->data.fim.prefix, c->data.fim.suffix, c->data.fim.middle},
        .prefix_rate = c->data.prefix_rate,
        .mlm = {model_unmasks(&c->model) ? c->data.mlm.rate : 0, c->data.mlm.mask, c->data.mlm.random,
                c->data.mlm.token, c->data.mlm.id},
        .sides = {c->model.pads ? c->model.encoder_len : 0, c->data.spans.start, c->data.cut_pairs},
        .spans = {model_pairs(&c->model) && !c->model.pads ? c->data.spans.rate : 0, c->data.spans.mean,
                  c->data.spans.id, c->data.spans.start, c->model.seq_len, c->model.encoder_len},
        .pairs = config_prefers(c),
        .scores = c->train.objective == OBJECTIVE_REWARD,
        .end_unread = c->model.score_at == SCORE_AT_TEXT,
        .classes = model_sees(&c->model) || !model_tells(&c->model) ? 0 : c->model.classes,
        .begin = c->data.begin,
        .seq_len = c->model.seq_len,
        .seed = (uint64_t)c->data.seed,
        .shuffled = c->data.order == ORDER_SHUFFLED,
        .reset_positions = c->data.reset_positions,
        .mask_boundaries = c->data.mask_boundaries,
        .pack = (enum pack_kind)c->data.pack,
        .window = c->data.window,
        .images = images_of(c, valid),
        .pictures = pictures_of(c),
        .parts = valid ? 1 : c->data.parts, /* samples for validation are whole */
        .group = c->data.group,
        .global_batch = c->batch.global,
        .ramps = c->data.weights == WEIGHTS_LINEAR,
        .held = {config_held(c), (uint64_t)c->data.seed, valid},
    };
}

static int refuse_answers(const struct config *c, struct err *e)
{
    if (c->train.objective != OBJECTIVE_GRPO) return OK;
    return err_set(e, ERR_REQUEST,
                   "train.objective: grpo reads prompts and learns from answers that are written in its steps; there "
                   "are "
                   "no batches of tokens to look at");
}

int datasets_check(const struct config *c, const struct conf *f, struct err *e)
{
    struct arena *a = arena_new();
    int rc = OK;
    if (c->data.train.n && c->train.objective != OBJECTIVE_GRPO) {
        struct dataset_options o = options_of(c, &c->data.train, a);
        rc = dataset_options_check(&o, e);
        if (rc) err_prefix(e, "%s: data.train", conf_where(f, "data.train"));
    }
    if (!rc && c->data.train.n && c->data.valid.n && c->run.eval_every) {
        struct dataset_options o = options_of(c, &c->data.valid, a);
        rc = dataset_options_check(&o, e);
        if (rc) err_prefix(e, "%s: data.valid", conf_where(f, "data.valid"));
    }
    arena_free(a);
    return rc;
}

int datasets_open(struct dataset **d, const struct config *c, const struct conf_list *list, const struct tokenizer *t,
                  const atomic_int *give_up, struct err *e)
{
    int rc = refuse_answers(c, e);
    if (rc) return rc;
    struct arena *a = arena_new();
    struct dataset_options o = options_of(c, list, a);
    char *cache = c->data.cache_dir ? xstrdup(c->data.cache_dir) : fs_join(c->run.dir, "data");
    struct remote_options remote = config_remote(c);
    remote.give_up = give_up;
    o.tokenizer = model_sees(&c->model) ? NULL : t; /* what a picture's model never asks */
    o.cache_dir = cache;
    o.remote = &remote;
    o.give_up = give_up;
    rc = dataset_open(d, &o, e);
    xfree(cache);
    arena_free(a);
    return rc;
}

void datasets_say(const struct dataset *d)
{
    for (int i = 0; i < dataset_n_sources(d); i++) {
        const struct cuts *c = dataset_cuts(d, i);
        const struct tokenfile *f = dataset_file(d, i);
        char documents[32], samples[32];
        if (dataset_images(d, i)) continue;
        if (c->rule.kind == PACK_JOINED) continue;
        log_info("data: %s: %s documents in %s samples of %lld, %.2f %% of them padding%s",
                 f->made_from ? f->made_from : f->path, str_count(documents, (double)f->n_documents),
                 str_count(samples, (double)c->n), (long long)c->rule.seq, 100 * dataset_padding(d, i),
                 c->n_cut || c->n_empty ? ":" : "");
        if (c->n_cut || c->n_empty)
            log_info("data:   %lld documents are longer than a sample and cut, %lld have no token to predict and are "
                     "in "
                     "none",
                     (long long)c->n_cut, (long long)c->n_empty);
    }
}
