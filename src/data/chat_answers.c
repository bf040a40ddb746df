/* SPDX-License-Identifier: Apache-2.0 */
/* chat_answers.c: a record's text, and which of its bytes are answers of which a loss is taken.
 *
 * Without {% generation %} an answer is found between two renderings: of the messages before it, with the generation
 * prompt, and of those with it. That is right only where a conversation's text begins with the text of its beginning,
 * so it is compared, byte by byte. Rejected: looking for the message's content in the text (templates change it, and it
 * may stand there twice), and rendering with marks put into the content (templates look at it).
 */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "data/chat_impl.h"

void chat_text_fini(struct chat_text *t)
{
    jinja_output_fini(&t->out);
    xfree(t->answers);
    *t = (struct chat_text){0};
}

static void put_answer(struct chat_text *t, size_t from, size_t to)
{
    GROW(t->answers, t->n_answers, t->answers_room, 1);
    t->answers[t->n_answers++] = (struct jinja_span){from, to};
}

static void set_scope(struct chat_work *w, const struct chat_record *r)
{
    struct jinja_scope *s = w->scope;
    jinja_scope_clear(s);
    for (void *it = json_iter(r->record); it; it = json_iter_next(r->record, it))
        if (chat_record_passes(json_iter_key(it))) jinja_set_json(s, json_iter_key(it), json_iter_value(it));
    jinja_set_messages(s, "messages", r->messages, "role");
    jinja_set_text(s, "bos_token", w->chat->bos);
    jinja_set_text(s, "eos_token", w->chat->eos);
}

static int told(const struct chat_work *w, int code, const char *where, struct err *e)
{
    if (code && strstr(e->text, "'strftime_now' is undefined"))
        return err_set(e, ERR_REQUEST,
                       "%s: the template %s writes the day's date (strftime_now), and samples must not change from day "
                       "to day; say which day it is: date: YYYY-MM-DD beside chat (data tokenize --date)",
                       where, w->chat->name);
    return code ? err_prefix(e, "%s", where) : OK;
}

/* The text of the first n messages. */
static int render(struct chat_work *w, int64_t n, bool prompt, const char *where, struct jinja_output *out,
                  struct err *e)
{
    jinja_set_first(w->scope, "messages", n);
    jinja_set_bool(w->scope, "add_generation_prompt", prompt);
    struct tm day;
    return told(w, jinja_render(w->chat->template, w->scope, chat_day(w->chat, &day), out, e), where, e);
}

/* What stands behind the last message's content while it is rendered: there the text is cut. No template has it. The
 * space is transformers' way to see whether a template takes space off a content's end. */
#define OPEN_END "\xEF\xB7\x90tutti\xEF\xB7\x90goes\xEF\xB7\x90on"

static int cut_at_open_end(struct jinja_output *o, const char *where, struct err *e)
{
    const char *p = str_text(&o->text), *last = NULL;
    for (const char *at = p; (at = memmem(at, o->text.n - (size_t)(at - p), OPEN_END, strlen(OPEN_END))); at++)
        last = at;
    if (!last)
        return err_set(e, ERR_REQUEST,
                       "%s: the template does not write the last message's content as it is, so the "
                       "text cannot go on behind it",
                       where);
    size_t n = (size_t)(last - p);
    bool trims = last[strlen(OPEN_END)] != ' ';
    for (; trims && n; n--)
        if (!strchr(" \t\n\r\f\v", p[n - 1])) break;
    o->text.n = o->data.n = n;
    if (o->text.p) o->text.p[n] = 0;
    return OK;
}

int chat_render_prompt(struct chat_work *w, const struct chat_asked *a, const char *where, struct chat_text *out,
                       struct err *e)
{
    struct jinja_scope *s = w->scope;
    struct tm day;
    *out = (struct chat_text){0};
    jinja_scope_clear(s);
    jinja_set_text(s, "bos_token", w->chat->bos);
    jinja_set_text(s, "eos_token", w->chat->eos);
    for (void *it = a->others ? json_iter(a->others) : NULL; it; it = json_iter_next(a->others, it))
        jinja_set_json(s, json_iter_key(it), json_iter_value(it));
    jinja_set_messages(s, "messages", a->messages, "role");
    jinja_set_json(s, "tools", a->tools); /* none where there are none, as transformers has it */
    jinja_set_json(s, "documents", a->documents);
    jinja_set_bool(s, "add_generation_prompt", !a->no_answer && !a->goes_on);
    if (a->goes_on && !jinja_append_last(s, "messages", "content", OPEN_END " "))
        return err_set(e, ERR_REQUEST, "%s: the last message has no content to go on with", where);
    int code = told(w, jinja_render(w->chat->template, s, chat_day(w->chat, &day), &out->out, e), where, e);
    if (!code && a->goes_on) code = cut_at_open_end(&out->out, where, e);
    if (code) jinja_output_fini(&out->out);
    return code;
}

/* Whether the message's answer counts under the rules. */
static bool counts(const struct chat *c, const struct chat_record *r, int64_t i)
{
    if (!r->answer[i]) return false;
    for (int64_t k = i + 1; c->train_on == CHAT_LAST && k < r->n; k++)
        if (r->answer[k]) return false;
    return true;
}

static bool is_assistant(const struct json *message)
{
    const char *role = json_string(json_get(message, "role"), NULL, "");
    return !strcmp(role, "assistant") || !strcmp(role, "model");
}

/* How many bytes two texts have in common at their beginning. */
static size_t common(const struct jinja_output *a, const struct jinja_output *b)
{
    size_t n = a->text.n < b->text.n ? a->text.n : b->text.n, i = 0;
    while (i < n && a->text.p[i] == b->text.p[i]) i++;
    return i;
}

static int unstable(const struct chat_work *w, const char *where, int64_t i, const struct jinja_output *part,
                    const struct jinja_output *whole, const char *what, struct err *e)
{
    size_t at = common(part, whole);
    return err_set(
        e, ERR_REQUEST,
        "%s: the template %s cannot tell what of message %lld is the answer: %s begins otherwise than the whole "
        "conversation does, from byte %zu on (\"%.30s\" and \"%.30s\"). Choose train_on: last if only earlier "
        "answers change, a template with {%% generation %%}, or one by name",
        where, w->chat->name, (long long)i, what, at, str_text(&part->text) + at, str_text(&whole->text) + at);
}

static int marks_wrong(const struct chat_work *w, const char *where, int64_t i, int marks, bool answers, struct err *e)
{
    return err_set(e, ERR_REQUEST,
                   "%s: the template %s marks %d parts of message %lld as generated, which is %s; {%% generation %%} "
                   "must enclose the messages of the assistant and nothing else",
                   where, w->chat->name, marks, (long long)i, answers ? "the assistant's" : "not the assistant's");
}

/* How many of the marked parts stand in the first n messages, told by rendering these. */
static int marks_before(struct chat_work *w, int64_t n, const char *where, const struct chat_text *t, int *marks,
                        struct err *e)
{
    struct jinja_output part = {0};
    int code = n ? render(w, n, false, where, &part, e) : OK;
    *marks = part.n_answers;
    size_t end = part.n_answers ? part.answers[part.n_answers - 1].to : 0;
    bool same = part.n_answers <= t->out.n_answers && common(&part, &t->out) >= end;
    for (int k = 0; same && k < part.n_answers; k++)
        same = part.answers[k].from == t->out.answers[k].from && part.answers[k].to == t->out.answers[k].to;
    if (!code && !same) code = unstable(w, where, n - 1, &part, &t->out, "the conversation up to it", e);
    jinja_output_fini(&part);
    return code;
}

/* {% generation %} marked them. One for each message of the assistant is the usual; several of one message, around its
 * thoughts and its answer, say, are told by what stands in the messages up to it. */
static int take_marked(struct chat_work *w, const struct chat_record *r, const char *where, struct chat_text *t,
                       struct err *e)
{
    const struct jinja_output *o = &t->out;
    int64_t n = 0;
    int code = OK, before = 0, marks = 0;
    for (int64_t i = 0; i < r->n; i++) n += is_assistant(json_at(r->messages, (size_t)i));
    for (int64_t i = 0; i < r->n && !code; i++, before = marks) {
        bool answers = is_assistant(json_at(r->messages, (size_t)i));
        marks = before + answers;
        if (n != o->n_answers) {
            if (i + 1 < r->n) code = marks_before(w, i + 1, where, t, &marks, e);
            else marks = o->n_answers;
            if (!code && (marks > before) != answers) code = marks_wrong(w, where, i, marks - before, answers, e);
        }
        for (int k = before; k < marks && !code && counts(w->chat, r, i); k++)
            put_answer(t, o->answers[k].from, o->answers[k].to);
    }
    return code;
}

/* Message i: from behind the prompt that asks for it to the end of its turn. */
static int take_between(struct chat_work *w, const struct chat_record *r, int64_t i, const char *where,
                        struct chat_text *t, struct err *e)
{
    struct jinja_output before = {0}, with = {0};
    const struct jinja_output *up_to = &t->out;
    int code = render(w, i, true, where, &before, e);
    if (!code && i + 1 < r->n) {
        code = render(w, i + 1, false, where, &with, e);
        up_to = &with;
    }
    if (!code && common(&before, &t->out) < before.text.n)
        code = unstable(w, where, i, &before, &t->out, "the prompt for it", e);
    if (!code && common(up_to, &t->out) < up_to->text.n)
        code = unstable(w, where, i, up_to, &t->out, "the conversation up to it", e);
    if (!code && up_to->text.n < before.text.n)
        code = unstable(w, where, i, up_to, &before, "the conversation up to it", e);
    if (!code) put_answer(t, before.text.n, up_to->text.n);
    jinja_output_fini(&before);
    jinja_output_fini(&with);
    return code;
}

/* Two texts, as they are: all of it is data, and the second is the answer. */
static void join_texts(const struct chat_record *r, struct chat_text *t)
{
    str_add(&t->out.text, r->prompt, r->prompt_n);
    str_add(&t->out.text, r->completion, r->completion_n);
    for (size_t i = 0; i < t->out.text.n; i++) str_putc(&t->out.data, 1);
    put_answer(t, r->prompt_n, t->out.text.n);
}

int chat_render(struct chat_work *w, const struct chat_record *r, const char *where, struct chat_text *t, struct err *e)
{
    *t = (struct chat_text){0};
    if (!r->messages) {
        join_texts(r, t);
        return OK;
    }
    set_scope(w, r);
    int code = render(w, r->n, false, where, &t->out, e);
    if (w->chat->train_on == CHAT_ALL) {
        if (!code) put_answer(t, 0, t->out.text.n);
    } else if (jinja_marks_answers(w->chat->template)) {
        if (!code) code = take_marked(w, r, where, t, e);
    } else {
        for (int64_t i = 0; !code && i < r->n; i++)
            if (counts(w->chat, r, i)) code = take_between(w, r, i, where, t, e);
    }
    if (code) chat_text_fini(t);
    return code;
}
