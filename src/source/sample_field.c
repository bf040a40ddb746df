/* SPDX-License-Identifier: Apache-2.0 */
#include "source/sample_field.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "cls", "json[a][0]". */
static int read_way(struct field_way *w, const char *p, size_t length, const char *what, struct err *e)
{
    size_t at = 0, n = length;
    *w = (struct field_way){0};
    while (at < n && p[at] != '[' && at < FIELD_WORD - 1) w->extension[at] = p[at], at++;
    while (at > 0 && at < n && p[at] == '[' && w->n_steps < FIELD_STEPS) {
        size_t k = 0;
        for (at++; at < n && p[at] != ']' && k < FIELD_WORD - 1;) w->step[w->n_steps][k++] = p[at++];
        if (at == n || p[at] != ']' || !k) n = 0;
        else w->n_steps++, at++;
    }
    if (at == n && n && (w->extension[0]) && (!w->n_steps || !strcasecmp(w->extension, "json"))) return OK;
    return err_set(e, ERR_REQUEST,
                   "\"%.*s\": is no place of %s; wanted an extension (cls), or a value in a .json (json[label])",
                   (int)(length < 80 ? length : 80), p, what);
}

int sample_field_read(struct sample_field *f, const char *text, const char *what, struct err *e)
{
    f->n = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        if (f->n == FIELD_WAYS)
            return err_set(e, ERR_REQUEST, "\"%s\": more than %d places of %s", text, FIELD_WAYS, what);
        int code = read_way(&f->way[f->n++], p, n, what, e);
        if (code) return code;
        p += n + (p[n] == ',');
    }
    return f->n ? OK : err_set(e, ERR_REQUEST, "no place of %s; wanted an extension, such as cls", what);
}

/* A step into a list is a place in it, from 0. */
static const struct json *element(const struct json *list, const char *step)
{
    char *end;
    errno = 0;
    long long at = strtoll(step, &end, 10);
    if (end == step || errno || at < 0) return NULL;
    while (isspace((unsigned char)*end)) end++;
    return *end ? NULL : json_at(list, (size_t)at);
}

const struct json *field_way_value(const struct field_way *w, const struct json *root)
{
    const struct json *v = root;
    for (int i = 0; i < w->n_steps && v; i++)
        v = json_kind(v) == JSON_ARRAY ? element(v, w->step[i]) : json_get(v, w->step[i]);
    return v;
}

bool field_names(const char *list, const char *extension)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",;");
        if (strlen(extension) == n && !strncasecmp(p, extension, n)) return true;
        p += n + (p[n] != 0);
    }
    return false;
}

size_t sample_key(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    return dot && dot > base ? (size_t)(dot - name) : 0;
}
