/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.c: each record is rendered, tokenized to learn its length, and forgotten: both cost next to nothing beside
 * generating one token. */
#include "decode/prompts.h"

#include <string.h>

#include "base/mem.h"
#include "jinja/jinja.h"

struct prompts {
    struct prompts_options o;
    struct source *source;
    struct jinja *template;
    struct jinja_scope *scope;
    struct jinja_output out;
    struct str text, where;
    struct tokens ids;
    int64_t read, bad;
};

int prompts_open(struct prompts **out, const struct prompts_options *o, struct err *e)
{
    struct prompts *p = xcalloc(1, sizeof *p);
    p->o = *o;
    struct source_options how = {.whole_records = true,
                                 .skip_bad = o->skip_bad,
                                 .tell_bad = o->tell_bad,
                                 .tell_ctx = o->tell_ctx};
    int code = source_open_with(&p->source, &o->path, 1, &how, e);
    if (!code && o->template) {
        code = jinja_parse(&p->template, o->template, strlen(o->template), o->name, e);
        p->scope = jinja_scope_new();
        jinja_scope_strict(p->scope);
    }
    *out = code ? NULL : p;
    if (code) prompts_close(p);
    return code;
}

void prompts_close(struct prompts *p)
{
    if (!p) return;
    source_close(p->source);
    jinja_free(p->template);
    jinja_scope_free(p->scope);
    jinja_output_fini(&p->out);
    str_free(&p->text);
    str_free(&p->where);
    tokens_free(&p->ids);
    xfree(p);
}

static const char *where(struct prompts *p)
{
    str_clear(&p->where);
    source_tell_place(p->source, &p->where);
    return str_text(&p->where);
}

static int render(struct prompts *p, const struct json *record, struct err *e)
{
    jinja_scope_clear(p->scope);
    for (void *it = json_iter(record); it; it = json_iter_next(record, it))
        jinja_set_json(p->scope, json_iter_key(it), json_iter_value(it));
    jinja_output_fini(&p->out);
    int code = jinja_render(p->template, p->scope, NULL, &p->out, e);
    if (code) {
        err_prefix(e, "%s", where(p));
        return e->code = ERR_CORRUPT;
    }
    str_add(&p->text, str_text(&p->out.text), p->out.text.n);
    return OK;
}

static int take_member(struct prompts *p, const struct json *record, struct err *e)
{
    size_t n;
    const char *text = json_string(json_get(record, "prompt"), &n, NULL);
    if (text) {
        str_add(&p->text, text, n);
        return OK;
    }
    struct str names = {0};
    for (void *it = json_iter(record); it && names.n < 200; it = json_iter_next(record, it))
        str_printf(&names, "%s%.60s", names.n ? ", " : "", json_iter_key(it));
    int code = err_set(e, ERR_CORRUPT,
                       "%s: wanted a string member \"prompt\" (it has: %s); say how prompts are made of the members: "
                       "--template '... {{ member }} ...'",
                       where(p), str_text(&names));
    str_free(&names);
    return code;
}

static int check(struct prompts *p, struct err *e)
{
    if (!p->text.n) return err_set(e, ERR_CORRUPT, "%s: the prompt is empty", where(p));
    if (memchr(p->text.p, 0, p->text.n)) return err_set(e, ERR_CORRUPT, "%s: the prompt holds a NUL", where(p));
    p->ids.n = 0;
    int code = tokenizer_encode_text(p->o.tokenizer, p->text.p, p->text.n, &p->ids, e);
    if (code) {
        err_prefix(e, "%s", where(p));
        return e->code = ERR_CORRUPT;
    }
    for (int64_t i = 0; i < p->ids.n; i++)
        if (p->ids.ids[i] >= p->o.vocab)
            return err_set(e, ERR_REQUEST,
                           "%s: token %d of the prompt is not below the model's vocabulary of %lld: another tokenizer?",
                           where(p), p->ids.ids[i], (long long)p->o.vocab);
    if (p->ids.n > p->o.most_tokens)
        return err_set(e, ERR_CORRUPT,
                       "%s: the prompt is %lld tokens long, and there is room for %lld (--max-length, and the model's "
                       "positions)",
                       where(p), (long long)p->ids.n, (long long)p->o.most_tokens);
    return OK;
}

int prompts_next(struct prompts *p, const char **text, struct err *e)
{
    for (;;) {
        int got = source_next(p->source, e);
        if (got <= 0) return got;
        p->read++;
        str_clear(&p->text);
        size_t n;
        const char *line = source_line(p->source, &n);
        struct json *record = NULL;
        int code = line ? json_parse_published(&record, line, n, where(p), e)
                        : err_set(e, ERR_REQUEST, "%s: wanted a .jsonl file of records", p->o.path);
        if (!code) code = p->template ? render(p, record, e) : take_member(p, record, e);
        if (!code) code = check(p, e);
        json_free(record);
        *text = str_text(&p->text);
        if (!code) return 1;
        if (code != ERR_CORRUPT || !p->o.skip_bad) return code;
        p->bad++;
        if (p->o.tell_bad) p->o.tell_bad(p->o.tell_ctx, e->text);
    }
}

void prompts_where(const struct prompts *p, struct source_place *place) { source_where(p->source, place); }
int64_t prompts_index(const struct prompts *p) { return p->read - 1; }
int64_t prompts_tokens(const struct prompts *p) { return p->ids.n; }

int64_t prompts_n_bad(const struct prompts *p) { return p->bad + source_n_bad(p->source); }
uint64_t prompts_key(const struct prompts *p) { return source_key(p->source); }
