/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_expr.c: expressions, a function for each level of precedence:
 *
 *   x if y else z    or    and    not    == != < <= > >= in    + -    ~    * / // %    **    unary    postfix | is
 *
 * Chains of one level are loops, so only brackets and signs go deeper.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja_ast.h"
#include "jinja/jinja_tables.h"

static struct jnode *unary(struct jparser *p, bool with_filter);
static struct jnode *or_level(struct jparser *p);

static struct jnode *with_two(struct jparser *p, enum jnode_kind kind, const struct jtoken *at, struct jnode *a,
                              struct jnode *b)
{
    struct jnode *n = jparse_node(p, kind);
    n->line = at->line;
    n->column = at->column;
    n->a = a;
    n->b = b;
    return n;
}

/* -- arguments, filters, tests ------------------------------------------------------------------------------- */

/* Behind "(", up to and with ")". */
static struct jnode *arguments(struct jparser *p)
{
    struct jnode *first = NULL, **last = &first;
    bool keywords = false, list = false, dict = false; /* after * and ** there are none with a place */
    while (!p->code && !jparse_is(p, ")")) {
        struct jnode *arg = jparse_node(p, JN_ARG);
        if (dict || (list && jparse_is(p, "*"))) return jparse_fail(p, p->token, "an argument behind the last one");
        if (jparse_skip(p, "*")) {
            arg->op = '*';
            list = true;
        } else if (jparse_skip(p, "**")) {
            arg->op = 'd';
            dict = true;
        } else if (p->token->kind == JT_NAME && p->token[1].kind == JT_OP && !strcmp(p->token[1].p, "=")) {
            arg->name = p->token->p;
            p->token += 2;
            keywords = true;
        } else if (keywords || list) {
            return jparse_fail(p, p->token, "an argument without a name behind one with a name");
        }
        arg->a = jparse_expression(p, true);
        *last = arg;
        last = &arg->next;
        if (!jparse_skip(p, ",") && !jparse_is(p, ")")) jparse_wanted(p, ", or )");
    }
    jparse_skip(p, ")");
    return first;
}

static struct jnode *unknown(struct jparser *p, const char *what, const char *near)
{
    return jparse_fail(p, p->token, "the %s '%.60s' is not known here%s%s%s", what, p->token->p,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static struct jnode *filter(struct jparser *p, struct jnode *of)
{
    struct jnode *n = jparse_node(p, JN_FILTER);
    n->a = of;
    if (p->token->kind != JT_NAME) {
        jparse_wanted(p, "a filter's name");
        return NULL;
    }
    n->filter = jfilter_find(p->token->p);
    if (!n->filter) return unknown(p, "filter", jfilter_near(p->token->p));
    p->token++;
    if (jparse_skip(p, "(")) n->items = arguments(p);
    return n;
}

/* "is odd", "is divisibleby 3", "is divisibleby(3)", "is not none". */
static struct jnode *postfix(struct jparser *p, struct jnode *n);
static struct jnode *primary(struct jparser *p);
static struct jnode *test(struct jparser *p, struct jnode *of)
{
    bool negated = jparse_skip_word(p, "not");
    struct jnode *n = jparse_node(p, JN_TEST);
    n->a = of;
    if (p->token->kind != JT_NAME) {
        jparse_wanted(p, "a test's name");
        return NULL;
    }
    n->test = jtest_find(p->token->p);
    if (!n->test) return unknown(p, "test", jtest_near(p->token->p));
    p->token++;
    bool value = p->token->kind == JT_NAME || p->token->kind == JT_STRING || p->token->kind == JT_INT ||
                 p->token->kind == JT_REAL || jparse_is(p, "[") || jparse_is(p, "{");
    if (jparse_skip(p, "(")) {
        n->items = arguments(p);
    } else if (value && !jparse_word(p, "else") && !jparse_word(p, "or") && !jparse_word(p, "and")) {
        if (jparse_word(p, "is")) return jparse_fail(p, p->token, "a test behind a test needs brackets");
        struct jnode *arg = jparse_node(p, JN_ARG);
        arg->a = postfix(p, primary(p));
        n->items = arg;
    }
    if (!negated) return n;
    struct jnode *not = jparse_node(p, JN_NOT);
    not ->a = n;
    return not ;
}

/* -- what stands alone --------------------------------------------------------------------------------------- */

static struct jnode *number(struct jparser *p)
{
    struct jnode *n = jparse_node(p, JN_CONST);
    errno = 0;
    if (p->token->kind == JT_INT) n->value = jv_int(strtoll(p->token->p, NULL, 10));
    else n->value = jv_real(strtod(p->token->p, NULL));
    if (errno == ERANGE && p->token->kind == JT_INT) return jparse_fail(p, p->token, "a number beyond 64 bits");
    p->token++;
    return n;
}

/* For jinja_reads: by .word, or by a text, which may be an index, or what a test looks for. */
static void reads_member(struct jparser *p, const char *word)
{
    GROW(p->t->members, p->t->n_members, p->t->members_room, 1);
    p->t->members[p->t->n_members++] = word;
}

static struct jnode *strings(struct jparser *p)
{
    struct jnode *n = jparse_node(p, JN_CONST);
    struct jbuild b = {0};
    for (; p->token->kind == JT_STRING; p->token++) jbuild_bytes(&b, p->token->p, p->token->n, false);
    n->value = jv_text(jbuild_done(&b, p->t->arena));
    reads_member(p, arena_printf(p->t->arena, "%.*s", (int)n->value.text.n, n->value.text.p));
    return n;
}

static struct jnode *name(struct jparser *p)
{
    static const struct {
        const char *word;
        struct jv value;
    } constants[] = {
        {"true", {.kind = JV_BOOL, .b = true}},
        {"True", {.kind = JV_BOOL, .b = true}},
        {"false", {.kind = JV_BOOL, .b = false}},
        {"False", {.kind = JV_BOOL, .b = false}},
        {"none", {.kind = JV_NONE}},
        {"None", {.kind = JV_NONE}},
    };
    struct jnode *n = jparse_node(p, JN_NAME);
    const char *word = (p->token++)->p;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!strcmp(word, constants[i].word)) {
            n->kind = JN_CONST;
            n->value = constants[i].value;
            return n;
        }
    n->name = word;
    GROW(p->t->names, p->t->n_names, p->t->names_room, 1);
    p->t->names[p->t->n_names++] = word;
    return n;
}

/* Expressions with commas, the last of which may be followed by one, up to and with `end`. */
static struct jnode *items(struct jparser *p, const char *end)
{
    struct jnode *first = NULL, **last = &first;
    while (!p->code && !jparse_skip(p, end)) {
        struct jnode *item = jparse_expression(p, true);
        if (!item) return NULL;
        *last = item;
        last = &item->next;
        if (!jparse_skip(p, ",") && !jparse_is(p, end)) jparse_wanted(p, ", or the bracket's end");
    }
    return first;
}

static struct jnode *map(struct jparser *p, struct jnode *n)
{
    struct jnode **last = &n->items;
    while (!p->code && !jparse_skip(p, "}")) {
        struct jnode *pair = jparse_node(p, JN_PAIR);
        pair->a = jparse_expression(p, true);
        if (!jparse_skip(p, ":")) jparse_wanted(p, ":");
        pair->b = jparse_expression(p, true);
        *last = pair;
        last = &pair->next;
        if (!jparse_skip(p, ",") && !jparse_is(p, "}")) jparse_wanted(p, ", or }");
    }
    return n;
}

/* Behind "(": an expression, or a tuple. */
static struct jnode *bracket(struct jparser *p)
{
    if (jparse_skip(p, ")")) return jparse_node(p, JN_TUPLE);
    struct jnode *n = jparse_tuple(p, true);
    if (!p->code && !jparse_skip(p, ")")) jparse_wanted(p, ")");
    return n;
}

static struct jnode *primary(struct jparser *p)
{
    if (p->code) return NULL;
    if (p->token->kind == JT_NAME) return name(p);
    if (p->token->kind == JT_STRING) return strings(p);
    if (p->token->kind == JT_INT || p->token->kind == JT_REAL) return number(p);
    struct jnode *n = jparse_node(p, JN_LIST), *got = NULL;
    bool list = jparse_is(p, "["), dict = jparse_is(p, "{"), round = jparse_is(p, "(");
    if (!list && !dict && !round) {
        jparse_wanted(p, "a value");
        return NULL;
    }
    p->token++;
    if (jparse_enter(p)) {
        if (round) {
            got = bracket(p);
        } else if (list) {
            n->items = items(p, "]");
            got = n;
        } else {
            n->kind = JN_MAP;
            got = map(p, n);
        }
    }
    jparse_leave(p);
    return got;
}

/* -- postfix ------------------------------------------------------------------------------------------------- */

/* Behind "[". */
static struct jnode *subscript(struct jparser *p, struct jnode *of, const struct jtoken *at)
{
    struct jnode *n = with_two(p, JN_ITEM, at, of, NULL), **part[] = {&n->b, &n->c, &n->d};
    int i = 0;
    if (!jparse_enter(p)) return NULL;
    while (!p->code && !jparse_is(p, "]")) {
        if (jparse_skip(p, ":")) {
            n->kind = JN_SLICE;
            if (++i > 2) jparse_wanted(p, "]");
            continue;
        }
        if (*part[i]) jparse_wanted(p, "]");
        else *part[i] = jparse_expression(p, true);
    }
    jparse_leave(p);
    if (!p->code && n->kind == JN_ITEM && !n->b) jparse_wanted(p, "an index");
    jparse_skip(p, "]");
    return n;
}

static struct jnode *postfix(struct jparser *p, struct jnode *n)
{
    for (;;) {
        const struct jtoken *at = p->token;
        if (jparse_skip(p, ".")) {
            n = with_two(p, JN_ATTR, at, n, NULL);
            if (p->token->kind == JT_INT) {
                n->kind = JN_ITEM;
                n->b = number(p);
                continue;
            }
            if (p->token->kind != JT_NAME) jparse_wanted(p, "a name behind .");
            if (p->code) return NULL;
            n->name = (p->token++)->p;
            reads_member(p, n->name);
        } else if (jparse_skip(p, "[")) {
            n = subscript(p, n, at);
        } else if (jparse_skip(p, "(")) {
            n = with_two(p, JN_CALL, at, n, NULL);
            if (jparse_enter(p)) n->items = arguments(p);
            jparse_leave(p);
        } else {
            return p->code ? NULL : n;
        }
    }
}

static struct jnode *filters_and_tests(struct jparser *p, struct jnode *n)
{
    for (;;) {
        if (jparse_skip(p, "|")) {
            n = filter(p, n);
        } else if (jparse_skip_word(p, "is")) {
            n = test(p, n);
        } else if (jparse_is(p, "(")) {
            const struct jtoken *at = p->token++;
            n = with_two(p, JN_CALL, at, n, NULL);
            n->items = arguments(p);
        } else {
            return p->code ? NULL : n;
        }
        if (p->code) return NULL;
    }
}

/* -- levels -------------------------------------------------------------------------------------------------- */

static struct jnode *unary(struct jparser *p, bool with_filter)
{
    struct jnode *n = NULL;
    if (!jparse_enter(p)) {
        jparse_leave(p);
        return NULL;
    }
    const struct jtoken *at = p->token;
    if (jparse_skip(p, "-")) {
        n = with_two(p, JN_NEG, at, unary(p, false), NULL);
    } else if (jparse_skip(p, "+")) {
        n = with_two(p, JN_POS, at, unary(p, false), NULL);
    } else {
        n = primary(p);
        if (n) n = postfix(p, n);
    }
    if (n && with_filter) n = filters_and_tests(p, n);
    jparse_leave(p);
    return p->code ? NULL : n;
}

static struct jnode *math(struct jparser *p, const struct jtoken *at, char op, struct jnode *a, struct jnode *b)
{
    struct jnode *n = with_two(p, JN_MATH, at, a, b);
    n->op = op;
    return n;
}

static struct jnode *power(struct jparser *p)
{
    struct jnode *n = unary(p, true);
    for (const struct jtoken *at = p->token; jparse_skip(p, "**"); at = p->token)
        n = math(p, at, '^', n, unary(p, true));
    return n;
}

static struct jnode *product(struct jparser *p)
{
    struct jnode *n = power(p);
    for (;;) {
        const struct jtoken *at = p->token;
        if (jparse_skip(p, "*")) n = math(p, at, '*', n, power(p));
        else if (jparse_skip(p, "//")) n = math(p, at, 'd', n, power(p));
        else if (jparse_skip(p, "/")) n = math(p, at, '/', n, power(p));
        else if (jparse_skip(p, "%")) n = math(p, at, '%', n, power(p));
        else return n;
    }
}

static struct jnode *concat(struct jparser *p)
{
    struct jnode *n = product(p);
    if (!jparse_is(p, "~")) return n;
    struct jnode *all = jparse_node(p, JN_CONCAT), **last = &all->items;
    *last = n;
    while (jparse_skip(p, "~")) {
        last = &(*last)->next;
        *last = product(p);
        if (!*last) return NULL;
    }
    return all;
}

static struct jnode *sum(struct jparser *p)
{
    struct jnode *n = concat(p);
    for (;;) {
        const struct jtoken *at = p->token;
        if (jparse_skip(p, "+")) n = math(p, at, '+', n, concat(p));
        else if (jparse_skip(p, "-")) n = math(p, at, '-', n, concat(p));
        else return n;
    }
}

/* The comparison that stands next, taken; 0: none. */
static char comparison(struct jparser *p)
{
    static const struct {
        const char *text;
        char op;
    } all[] = {{"==", '='}, {"!=", '!'}, {"<=", 'l'}, {">=", 'g'}, {"<", '<'}, {">", '>'}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jparse_skip(p, all[i].text)) return all[i].op;
    if (jparse_skip_word(p, "in")) return 'i';
    if (jparse_word(p, "not") && p->token[1].kind == JT_NAME && !strcmp(p->token[1].p, "in")) {
        p->token += 2;
        return 'n';
    }
    return 0;
}

static struct jnode *compare(struct jparser *p)
{
    struct jnode *n = sum(p), *all = NULL, **last = NULL;
    char op;
    for (const struct jtoken *at = p->token; (op = comparison(p)); at = p->token) {
        if (!all) {
            all = with_two(p, JN_COMPARE, at, n, NULL);
            last = &all->items;
        }
        struct jnode *against = with_two(p, JN_AGAINST, at, sum(p), NULL);
        against->op = op;
        *last = against;
        last = &against->next;
    }
    return all ? all : n;
}

static struct jnode *not_level(struct jparser *p)
{
    const struct jtoken *at = p->token;
    if (!jparse_skip_word(p, "not")) return compare(p);
    struct jnode *n = NULL;
    if (jparse_enter(p)) n = with_two(p, JN_NOT, at, not_level(p), NULL);
    jparse_leave(p);
    return p->code ? NULL : n;
}

static struct jnode *and_level(struct jparser *p)
{
    struct jnode *n = not_level(p);
    for (const struct jtoken *at = p->token; jparse_skip_word(p, "and"); at = p->token)
        n = with_two(p, JN_AND, at, n, not_level(p));
    return n;
}

static struct jnode *or_level(struct jparser *p)
{
    struct jnode *n = and_level(p);
    for (const struct jtoken *at = p->token; jparse_skip_word(p, "or"); at = p->token)
        n = with_two(p, JN_OR, at, n, and_level(p));
    return n;
}

struct jnode *jparse_expression(struct jparser *p, bool conditional)
{
    if (!jparse_enter(p)) {
        jparse_leave(p);
        return NULL;
    }
    struct jnode *n = or_level(p);
    for (const struct jtoken *at = p->token; conditional && jparse_skip_word(p, "if"); at = p->token) {
        n = with_two(p, JN_IF_ELSE, at, n, or_level(p));
        if (jparse_skip_word(p, "else")) n->c = jparse_expression(p, true);
    }
    jparse_leave(p);
    return p->code ? NULL : n;
}

struct jnode *jparse_tuple(struct jparser *p, bool conditional)
{
    struct jnode *n = jparse_expression(p, conditional);
    if (!n || !jparse_is(p, ",")) return n;
    struct jnode *all = jparse_node(p, JN_TUPLE), **last = &all->items;
    *last = n;
    while (jparse_skip(p, ",")) {
        bool ends = p->token->kind == JT_BLOCK_END || p->token->kind == JT_OUT_END || jparse_is(p, ")");
        if (ends) break;
        last = &(*last)->next;
        *last = jparse_expression(p, conditional);
        if (!*last) return NULL;
    }
    return all;
}

struct jnode *jparse_target(struct jparser *p, bool attribute)
{
    struct jnode *all = NULL, **last = NULL;
    bool bracketed = jparse_skip(p, "(");
    for (;;) {
        struct jnode *n = jparse_node(p, JN_NAME);
        if (!p->code && p->token->kind != JT_NAME) jparse_wanted(p, "a name");
        if (p->code) return NULL;
        n->name = (p->token++)->p;
        if (attribute && !all && jparse_skip(p, ".")) {
            struct jnode *attr = jparse_node(p, JN_ATTR);
            attr->a = n;
            if (p->token->kind != JT_NAME) jparse_wanted(p, "a name behind .");
            if (p->code) return NULL;
            attr->name = (p->token++)->p;
            return attr;
        }
        if (!all && !jparse_is(p, ",")) {
            if (bracketed && !jparse_skip(p, ")")) jparse_wanted(p, ")");
            return n;
        }
        if (!all) {
            all = jparse_node(p, JN_TUPLE);
            last = &all->items;
        }
        *last = n;
        last = &n->next;
        if (!jparse_skip(p, ",")) break;
    }
    if (bracketed && !jparse_skip(p, ")")) jparse_wanted(p, ")");
    return all;
}
