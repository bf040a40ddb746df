/* SPDX-License-Identifier: Apache-2.0 */
#include "keep/copy_owner.h"

#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

void copy_owner_free(struct copy_owner *o)
{
    xfree(o->dir);
    xfree(o->by);
    *o = (struct copy_owner){.step = -1, .publication = -1};
}

/* All but the last member, and the checksum of that. */
static uint64_t print_members(const struct copy_owner *o, struct json_out *j)
{
    char digits[17];
    json_begin_object(j, NULL);
    json_put_string(j, "run", hash64_print(digits, o->run));
    json_put_string(j, "session", hash64_print(digits, o->session));
    json_put_string(j, "dir", o->dir);
    json_put_string(j, "by", o->by);
    json_put_int(j, "step", o->step);
    json_put_int(j, "publication", o->publication);
    return hash64(j->s->p, j->s->n);
}

void copy_owner_print(const struct copy_owner *o, struct str *out)
{
    struct str text = {0};
    struct json_out j = {.s = &text};
    char digits[17];
    uint64_t sum = print_members(o, &j);
    json_put_string(&j, "xxh64", hash64_print(digits, sum));
    json_end_object(&j);
    str_printf(out, "%s\n", text.p);
    str_free(&text);
}

static uint64_t sum_of(const struct copy_owner *o)
{
    struct str text = {0};
    uint64_t sum = print_members(o, &(struct json_out){.s = &text});
    str_free(&text);
    return sum;
}

static int need_number(const struct json *v, const char *key, uint64_t *out, const char *what, struct err *e)
{
    const char *text;
    int rc = json_need_string(v, key, &text, what, e);
    if (!rc && hash64_parse(text, out)) rc = err_set(e, ERR_CORRUPT, "%s: %s: wanted 16 digits", what, key);
    return rc;
}

int copy_owner_parse(struct copy_owner *o, const char *text, size_t n, const char *what, struct err *e)
{
    struct json *v = NULL;
    const char *dir = NULL, *by = NULL;
    uint64_t written = 0;
    *o = (struct copy_owner){0};
    int rc = json_parse(&v, text, n, what, e);
    if (!rc) rc = need_number(v, "run", &o->run, what, e);
    if (!rc) rc = need_number(v, "session", &o->session, what, e);
    if (!rc) rc = json_need_string(v, "dir", &dir, what, e);
    if (!rc) rc = json_need_string(v, "by", &by, what, e);
    if (!rc) rc = json_need_int(v, "step", -1, INT64_MAX, &o->step, what, e);
    if (!rc) rc = json_need_int(v, "publication", -1, INT64_MAX, &o->publication, what, e);
    if (!rc) rc = need_number(v, "xxh64", &written, what, e);
    if (!rc) {
        o->dir = xstrdup(dir);
        o->by = xstrdup(by);
        if (!o->run || sum_of(o) != written) rc = err_set(e, ERR_CORRUPT, "%s: is not what was written", what);
    }
    if (rc) {
        copy_owner_free(o);
        rc = e ? (int)(e->code = ERR_CORRUPT) : ERR_CORRUPT;
        err_prefix(e, "whose copies these are is unknown");
    }
    json_free(v);
    return rc;
}

char *copy_owner_me(void)
{
    char host[72] = "";
    struct str s = {0};
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    str_printf(&s, "process %d on %s", (int)getpid(), host[0] ? host : "a host without a name");
    return s.p;
}
