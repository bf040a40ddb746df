/* SPDX-License-Identifier: Apache-2.0 */
/* jinja.h: the part of Jinja that published chat templates use, rendered as transformers renders it: trim_blocks,
 * lstrip_blocks, break and continue, tojson without ASCII escapes, nothing that changes a value.
 *
 *   jinja_parse → (jinja_scope_new → jinja_set... → jinja_render)* → jinja_free
 *
 * What the subset has: {% for x in xs if c %} with else, break, continue and loop.*, if, set (also of a block, and on
 * namespace()), macro, raw, generation, with; every operator, * and ** of arguments, slices, conditional expressions;
 * the filters, tests and methods in the tables of jinja_filters.c, jinja_tests.c and jinja_methods.c; range, namespace,
 * dict, raise_exception and, with a time of day given, strftime_now. Anything else is refused by its name with line and
 * column, never left out.
 *
 * Invariants
 *   1. Of each byte that comes out it is known who wrote it: the template (which also speaks for what jinja_set_text
 *      hands in), or the data. So text of a user that reads like a control token can be told from one.
 *   2. Any template and any data end: steps, depth, bytes put out and memory are bounded; beyond that is an error.
 *   3. Rendering is a function of its arguments: no clock, no environment, no file.
 *   4. Errors are "NAME:LINE:COLUMN: what".
 * Includes: base. Order: Local; a parsed template is read-only and may be shared by threads, a scope belongs to one.
 */
#ifndef TUTTI_JINJA_JINJA_H
#define TUTTI_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

/* -- a template --------------------------------------------------------------------------------------------- */

struct jinja;
/* name: of the template, for errors. The text is UTF-8; anything else is ERR_CORRUPT, as is what does not parse. */
int jinja_parse(struct jinja **t, const char *text, size_t n, const char *name, struct err *e);
void jinja_free(struct jinja *t);                          /* NULL is fine */
bool jinja_marks_answers(const struct jinja *t);           /* has {% generation %} */
bool jinja_names(const struct jinja *t, const char *name); /* reads a variable of that name somewhere */
/* Whether it may read a member of that name of some value: it has .member, or a text that is the name. */
bool jinja_reads(const struct jinja *t, const char *member);

/* -- what it sees ------------------------------------------------------------------------------------------- */

struct jinja_scope;
struct jinja_scope *jinja_scope_new(void);
void jinja_scope_free(struct jinja_scope *s);
void jinja_scope_clear(struct jinja_scope *s);
/* From here on an undefined value that is put out is an error that names it; else it is nothing, as in transformers. */
void jinja_scope_strict(struct jinja_scope *s);
/* A value under a name; an older one is replaced. NULL for JSON is none. Text set by jinja_set_text counts as the
 * template's, JSON as data. */
void jinja_set_text(struct jinja_scope *s, const char *name, const char *text);
void jinja_set_bool(struct jinja_scope *s, const char *name, bool value);
void jinja_set_json(struct jinja_scope *s, const char *name, const struct json *v);
/* A list of maps of which one member, `trusted`, counts as the template's where it is a plain word (letters, digits,
 * "_" and "-"): a message's role, which templates write between the marks of control tokens. Of reasoning_content,
 * thinking and reasoning the first that is there is seen as reasoning_content, and as thinking where that is missing.
 */
void jinja_set_messages(struct jinja_scope *s, const char *name, const struct json *list, const char *trusted);
/* Of the last item of the list under that name the text `member` gets `text`, the template's, at its end; false: it has
 * none. */
bool jinja_append_last(struct jinja_scope *s, const char *name, const char *member, const char *text);
/* Of the list under that name only the first n items are seen from now on; a list of fewer is left as it is. */
void jinja_set_first(struct jinja_scope *s, const char *name, int64_t n);

/* -- what comes out ----------------------------------------------------------------------------------------- */

struct jinja_span {
    size_t from, to;
};
struct jinja_output {
    struct str text;
    struct str data;            /* text.n bytes: 1 where the data wrote it, 0 where the template did */
    struct jinja_span *answers; /* of {% generation %}, in order */
    int n_answers, answers_room;
};
/* now: what strftime_now tells; NULL: there is none, and the name is undefined. */
int jinja_render(const struct jinja *t, struct jinja_scope *s, const struct tm *now, struct jinja_output *out,
                 struct err *e);
void jinja_output_fini(struct jinja_output *out);

#endif
