/* SPDX-License-Identifier: Apache-2.0 */
/* key.c: a key's type, place and names of choices are those of its row in the one table (config_rows). */
#include "config/key.h"

#include <stdio.h>
#include <string.h>

const struct conf_row *key_row(const char *key)
{
    const struct conf_row *r = config_rows;
    while (r->path && strcmp(r->path, key)) r++;
    CHECK(r->path, "%s is no key", key);
    return r;
}

void *key_value(const struct conf_row *r, struct config *c) { return (char *)c + r->offset; }

size_t key_bytes(const struct conf_row *r)
{
    switch (r->type) {
    case CONF_BOOL: return sizeof(bool);
    case CONF_INT: return sizeof(int64_t);
    case CONF_REAL: return sizeof(double);
    case CONF_WORD: return (size_t)r->n;
    case CONF_REALS: return (size_t)r->n * sizeof(double);
    case CONF_NUMBERS: return sizeof(struct conf_numbers);
    case CONF_STRING: return sizeof(char *);
    case CONF_CHOICE: return sizeof(int);
    case CONF_POINTS: return sizeof(struct conf_points);
    case CONF_LIST: break;
    }
    bug(__FILE__, __LINE__, "key", "%s is a list", r->path);
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* A number may come back from a file in fewer digits. */
bool key_same(const struct conf_row *r, const void *a, const void *b)
{
    if (r->type == CONF_STRING) return same_text(*(const char *const *)a, *(const char *const *)b);
    if (r->type != CONF_REAL) return memcmp(a, b, key_bytes(r)) == 0;
    double x = *(const double *)a, y = *(const double *)b, d = x > y ? x - y : y - x;
    return d <= 1e-12 * (x > 0 ? x : -x);
}

const char *key_show(const struct conf_row *r, const void *v, char out[64])
{
    if (r->type == CONF_BOOL) snprintf(out, 64, "%s", *(const bool *)v ? "true" : "false");
    if (r->type == CONF_INT) snprintf(out, 64, "%lld", (long long)*(const int64_t *)v);
    if (r->type == CONF_REAL) snprintf(out, 64, "%.9g", *(const double *)v);
    if (r->type == CONF_REALS) snprintf(out, 64, "%d numbers", r->n);
    if (r->type == CONF_NUMBERS) snprintf(out, 64, "%lld numbers", (long long)((const struct conf_numbers *)v)->n);
    if (r->type == CONF_WORD) snprintf(out, 64, "%.60s", (const char *)v);
    if (r->type == CONF_STRING) snprintf(out, 64, "%.60s", *(const char *const *)v ? *(const char *const *)v : "null");
    if (r->type == CONF_CHOICE) {
        const char *name = r->choices;
        for (int i = *(const int *)v; i > 0; i--) name = strchr(name, '|') + 1;
        snprintf(out, 64, "%.*s", (int)strcspn(name, "|"), name);
    }
    return out;
}

bool key_given(const struct conf *f, const struct conf_row *r, const void *v)
{
    if (!strcmp(conf_where(f, r->path), "default")) return false;
    return !(r->type == CONF_INT && r->otherwise && !strcmp(r->otherwise, "null") && *(const int64_t *)v == 0);
}
