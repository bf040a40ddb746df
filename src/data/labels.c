/* SPDX-License-Identifier: Apache-2.0 */
/* Labels are read beside the token file, which has the documents in the source's order. Rejected: writing them into
 * the token file, whose format would have to know what a document is for. */
#include "data/labels.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"

static int wrong(const struct source *s, const char *column, const char *what, struct err *e)
{
    struct str where = {0};
    source_tell_place(s, &where);
    int code = err_set(e, ERR_REQUEST, "%s: \"%.60s\": %s", str_text(&where), column, what);
    str_free(&where);
    return code;
}

static int label_of(const struct source *s, const char *column, int64_t classes, int32_t *out, struct err *e)
{
    char range[96];
    size_t n;
    const char *line = source_line(s, &n);
    struct json *record = NULL;
    snprintf(range, sizeof range, "wanted a class, a whole number from 0 to %" PRId64 ", or -1 for none", classes - 1);
    if (!line) return wrong(s, column, "labels are members of .jsonl records, and this is none", e);
    int code = json_parse_published(&record, line, n, "the record", e);
    if (code) return code;
    const struct json *v = json_get(record, column);
    int64_t label = v && json_kind(v) == JSON_INT ? json_int(v, -2) : -2;
    json_free(record);
    if (label < -1 || label >= classes) return wrong(s, column, range, e);
    *out = (int32_t)label;
    return OK;
}

int labels_read(const char *input, const struct source_options *how, const char *column, int64_t classes, int64_t n,
                int32_t **labels, struct err *e)
{
    struct source *s;
    int64_t i = 0;
    *labels = NULL;
    int code = source_open_with(&s, &input, 1, how, e);
    if (code) return code;
    int32_t *out = xmalloc(to_size(n + 1) * sizeof *out);
    while (!code && (code = source_next(s, e)) > 0) {
        code = i < n ? label_of(s, column, classes, &out[i], e) : OK;
        i++;
    }
    if (!code && i != n)
        code =
            err_set(e, ERR_REQUEST,
                    "%s: has %" PRId64 " documents, and %" PRId64 " of it were tokenized; start again, so that it is "
                    "tokenized anew",
                    input, i, n);
    source_close(s);
    if (code) xfree(out);
    else *labels = out;
    return code;
}
