/* SPDX-License-Identifier: Apache-2.0 */
/* clean_progress.c: see clean_progress.h. */
#include "curate/clean_progress.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/seal.h"

#define SCHEMA "tutti.data-clean-progress.1"

struct count_row {
    const char *name;
    size_t at;
};
#define COUNT(field)                                                                                                   \
    {                                                                                                                  \
#field, offsetof(struct group_counts, field)                                                                   \
    }
static const struct count_row counts[] = {
    COUNT(documents),  COUNT(bytes),      COUNT(too_large), COUNT(too_large_bytes), COUNT(kept),
    COUNT(kept_bytes), COUNT(file_bytes), COUNT(emptied),   COUNT(not_utf8),
};
enum { N_COUNTS = sizeof counts / sizeof *counts };
_Static_assert(N_COUNTS * sizeof(int64_t) == sizeof(struct group_counts), "every count has a row");

void progress_write(const struct progress *p, struct str *out)
{
    struct json_out j = {.s = out};
    char key[17];
    json_begin_object(&j, NULL);
    json_put_string(&j, "schema", SCHEMA);
    json_put_string(&j, "rules", hash64_print(key, p->rules));
    json_put_string(&j, "inputs", hash64_print(key, p->inputs));
    json_put_int(&j, "part_bytes", p->part_bytes);
    json_put_int(&j, "most_bytes", p->most_bytes);
    json_put_bool(&j, "plain", p->plain);
    json_put_bool(&j, "complete", p->complete);
    json_begin_array(&j, "parts");
    for (int64_t i = 0; i < p->next_part; i++) json_put_int(&j, NULL, p->part_bytes_of[i]);
    json_end_array(&j);
    json_put_string(&j, "first_too_large", p->too_large);
    for (int i = 0; i < N_COUNTS; i++)
        json_put_int(&j, counts[i].name, *(const int64_t *)(const void *)((const char *)&p->counts + counts[i].at));
    removals_write(&p->removals, &j);
    seal_add(out);
}

static int get_key(const struct json *root, const char *name, uint64_t *key, const char *what, struct err *e)
{
    const char *text = json_string(json_get(root, name), NULL, "");
    return hash64_parse(text, key) ? err_set(e, ERR_CORRUPT, "%s: %s: wanted 16 digits", what, name) : OK;
}

static int get_parts(struct progress *p, const struct json *list, const char *what, struct err *e)
{
    if (!list || json_kind(list) != JSON_ARRAY) return err_set(e, ERR_CORRUPT, "%s: parts: wanted a list", what);
    int64_t n = (int64_t)json_size(list);
    GROW(p->part_bytes_of, 0, p->room, n);
    for (int64_t i = 0; i < n; i++) {
        p->part_bytes_of[i] = json_int(json_at(list, (size_t)i), -1);
        if (p->part_bytes_of[i] < 0) return err_set(e, ERR_CORRUPT, "%s: parts: wanted sizes", what);
        p->parts += p->part_bytes_of[i] > 0;
    }
    p->next_part = n;
    return OK;
}

static int parse(struct progress *p, const struct json *root, const char *what, struct err *e)
{
    if (strcmp(json_string(json_get(root, "schema"), NULL, ""), SCHEMA) != 0)
        return err_set(e, ERR_CORRUPT, "%s: is not of the schema %s", what, SCHEMA);
    int code = get_key(root, "rules", &p->rules, what, e);
    if (!code) code = get_key(root, "inputs", &p->inputs, what, e);
    if (!code) code = json_need_int(root, "part_bytes", 1, INT64_MAX, &p->part_bytes, what, e);
    if (!code) code = json_need_int(root, "most_bytes", 1, INT64_MAX, &p->most_bytes, what, e);
    p->plain = json_bool(json_get(root, "plain"), false);
    p->complete = json_bool(json_get(root, "complete"), false);
    if (!code) code = get_parts(p, json_get(root, "parts"), what, e);
    for (int i = 0; i < N_COUNTS && !code; i++)
        code = json_need_int(root, counts[i].name, 0, INT64_MAX, (int64_t *)(void *)((char *)&p->counts + counts[i].at),
                             what, e);
    snprintf(p->too_large, sizeof p->too_large, "%s", json_string(json_get(root, "first_too_large"), NULL, ""));
    return code;
}

int progress_parse(struct progress *p, const char *text, size_t n, uint64_t rules, const char *what, struct err *e)
{
    struct json *root;
    int code = json_parse(&root, text, n, what, e);
    if (code) return code;
    p->next_part = p->parts = 0;
    code = parse(p, root, what, e);
    if (!code && p->rules == rules) code = removals_read(&p->removals, json_get(root, "filters"), what, e);
    json_free(root);
    return code;
}

void progress_fini(struct progress *p)
{
    xfree(p->part_bytes_of);
    removals_fini(&p->removals);
    *p = (struct progress){0};
}
