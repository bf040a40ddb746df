/* SPDX-License-Identifier: Apache-2.0 */
/* filter_language.c: keeps documents of some languages, as language.h tells them, and notes the language of each. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/filter.h"
#include "curate/language.h"
#include "curate/wordset.h"
#include "base/fs.h"

struct options {
    struct conf_list keep;
    const char *model;
    double min_probability;
    bool note;
};
struct languages {
    struct language_model *model;
    bool keep[LANGUAGE_LABELS], all;
};

enum { PROBABILITY, LANGUAGE };
static const struct filter_rule rules[] =
    {[PROBABILITY] = {"probability", 0, 1, false}, [LANGUAGE] = {"other_language", 0, 1, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "keep", AT(keep), WORDSET_LIST, .otherwise = "[]", .doc = "labels of languages, such as en; empty: all that are told with min_probability"},
    {.path = "model", .type = CONF_STRING, AT(model), .otherwise = "null", .doc = "a model of `tutti data train-language`; null: the one that comes with tutti"},
    {.path = "min_probability", .type = CONF_REAL, AT(min_probability), .otherwise = "0.65", .lo = 0, .hi = 1, .doc = "drop documents whose language is told with less"},
    {.path = "note", .type = CONF_BOOL, AT(note), .otherwise = "true", .doc = "write language and language_probability beside the text"},
    {0},
};
/* clang-format on */

static int find_labels(struct use *u, struct languages *s, struct err *e)
{
    const struct options *o = u->options;
    const struct wordset_item *item = o->keep.items;
    s->all = o->keep.n == 0;
    for (int i = 0; i < o->keep.n; i++) {
        int label = language_find(s->model, item[i].word);
        if (label >= 0) {
            s->keep[label] = true;
            continue;
        }
        struct str all = {0};
        for (int k = 0; k < language_n_labels(s->model); k++)
            str_printf(&all, "%s%s", k ? " " : "", language_label(s->model, k));
        int code = err_set(e, ERR_REQUEST, "%s: keep: the model knows no language %s; it knows %s", u->where,
                           item[i].word, str_text(&all));
        str_free(&all);
        return code;
    }
    return OK;
}

static int open_model(struct use *u, struct err *e)
{
    const struct options *o = u->options;
    struct languages *s = u->state = xcalloc(1, sizeof *s);
    if (!o->model) {
        s->model = language_shipped();
    } else {
        int code = language_read(&s->model, o->model, e);
        char *bytes;
        size_t n;
        if (code) {
            err_prefix(e, "%s: model", u->where);
            return code;
        }
        code = fs_read_all(o->model, (size_t)1 << 30, &bytes, &n, e);
        if (code) return code;
        u->key = hash64(bytes, n);
        xfree(bytes);
    }
    return find_labels(u, s, e);
}

static void close_model(struct use *u)
{
    struct languages *s = u->state;
    if (s) language_free(s->model);
    xfree(s);
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    const struct languages *s = u->state;
    struct language_guess g = language_of(s->model, d->text.p, d->text.n);
    f->value[PROBABILITY] = g.probability;
    if (g.probability < o->min_probability || g.label < 0) return PROBABILITY;
    f->value[LANGUAGE] = !s->all && !s->keep[g.label];
    if (f->value[LANGUAGE] > 0) return LANGUAGE;
    if (o->note)
        str_printf(&d->notes, ", \"language\": \"%s\", \"language_probability\": %.4f",
                   language_label(s->model, g.label), g.probability);
    return FILTER_KEEPS;
}

const struct filter filter_language = {
    .kind = {.name = "language",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "keeps documents of some languages"},
    .source = "Cavnar and Trenkle 1994",
    FILTER_RULES_OF(rules),
    .open = open_model,
    .close = close_model,
    .judge = judge,
};
