/* SPDX-License-Identifier: Apache-2.0 */
/* Both configs are compared as printed text, key by key; what the checkpoint's config does not have (it is of an older
 * tutti) counts as the default. The rules are a table of prefixes, of which the longest that fits decides; a number of
 * the model goes by its role first. */
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

enum effect { SILENT, SAID, REFUSED };

static const struct rule {
    const char *prefix;
    enum effect effect;
} rules[] = {
    {"", SAID},
    {"model", REFUSED},
    {"model.from", SAID}, /* starting weights: not used again */
    {"data.train", REFUSED},
    {"data.train.path", SAID}, /* what is behind paths and columns is compared: compare_data */
    {"data.train.column", SAID},
    {"data.train.chat", SAID},
    {"data.train.target", SAID},
    {"data.train.train_on", SAID},
    {"data.tokenizer", SAID},
    {"data.order", REFUSED},
    {"data.seed", REFUSED},
    {"data.reset_positions", REFUSED},
    {"data.mask_boundaries", REFUSED},
    {"data.skip_bad", SAID},
    {"data.pack", REFUSED},
    {"data.window", REFUSED},
    {"data.parts", REFUSED},
    {"data.group", REFUSED},
    {"data.weights", REFUSED},
    {"data.prefix_rate", REFUSED},
    {"data.fim", REFUSED},
    {"data.mlm", REFUSED},
    {"data.spans", REFUSED},
    {"data.cut_pairs", REFUSED},
    {"data.begin", REFUSED},
    {"data.cache_dir", SILENT},
    {"data.workers", SILENT}, /* any number prepares the same batches */
    {"data.prefetch", SILENT},
    {"data.remote", SILENT},
    {"batch.global", REFUSED},
    {"adapter", REFUSED},
    {"adapter.from", SAID}, /* starting values: not used again */
    {"train", REFUSED},     /* what is not trained has no state to go on from */
    {"train.grpo", SAID},
    {"train.grpo.group", REFUSED}, /* which prompts come when */
    {"train.grpo.updates", REFUSED},
    {"train.grpo.tell_every", SILENT},
    {"train.grpo.at_once", SILENT},
    {"train.grpo.reward_limit_s", SILENT},
    {"train.grpo.reward_tries", SILENT},
    {"train.grpo.reward_pause_s", SILENT},
    {"optimizer.name", REFUSED},
    {"optimizer.embeddings.name", REFUSED},
    {"optimizer.vectors.name", REFUSED},
    {"optimizer.moments", REFUSED},
    {"optimizer.block", REFUSED},
    {"precision.master", REFUSED},
    {"precision.history", REFUSED},
    {"precision.fallback", SAID},
    {"precision.keep_weights", SILENT},
    {"precision.telemetry", SAID}, /* when a layer falls back */
    {"parallel", SILENT},
    {"parallel.servers", SAID},
    {"parallel.server_mode", SAID},
    {"parallel.staleness", SAID},
    {"comm", SILENT},
    {"comm.grad", SAID}, /* what travels is rounded */
    {"comm.param", SAID},
    {"memory", SILENT},
    {"moe", SILENT},
    {"checkpoint", SILENT},
    {"run", SILENT},
    {"run.seed", REFUSED},
    {"run.steps", SAID},
    {"run.stop_early", SAID}, /* when it ends */
    {"run.stop_early_delta", SAID},
};

/* Whole words of a key: "model" fits model and model.layers, not models. */
static bool fits(const char *prefix, const char *key)
{
    size_t n = strlen(prefix);
    return n == 0 || (strncmp(prefix, key, n) == 0 && (key[n] == 0 || key[n] == '.'));
}

static enum effect effect_of(const char *key)
{
    const struct number *n = number_find(key);
    if (n && (n->role == NUMBER_LEARN || n->role == NUMBER_TABLE)) return SAID;
    size_t best = 0;
    enum effect found = SAID;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fits(rules[i].prefix, key) && strlen(rules[i].prefix) >= best) {
            best = strlen(rules[i].prefix);
            found = rules[i].effect;
        }
    return found;
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
        struct str value; /* of a list: all items' */
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
        if (p->value.n) str_puts(&p->value, ", ");
        str_add(&p->value, r.whole, r.whole_n);
    }
}

static void pairs_free(struct pairs *s)
{
    for (int i = 0; i < s->n; i++) str_free(&s->p[i].value);
    xfree(s->p);
}

/* Numbers by value, since another tutti may have printed them in another form. */
static bool same_value(const char *a, const char *b)
{
    while (*a || *b) {
        char *end_a, *end_b;
        double x = strtod(a, &end_a), y = strtod(b, &end_b);
        if (end_a > a && end_b > b && x == y) {
            a = end_a;
            b = end_b;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return true;
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
    const char *text = json_string(json_get(data, "train"), NULL, NULL),
               *of_ends = json_string(json_get(data, "ends"), NULL, NULL);
    if (!text || hash64_parse(text, &print) || !d->known) return -1;
    bool same_ends = !of_ends || !d->ends || (!hash64_parse(of_ends, &ends) && ends == d->ends);
    return print == d->train && same_ends;
}

/* ---- comparing ---- */
struct differences {
    const struct config *c;
    struct str refused, keys; /* what is refused, and the keys that would allow it */
};

static void __attribute__((format(printf, 4, 5)))
tell(struct differences *x, enum effect effect, const char *key, const char *fmt, ...)
{
    bool let = effect == REFUSED && allowed(x->c, key);
    char said[2 * CONFIG_VALUE], *what;
    va_list args;
    if (effect == SILENT) return;
    va_start(args, fmt);
    vsnprintf(said, sizeof said, fmt, args);
    va_end(args);
    what = remote_hidden(said);
    log_info("%s: %s%s", key, what, let ? " (allowed by checkpoint.allow_changes)" : "");
    if (effect == REFUSED && !let) {
        str_printf(&x->refused, "%s%s: %s", x->refused.n ? "; " : "", key, what);
        str_printf(&x->keys, "%s%s", x->keys.n ? "," : "", key);
    }
    xfree(what);
}

/* `here` are the values of a key of a list's items, and each is the one that an item has which does not name the key:
 * so a config from before there was the key says the same. */
static bool items_as_usual(const char *key, const char *here)
{
    for (const struct conf_row *r = config_rows; r->path; r++) {
        size_t n = strlen(r->path);
        if (r->type != CONF_LIST || strncmp(key, r->path, n) != 0 || key[n] != '.') continue;
        for (const struct conf_row *item = r->item; item->path; item++) {
            if (strcmp(item->path, key + n + 1) != 0 || !item->otherwise) continue;
            size_t m = strlen(item->otherwise);
            while (!strncmp(here, item->otherwise, m) && !strncmp(here + m, ", ", 2)) here += m + 2;
            return !strcmp(here, item->otherwise);
        }
    }
    return false;
}

static void compare(struct differences *x, const struct pairs *mine, const struct pairs *theirs,
                    const struct pairs *otherwise, int data)
{
    for (int i = 0; i < mine->n; i++) {
        const char *key = mine->p[i].key;
        const struct pair *p = pair_of(theirs, key);
        if (!p) p = pair_of(otherwise, key);
        const char *here = str_text(&mine->p[i].value), *there = p ? str_text(&p->value) : "nothing";
        if (!p && items_as_usual(key, here)) continue;
        bool unknown = data < 0 && (!strcmp(key, "data.train.path") || !strcmp(key, "data.train.column") ||
                                    !strcmp(key, "data.train.chat") || !strcmp(key, "data.train.train_on") ||
                                    !strcmp(key, "data.skip_bad")); /* only they tell */
        if (!same_value(here, there))
            tell(x, unknown ? REFUSED : effect_of(key), key, "%s here, %s in the checkpoint", here, there);
    }
    for (int i = 0; i < theirs->n; i++)
        if (!pair_of(mine, theirs->p[i].key))
            tell(x, effect_of(theirs->p[i].key) == SILENT ? SILENT : SAID, theirs->p[i].key,
                 "nothing here, %s in the checkpoint", str_text(&theirs->p[i].value));
    if (data == 0) tell(x, REFUSED, "data.train", "not the tokens that the checkpoint was trained on");
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
    for (int i = 0; i < theirs.n; i++)
        had |= fits("precision", theirs.p[i].key) && strstr(str_text(&theirs.p[i].value), "fp8-delayed");
    const struct pair *recipe = pair_of(&theirs, "precision.recipe");
    if (!had)
        rc = err_set(e, ERR_REQUEST,
                     "cannot resume from %.200s with fp8-delayed: it is of a run in %.20s and has no histories of "
                     "largest values, which scales follow from; choose precision.recipe: fp8-current, or begin "
                     "another run.dir with its weights (model.from=%.200s)",
                     ckpt_path(ckpt), recipe ? str_text(&recipe->value) : "bf16", ckpt_path(ckpt));
    const struct pair *steps = pair_of(&theirs, "precision.history");
    long long kept = steps ? atoll(str_text(&steps->value)) : c->precision.history;
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
    const struct pair *cut = pair_of(&mine, "model.seq_len"), *was = pair_of(&theirs, "model.seq_len");
    if (!was) was = pair_of(&otherwise, "model.seq_len");
    bool same_cut =
        cut && was && same_value(str_text(&cut->value), str_text(&was->value)); /* samples are what is fingerprinted */
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
