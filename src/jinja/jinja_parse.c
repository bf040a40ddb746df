/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_parse.c: tokens → statements, by recursive descent, as deep as JINJA_DEPTH. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/jinja_ast.h"

enum { TEMPLATE_MAX = 1 << 20 };

/* -- what both parsers use ---------------------------------------------------------------------------------- */

struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind)
{
    struct jnode *n = arena_alloc(p->t->arena, sizeof *n);
    n->kind = kind;
    n->line = p->token->line;
    n->column = p->token->column;
    return n;
}

struct jnode *jparse_fail(struct jparser *p, const struct jtoken *at, const char *fmt, ...)
{
    char text[700];
    va_list args;
    if (p->code) return NULL;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->code = err_set(p->e, ERR_CORRUPT, "%s:%d:%d: %s", p->t->name, at->line, at->column, text);
    return NULL;
}

bool jparse_is(const struct jparser *p, const char *op)
{
    return !p->code && p->token->kind == JT_OP && !strcmp(p->token->p, op);
}

bool jparse_word(const struct jparser *p, const char *word)
{
    return !p->code && p->token->kind == JT_NAME && !strcmp(p->token->p, word);
}

bool jparse_skip(struct jparser *p, const char *op)
{
    if (!jparse_is(p, op)) return false;
    p->token++;
    return true;
}

bool jparse_skip_word(struct jparser *p, const char *word)
{
    if (!jparse_word(p, word)) return false;
    p->token++;
    return true;
}

void jparse_wanted(struct jparser *p, const char *what)
{
    static const char *const ends[] = {
        [JT_TEXT] = "text",
        [JT_BLOCK_BEGIN] = "{%",
        [JT_BLOCK_END] = "the end of the mark",
        [JT_OUT_BEGIN] = "{{",
        [JT_OUT_END] = "the end of the mark",
        [JT_END] = "the end of the template",
    };
    const struct jtoken *t = p->token;
    bool shown = t->kind >= JT_NAME && t->kind <= JT_OP;
    jparse_fail(p, t, "wanted %s, got %.60s", what, shown ? t->p : ends[t->kind]);
}

bool jparse_enter(struct jparser *p)
{
    if (++p->depth > JINJA_DEPTH) jparse_fail(p, p->token, "nested deeper than %d", JINJA_DEPTH);
    return !p->code;
}

/* -- statements --------------------------------------------------------------------------------------------- */

static struct jnode *statements(struct jparser *p, const char *const *ends);

static void end_of_mark(struct jparser *p)
{
    if (p->code) return;
    if (p->token->kind != JT_BLOCK_END) jparse_wanted(p, "%}");
    else p->token++;
}

/* What stands up to one of the words, whose mark's "{%" is taken and whose word is the next token. */
static struct jnode *block(struct jparser *p, const char *const *ends)
{
    end_of_mark(p);
    return p->code ? NULL : statements(p, ends);
}

static struct jnode *parse_if(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    struct jnode *first = n;
    for (;;) {
        n->a = jparse_tuple(p, false);
        n->body = block(p, ends);
        if (!jparse_word(p, "elif")) break;
        n->op = 'e';
        n->other = jparse_node(p, JN_IF);
        n = n->other;
        p->token++;
    }
    if (jparse_skip_word(p, "else")) n->other = block(p, last);
    if (!p->code) p->token++;
    end_of_mark(p);
    return first;
}

static struct jnode *parse_for(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    n->a = jparse_target(p, false);
    if (!jparse_skip_word(p, "in")) jparse_wanted(p, "in");
    n->b = jparse_tuple(p, false);
    if (jparse_skip_word(p, "if")) n->c = jparse_expression(p, true);
    if (jparse_word(p, "recursive")) jparse_fail(p, p->token, "recursive loops are not known here");
    n->body = block(p, ends);
    if (jparse_skip_word(p, "else")) n->other = block(p, last);
    if (!p->code) p->token++;
    end_of_mark(p);
    return n;
}

static struct jnode *parse_set(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = {"endset", NULL};
    n->a = jparse_target(p, true);
    if (jparse_skip(p, "=")) {
        n->b = jparse_tuple(p, true);
        end_of_mark(p);
        return n;
    }
    if (jparse_is(p, "|")) return jparse_fail(p, p->token, "filters on {%% set %%} blocks are not known here");
    n->kind = JN_SET_BLOCK;
    n->body = block(p, ends);
    if (!p->code) p->token++;
    end_of_mark(p);
    return n;
}

static struct jnode *parse_macro(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = {"endmacro", NULL};
    struct jnode **last = &n->items;
    if (!p->code && p->token->kind != JT_NAME) jparse_wanted(p, "the macro's name");
    if (!p->code) n->name = (p->token++)->p;
    if (!jparse_skip(p, "(")) jparse_wanted(p, "(");
    while (!p->code && !jparse_is(p, ")")) {
        struct jnode *arg = jparse_node(p, JN_ARG);
        if (p->token->kind != JT_NAME) jparse_wanted(p, "a parameter's name");
        if (p->code) return NULL;
        arg->name = (p->token++)->p;
        if (jparse_skip(p, "=")) arg->a = jparse_expression(p, true);
        *last = arg;
        last = &arg->next;
        if (!jparse_skip(p, ",") && !jparse_is(p, ")")) jparse_wanted(p, ", or )");
    }
    jparse_skip(p, ")");
    n->body = block(p, ends);
    if (!p->code) p->token++;
    end_of_mark(p);
    return n;
}

static struct jnode *parse_generation(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = {"endgeneration", NULL};
    n->body = block(p, ends);
    if (!p->code) p->token++;
    end_of_mark(p);
    p->t->marks_answers = true;
    return n;
}

static struct jnode *parse_with(struct jparser *p, struct jnode *n)
{
    static const char *const ends[] = {"endwith", NULL};
    struct jnode **last = &n->items;
    while (!p->code && p->token->kind != JT_BLOCK_END) {
        struct jnode *pair = jparse_node(p, JN_PAIR);
        if (n->items && !jparse_skip(p, ",")) jparse_wanted(p, ", or %}");
        pair->a = jparse_target(p, false);
        if (!jparse_skip(p, "=")) jparse_wanted(p, "=");
        pair->b = jparse_expression(p, true);
        *last = pair;
        last = &pair->next;
    }
    n->body = block(p, ends);
    if (!p->code) p->token++;
    end_of_mark(p);
    return n;
}

static struct jnode *parse_jump(struct jparser *p, struct jnode *n)
{
    end_of_mark(p);
    return n;
}

static const struct tag {
    const char *word;
    enum jnode_kind kind;
    struct jnode *(*parse)(struct jparser *p, struct jnode *n);
} tags[] = {
    {"if", JN_IF, parse_if},
    {"for", JN_FOR, parse_for},
    {"set", JN_SET, parse_set},
    {"macro", JN_MACRO, parse_macro},
    {"generation", JN_GENERATION, parse_generation},
    {"with", JN_WITH, parse_with},
    {"break", JN_BREAK, parse_jump},
    {"continue", JN_CONTINUE, parse_jump},
};

static struct jnode *statement(struct jparser *p)
{
    if (p->token->kind != JT_NAME) {
        jparse_wanted(p, "a statement");
        return NULL;
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (jparse_word(p, tags[i].word)) {
            struct jnode *n = jparse_node(p, tags[i].kind), *got = NULL;
            p->token++;
            if (jparse_enter(p)) got = tags[i].parse(p, n);
            jparse_leave(p);
            return got;
        }
    return jparse_fail(p, p->token,
                       "{%% %.60s %%} is not known here; there are if, for, set, macro, raw, generation, with, "
                       "break and continue",
                       p->token->p);
}

static struct jnode *output(struct jparser *p)
{
    struct jnode *n = jparse_node(p, JN_OUT);
    p->token++;
    n->a = jparse_tuple(p, true);
    if (p->code) return NULL;
    if (p->token->kind != JT_OUT_END) {
        jparse_wanted(p, "}}");
        return NULL;
    }
    p->token++;
    return n;
}

static bool is_one_of(const struct jtoken *t, const char *const *words)
{
    for (; t->kind == JT_NAME && *words; words++)
        if (!strcmp(t->p, *words)) return true;
    return false;
}

/* Statements up to a mark with one of the words, whose "{%" is taken then; ends NULL: up to the end. */
static struct jnode *statements(struct jparser *p, const char *const *ends)
{
    struct jnode *first = NULL, **last = &first;
    while (!p->code && p->token->kind != JT_END) {
        struct jnode *n;
        if (p->token->kind == JT_TEXT) {
            n = jparse_node(p, JN_TEXT);
            n->value = jv_text((struct jtext){.p = p->token->p, .n = p->token->n});
            p->token++;
        } else if (p->token->kind == JT_OUT_BEGIN) {
            n = output(p);
        } else {
            p->token++;
            if (ends && is_one_of(p->token, ends)) return first;
            n = statement(p);
        }
        if (!n) return NULL;
        *last = n;
        last = &n->next;
    }
    if (!p->code && ends) {
        struct str wanted = {0};
        for (; *ends; ends++) str_printf(&wanted, "%s{%% %s %%}", wanted.n ? " or " : "", *ends);
        jparse_wanted(p, str_text(&wanted));
        str_free(&wanted);
    }
    return first;
}

/* -- the whole ---------------------------------------------------------------------------------------------- */

/* The offset of the first byte that is no valid UTF-8, or n. */
static size_t invalid_utf8(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        int len = text[at] ? str_utf8(text + at, NULL) : 1; /* what a NUL ends reads as cut short */
        if (!len) return at;
        at += (size_t)len;
    }
    return n;
}

static int check_text(const char *text, size_t n, const char *name, struct err *e)
{
    if (n > TEMPLATE_MAX) return err_set(e, ERR_CORRUPT, "%s: a template of %zu bytes; at most 1 MiB is read", name, n);
    char *own = xmalloc(n + 1);
    if (n) memcpy(own, text, n);
    own[n] = 0;
    size_t bad = invalid_utf8(own, n);
    xfree(own);
    return bad < n ? err_set(e, ERR_CORRUPT, "%s: byte %zu is not valid UTF-8", name, bad) : OK;
}

int jinja_parse(struct jinja **out, const char *text, size_t n, const char *name, struct err *e)
{
    *out = NULL;
    struct jlexed lexed;
    struct jinja *t = xcalloc(1, sizeof *t);
    t->arena = arena_new();
    t->name = xstrdup(name);
    int code = check_text(text, n, name, e);
    if (!code) code = jinja_lex(&lexed, t->arena, text, n, name, e);
    if (!code) {
        struct jparser p = {.t = t, .token = lexed.token, .e = e};
        t->body = statements(&p, NULL);
        code = p.code;
    }
    if (code) jinja_free(t);
    else *out = t;
    return code;
}

void jinja_free(struct jinja *t)
{
    if (!t) return;
    arena_free(t->arena);
    xfree(t->name);
    xfree(t->names);
    xfree(t->members);
    xfree(t);
}

bool jinja_marks_answers(const struct jinja *t) { return t->marks_answers; }

bool jinja_names(const struct jinja *t, const char *name)
{
    for (int64_t i = 0; i < t->n_names; i++)
        if (!strcmp(t->names[i], name)) return true;
    return false;
}

bool jinja_reads(const struct jinja *t, const char *member)
{
    for (int64_t i = 0; i < t->n_members; i++)
        if (!strcmp(t->members[i], member)) return true;
    return false;
}
