/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_ast.h: a parsed template: nodes in an arena. For the files of jinja.h only.
 *
 * A node's fields by kind; what is not named is not used. Lists go by `next`.
 */
#ifndef TUTTI_JINJA_JINJA_AST_H
#define TUTTI_JINJA_JINJA_AST_H

#include "jinja/jinja_lex.h"
#include "jinja/jinja_value.h"

enum jnode_kind {
    /* statements */
    JN_TEXT,       /* value */
    JN_OUT,        /* a */
    JN_IF,         /* a, body, other; op 'e': other is the JN_IF of an elif */
    JN_FOR,        /* target a, items b, condition c (may be NULL), body, other: else */
    JN_SET,        /* target a, value b */
    JN_SET_BLOCK,  /* target a, body */
    JN_MACRO,      /* name, items: JN_ARG with a default in a or NULL; body */
    JN_GENERATION, /* body */
    JN_WITH,       /* items: JN_PAIR of a target and a value; body */
    JN_BREAK,
    JN_CONTINUE,
    /* expressions */
    JN_CONST,  /* value */
    JN_NAME,   /* name */
    JN_LIST,   /* items */
    JN_TUPLE,  /* items */
    JN_MAP,    /* items: JN_PAIR */
    JN_PAIR,   /* key a, value b */
    JN_ATTR,   /* a.name */
    JN_ITEM,   /* a[b] */
    JN_SLICE,  /* a[b:c:d], each of the three may be NULL */
    JN_CALL,   /* a(items), items: JN_ARG */
    JN_ARG,    /* a; name: keyword, or NULL; op '*': of a list, 'd': of a dict (**) */
    JN_FILTER, /* a | row(items) */
    JN_TEST,   /* a is row(items) */
    JN_NOT,    /* a */
    JN_NEG,    /* a */
    JN_POS,    /* a */
    JN_AND,    /* a, b */
    JN_OR,
    JN_MATH,    /* a op b: + - * / % ** // as '+' '-' '*' '/' '%' '^' 'd' */
    JN_CONCAT,  /* items, with ~ between */
    JN_COMPARE, /* a, items: JN_AGAINST */
    JN_AGAINST, /* op a: '=' '!' '<' '>' 'l' (<=) 'g' (>=) 'i' (in) 'n' (not in) */
    JN_IF_ELSE  /* a if b else c (may be NULL) */
};

struct jfilter_row;
struct jtest_row;
struct jnode {
    enum jnode_kind kind;
    int line, column;
    struct jnode *next, *a, *b, *c, *d, *items, *body, *other;
    const char *name;
    struct jv value;
    char op;
    const struct jfilter_row *filter;
    const struct jtest_row *test;
};

struct jinja {
    struct arena *arena;
    char *name;
    struct jnode *body;
    const char **names; /* variables that it reads somewhere */
    int64_t n_names, names_room;
    const char **members; /* words by which it may read a member of a value */
    int64_t n_members, members_room;
    bool marks_answers;
};

/* -- parsing: jinja_parse.c has statements, jinja_expr.c expressions ------------------------------------------- */

enum { JINJA_DEPTH = 120 }; /* statements and brackets within each other */

struct jparser {
    struct jinja *t;
    const struct jtoken *token; /* the next one */
    int depth;
    int code; /* sticky: after the first error everything returns NULL */
    struct err *e;
};

struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind); /* at the next token */
/* An error at a token; NULL. */
struct jnode *jparse_fail(struct jparser *p, const struct jtoken *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool jparse_is(const struct jparser *p, const char *op);     /* the next is this operator */
bool jparse_word(const struct jparser *p, const char *word); /* the next is this name */
bool jparse_skip(struct jparser *p, const char *op);         /* and takes it */
bool jparse_skip_word(struct jparser *p, const char *word);
void jparse_wanted(struct jparser *p, const char *what); /* an error that says what stands there instead */
bool jparse_enter(struct jparser *p);                    /* one deeper; false: too deep, which is an error */
static inline void jparse_leave(struct jparser *p) { p->depth--; }

/* conditional: "x if y else z" may stand here outside of brackets. Several with commas are a tuple. */
struct jnode *jparse_expression(struct jparser *p, bool conditional);
struct jnode *jparse_tuple(struct jparser *p, bool conditional);
/* What is assigned to: a name, several with commas; attribute: also NAME.NAME. */
struct jnode *jparse_target(struct jparser *p, bool attribute);

#endif
