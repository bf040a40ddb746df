/* SPDX-License-Identifier: Apache-2.0 */
/* json_line_check.h: a line as source/json_line.h reads it, held against the library behind base/json.h. */
#ifndef TESTS_JSON_LINE_CHECK_H
#define TESTS_JSON_LINE_CHECK_H

#include <string.h>

#include "base/json.h"
#include "source/json_line.h"

/* True: it was taken for an object. */
static inline bool json_line_check(struct json_line *l, const char *p, size_t n, const char *name)
{
    if (!json_line_read(l, p, n, name)) return false;
    struct json *root = NULL;
    struct err e;
    size_t length = 0;
    CHECK(!json_parse_published(&root, p, n, "line", &e), "taken for an object: %.*s: %s", (int)n, p, e.text);
    CHECK(json_kind(root) == JSON_OBJECT, "is no object: %.*s", (int)n, p);
    const char *text = json_string(json_get(root, name), &length, NULL);
    CHECK(l->has_text == (text != NULL), "the text is there or not: %.*s", (int)n, p);
    CHECK(!text || (length == l->text.n && !memcmp(text, str_text(&l->text), length)), "another text: %.*s", (int)n, p);
    CHECK(l->n_members >= (int64_t)json_size(root), "%lld members: %.*s", (long long)l->n_members, (int)n, p);
    json_free(root);
    return true;
}

#endif
