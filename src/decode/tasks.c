/* SPDX-License-Identifier: Apache-2.0 */
/* One record at a time; a table says what each kind must have. */
#include "decode/tasks.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "source/source.h"

struct tasks {
    struct source *source;
    struct str where;
};

const char *task_kind_name(enum task_kind k)
{
    static const char *const name[TASK_KINDS] = {"perplexity", "choice", "match"};
    return name[k];
}

void task_record_fini(struct task_record *r)
{
    for (int i = 0; i < r->n_choices; i++) xfree(r->choice[i]);
    for (int i = 0; i < r->n_stop; i++) xfree(r->stop[i]);
    xfree(r->name);
    xfree(r->prompt);
    xfree(r->target);
    *r = (struct task_record){0};
}

int tasks_open(struct tasks **out, const char *path, struct err *e)
{
    struct tasks *t = xcalloc(1, sizeof *t);
    int rc = source_open_with(&t->source, &path, 1, &(struct source_options){.whole_records = true}, e);
    *out = rc ? NULL : t;
    if (rc) xfree(t);
    return rc;
}

void tasks_close(struct tasks *t)
{
    if (!t) return;
    source_close(t->source);
    str_free(&t->where);
    xfree(t);
}

static const char *where(struct tasks *t)
{
    str_clear(&t->where);
    source_tell_place(t->source, &t->where);
    return str_text(&t->where);
}

/* A member that is a text without NUL; NULL in *out where it is absent. */
static int take_text(struct tasks *t, const struct json *v, const char *name, char **out, struct err *e)
{
    size_t n;
    const char *text = json_string(v, &n, NULL);
    *out = NULL;
    if (!v) return OK;
    if (!text || memchr(text, 0, n))
        return err_set(e, ERR_REQUEST, "%s: \"%s\": wanted a text%s", where(t), name, text ? " without NUL" : "");
    *out = xstrdup(text);
    return OK;
}

/* A list of texts, or one; at most `most`. */
static int take_texts(struct tasks *t, const struct json *v, const char *name, char **out, int most, int *n,
                      struct err *e)
{
    bool list = v && json_kind(v) == JSON_ARRAY;
    size_t size = list ? json_size(v) : v != NULL;
    if (size > (size_t)most)
        return err_set(e, ERR_REQUEST, "%s: \"%s\": %zu texts, at most %d are taken", where(t), name, size, most);
    for (size_t i = 0; i < size; i++) {
        int rc = take_text(t, list ? json_at(v, i) : v, name, &out[*n], e);
        if (rc) return rc;
        ++*n;
    }
    return OK;
}

static int read_record(struct tasks *t, const struct json *record, struct task_record *r, struct err *e)
{
    char *text = NULL;
    int rc = take_text(t, json_get(record, "task"), "task", &r->name, e);
    if (!rc) rc = take_text(t, json_get(record, "text"), "text", &text, e);
    if (!rc) rc = take_text(t, json_get(record, "prompt"), "prompt", &r->prompt, e);
    if (!rc) rc = take_text(t, json_get(record, "target"), "target", &r->target, e);
    if (!rc) rc = take_texts(t, json_get(record, "choices"), "choices", r->choice, TASK_CHOICES, &r->n_choices, e);
    if (!rc) rc = take_texts(t, json_get(record, "stop"), "stop", r->stop, TASK_STOPS, &r->n_stop, e);
    int kinds = (text != NULL) + (r->n_choices > 0) + (r->target != NULL);
    if (!rc && (kinds != 1 || (!text && !r->prompt) || (text && r->prompt)))
        rc = err_set(e, ERR_REQUEST,
                     "%s: wanted one of: \"text\"; \"prompt\", \"choices\" and \"answer\"; \"prompt\" and \"target\"",
                     where(t));
    if (!rc && text) {
        r->kind = TASK_TEXT;
        r->prompt = text;
        text = NULL;
        if (!*r->prompt) rc = err_set(e, ERR_REQUEST, "%s: \"text\": is empty", where(t));
    } else if (!rc && r->n_choices) {
        int64_t answer = json_int(json_get(record, "answer"), -1);
        r->kind = TASK_CHOICE;
        if (answer < 0 || answer >= r->n_choices)
            rc = err_set(e, ERR_REQUEST, "%s: \"answer\": wanted the number of a choice, 0 to %d", where(t),
                         r->n_choices - 1);
        for (int i = 0; !rc && i < r->n_choices; i++)
            if (!*r->choice[i]) rc = err_set(e, ERR_REQUEST, "%s: choice %d is empty", where(t), i);
        r->answer = (int)answer;
    } else if (!rc) {
        const struct json *most = json_get(record, "max_tokens");
        r->kind = TASK_MATCH;
        r->max_tokens = most ? json_int(most, 0) : TASK_TOKENS;
        if (r->max_tokens < 1 || r->max_tokens > 1 << 20)
            rc = err_set(e, ERR_REQUEST, "%s: \"max_tokens\": wanted a number from 1 to %d", where(t), 1 << 20);
        for (int i = 0; !rc && i < r->n_stop; i++)
            if (!*r->stop[i]) rc = err_set(e, ERR_REQUEST, "%s: \"stop\": an empty text", where(t));
    }
    xfree(text);
    if (!rc && !r->name) r->name = xstrdup(task_kind_name(r->kind));
    return rc;
}

int tasks_next(struct tasks *t, struct task_record *r, struct err *e)
{
    *r = (struct task_record){0};
    int got = source_next(t->source, e);
    if (got <= 0) return got;
    size_t n;
    const char *line = source_line(t->source, &n);
    struct json *record = NULL;
    int rc = line ? json_parse_published(&record, line, n, "the record", e)
                  : err_set(e, ERR_REQUEST, "%s: wanted a .jsonl file of records", where(t));
    if (!rc) rc = read_record(t, record, r, e);
    json_free(record);
    if (!rc) return 1;
    task_record_fini(r);
    return rc;
}

int task_pair(const struct tokenizer *t, const char *prompt, const char *more, int32_t start, struct tokens *ids,
              int64_t *from, bool *apart, struct err *e)
{
    size_t n = strlen(prompt);
    struct str whole = {0};
    struct tokens asked = {0};
    while (n && strchr(" \t\n\r\v\f", prompt[n - 1])) n--;
    str_puts(&whole, prompt);
    str_puts(&whole, more);
    ids->n = 0;
    *apart = false;
    int rc = tokenizer_encode_text(t, prompt, n, &asked, e);
    if (!rc && !asked.n && start >= 0) tokens_push(&asked, start);
    if (!rc && !n) { /* what stands before any text, and the continuation */
        for (int64_t i = 0; i < asked.n; i++) tokens_push(ids, asked.ids[i]);
        rc = tokenizer_encode(t, str_text(&whole), whole.n, ids, e);
    } else if (!rc) {
        rc = tokenizer_encode_text(t, str_text(&whole), whole.n, ids, e);
    }
    if (!rc && n && ids->n <= asked.n) { /* all of the continuation merged with the prompt's end */
        *apart = true;
        ids->n = 0;
        for (int64_t i = 0; i < asked.n; i++) tokens_push(ids, asked.ids[i]);
        rc = tokenizer_encode(t, str_text(&whole) + n, whole.n - n, ids, e);
    }
    *from = asked.n;
    if (!rc && ids->n <= *from) rc = err_set(e, ERR_REQUEST, "\"%.60s\" has no tokens", more);
    str_free(&whole);
    tokens_free(&asked);
    return rc;
}
