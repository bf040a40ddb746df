/* SPDX-License-Identifier: Apache-2.0 */
/* chat_record.c: what is no list of messages is written as one, in JSON, and read again: the forms meet in one place,
 * and the template sees the same values whichever it was. */
#include "data/chat_record.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

static const char *const own_members[] =
    {"chosen", "rejected", "messages", "conversations",        "prompt", "completion", "instruction",
     "input",  "output",   "system",   "add_generation_prompt"};

bool chat_record_passes(const char *member)
{
    for (size_t i = 0; i < sizeof own_members / sizeof *own_members; i++)
        if (!strcmp(member, own_members[i])) return false;
    return true;
}

/* -- writing messages ---------------------------------------------------------------------------------------- */

static void copy(const struct json *v, const char *key, struct json_out *o)
{
    struct str name = {0};
    switch (json_kind(v)) {
    case JSON_NULL: json_put_null(o, key); break;
    case JSON_BOOL: json_put_bool(o, key, json_bool(v, false)); break;
    case JSON_INT: json_put_int(o, key, json_int(v, 0)); break;
    case JSON_REAL: json_put_real(o, key, json_real(v, 0)); break;
    case JSON_STRING: json_put_string(o, key, json_string(v, NULL, "")); break;
    case JSON_ARRAY:
        json_begin_array(o, key);
        for (size_t i = 0; i < json_size(v); i++) copy(json_at(v, i), NULL, o);
        json_end_array(o);
        break;
    case JSON_OBJECT:
        json_begin_object(o, key);
        for (void *it = json_iter(v); it; it = json_iter_next(v, it)) {
            json_iter_key_text(it, &name);
            copy(json_iter_value(it), str_text(&name), o);
            str_clear(&name);
        }
        json_end_object(o);
        break;
    }
    str_free(&name);
}

static void put_message(struct json_out *o, const char *role, const struct json *content)
{
    json_begin_object(o, NULL);
    json_put_string(o, "role", role);
    copy(content, "content", o);
    json_end_object(o);
}

static int take(struct chat_record *r, struct json_out *o, const char *where, struct err *e)
{
    int code = json_parse(&r->own, str_text(o->s), o->s->n, where, e);
    str_free(o->s);
    r->messages = r->own;
    return code;
}

/* A text with a NUL cannot be written anew. */
static bool holds_nul(const struct json *v)
{
    size_t n = 0;
    const char *p = json_string(v, &n, "");
    if (json_kind(v) == JSON_STRING) return memchr(p, 0, n) != NULL;
    for (size_t i = 0; json_kind(v) == JSON_ARRAY && i < json_size(v); i++)
        if (holds_nul(json_at(v, i))) return true;
    for (void *it = json_kind(v) == JSON_OBJECT ? json_iter(v) : NULL; it; it = json_iter_next(v, it))
        if (holds_nul(json_iter_value(it))) return true;
    return false;
}

/* -- forms --------------------------------------------------------------------------------------------------- */

static bool is_text(const struct json *v) { return v && json_kind(v) == JSON_STRING; }
static bool is_list(const struct json *v) { return v && json_kind(v) == JSON_ARRAY; }

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

static int read_conversations(struct chat_record *r, const struct json *list, const char *where, struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    json_begin_array(&o, NULL);
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json *m = json_at(list, i);
        const char *from = json_string(json_get(m, "from"), NULL, NULL), *role = from ? role_of(from) : NULL;
        if (!role || !is_text(json_get(m, "value"))) {
            str_free(&text);
            if (from && !role)
                return err_set(e, ERR_CORRUPT, "%s: conversations[%zu]: from \"%.60s\" is no role that is known here",
                               where, i, from);
            return err_set(e, ERR_CORRUPT, "%s: conversations[%zu]: wanted {\"from\": text, \"value\": text}", where,
                           i);
        }
        put_message(&o, role, json_get(m, "value"));
    }
    json_end_array(&o);
    return take(r, &o, where, e);
}

static int read_instruction(struct chat_record *r, const struct json *record, const char *where, struct err *e)
{
    const struct json *instruction = json_get(record, "instruction"), *input = json_get(record, "input"),
                      *system = json_get(record, "system");
    struct str text = {0}, user = {0};
    struct json_out o = {.s = &text};
    str_puts(&user, json_string(instruction, NULL, ""));
    if (is_text(input) && *json_string(input, NULL, "")) str_printf(&user, "\n\n%s", json_string(input, NULL, ""));
    json_begin_array(&o, NULL);
    if (is_text(system) && *json_string(system, NULL, "")) put_message(&o, "system", system);
    json_begin_object(&o, NULL);
    json_put_string(&o, "role", "user");
    json_put_string(&o, "content", str_text(&user));
    json_end_object(&o);
    put_message(&o, "assistant", json_get(record, "output"));
    json_end_array(&o);
    str_free(&user);
    return take(r, &o, where, e);
}

/* Two lists: the messages of the second are what is learnt. */
static int read_two_lists(struct chat_record *r, const struct json *a, const struct json *b, const char *where,
                          struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    json_begin_array(&o, NULL);
    for (size_t i = 0; i < json_size(a); i++) copy(json_at(a, i), NULL, &o);
    for (size_t i = 0; i < json_size(b); i++) copy(json_at(b, i), NULL, &o);
    json_end_array(&o);
    return take(r, &o, where, e);
}

/* Tables often hold a list as its JSON: then that is read. NULL in *list: it is no such text. */
static int read_text_of_list(struct chat_record *r, const struct json *v, const char *member, const struct json **list,
                             const char *where, struct err *e)
{
    size_t n = 0;
    const char *p = json_string(v, &n, "");
    char what[700];
    *list = NULL;
    if (!is_text(v) || *(p + strspn(p, " \t\r\n")) != '[') return OK;
    snprintf(what, sizeof what, "%.600s: the text of \"%s\"", where, member);
    int code = json_parse_published(&r->of_text, p, n, what, e);
    if (!code) *list = r->of_text;
    return code;
}

/* -- the whole ----------------------------------------------------------------------------------------------- */

/* Every message has a role; answers are the assistant's, from `first` on, whose weight is not 0. */
static int read_answers(struct chat_record *r, size_t first, const char *where, struct err *e)
{
    r->n = (int64_t)json_size(r->messages);
    if (!r->n) return err_set(e, ERR_CORRUPT, "%s: a conversation of no messages", where);
    r->answer = xcalloc(to_size(r->n), sizeof *r->answer);
    for (size_t i = 0; i < to_size(r->n); i++) {
        const struct json *m = json_at(r->messages, i), *weight = json_get(m, "weight");
        const char *role = json_string(json_get(m, "role"), NULL, NULL);
        if (!role)
            return err_set(e, ERR_CORRUPT, "%s: message %zu: wanted an object with a \"role\" that is a text", where,
                           i);
        double w = json_real(weight, weight ? -1 : 1);
        if (w != 0 && w != 1)
            return err_set(e, ERR_CORRUPT, "%s: message %zu: weight: wanted 0 (not trained on) or 1", where, i);
        r->answer[i] = i >= first && w != 0 && (!strcmp(role, "assistant") || !strcmp(role, "model"));
    }
    return OK;
}

/* Two conversations that part with their last message: that is the answer, and what is before it the prompt. */
static bool part_at_the_end(const struct json *a, const struct json *b)
{
    size_t n = json_size(a);
    bool same = n > 1 && n == json_size(b);
    for (size_t i = 0; same && i + 1 < n; i++) {
        struct str x = {0}, y = {0};
        copy(json_at(a, i), NULL, &(struct json_out){.s = &x});
        copy(json_at(b, i), NULL, &(struct json_out){.s = &y});
        same = x.n == y.n && !memcmp(str_text(&x), str_text(&y), x.n);
        str_free(&x);
        str_free(&y);
    }
    return same;
}

/* first: the first message that may be an answer. */
static int read_preference(struct chat_record *r, const struct json *record, enum chat_side side, size_t *first,
                           const char *where, struct err *e)
{
    const struct json *prompt = json_get(record, "prompt"), *chosen = json_get(record, "chosen"),
                      *rejected = json_get(record, "rejected"), *mine = side == CHAT_CHOSEN ? chosen : rejected;
    if (is_text(prompt) && is_text(chosen) && is_text(rejected)) {
        size_t n[2];
        r->prompt = json_string(prompt, &r->prompt_n, "");
        r->completion = json_string(mine, &r->completion_n, "");
        json_string(chosen, &n[0], "");
        json_string(rejected, &n[1], "");
        if (r->prompt_n && n[0] && n[1]) return OK;
        return err_set(e, ERR_CORRUPT, "%s: an empty prompt, chosen or rejected answer", where);
    }
    if (is_list(prompt) && is_list(chosen) && is_list(rejected) && json_size(chosen) && json_size(rejected)) {
        *first = json_size(prompt);
        return read_two_lists(r, prompt, mine, where, e);
    }
    if (!prompt && is_list(chosen) && is_list(rejected)) {
        if (!part_at_the_end(chosen, rejected))
            return err_set(e, ERR_CORRUPT,
                           "%s: chosen and rejected differ before their last messages; wanted conversations that begin "
                           "alike, or a prompt apart",
                           where);
        *first = json_size(mine) - 1;
        r->messages = mine;
        return OK;
    }
    return err_set(e, ERR_CORRUPT,
                   "%s: wanted a record with \"prompt\", \"chosen\" and \"rejected\", three texts or three lists of "
                   "messages, or with \"chosen\" and \"rejected\", two conversations",
                   where);
}

int chat_record_read(struct chat_record *r, const struct json *record, enum chat_side side, const char *where,
                     struct err *e)
{
    const struct json *messages = json_get(record, "messages"), *talk = json_get(record, "conversations"),
                      *prompt = json_get(record, "prompt"), *completion = json_get(record, "completion");
    size_t first = 0;
    int code = OK;
    *r = (struct chat_record){.record = record};
    const struct json *list;
    if (side != CHAT_PLAIN) {
        code = read_preference(r, record, side, &first, where, e);
        if (!code && r->own && holds_nul(record))
            code = err_set(e, ERR_CORRUPT, "%s: a text that holds a NUL, in a record of preferences", where);
        if (!code && r->messages) code = read_answers(r, first, where, e);
        bool answers = !r->messages;
        for (int64_t i = 0; !code && i < r->n; i++) answers |= r->answer[i];
        if (!code && !answers)
            code = err_set(e, ERR_CORRUPT, "%s: %s: no message of the assistant to take a loss of", where,
                           side == CHAT_CHOSEN ? "chosen" : "rejected");
        if (code) chat_record_fini(r);
        return code;
    }
    if ((code = read_text_of_list(r, messages, "messages", &list, where, e))) return code;
    if (list) messages = list;
    if (!is_list(messages)) {
        if ((code = read_text_of_list(r, talk, "conversations", &list, where, e))) return code;
        if (list) talk = list;
    }
    if (is_list(messages)) {
        r->messages = messages;
    } else if (is_list(talk)) {
        code = read_conversations(r, talk, where, e);
    } else if (is_list(prompt) && is_list(completion)) {
        first = json_size(prompt);
        code = read_two_lists(r, prompt, completion, where, e);
    } else if (is_text(prompt) && is_text(completion)) {
        r->prompt = json_string(prompt, &r->prompt_n, "");
        r->completion = json_string(completion, &r->completion_n, "");
        return OK;
    } else if (is_text(json_get(record, "instruction")) && is_text(json_get(record, "output"))) {
        code = read_instruction(r, record, where, e);
    } else {
        return err_set(e, ERR_CORRUPT,
                       "%s: wanted a record with a list \"messages\" or \"conversations\", or with \"prompt\" and "
                       "\"completion\", or \"instruction\" and \"output\"",
                       where);
    }
    if (!code && r->own && holds_nul(record))
        code = err_set(e, ERR_CORRUPT, "%s: a text that holds a NUL, in a record without \"messages\"", where);
    if (!code) code = read_answers(r, first, where, e);
    if (code) chat_record_fini(r);
    return code;
}

static int put_answer(struct chat_record *r, const struct json *asked, const char *answer, size_t n, const char *where,
                      struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    if (memchr(answer, 0, n) || holds_nul(asked))
        return err_set(e, ERR_CORRUPT, "%s: a text that holds a NUL, in a conversation", where);
    json_begin_array(&o, NULL);
    for (size_t i = 0; i < json_size(asked); i++) copy(json_at(asked, i), NULL, &o);
    json_begin_object(&o, NULL);
    json_put_string(&o, "role", "assistant");
    json_put_string(&o, "content", answer);
    json_end_object(&o);
    json_end_array(&o);
    return take(r, &o, where, e);
}

int chat_record_answered(struct chat_record *r, const struct json *record, const char *answer, size_t n,
                         const char *where, struct err *e)
{
    const struct json *prompt = json_get(record, "prompt"), *asked = prompt ? prompt : json_get(record, "messages");
    *r = (struct chat_record){.record = record};
    if (is_text(prompt)) {
        r->prompt = json_string(prompt, &r->prompt_n, "");
        r->completion = answer;
        r->completion_n = n;
        return r->prompt_n ? OK : err_set(e, ERR_CORRUPT, "%s: the prompt is empty", where);
    }
    if (!is_list(asked))
        return err_set(e, ERR_CORRUPT,
                       "%s: wanted a record with \"prompt\", a text or a list of messages, or with a list \"messages\"",
                       where);
    size_t last = json_size(asked);
    const char *role = last ? json_string(json_get(json_at(asked, last - 1), "role"), NULL, "") : "";
    if (!strcmp(role, "assistant"))
        return err_set(e, ERR_CORRUPT, "%s: the last message is the assistant's, and it was to answer", where);
    int code = put_answer(r, asked, answer, n, where, e);
    if (!code) code = read_answers(r, last, where, e);
    if (code) chat_record_fini(r);
    return code;
}

void chat_record_fini(struct chat_record *r)
{
    json_free(r->own);
    json_free(r->of_text);
    xfree(r->answer);
    *r = (struct chat_record){0};
}
