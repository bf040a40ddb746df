/* SPDX-License-Identifier: Apache-2.0 */
/* chat_preference.c: records of which answer is preferred, in the forms that data sets have.
 *
 *   what is asked    "prompt", a text or a list of messages; "messages" or "conversations", lists; "question", or
 *                    "instruction" with perhaps "input", texts of a user; or nothing: what both answers begin with
 *   the answers      "chosen" and "rejected": texts, messages, lists of messages, or lists that are whole
 *                    conversations, which begin with what is asked
 *
 * "system" goes before all of it. A prompt and answers that are three texts are joined as they are, without a template;
 * two texts alone are dialogues of "\n\nHuman:" and "\n\nAssistant:", of which the last answer is the one. Whatever
 * fits none of these is refused: a half that is guessed would be learnt. Both sides are looked at, so a record is good
 * or bad for both alike. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/chat_forms.h"

struct asked {
    const struct json *list;         /* messages; or */
    const struct json *text, *input; /* a user's text, and what goes below it */
    bool raw;                        /* the text is joined with the answers as it is */
};

static bool is_message(const struct json *v)
{
    return v && json_kind(v) == JSON_OBJECT && (json_get(v, "role") || json_get(v, "from"));
}

/* What is asked; neither list nor text: it stands in the answers. */
static void find_asked(struct chat_record *r, struct asked *a)
{
    static const char *const names[] = {"prompt", "messages", "conversations", "question", "instruction"};
    *a = (struct asked){0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !a->list && !a->text; i++) {
        const struct json *v = json_get(r->record, names[i]);
        bool list = chat_is_list(v) && i < 3, text = chat_is_text(v) && (i == 0 || i > 2);
        if (!list && !text) continue;
        (void)chat_use(r, names[i]);
        a->list = list ? v : NULL;
        a->text = text ? v : NULL;
        a->raw = i == 0;
        if (i == 4 && chat_is_text(json_get(r->record, "input"))) a->input = chat_use(r, "input");
    }
}

static size_t messages_of(const struct json *v) { return chat_is_list(v) ? json_size(v) : 1; }
static const struct json *message_at(const struct json *v, size_t i) { return chat_is_list(v) ? json_at(v, i) : v; }

static const struct json *content_of(const struct json *m)
{
    return json_get(m, json_get(m, "role") ? "content" : "value");
}

/* How many messages two conversations have in common at their beginning. */
static size_t common(const struct json *a, const struct json *b)
{
    size_t i = 0;
    while (i < messages_of(a) && i < messages_of(b) && chat_same(message_at(a, i), message_at(b, i))) i++;
    return i;
}

/* Both are conversations that part with their last message: that is the answer. */
static bool part_at_the_end(const struct json *a, const struct json *b)
{
    size_t n = messages_of(a);
    return n > 1 && n == messages_of(b) && common(a, b) + 1 >= n;
}

static int put_side(struct json_out *o, const struct json *side, const char *name, const char *where, struct err *e)
{
    if (chat_is_list(side)) return chat_put_list(o, side, name, where, e);
    if (!chat_is_text(side)) return chat_put_one(o, side, name, 0, where, e);
    chat_put_message(o, "assistant", side);
    return OK;
}

/* "\n\nHuman: ...\n\nAssistant: ...": both begin alike up to what the last "Assistant:" is followed by. */
static int read_dialogues(struct chat_record *r, const struct json *chosen, const struct json *rejected,
                          const struct json *mine, const char *where, struct err *e)
{
    static const char mark[] = "\n\nAssistant:";
    const char *p[2];
    size_t n[2], at[2] = {0};
    p[0] = json_string(chosen, &n[0], "");
    p[1] = json_string(rejected, &n[1], "");
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k + sizeof mark - 1 <= n[i]; k++)
            if (!memcmp(p[i] + k, mark, sizeof mark - 1)) at[i] = k + sizeof mark - 1;
    if (!at[0] || at[0] != at[1] || memcmp(p[0], p[1], at[0]))
        return err_set(e, ERR_CORRUPT,
                       "%s: \"chosen\" and \"rejected\" are texts without a prompt; wanted one, or dialogues of "
                       "\"\\n\\nHuman:\" and \"\\n\\nAssistant:\" that begin alike up to their last answer",
                       where);
    if (at[0] == n[0] || at[0] == n[1]) return err_set(e, ERR_CORRUPT, "%s: an empty chosen or rejected answer", where);
    r->prompt = json_string(mine, &r->completion_n, "");
    r->prompt_n = at[0];
    r->completion = r->prompt + at[0];
    r->completion_n -= at[0];
    return OK;
}

static int read_texts(struct chat_record *r, const struct json *prompt, const struct json *chosen,
                      const struct json *rejected, const struct json *mine, const char *where, struct err *e)
{
    size_t n[2];
    r->prompt = json_string(prompt, &r->prompt_n, "");
    r->completion = json_string(mine, &r->completion_n, "");
    json_string(chosen, &n[0], "");
    json_string(rejected, &n[1], "");
    if (r->prompt_n && n[0] && n[1]) return OK;
    return err_set(e, ERR_CORRUPT, "%s: an empty prompt, chosen or rejected answer", where);
}

/* Messages before the answers: of what is asked, none where they stand in the answers. */
static int put_asked(struct json_out *o, const struct asked *a, const struct json *system, const char *where,
                     struct err *e)
{
    struct str user = {0};
    if (system) chat_put_message(o, "system", system);
    if (a->list) return chat_put_list(o, a->list, "prompt", where, e);
    if (!a->text) return OK;
    str_puts(&user, json_string(a->text, NULL, ""));
    if (!chat_is_empty(a->input)) str_printf(&user, "\n\n%s", json_string(a->input, NULL, ""));
    chat_put_text(o, "user", str_text(&user));
    str_free(&user);
    return OK;
}

static bool is_answer(const struct json *m)
{
    const char *role = json_string(json_get(m, "role"), NULL, NULL), *from = json_string(json_get(m, "from"), NULL, "");
    return role ? !strcmp(role, "assistant") || !strcmp(role, "model")
                : strcmp(from, "human") && strcmp(from, "system");
}

/* How many of the messages of whole conversations are what is asked; 0: the answers are none, but go behind it. -1:
 * they are, and ask something else. */
static int64_t asked_in(const struct asked *a, const struct json *chosen, const struct json *rejected)
{
    bool lists = chat_is_list(chosen) && chat_is_list(rejected);
    size_t n = lists ? common(chosen, rejected) : 0, all = a->list ? json_size(a->list) : 0;
    size_t k = lists && a->list ? common(a->list, chosen) : 0;
    if (k && k == all && n >= k) return (int64_t)k;
    /* "messages" beside them may be the one conversation or the other once more. */
    bool again = lists && a->list && (chat_same(a->list, chosen) || chat_same(a->list, rejected));
    if (a->list && !again) return k ? -1 : 0;
    if (!lists || !part_at_the_end(chosen, rejected))
        return a->text && lists && !is_answer(json_at(chosen, 0)) ? -1 : again ? -1 : 0;
    if (n == json_size(chosen)) n--; /* both answers are the same */
    for (size_t i = n; a->text && i > 0; i--)
        if (chat_same(a->text, content_of(json_at(chosen, i - 1)))) return (int64_t)n;
    return a->text ? -1 : (int64_t)n;
}

static int refuse(const char *where, struct err *e)
{
    return err_set(e, ERR_CORRUPT,
                   "%s: wanted a record with \"prompt\", \"chosen\" and \"rejected\", three texts or three lists of "
                   "messages, or with \"chosen\" and \"rejected\", two conversations",
                   where);
}

static int64_t count_prompt(const struct asked *a, const struct json *system)
{
    return (system != NULL) + (a->list ? (int64_t)json_size(a->list) : a->text != NULL);
}

/* The answers as messages, behind those of what is asked. */
static int read_messages(struct chat_record *r, const struct asked *a, const struct json *chosen,
                         const struct json *rejected, bool first_side, size_t *first, const char *where, struct err *e)
{
    const struct json *system, *mine = first_side ? chosen : rejected;
    struct str text = {0};
    struct json_out o = {.s = &text};
    int64_t inside = asked_in(a, chosen, rejected);
    if (inside < 0)
        return err_set(e, ERR_CORRUPT, "%s: \"chosen\" and \"rejected\" are conversations about another prompt", where);
    if (!inside && !a->list && !a->text)
        return err_set(e, ERR_CORRUPT,
                       "%s: chosen and rejected differ before their last messages; wanted conversations that begin "
                       "alike, or a prompt apart",
                       where);
    int code = chat_system(r, inside ? chosen : a->list, &system, where, e);
    if (code) return code;
    const struct asked none = {0};
    if (inside && !system && json_get(json_at(mine, 0), "role")) { /* they are messages already */
        *first = (size_t)inside;
        r->messages = mine;
        return OK;
    }
    if (inside) a = &none;
    json_begin_array(&o, NULL);
    code = put_asked(&o, a, system, where, e);
    if (!code) code = put_side(&o, mine, first_side ? "chosen" : "rejected", where, e);
    json_end_array(&o);
    *first = (size_t)(inside ? inside + (system != NULL) : count_prompt(a, system));
    if (!code) return chat_take(r, &o, where, e);
    str_free(&text);
    return code;
}

static bool is_side(const struct json *v)
{
    return chat_is_text(v) || is_message(v) || (chat_is_list(v) && json_size(v));
}

int chat_read_preference(struct chat_record *r, enum chat_side side, size_t *first, const char *where, struct err *e)
{
    const struct json *chosen = chat_use(r, "chosen"), *rejected = chat_use(r, "rejected"),
                      *mine = side == CHAT_CHOSEN ? chosen : rejected;
    struct asked a;
    find_asked(r, &a);
    if (!is_side(chosen) || !is_side(rejected) || chat_is_text(chosen) != chat_is_text(rejected))
        return refuse(where, e);
    if (!a.text && !a.list && !chat_is_empty(json_get(r->record, "prompt"))) return refuse(where, e);
    bool texts = chat_is_text(chosen), system = !chat_is_empty(json_get(r->record, "system"));
    if (texts && !a.text && !a.list && !system) return read_dialogues(r, chosen, rejected, mine, where, e);
    if (texts && !a.text && !a.list) return refuse(where, e);
    if (texts && a.text && a.raw && !system) return read_texts(r, a.text, chosen, rejected, mine, where, e);
    return read_messages(r, &a, chosen, rejected, side == CHAT_CHOSEN, first, where, e);
}
