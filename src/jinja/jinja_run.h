/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_run.h: a rendering under way, and what filters, tests and methods may ask of it. For the files of jinja.h only.
 *
 * Errors are sticky: after jfail nothing that is evaluated counts, and every loop asks r->code.
 */
#ifndef TUTTI_JINJA_JINJA_RUN_H
#define TUTTI_JINJA_JINJA_RUN_H

#include "jinja/jinja.h"
#include "jinja/jinja_ast.h"
#include "jinja/jinja_tables.h"
#include "jinja/jinja_value.h"

enum {
    JINJA_STEPS = 8 << 20,    /* of jwork: nodes evaluated, values looked at, bytes of text */
    JINJA_CALLS = 250,        /* nodes within nodes */
    JINJA_BYTES = 64 << 20,   /* put out */
    JINJA_MEMORY = 512 << 20, /* texts and lists made on the way */
    JINJA_RANGE = 100000      /* as the reference's sandbox */
};

/* Names of one scope. Frames live as long as the rendering, for macros look into the one they were made in. */
struct jbinding {
    struct jbinding *next;
    const char *name;
    struct jv value;
};
struct jframe {
    struct jframe *up;
    struct jbinding *first;
};

struct jmacro {
    const struct jnode *node;
    struct jframe *frame;
};
struct jloop {
    struct jlist items;
    int64_t at;
    int depth;          /* from 0 */
    struct jv *changed; /* what loop.changed saw last; shared by the rounds of a loop */
};

struct jrun {
    const struct jinja *t;
    struct arena *arena;
    struct jframe *frame;
    struct jbuild *out;
    struct jinja_output *into;
    const struct tm *now;
    struct jwork work;
    int depth, loops;
    bool strict;   /* of the scope: what is undefined is not put out as nothing */
    bool captured; /* what is put out goes into a value, not into the text */
    enum { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;
    int code;
    struct err *e;
};

/* Arguments of a call, evaluated. */
struct jargs {
    const struct jv *value;
    const char *const *name; /* NULL: given by its place */
    int64_t n;
};

/* -- jinja_eval.c -------------------------------------------------------------------------------------------- */

struct jv jeval(struct jrun *r, const struct jnode *n);
/* Sets the error, with the node's place; undefined. */
struct jv jfail(struct jrun *r, const struct jnode *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool jspend(struct jrun *r, const struct jnode *at, int64_t steps); /* false: too many, which is an error */
/* Before so many bytes are taken from the arena at once: false, and an error, where they are too many. */
bool jtake(struct jrun *r, const struct jnode *at, size_t bytes);
void *jalloc(struct jrun *r, size_t bytes);            /* from the arena, counted; zeroed */
bool jbounded(struct jrun *r, const struct jnode *at); /* false, and an error, after too many of either */
/* A builder's text as a value, or an error when it is too long. */
struct jv jdone(struct jrun *r, const struct jnode *at, struct jbuild *b);
/* What a loop over the value gives; an error where it gives nothing. */
struct jlist jitems(struct jrun *r, const struct jnode *at, const struct jv *v);
/* value.name and value[key]; undefined where there is none. */
struct jv jattribute(struct jrun *r, const struct jnode *at, const struct jv *v, const char *name);
struct jv jitem(struct jrun *r, const struct jnode *at, const struct jv *v, const struct jv *key);
/* Arguments in the order of the names in `params` ("a|b|c", at most 8), by place or by name; what is not given is
 * jmissing. False after an error. what: whose arguments they are. */
bool jbind(struct jrun *r, const struct jnode *at, const char *what, const char *params, const struct jargs *args,
           struct jv out[8]);
static inline bool jmissing(const struct jv *v) { return v->kind == JV_UNDEFINED && !v->name; }
struct jv jcall(struct jrun *r, const struct jnode *at, const struct jv *callee, const struct jargs *args);
/* False, and an error, for a value that is undefined where one is needed. */
bool jdefined(struct jrun *r, const struct jnode *at, const struct jv *v);

/* -- jinja_render.c ------------------------------------------------------------------------------------------ */

void jexecute(struct jrun *r, const struct jnode *n); /* and all that follow it */
struct jv jmacro_call(struct jrun *r, const struct jnode *at, const struct jmacro *m, const struct jargs *args);
void jset(struct jrun *r, const char *name, struct jv value); /* in the innermost scope */
const struct jv *jlook(struct jwork *w, const struct jframe *f, const char *name);

/* -- jinja_print.c ------------------------------------------------------------------------------------------- */

/* As Python's str() and repr() write it. */
void jprint(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v);
struct jtext jstring(struct jrun *r, const struct jnode *at, const struct jv *v);
/* As json.dumps writes it. */
struct jjson_style {
    struct jtext indent, between, colon;
    bool lines, ascii, sorted; /* lines: each item on its own, behind the indent */
};
void jprint_json(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v,
                 const struct jjson_style *s);
/* As Python's repr() writes it. */
void jprint_repr(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct jv *v);
/* The shortest digits that read back the same, as Python writes them. */
void jprint_real(double v, char out[40]);

/* -- jinja_text.c: what Python's str does --------------------------------------------------------------------- */

enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITALIZE, JCASE_WORDS };
/* WORDS: as the filter `title` has it. ASCII and what has one other letter; where more is needed, an error. */
struct jtext jtext_case(struct jrun *r, const struct jnode *at, struct jtext t, enum jcase how);
/* Without what is in `chars` at its ends; chars NULL: white space. */
struct jtext jtext_strip(struct jwork *w, struct jtext t, const struct jtext *chars, bool left, bool right);
/* Where `what` begins in t from byte `from` on; t.n + 1: nowhere. */
size_t jtext_find(struct jwork *w, struct jtext t, size_t from, struct jtext what);
struct jtext jtext_replace(struct jrun *r, const struct jnode *at, struct jtext t, struct jtext old, struct jtext with,
                           int64_t most);
/* The end of the line that begins at `from`, and where the next one begins, as Python's splitlines has it. */
size_t jtext_line(struct jwork *w, struct jtext t, size_t from, size_t *next);
bool jtext_ends_line(struct jtext t);                                          /* the text ends with what ends a line */
struct jv jtext_chars(struct jrun *r, const struct jnode *at, struct jtext t); /* a list of them */
bool jtext_who(struct jtext t, size_t at);
int jtext_kind(struct jwork *w, struct jtext t,
               const char *what); /* isdigit, isalpha, ...: 1, 0; -1: needs more than ASCII */

/* -- jinja_sort.c ---------------------------------------------------------------------------------------------- */

struct jsorted {
    struct jv key, value;
};
/* By key, equal ones in their order, descending too; false after an error: keys without an order, or too many steps. */
bool jsort(struct jrun *r, const struct jnode *at, struct jsorted *all, int64_t n, bool descending);

/* -- jinja_format.c -------------------------------------------------------------------------------------------- */

/* Python's "%s of %d" % v: s, r, d, i, f, x and %% with flags, width and precision; v: a tuple of them, or the one. */
struct jv jformat_percent(struct jrun *r, const struct jnode *at, struct jtext t, const struct jv *v);
/* Python's "{} {0} {name}".format(args), without what may stand behind a name. */
struct jv jformat_braces(struct jrun *r, const struct jnode *at, struct jtext t, const struct jargs *args);

/* -- filters, tests, methods ----------------------------------------------------------------------------------- */

struct jfilter_row {
    const char *name, *params; /* params NULL: the function reads the arguments itself */
    struct jv (*run)(struct jrun *r, const struct jnode *at, struct jv v, const struct jv *arg,
                     const struct jargs *args);
};
struct jtest_row {
    const char *name, *params;
    bool (*run)(struct jrun *r, const struct jnode *at, const struct jv *v, const struct jv *arg);
};
struct jv jfilter_apply(struct jrun *r, const struct jnode *at, const struct jfilter_row *row, struct jv v,
                        const struct jargs *args);
bool jtest_apply(struct jrun *r, const struct jnode *at, const struct jtest_row *row, const struct jv *v,
                 const struct jargs *args);
/* Whether values of this kind have such a method; and calling it. */
bool jmethod_exists(enum jv_kind kind, const char *name);
struct jv jmethod_call(struct jrun *r, const struct jnode *at, const struct jmethod *m, const struct jargs *args);
bool jfunction_exists(const struct jrun *r, const char *name); /* range, namespace, ... */
struct jv jfunction_call(struct jrun *r, const struct jnode *at, const char *name, const struct jargs *args);

#endif
