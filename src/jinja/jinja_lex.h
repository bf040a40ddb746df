/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_lex.h: a template as tokens, white space already taken away as trim_blocks, lstrip_blocks, "-" and "+" say. For
 * the files of jinja.h only. */
#ifndef TUTTI_JINJA_JINJA_LEX_H
#define TUTTI_JINJA_JINJA_LEX_H

#include "base/err.h"
#include "base/mem.h"

enum jtoken_kind {
    JT_TEXT,        /* outside of all marks; never empty */
    JT_BLOCK_BEGIN, /* {% */
    JT_BLOCK_END,
    JT_OUT_BEGIN, /* {{ */
    JT_OUT_END,
    JT_NAME,
    JT_INT,
    JT_REAL,
    JT_STRING, /* its value, escapes read */
    JT_OP,     /* + - / // * % ** ~ [ ] ( ) { } == != > >= < <= = . : | , ; */
    JT_END
};

struct jtoken {
    enum jtoken_kind kind;
    int line, column; /* from 1; columns in bytes */
    const char *p;    /* NUL-terminated, in the arena */
    size_t n;
};

struct jlexed {
    struct jtoken *token; /* ends with JT_END */
    int64_t n;
};
/* The text is valid UTF-8. name: of the template, for errors. */
int jinja_lex(struct jlexed *out, struct arena *a, const char *text, size_t n, const char *name, struct err *e);

#endif
