/* SPDX-License-Identifier: Apache-2.0 */
/* Messages are written anew: without members that are null, and with the parts of a content joined; the rest is as it
 * came. So what a template sees is what transformers would show it. */
#include "serve/api_messages.h"

#include <string.h>

#include "base/mem.h"
#include "serve/api_members.h"

/* ---- messages ---- */

/* Members of a message that clients send back from answers, or send always, and that no template need read. */
enum fate { GIVEN, MUST, NOTHING };
static const struct {
    const char *name;
    enum fate fate;
    const char *neutral;
} parts[] = {
    {"role", GIVEN, NULL},
    {"content", GIVEN, NULL},
    {"name", GIVEN, NULL},              /* most templates write none, which is their say */
    {"tool_call_id", GIVEN, NULL},      /* likewise */
    {"reasoning_content", GIVEN, NULL}, /* many templates leave out on purpose what was thought in earlier turns */
    {"reasoning", GIVEN, NULL},
    {"thinking", GIVEN, NULL},
    {"tool_calls", MUST, "[]"}, /* the turn would be another one without them */
    {"annotations", NOTHING, "[]"},
    {"refusal", NOTHING, "\"\""},
    {"audio", NOTHING, NULL},
    {"function_call", NOTHING, NULL},
    {"prefix", NOTHING, "false"},
};

/* Whether the member goes on to the template. */
static int look_at(const struct chat *chat, size_t at, const char *name, const struct json *v, bool *goes,
                   struct err *e)
{
    enum fate fate = MUST;
    const char *neutral = NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(parts[i].name, name)) fate = parts[i].fate, neutral = parts[i].neutral;
    *goes = json_kind(v) != JSON_NULL || !strcmp(name, "content");
    if (fate == GIVEN || json_kind(v) == JSON_NULL) return OK;
    *goes = chat_reads(chat, name);
    if (*goes || api_member_neutral(neutral, v)) return OK;
    return err_set(e, ERR_REQUEST, "messages[%zu].%.100s: the model's chat template does not read it; leave it out", at,
                   name);
}

/* Contents of parts are joined where all parts are text. */
static int put_content(struct json_out *o, const struct json *v, size_t at, struct err *e)
{
    if (json_kind(v) == JSON_NULL || json_kind(v) == JSON_STRING) {
        json_put_value(o, "content", v);
        return OK;
    }
    if (json_kind(v) != JSON_ARRAY) return err_set(e, ERR_REQUEST, "messages[%zu].content: wanted a text", at);
    struct str all = {0};
    int rc = OK;
    for (size_t i = 0; !rc && i < json_size(v); i++) {
        const struct json *part = json_at(v, i);
        size_t n;
        const char *piece = json_string(json_get(part, "text"), &n, NULL);
        if (!piece || strcmp(json_string(json_get(part, "type"), NULL, ""), "text"))
            rc = err_set(e, ERR_REQUEST, "messages[%zu].content: only text is understood here", at);
        else if (json_size(part) != 2u + (json_get(part, "prompt_cache_breakpoint") != NULL)) /* a cache's business */
            rc = err_set(e, ERR_REQUEST, "messages[%zu].content[%zu]: wanted {\"type\": \"text\", \"text\": ...} alone",
                         at, i);
        else str_add(&all, piece, n);
    }
    if (!rc) json_put_string(o, "content", str_text(&all));
    str_free(&all);
    return rc;
}

static int put_message(struct json_out *o, const struct chat *chat, const struct json *m, size_t at, struct err *e)
{
    size_t n;
    const char *role = json_string(json_get(m, "role"), &n, NULL);
    const struct json *calls = api_member(m, "tool_calls");
    if (!role || !n) return err_set(e, ERR_REQUEST, "messages[%zu].role: wanted a text", at);
    if (json_holds_nul(m)) return err_set(e, ERR_REQUEST, "messages[%zu]: wanted texts without NUL", at);
    if (calls && (json_kind(calls) != JSON_ARRAY || strcmp(role, "assistant") != 0))
        return err_set(e, ERR_REQUEST, "messages[%zu].tool_calls: wanted a list, of an assistant's message", at);
    if (!api_member(m, "content") && !(calls && json_size(calls)))
        return err_set(e, ERR_REQUEST, "messages[%zu].content: wanted a text; only beside tool_calls there may be none",
                       at);
    int rc = OK;
    json_begin_object(o, NULL);
    for (void *it = json_iter(m); it && !rc; it = json_iter_next(m, it)) {
        const char *name = json_iter_key(it);
        bool goes;
        rc = look_at(chat, at, name, json_iter_value(it), &goes, e);
        if (rc || !goes) continue;
        if (!strcmp(name, "content")) rc = put_content(o, json_iter_value(it), at, e);
        else json_put_value(o, name, json_iter_value(it));
    }
    json_end_object(o);
    return rc;
}

/* ---- what stands beside them ---- */

/* A list that the template must read. Empty: as none. */
static int take_list(const struct json *o, const struct chat *chat, const char *name, const struct json **out,
                     struct err *e)
{
    const struct json *v = api_member(o, name);
    *out = NULL;
    if (v && json_kind(v) != JSON_ARRAY) return err_set(e, ERR_REQUEST, "%s: wanted a list", name);
    if (!v || !json_size(v)) return OK;
    if (!chat_names(chat, name))
        return err_set(e, ERR_REQUEST, "%s: the model's chat template does not read them; leave them out", name);
    *out = v;
    return OK;
}

/* Variables that the template sees: those of chat_template_kwargs, and reasoning_effort. */
static int take_others(const struct json *o, const struct chat *chat, struct json **out, struct err *e)
{
    static const char *const own[] =
        {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "continue_final_message"};
    const struct json *given = api_member(o, "chat_template_kwargs"), *effort = api_member(o, "reasoning_effort");
    struct str text = {0};
    struct json_out j = {.s = &text};
    int rc = OK;
    *out = NULL;
    if (given && json_kind(given) != JSON_OBJECT)
        return err_set(e, ERR_REQUEST, "chat_template_kwargs: wanted an object");
    if (given && json_holds_nul(given))
        return err_set(e, ERR_REQUEST, "chat_template_kwargs: wanted texts without NUL");
    if (effort && json_kind(effort) != JSON_STRING) return err_set(e, ERR_REQUEST, "reasoning_effort: wanted a text");
    if (effort && !chat_names(chat, "reasoning_effort"))
        return err_set(e, ERR_REQUEST, "reasoning_effort: the model's chat template does not read it; leave it out");
    if (effort && json_holds_nul(effort)) return err_set(e, ERR_REQUEST, "reasoning_effort: wanted a text without NUL");
    json_begin_object(&j, NULL);
    for (void *it = given ? json_iter(given) : NULL; it && !rc; it = json_iter_next(given, it)) {
        const char *name = json_iter_key(it);
        for (size_t i = 0; !rc && i < sizeof own / sizeof *own; i++)
            if (!strcmp(name, own[i]))
                rc = err_set(e, ERR_REQUEST, "chat_template_kwargs.%s: is not for a request to say there", name);
        if (!rc && effort && !strcmp(name, "reasoning_effort"))
            rc = err_set(e, ERR_REQUEST, "reasoning_effort: is said twice, in chat_template_kwargs too");
        if (!rc && !chat_names(chat, name))
            rc = err_set(e, ERR_REQUEST,
                         "chat_template_kwargs.%.100s: the model's chat template reads no such name; leave it out",
                         name);
        if (!rc) json_put_value(&j, name, json_iter_value(it));
    }
    if (effort) json_put_value(&j, "reasoning_effort", effort);
    json_end_object(&j);
    if (!rc) rc = json_parse(out, str_text(&text), text.n, "chat_template_kwargs", e);
    str_free(&text);
    return rc;
}

static int take_flag(const struct json *o, const char *name, bool *out, struct err *e)
{
    const struct json *v = api_member(o, name);
    if (v && json_kind(v) != JSON_BOOL) return err_set(e, ERR_REQUEST, "%s: wanted true or false", name);
    if (v) *out = json_bool(v, false);
    return OK;
}

static int take_ends(const struct json *o, struct chat_asked *a, struct err *e)
{
    bool answer = true;
    int rc = take_flag(o, "add_generation_prompt", &answer, e);
    if (!rc) rc = take_flag(o, "continue_final_message", &a->goes_on, e);
    a->no_answer = !answer;
    if (!rc && a->goes_on && answer && api_member(o, "add_generation_prompt"))
        rc = err_set(e, ERR_REQUEST,
                     "continue_final_message: goes on with a message, and add_generation_prompt begins another one; "
                     "choose one");
    const struct json *choice = api_member(o, "tool_choice");
    if (!rc && a->tools && choice && !strcmp(json_string(choice, NULL, ""), "none"))
        rc = err_set(e, ERR_REQUEST, "tool_choice: nothing here keeps an answer from calls; leave out the tools");
    return rc;
}

int api_messages_read(const struct json *o, const struct chat *chat, struct tokens *prompt, struct err *e)
{
    const struct json *list = api_member(o, "messages");
    struct chat_asked a = {0};
    struct str text = {0};
    struct json_out out = {.s = &text};
    struct json *own = NULL, *others = NULL;
    if (!list || json_kind(list) != JSON_ARRAY || !json_size(list))
        return err_set(e, ERR_REQUEST, "messages: wanted a list of {\"role\", \"content\"}");
    if (!chat)
        return err_set(e, ERR_REQUEST,
                       "messages: the model has no chat template; give the server one "
                       "(--chat-template), or ask /v1/completions");
    int rc = take_list(o, chat, "tools", &a.tools, e);
    if (!rc) rc = take_list(o, chat, "documents", &a.documents, e);
    if (!rc) rc = take_others(o, chat, &others, e);
    if (!rc) rc = take_ends(o, &a, e);
    json_begin_array(&out, NULL);
    for (size_t i = 0; !rc && i < json_size(list); i++) rc = put_message(&out, chat, json_at(list, i), i, e);
    json_end_array(&out);
    if (!rc) rc = json_parse(&own, str_text(&text), text.n, "messages", e);
    if (!rc) {
        struct chat_work *w = chat_work_new(chat);
        a.messages = own;
        a.others = others;
        rc = chat_prompt_asked(w, &a, "messages", prompt, e);
        chat_work_free(w);
    }
    if (rc) rc = e->code = ERR_REQUEST;
    json_free(own);
    json_free(others);
    str_free(&text);
    return rc;
}
