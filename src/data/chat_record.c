/* SPDX-License-Identifier: Apache-2.0 */
/* chat_record.c: what is no list of messages is written as one, in JSON, and read again: the forms meet in one place,
 * and the template sees the same values whichever it was. */
#include "data/chat_record.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "data/chat_forms.h"

static const char *const own_members[] = {"chosen", "rejected",   "messages",    "conversations",
                                          "prompt", "completion", "instruction", "input",
                                          "output", "system",     "history",     "add_generation_prompt"};

bool chat_record_passes(const char *member)
{
    for (size_t i = 0; i < sizeof own_members / sizeof *own_members; i++)
        if (!strcmp(member, own_members[i])) return false;
    return true;
}

/* -- forms --------------------------------------------------------------------------------------------------- */

/* Lists one behind the other, below the system's text where there is one. */
static int read_lists(struct chat_record *r, const struct json *a, const char *name, const struct json *b,
                      const struct json *system, const char *where, struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    json_begin_array(&o, NULL);
    if (system) chat_put_message(&o, "system", system);
    int code = chat_put_list(&o, a, name, where, e);
    if (!code && b) code = chat_put_list(&o, b, "completion", where, e);
    json_end_array(&o);
    if (!code) return chat_take(r, &o, where, e);
    str_free(&text);
    return code;
}

/* Turns before the instruction: pairs of what was asked and answered. */
static int put_history(struct chat_record *r, struct json_out *o, const char *where, struct err *e)
{
    const struct json *history = chat_use(r, "history");
    for (size_t i = 0; !chat_is_empty(history) && i < json_size(history); i++) {
        const struct json *turn = json_at(history, i), *asked = json_at(turn, 0), *answer = json_at(turn, 1);
        if (!chat_is_list(history) || !chat_is_list(turn) || json_size(turn) != 2 || !chat_is_text(asked) ||
            !chat_is_text(answer))
            return err_set(e, ERR_CORRUPT,
                           "%s: history[%zu]: wanted a list of two texts, what was asked and the answer", where, i);
        chat_put_message(o, "user", asked);
        chat_put_message(o, "assistant", answer);
    }
    if (!chat_is_empty(history) && !chat_is_list(history))
        return err_set(e, ERR_CORRUPT, "%s: history: wanted a list of turns", where);
    return OK;
}

static int read_instruction(struct chat_record *r, const char *where, struct err *e)
{
    const struct json *instruction = chat_use(r, "instruction"), *input = chat_use(r, "input"),
                      *output = chat_use(r, "output"), *system;
    struct str text = {0}, user = {0};
    struct json_out o = {.s = &text};
    int code = chat_system(r, NULL, &system, where, e);
    if (!code && input && !chat_is_text(input)) code = err_set(e, ERR_CORRUPT, "%s: \"input\": wanted a text", where);
    if (code) return code;
    str_puts(&user, json_string(instruction, NULL, ""));
    if (!chat_is_empty(input)) str_printf(&user, "\n\n%s", json_string(input, NULL, ""));
    json_begin_array(&o, NULL);
    if (system) chat_put_message(&o, "system", system);
    code = put_history(r, &o, where, e);
    chat_put_text(&o, "user", str_text(&user));
    chat_put_message(&o, "assistant", output);
    json_end_array(&o);
    str_free(&user);
    if (!code) return chat_take(r, &o, where, e);
    str_free(&text);
    return code;
}

/* Tables often hold a list as its JSON: then that is read. NULL in *list: it is no such text. */
static int read_text_of_list(struct chat_record *r, const struct json *v, const char *member, const struct json **list,
                             const char *where, struct err *e)
{
    size_t n = 0;
    const char *p = json_string(v, &n, "");
    char what[700];
    *list = NULL;
    if (!chat_is_text(v) || *(p + strspn(p, " \t\r\n")) != '[') return OK;
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

/* Messages that stand as they are wanted, or below a system's text. */
static int read_messages(struct chat_record *r, const struct json *list, const char *where, struct err *e)
{
    const struct json *system, *prompt = json_get(r->record, "prompt");
    int code = chat_system(r, list, &system, where, e);
    for (size_t i = 0; chat_is_text(prompt) && i < json_size(list); i++) /* it stands in the messages, too */
        if (chat_same(prompt, json_get(json_at(list, i), "content")))
            prompt = chat_use(r, "prompt"), i = json_size(list);
    if (!code && system) return read_lists(r, list, "messages", NULL, system, where, e);
    r->messages = list;
    return code;
}

static int read_conversations(struct chat_record *r, const struct json *list, const char *where, struct err *e)
{
    const struct json *system;
    int code = chat_system(r, list, &system, where, e);
    return code ? code : read_lists(r, list, "conversations", NULL, system, where, e);
}

static int read_pair(struct chat_record *r, const struct json *prompt, const struct json *completion, size_t *first,
                     const char *where, struct err *e)
{
    const struct json *system;
    bool lists = chat_is_list(prompt);
    int code = chat_system(r, lists ? prompt : NULL, &system, where, e);
    if (code) return code;
    if (lists) {
        *first = json_size(prompt) + (system != NULL);
        return read_lists(r, prompt, "prompt", completion, system, where, e);
    }
    if (system)
        return err_set(e, ERR_CORRUPT,
                       "%s: has a member \"system\" beside two texts, which are joined as they are, without a "
                       "template; "
                       "write \"messages\"",
                       where);
    r->prompt = json_string(prompt, &r->prompt_n, "");
    r->completion = json_string(completion, &r->completion_n, "");
    return OK;
}

/* Of no preference: the first of the forms that fits. */
static int read_plain(struct chat_record *r, size_t *first, const char *where, struct err *e)
{
    const struct json *record = r->record, *messages = json_get(record, "messages"),
                      *talk = json_get(record, "conversations"), *prompt = json_get(record, "prompt"),
                      *completion = json_get(record, "completion"), *list;
    int code = read_text_of_list(r, messages, "messages", &list, where, e);
    if (!code && list) messages = list;
    if (!code && !chat_is_list(messages)) {
        code = read_text_of_list(r, talk, "conversations", &list, where, e);
        if (!code && list) talk = list;
    }
    if (code) return code;
    if (chat_is_list(messages)) return chat_use(r, "messages"), read_messages(r, messages, where, e);
    if (chat_is_list(talk)) return chat_use(r, "conversations"), read_conversations(r, talk, where, e);
    if ((chat_is_list(prompt) && chat_is_list(completion)) || (chat_is_text(prompt) && chat_is_text(completion))) {
        (void)chat_use(r, "prompt");
        (void)chat_use(r, "completion");
        return read_pair(r, prompt, completion, first, where, e);
    }
    if (chat_is_text(json_get(record, "instruction")) && chat_is_text(json_get(record, "output")))
        return read_instruction(r, where, e);
    return err_set(e, ERR_CORRUPT,
                   "%s: wanted a record with a list \"messages\" or \"conversations\", or with \"prompt\" and "
                   "\"completion\", or \"instruction\" and \"output\"",
                   where);
}

int chat_record_read(struct chat_record *r, const struct json *record, enum chat_side side, const char *where,
                     struct err *e)
{
    size_t first = 0;
    *r = (struct chat_record){.record = record};
    int code = side == CHAT_PLAIN ? read_plain(r, &first, where, e) : chat_read_preference(r, side, &first, where, e);
    if (!code && r->messages) code = read_answers(r, first, where, e);
    bool answers = side == CHAT_PLAIN || !r->messages;
    for (int64_t i = 0; !code && i < r->n; i++) answers |= r->answer[i];
    if (!code && !answers)
        code = err_set(e, ERR_CORRUPT, "%s: %s: no message of the assistant to take a loss of", where,
                       side == CHAT_CHOSEN ? "chosen" : "rejected");
    if (code) chat_record_fini(r);
    return code;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The template has this word somewhere: it may read it. */
static bool has_word(const char *template, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = template; n && (p = strstr(p, word)) != NULL; p++)
        if ((p == template || !is_letter(p[-1])) && !is_letter(p[n])) return true;
    return false;
}

static bool holds_name(const struct str *names, const char *name)
{
    for (size_t at = 0; at < names->n; at += strlen(names->p + at) + 1)
        if (!strcmp(names->p + at, name)) return true;
    return false;
}

static void unread_of(const struct json *message, const char *template, struct str *out)
{
    static const char *const read[] = {"role", "content", "weight"};
    struct str key = {0}, name = {0};
    for (void *it = json_iter(message); it; it = json_iter_next(message, it)) {
        bool used = chat_is_empty(json_iter_value(it));
        json_iter_key_text(it, &key);
        for (size_t i = 0; i < sizeof read / sizeof *read; i++) used |= !strcmp(read[i], str_text(&key));
        if (used || has_word(template, str_text(&key))) continue;
        str_clear(&name);
        str_printf(&name, "messages.%s", str_text(&key));
        if (!holds_name(out, str_text(&name))) str_add(out, str_text(&name), name.n + 1);
    }
    str_free(&key);
    str_free(&name);
}

void chat_record_unread(const struct chat_record *r, const char *template, struct str *out)
{
    struct str name = {0};
    for (void *it = json_iter(r->record); it; it = json_iter_next(r->record, it)) {
        bool used = chat_is_empty(json_iter_value(it));
        json_iter_key_text(it, &name);
        for (int i = 0; i < r->n_used; i++) used |= !strcmp(r->used[i], str_text(&name));
        used |= r->messages && chat_record_passes(str_text(&name)) && has_word(template, str_text(&name));
        if (!used) str_add(out, str_text(&name), name.n + 1);
    }
    for (size_t i = 0; r->messages && i < json_size(r->messages); i++)
        unread_of(json_at(r->messages, i), template, out);
    str_free(&name);
}

int chat_record_asked(const struct json *record, const struct json **asked, struct json **own, const char *where,
                      struct err *e)
{
    struct chat_record r = {.record = record};
    const struct json *prompt = json_get(record, "prompt"), *list = prompt ? prompt : json_get(record, "messages"),
                      *system;
    *own = NULL;
    *asked = list;
    int code = chat_system(&r, chat_is_list(list) ? list : NULL, &system, where, e);
    if (code || !system) return code;
    if (!chat_is_list(list))
        return err_set(e, ERR_CORRUPT,
                       "%s: has a member \"system\" beside a prompt that is a text, which is read as it is, without a "
                       "template; write the prompt as messages",
                       where);
    code = read_lists(&r, list, "prompt", NULL, system, where, e);
    *asked = *own = r.own;
    return code;
}

/* What is asked, and an answer to it. */
static int put_answer(struct chat_record *r, const struct json *asked, const char *answer, size_t n, const char *where,
                      struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    if (memchr(answer, 0, n)) return err_set(e, ERR_CORRUPT, "%s: an answer that holds a NUL", where);
    json_begin_array(&o, NULL);
    int code = chat_put_list(&o, asked, "prompt", where, e);
    chat_put_text(&o, "assistant", answer);
    json_end_array(&o);
    if (!code) return chat_take(r, &o, where, e);
    str_free(&text);
    return code;
}

static int answer_messages(struct chat_record *r, const struct json *asked, const char *answer, size_t n,
                           const char *where, struct err *e)
{
    if (!chat_is_list(asked))
        return err_set(e, ERR_CORRUPT,
                       "%s: wanted a record with \"prompt\", a text or a list of messages, or with a list \"messages\"",
                       where);
    size_t last = json_size(asked);
    const char *role = last ? json_string(json_get(json_at(asked, last - 1), "role"), NULL, "") : "";
    if (!strcmp(role, "assistant"))
        return err_set(e, ERR_CORRUPT, "%s: the last message is the assistant's, and it was to answer", where);
    int code = put_answer(r, asked, answer, n, where, e);
    return code ? code : read_answers(r, last, where, e);
}

int chat_record_answered(struct chat_record *r, const struct json *record, const char *answer, size_t n,
                         const char *where, struct err *e)
{
    const struct json *prompt = json_get(record, "prompt"), *asked;
    struct json *own;
    *r = (struct chat_record){.record = record};
    int code = chat_record_asked(record, &asked, &own, where, e);
    if (!code && chat_is_text(prompt)) {
        r->prompt = json_string(prompt, &r->prompt_n, "");
        r->completion = answer;
        r->completion_n = n;
        return r->prompt_n ? OK : err_set(e, ERR_CORRUPT, "%s: the prompt is empty", where);
    }
    if (!code) code = answer_messages(r, asked, answer, n, where, e);
    json_free(own);
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
