/* SPDX-License-Identifier: Apache-2.0 */
/* Both configs are read as printed text, key by key, and the values compared as their rows read them (base/conf.h:
 * conf_same); what the checkpoint's config does not have (it is of an older tutti) counts as the default. The rules are
 * a table of prefixes, of which the longest that fits decides; a number of the model goes by its role first. */
#include "config/changes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config_lines.h"
#include "config/config_recipe.h"
#include "remote/remote.h"
#include "engine/engine.h"

static const struct rule {
    const char *prefix;
    enum changes_effect effect;
} rules[] = {
    {"model", CHANGES_REFUSED},
    {"model.from", CHANGES_SAID}, /* starting weights: not used again */
    {"data.train", CHANGES_REFUSED},
    {"data.train.path", CHANGES_SAID}, /* what is behind paths and columns is compared: compare_data */
    {"data.train.column", CHANGES_SAID},
    {"data.train.chat", CHANGES_SAID},
    {"data.train.target", CHANGES_SAID},
    {"data.train.train_on", CHANGES_SAID},
    {"data.train.date", CHANGES_SAID},
    {"data.tokenizer", CHANGES_SAID},
    {"data.order", CHANGES_REFUSED},
    {"data.seed", CHANGES_REFUSED},
    {"data.reset_positions", CHANGES_REFUSED},
    {"data.mask_boundaries", CHANGES_REFUSED},
    {"data.skip_bad", CHANGES_SAID},
    {"data.pack", CHANGES_REFUSED},
    {"data.window", CHANGES_REFUSED},
    {"data.parts", CHANGES_REFUSED},
    {"data.group", CHANGES_REFUSED},
    {"data.weights", CHANGES_REFUSED},
    {"data.prefix_rate", CHANGES_REFUSED},
    {"data.fim", CHANGES_REFUSED},
    {"data.mlm", CHANGES_REFUSED},
    {"data.spans", CHANGES_REFUSED},
    {"data.cut_pairs", CHANGES_REFUSED},
    {"data.begin", CHANGES_REFUSED},
    {"data.valid", CHANGES_SAID},
    {"data.image", CHANGES_SAID},
    {"data.cache_dir", CHANGES_SILENT},
    {"data.workers", CHANGES_SILENT}, /* any number prepares the same batches */
    {"data.prefetch", CHANGES_SILENT},
    {"data.remote", CHANGES_SILENT},
    {"batch.global", CHANGES_REFUSED},
    {"batch.micro", CHANGES_SAID},
    {"adapter", CHANGES_REFUSED},
    {"adapter.from", CHANGES_SAID}, /* starting values: not used again */
    {"train", CHANGES_REFUSED},     /* what is not trained has no state to go on from */
    {"train.grpo", CHANGES_SAID},
    {"train.grpo.group", CHANGES_REFUSED}, /* which prompts come when */
    {"train.grpo.updates", CHANGES_REFUSED},
    {"train.grpo.tell_every", CHANGES_SILENT},
    {"train.grpo.at_once", CHANGES_SILENT},
    {"train.grpo.reward_limit_s", CHANGES_SILENT},
    {"train.grpo.reward_tries", CHANGES_SILENT},
    {"train.grpo.reward_pause_s", CHANGES_SILENT},
    {"optimizer", CHANGES_SAID},
    {"optimizer.name", CHANGES_REFUSED},
    {"optimizer.embeddings.name", CHANGES_REFUSED},
    {"optimizer.vectors.name", CHANGES_REFUSED},
    {"optimizer.moments", CHANGES_REFUSED},
    {"optimizer.block", CHANGES_REFUSED},
    {"numerics", CHANGES_SAID},
    {"precision", CHANGES_SAID},
    {"precision.master", CHANGES_REFUSED},
    {"precision.history", CHANGES_REFUSED},
    {"precision.keep_weights", CHANGES_SILENT},
    {"parallel", CHANGES_SILENT},
    {"parallel.servers", CHANGES_SAID},
    {"parallel.server_mode", CHANGES_SAID},
    {"parallel.staleness", CHANGES_SAID},
    {"comm", CHANGES_SILENT},
    {"comm.grad", CHANGES_SAID}, /* what travels is rounded */
    {"comm.param", CHANGES_SAID},
    {"memory", CHANGES_SILENT},
    {"moe", CHANGES_SILENT},
    {"checkpoint", CHANGES_SILENT},
    {"run", CHANGES_SILENT},
    {"run.seed", CHANGES_REFUSED},
    {"run.steps", CHANGES_SAID},
    {"run.stop_early", CHANGES_SAID}, /* when it ends */
    {"run.stop_early_delta", CHANGES_SAID},
};

/* Whole words of a key: "model" fits model and model.layers, not models. */
static bool fits(const char *prefix, const char *key)
{
    size_t n = strlen(prefix);
    return strncmp(prefix, key, n) == 0 && (key[n] == 0 || key[n] == '.');
}

int changes_effect(const char *key)
{
    const struct number *n = number_find(key);
    if (n && (n->role == NUMBER_LEARN || n->role == NUMBER_TABLE)) return CHANGES_SAID;
    size_t best = 0;
    int found = -1;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fits(rules[i].prefix, key) && strlen(rules[i].prefix) >= best) {
            best = strlen(rules[i].prefix);
            found = (int)rules[i].effect;
        }
    return found;
}

/* A key that only another tutti has is said. */
static enum changes_effect effect_of(const char *key)
{
    int effect = changes_effect(key);
    return effect < 0 ? CHANGES_SAID : (enum changes_effect)effect;
}

static bool allowed(const struct config *c, const char *key)
{
    const char *const *items = c->checkpoint.allow_changes.items;
    for (int i = 0; i < c->checkpoint.allow_changes.n; i++)
        if (!strcmp(items[i], "all") || fits(items[i], key)) return true;
    return false;
}

int changes_allowed_check(const struct config *c, const struct conf *f, struct err *e)
{
    const char *const *items = c->checkpoint.allow_changes.items;
    for (int i = 0; i < c->checkpoint.allow_changes.n; i++) {
        if (!items[i]) return conf_error(f, e, "checkpoint.allow_changes", "wanted keys, got null");
        bool known = !strcmp(items[i], "all");
        for (const struct conf_row *r = config_rows; r->path && !known; r++)
            known = fits(items[i], r->path) || (r->type == CONF_LIST && fits(r->path, items[i]));
        if (!known)
            return conf_error(f, e, "checkpoint.allow_changes",
                              "there is no key %s; wanted keys such as batch.global, sections such as data, or all",
                              items[i]);
    }
    return OK;
}

/* ---- texts as keys and values ---- */
struct pairs {
    struct pair {
        char key[CONFIG_KEY];
        char **value; /* of a list: all items' */
        int n, room;
    } * p;
    int n, room;
};

static struct pair *pair_of(const struct pairs *s, const char *key)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->p[i].key, key)) return &s->p[i];
    return NULL;
}

static void pairs_read(struct pairs *s, const char *text)
{
    struct config_lines r = {.at = text};
    *s = (struct pairs){0};
    while (config_lines_next(&r)) {
        if (!*r.value || !strcmp(r.value, "[]")) continue; /* a section; a list of nothing */
        struct pair *p = pair_of(s, r.key);
        if (!p) {
            GROW(s->p, s->n, s->room, 1);
            p = &s->p[s->n++];
            *p = (struct pair){0};
            snprintf(p->key, sizeof p->key, "%s", r.key);
        }
        GROW(p->value, p->n, p->room, 1);
        p->value[p->n++] = xstrndup(r.whole, r.whole_n);
    }
}

static void pairs_free(struct pairs *s)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->p[i].n; k++) xfree(s->p[i].value[k]);
        xfree(s->p[i].value);
    }
    xfree(s->p);
}

/* A pair's values as a reader sees them. */
static const char *shown(const struct pair *p, struct str *out)
{
    str_clear(out);
    if (!p) str_puts(out, "nothing");
    for (int i = 0; p && i < p->n; i++) str_printf(out, "%s%s", i ? ", " : "", p->value[i]);
    return str_text(out);
}

/* The row that reads a printed key's values, of the items of a list too; NULL: this tutti has no such key. */
static const struct conf_row *row_of(const char *key)
{
    for (const struct conf_row *r = config_rows; r->path; r++) {
        size_t n = strlen(r->path);
        if (strncmp(key, r->path, n) != 0) continue;
        if (!key[n]) return r->type == CONF_LIST ? r->item : r; /* a list of one, printed as its item's first row */
        if (key[n] != '.' || r->type != CONF_LIST) continue;
        for (const struct conf_row *item = r->item; item->path; item++)
            if (!strcmp(item->path, key + n + 1)) return item;
    }
    return NULL;
}

/* Value by value, each as its row reads it: another tutti may have printed a number in another form. */
static bool same_values(const char *key, const struct pair *a, const struct pair *b)
{
    const struct conf_row *row = row_of(key);
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = row ? conf_same(row, a->value[i], b->value[i]) : !strcmp(a->value[i], b->value[i]);
    return same;
}

/* ---- the data ---- */
void changes_put_data(const struct changes_data *d, struct json_out *o)
{
    char text[17];
    if (!d->known) return;
    json_begin_object(o, "data");
    json_put_string(o, "train", hash64_print(text, d->train));
    if (d->ends) json_put_string(o, "ends", hash64_print(text, d->ends));
    json_end_object(o);
}

/* 1: the same tokens; 0: others; -1: the checkpoint does not say. One of an earlier version does not say where
 * documents end, only how many there are. */
static int compare_data(const struct ckpt *ckpt, const struct changes_data *d)
{
    uint64_t print, ends;
    const struct json *data = json_get(ckpt_extra(ckpt), "data");
    const struct json *train = json_get(data, "train"), *of_ends = json_get(data, "ends");
    if (!train || !d->known) return -1;
    bool same_ends = !of_ends || !d->ends || (!hash64_parse(json_string(of_ends, NULL, ""), &ends) && ends == d->ends);
    return !hash64_parse(json_string(train, NULL, ""), &print) && print == d->train && same_ends;
}

/* ---- comparing ---- */
struct differences {
    const struct config *c;
    struct str refused, keys; /* what is refused, and the keys that would allow it */
};

static void __attribute__((format(printf, 4, 5)))
tell(struct differences *x, enum changes_effect effect, const char *key, const char *fmt, ...)
{
    bool let = effect == CHANGES_REFUSED && allowed(x->c, key);
    char said[2 * CONFIG_VALUE], *what;
    va_list args;
    if (effect == CHANGES_SILENT) return;
    va_start(args, fmt);
    vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
    what = remote_hidden(said);
    log_info("%s: %s%s", key, what, let ? " (allowed by checkpoint.allow_changes)" : "");
    if (effect == CHANGES_REFUSED && !let) {
        str_printf(&x->refused, "%s%s: %s", x->refused.n ? "; " : "", key, what);
        str_printf(&x->keys, "%s%s", x->keys.n ? "," : "", key);
    }
    xfree(what);
}

static bool is_of_items(const char *key)
{
    for (const struct conf_row *r = config_rows; r->path; r++)
        if (!strcmp(r->path, key)) return false;
    return true;
}

/* Values of a key of a list's items, of which each is the one that an item has which does not name the key: so a config
 * from before there was the key says the same. */
static bool items_as_usual(const struct pair *here)
{
    const struct conf_row *row = row_of(here->key);
    bool usual = row && row->otherwise && is_of_items(here->key);
    for (int i = 0; usual && i < here->n; i++) usual = conf_same(row, here->value[i], row->otherwise);
    return usual;
}

/* What says alone that data is the same where the checkpoint does not know its tokens. */
static bool tells_data(const char *key)
{
    static const char *const keys[] = {"data.train.path",     "data.train.column", "data.train.chat",
                                       "data.train.train_on", "data.train.date",   "data.skip_bad"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static void compare(struct differences *x, const struct pairs *mine, const struct pairs *theirs,
                    const struct pairs *otherwise, int data)
{
    struct str here = {0}, there = {0};
    for (int i = 0; i < mine->n; i++) {
        const struct pair *m = &mine->p[i], *p = pair_of(theirs, m->key);
        if (!p) p = pair_of(otherwise, m->key);
        if (p ? same_values(m->key, m, p) : items_as_usual(m)) continue;
        tell(x, data < 0 && tells_data(m->key) ? CHANGES_REFUSED : effect_of(m->key), m->key,
             "%s here, %s in the checkpoint", shown(m, &here), shown(p, &there));
    }
    for (int i = 0; i < theirs->n; i++) {
        const struct pair *p = &theirs->p[i];
        enum changes_effect effect = effect_of(p->key);
        if (pair_of(mine, p->key)) continue;
        if (effect == CHANGES_REFUSED && !row_of(p->key))
            effect = CHANGES_SAID; /* of another tutti: nobody can give it here */
        tell(x, effect, p->key, "nothing here, %s in the checkpoint", shown(p, &there));
    }
    if (data == 0) tell(x, CHANGES_REFUSED, "data.train", "not the tokens that the checkpoint was trained on");
    str_free(&here);
    str_free(&there);
}

static int refuse(const struct ckpt *ckpt, const struct differences *x, struct err *e)
{
    if (!x->refused.n) return OK;
    return err_set(e, ERR_REQUEST,
                   "cannot resume from %.200s as the run it was: %.420s%s; go back to the checkpoint's values, allow "
                   "it with checkpoint.allow_changes=[%.150s], or start afresh with another run.dir",
                   ckpt_path(ckpt), str_text(&x->refused), x->refused.n > 420 ? " ..." : "",
                   x->keys.n > 150 ? "all" : str_text(&x->keys));
}

static bool names(const struct pair *p, const char *word)
{
    for (int i = 0; i < p->n; i++)
        if (strstr(p->value[i], word)) return true;
    return false;
}

int changes_histories(const struct ckpt *ckpt, const struct config *c, struct err *e)
{
    struct recipe_config rule = config_recipe(c);
    struct pairs theirs;
    bool had = false;
    char *text;
    size_t n;
    if (!recipes_history(&rule)) return OK;
    int rc = ckpt_attachment(ckpt, "config.yaml", &text, &n, e);
    if (rc || !text) return rc;
    pairs_read(&theirs, text);
    for (int i = 0; i < theirs.n; i++) had |= fits("precision", theirs.p[i].key) && names(&theirs.p[i], "fp8-delayed");
    const struct pair *recipe = pair_of(&theirs, "precision.recipe");
    if (!had)
        rc = err_set(e, ERR_REQUEST,
                     "cannot resume from %.200s with fp8-delayed: it is of a run in %.20s and has no histories of "
                     "largest values, which scales follow from; choose precision.recipe: fp8-current, or begin "
                     "another run.dir with its weights (model.from=%.200s)",
                     ckpt_path(ckpt), recipe ? recipe->value[0] : "bf16", ckpt_path(ckpt));
    const struct pair *steps = pair_of(&theirs, "precision.history");
    long long kept = steps ? atoll(steps->value[0]) : c->precision.history;
    if (!rc && kept != c->precision.history)
        rc = err_set(e, ERR_REQUEST,
                     "cannot resume from %.200s: it has histories of %lld steps, and "
                     "precision.history is %lld; choose %lld, or begin another run.dir with its weights "
                     "(model.from=%.200s)",
                     ckpt_path(ckpt), kept, (long long)c->precision.history, kept, ckpt_path(ckpt));
    pairs_free(&theirs);
    xfree(text);
    return rc;
}

int changes_check(const struct ckpt *ckpt, const struct config *c, const struct changes_data *d, struct err *e)
{
    char *text;
    size_t n;
    int rc = ckpt_attachment(ckpt, "config.yaml", &text, &n, e);
    if (rc || !text) return rc;
    struct config plain;
    struct arena *a = arena_new();
    struct str here = {0}, usual = {0};
    struct pairs mine, theirs, otherwise;
    memset(&plain, 0, sizeof plain);
    (void)conf_new(config_rows, &plain, a);
    config_print(c, &here);
    config_print(&plain, &usual);
    pairs_read(&mine, str_text(&here));
    pairs_read(&theirs, text);
    pairs_read(&otherwise, str_text(&usual));
    struct differences x = {.c = c};
    const char *length = "model.seq_len"; /* samples are what is fingerprinted */
    const struct pair *cut = pair_of(&mine, length), *was = pair_of(&theirs, length);
    if (!was) was = pair_of(&otherwise, length);
    bool same_cut = cut && was && same_values(length, cut, was);
    compare(&x, &mine, &theirs, &otherwise, same_cut ? compare_data(ckpt, d) : -1);
    rc = refuse(ckpt, &x, e);
    str_free(&x.refused);
    str_free(&x.keys);
    pairs_free(&mine);
    pairs_free(&theirs);
    pairs_free(&otherwise);
    str_free(&here);
    str_free(&usual);
    arena_free(a);
    xfree(text);
    return rc;
}
