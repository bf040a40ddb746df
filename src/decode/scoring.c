/* SPDX-License-Identifier: Apache-2.0 */
/* A line is its tokens, all of which are fed and of which the last one's row is wanted. Texts are fed side by side, as
 * many as there are sequences, each as far as the rows of a step go; who has been fed makes room for the next. */
#include "decode/scoring.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config.h"
#include "data/chat.h"

enum { GROUPS = 8 /* lines of a group, for each sequence at once */ };

struct text { /* of a line */
    int64_t first, n;
    int64_t line; /* from 1 */
    int sequence; /* -1: not begun, or done */
    int64_t fed;
    double score;
};

struct scorer {
    const struct scoring *s;
    struct chat *chat;
    struct chat_work *work;
    struct chat_tokens tokens; /* of a line */
    struct tokens ids;         /* of a group, one text after the other */
    struct text *text;
    int64_t n, room;
    const char *at, *end; /* what is not read yet */
    int64_t line;
    bool end_read;
};

static const char *where(const struct scorer *x, char out[80], int64_t line)
{
    snprintf(out, 80, "%.40s: line %lld", x->s->what, (long long)line);
    return out;
}

/* ---- lines ---- */

static int encode(struct scorer *x, const struct json *line, const char *place, struct err *e)
{
    const struct json *record = json_get(line, "record"), *ended = json_get(line, "ended");
    size_t n;
    const char *answer = json_string(json_get(line, "answer"), &n, NULL);
    if (!answer) return err_set(e, ERR_CORRUPT, "%s: wanted an object with \"answer\", a text", place);
    if (ended && json_kind(ended) != JSON_BOOL)
        return err_set(e, ERR_CORRUPT, "%s: ended: wanted true or false", place);
    if (!record) record = line;
    bool messages = !json_get(record, "prompt") || json_kind(json_get(record, "prompt")) == JSON_ARRAY;
    if (messages && !x->s->template_name && (json_get(record, "prompt") || json_get(record, "messages")))
        return err_set(e, ERR_REQUEST, "%s: messages are written by a template; name one (--chat)", place);
    int rc = chat_answered(x->work, record, answer, n, json_bool(ended, true), place, &x->tokens, e);
    if (!rc && x->tokens.ends_trained && x->end_read) tokens_push(&x->tokens.ids, tokenizer_eos(x->s->tokenizer));
    if (!rc && x->tokens.ids.n > decoding_room(x->s->decoding))
        rc = err_set(e, ERR_REQUEST, "%s: %lld tokens, and there is room for %lld (--positions, or what the model has)",
                     place, (long long)x->tokens.ids.n, (long long)decoding_room(x->s->decoding));
    return rc;
}

static void keep(struct scorer *x)
{
    GROW(x->text, x->n, x->room, 1);
    x->text[x->n++] = (struct text){.first = x->ids.n, .n = x->tokens.ids.n, .line = x->line, .sequence = -1};
    for (int64_t i = 0; i < x->tokens.ids.n; i++) tokens_push(&x->ids, x->tokens.ids.ids[i]);
}

/* Lines of a group; none: they are over. */
static int read_group(struct scorer *x, struct err *e)
{
    int64_t most = GROUPS * decoding_sequences(x->s->decoding);
    x->n = x->ids.n = 0;
    while (x->at < x->end && x->n < most) {
        const char *stop = memchr(x->at, '\n', (size_t)(x->end - x->at)), *line = x->at;
        size_t n = (size_t)((stop ? stop : x->end) - line);
        char place[80];
        struct json *j = NULL;
        x->line++;
        x->at = stop ? stop + 1 : x->end;
        while (n && strchr(" \t\r", line[n - 1]) && line[n - 1]) n--;
        if (!n) continue;
        int rc = json_parse_published(&j, line, n, where(x, place, x->line), e);
        if (!rc) rc = encode(x, j, place, e);
        if (!rc) keep(x);
        json_free(j);
        if (rc) return rc;
    }
    return OK;
}

/* ---- scores ---- */

static void begin(struct scorer *x, struct text *t)
{
    struct decoding *d = x->s->decoding;
    t->sequence = decoding_open(d);
    CHECK(t->sequence >= 0, "all sequences are in use");
    t->fed = decoding_reuse(d, t->sequence, x->ids.ids + t->first, t->n);
}

/* Feeds a step of the texts under way, [from, to). */
static int step(struct scorer *x, int64_t from, int64_t to, struct err *e)
{
    struct decoding *d = x->s->decoding;
    struct decoding_part *part = xcalloc(to_size(to - from), sizeof *part);
    struct text **of = xcalloc(to_size(to - from), sizeof *of);
    const float *score = NULL;
    int64_t left = decoding_rows(d);
    int n = 0;
    for (int64_t i = from; i < to && left; i++) {
        struct text *t = &x->text[i];
        if (t->sequence < 0) continue;
        int64_t rows = t->n - t->fed < left ? t->n - t->fed : left;
        part[n] = (struct decoding_part){t->sequence, x->ids.ids + t->first + t->fed, rows, t->fed + rows == t->n};
        of[n++] = t;
        left -= rows;
    }
    int rc = decoding_step(d, part, n, &score, e);
    for (int k = 0; !rc && k < n; k++) {
        struct text *t = of[k];
        char place[80];
        t->fed += part[k].n;
        if (!part[k].wanted) continue;
        t->score = (double)*score++;
        decoding_close(d, t->sequence);
        t->sequence = -1;
        if (!isfinite(t->score)) rc = err_set(e, ERR_NUMERIC, "%s: the score is not finite", where(x, place, t->line));
    }
    xfree(part);
    xfree(of);
    return rc;
}

static int score_group(struct scorer *x, struct err *e)
{
    int rc = OK;
    int64_t under_way = 0, next = 0, first = 0;
    decoding_forget(x->s->decoding);
    while (!rc && first < x->n) {
        for (; next < x->n && under_way < decoding_sequences(x->s->decoding); next++, under_way++)
            begin(x, &x->text[next]);
        rc = step(x, first, next, e);
        under_way = 0;
        for (int64_t i = first; i < next; i++) under_way += x->text[i].sequence >= 0;
        while (first < next && x->text[first].sequence < 0) first++;
    }
    for (int64_t i = first; i < next; i++)
        if (x->text[i].sequence >= 0) decoding_close(x->s->decoding, x->text[i].sequence);
    return rc;
}

int scoring_lines(const struct scoring *s, const char *lines, size_t bytes, scoring_put_fn *put, void *ctx,
                  struct err *e)
{
    struct scorer x = {.s = s, .at = lines, .end = lines + bytes};
    struct chat_rules rules = {.template_name = s->template_name ? s->template_name : "plain",
                               .tokenizer_path = s->tokenizer_path,
                               .day = s->day};
    x.end_read = decoding_model(s->decoding)->score_at == SCORE_AT_END;
    int rc = tokenizer_eos(s->tokenizer) < 0
                 ? err_set(e, ERR_REQUEST, "the tokenizer names no end of text, which ends what is scored")
                 : chat_open(&x.chat, &rules, s->tokenizer, e);
    if (!rc) x.work = chat_work_new(x.chat);
    while (!rc && x.at < x.end) {
        int bad = read_group(&x, e); /* those before a bad line are told */
        struct err ignored;
        if (x.n) rc = score_group(&x, bad ? &ignored : e);
        for (int64_t i = 0; !rc && i < x.n; i++) rc = put(ctx, x.text[i].score, bad ? &ignored : e);
        if (bad) rc = bad;
    }
    chat_work_free(x.work);
    chat_close(x.chat);
    chat_tokens_free(&x.tokens);
    tokens_free(&x.ids);
    xfree(x.text);
    return rc;
}

/* ---- the run's template ---- */

int scoring_template(const struct weights *w, char **name, char **day, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    *name = *day = NULL;
    int rc = weights_ckpt(w) ? weights_file(w, "config.yaml", &text, &n, e) : OK;
    if (rc || !text) return rc;
    struct arena *a = arena_new();
    struct config c;
    struct err ignored;
    memset(&c, 0, sizeof c);
    struct conf *f = conf_new(config_rows, &c, a);
    if (!conf_read_text(f, text, n, "config.yaml", &ignored) && c.data.train.n) {
        const struct config_source *of = c.data.train.items;
        bool same = of[0].chat != NULL;
        for (int i = 1; i < c.data.train.n; i++) same = same && of[i].chat && !strcmp(of[i].chat, of[0].chat);
        if (same) *name = xstrdup(of[0].chat);
        for (int i = 0; i < c.data.train.n; i++)
            same = same && of[0].date && of[i].date && !strcmp(of[i].date, of[0].date);
        if (same) *day = xstrdup(of[0].date);
    }
    arena_free(a);
    xfree(text);
    return OK;
}
