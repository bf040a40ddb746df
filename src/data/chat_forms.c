/* SPDX-License-Identifier: Apache-2.0 */
#include "data/chat_forms.h"

#include <string.h>

#include "base/mem.h"

bool chat_is_text(const struct json *v) { return v && json_kind(v) == JSON_STRING; }
bool chat_is_list(const struct json *v) { return v && json_kind(v) == JSON_ARRAY; }

bool chat_is_empty(const struct json *v)
{
    size_t n = 0;
    if (!v || json_kind(v) == JSON_NULL) return true;
    if (chat_is_text(v)) return json_string(v, &n, ""), n == 0;
    return (chat_is_list(v) || json_kind(v) == JSON_OBJECT) && json_size(v) == 0;
}

const struct json *chat_use(struct chat_record *r, const char *name)
{
    const struct json *v = json_get(r->record, name);
    CHECK(r->n_used < CHAT_USED, "a record of more than %d members that forms are made of", CHAT_USED);
    r->used[r->n_used++] = name;
    return v && json_kind(v) != JSON_NULL ? v : NULL;
}

int chat_system(struct chat_record *r, const struct json *first, const struct json **text, const char *where,
                struct err *e)
{
    const struct json *v = chat_use(r, "system"), *begin = first ? json_at(first, 0) : NULL;
    *text = NULL;
    if (chat_is_empty(v)) return OK;
    if (!chat_is_text(v)) return err_set(e, ERR_CORRUPT, "%s: \"system\": wanted a text", where);
    const char *role = json_string(json_get(begin, json_get(begin, "role") ? "role" : "from"), NULL, "");
    if (!strcmp(role, "system")) {
        if (chat_same(v, json_get(begin, json_get(begin, "role") ? "content" : "value"))) return OK;
        return err_set(e, ERR_CORRUPT, "%s: has a member \"system\" and another text in a message of the system",
                       where);
    }
    *text = v;
    return OK;
}

bool chat_same(const struct json *a, const struct json *b)
{
    struct str x = {0}, y = {0};
    if (!a || !b) return a == b;
    json_put_value(&(struct json_out){.s = &x}, NULL, a);
    json_put_value(&(struct json_out){.s = &y}, NULL, b);
    bool same = x.n == y.n && !memcmp(str_text(&x), str_text(&y), x.n);
    str_free(&x);
    str_free(&y);
    return same;
}

void chat_put_message(struct json_out *o, const char *role, const struct json *content)
{
    json_begin_object(o, NULL);
    json_put_string(o, "role", role);
    json_put_value(o, "content", content);
    json_end_object(o);
}

void chat_put_text(struct json_out *o, const char *role, const char *content)
{
    json_begin_object(o, NULL);
    json_put_string(o, "role", role);
    json_put_string(o, "content", content);
    json_end_object(o);
}

/* ---- {"from", "value"} ---- */

static const char *role_of(const char *from)
{
    static const char *const roles[][2] = {
        {"human", "user"},
        {"user", "user"},
        {"gpt", "assistant"},
        {"assistant", "assistant"},
        {"chatgpt", "assistant"},
        {"bing", "assistant"},
        {"bard", "assistant"},
        {"model", "assistant"},
        {"system", "system"},
        {"tool", "tool"},
        {"function_call", "assistant"},
        {"observation", "tool"},
        {"function_response", "tool"},
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(from, roles[i][0])) return roles[i][1];
    return NULL;
}

/* Its other members (a weight, say) stay what they are. */
static void put_from(struct json_out *o, const char *role, const struct json *m)
{
    struct str name = {0};
    json_begin_object(o, NULL);
    json_put_string(o, "role", role);
    json_put_value(o, "content", json_get(m, "value"));
    for (void *it = json_iter(m); it; it = json_iter_next(m, it)) {
        json_iter_key_text(it, &name);
        const char *key = str_text(&name);
        if (strcmp(key, "from") && strcmp(key, "value")) json_put_value(o, key, json_iter_value(it));
    }
    json_end_object(o);
    str_free(&name);
}

int chat_put_one(struct json_out *o, const struct json *m, const char *what, size_t i, const char *where, struct err *e)
{
    if (json_get(m, "role")) {
        json_put_value(o, NULL, m);
        return OK;
    }
    const char *from = json_string(json_get(m, "from"), NULL, NULL), *role = from ? role_of(from) : NULL;
    if (from && !role)
        return err_set(e, ERR_CORRUPT, "%s: %s[%zu]: from \"%.60s\" is no role that is known here", where, what, i,
                       from);
    if (!role || !chat_is_text(json_get(m, "value")))
        return err_set(e, ERR_CORRUPT,
                       "%s: %s[%zu]: wanted {\"from\": text, \"value\": text}, or {\"role\": text, \"content\": text}",
                       where, what, i);
    put_from(o, role, m);
    return OK;
}

int chat_put_list(struct json_out *o, const struct json *list, const char *what, const char *where, struct err *e)
{
    int code = OK;
    for (size_t i = 0; i < json_size(list) && !code; i++) code = chat_put_one(o, json_at(list, i), what, i, where, e);
    return code;
}

/* ---- what was written ---- */

int chat_take(struct chat_record *r, struct json_out *o, const char *where, struct err *e)
{
    int code =
        json_holds_nul(r->record)
            ? err_set(e, ERR_CORRUPT, "%s: a text that holds a NUL, in a record whose messages are written anew", where)
            : json_parse(&r->own, str_text(o->s), o->s->n, where, e);
    str_free(o->s);
    r->messages = r->own;
    return code;
}
