/* SPDX-License-Identifier: Apache-2.0 */
/* filter_classifier.c: keeps what a model of `tutti data train-classifier` takes for the good kind, and notes how
 * likely that is. */
#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "curate/filter.h"
#include "curate/quality.h"

struct options {
    const char *model;
    double min;
    bool note;
};

static const struct filter_rule rules[] = {{"probability", 0, 1, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "model", .type = CONF_STRING, AT(model), .doc = "what train-classifier wrote"},
    {.path = "min", .type = CONF_REAL, AT(min), .otherwise = "0.5", .lo = 0, .hi = 1, .doc = "drop documents that are less likely to be of the positive kind"},
    {.path = "note", .type = CONF_BOOL, AT(note), .otherwise = "true", .doc = "write quality beside the text"},
    {0},
};
/* clang-format on */

static int open_model(struct use *u, struct err *e)
{
    const struct options *o = u->options;
    struct quality_model *m;
    char *bytes;
    size_t n;
    int code = quality_read(&m, o->model, e);
    if (code) {
        err_prefix(e, "%s: model", u->where);
        return code;
    }
    u->state = m;
    code = fs_read_all(o->model, (size_t)1 << 30, &bytes, &n, e);
    if (code) return code;
    u->key = hash64(bytes, n);
    xfree(bytes);
    return OK;
}

static void close_model(struct use *u) { quality_free(u->state); }

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    f->value[0] = quality_of(u->state, d);
    if (f->value[0] < o->min) return 0;
    if (o->note) str_printf(&d->notes, ", \"quality\": %.4f", f->value[0]);
    return FILTER_KEEPS;
}

const struct filter filter_classifier = {
    .kind = {.name = "classifier",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "keeps what a trained model takes for good"},
    .source = "",
    FILTER_RULES_OF(rules),
    .open = open_model,
    .close = close_model,
    .judge = judge,
};
