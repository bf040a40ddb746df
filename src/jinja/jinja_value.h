/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_value.h: the values of a template, for the files of jinja.h only. They are passed by value, what they point to
 * lies in the run's arena and never changes, but for namespaces.
 *
 * Text knows of each byte who wrote it, the template or the data (jinja.h, invariant 1). Mostly one wrote all of it,
 * and then `who` is NULL.
 */
#ifndef TUTTI_JINJA_JINJA_VALUE_H
#define TUTTI_JINJA_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

struct jtext {
    const char *p;
    const char *who; /* n bytes, 1: the data's; NULL: all are as `data` says */
    size_t n;
    bool data;
    bool safe; /* as the filter `safe` marks it: what is put to it by + is escaped for HTML */
};

enum jv_kind {
    JV_UNDEFINED, /* name: what was looked for */
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_REAL,
    JV_TEXT,
    JV_LIST,
    JV_TUPLE, /* a list that is printed with parentheses */
    JV_MAP,
    JV_NAMESPACE,
    JV_MACRO,
    JV_LOOP,
    JV_FUNCTION, /* name: of a function of the language */
    JV_METHOD    /* a method of a value, not called yet */
};

struct jv;
struct jlist {
    struct jv *item;
    int64_t n;
    bool group; /* of the filter `groupby`: it has .grouper and .list, too */
};
struct jpair;
struct jmap {
    struct jpair *pair;
    int64_t n, room;
};
struct jmethod;
struct jmacro;
struct jloop;

struct jv {
    enum jv_kind kind;
    union {
        bool b;
        int64_t i;
        double r;
        struct jtext text;
        struct jlist list; /* LIST, TUPLE */
        struct jmap *map;  /* MAP, NAMESPACE */
        const char *name;  /* UNDEFINED, FUNCTION */
        const struct jmacro *macro;
        const struct jloop *loop;
        const struct jmethod *method;
    };
};
struct jpair {
    struct jv key, value;
};
struct jmethod {
    struct jv self;
    const char *name;
};

/* -- what it costs ------------------------------------------------------------------------------------------- */

/* Steps that a rendering has taken. Whatever looks at more than a fixed number of values or bytes takes this and
 * counts: a step for a value, and for 4 to 64 bytes of text, so that no template takes long without many. Beyond the
 * most that there are comparisons answer at once, whatever; the evaluation of the node they are for is an error then
 * (jbounded of jinja_run.h). bytes: taken from the rendering's arena. */
struct jwork {
    int64_t steps, most, bytes;
};
static inline bool jwork_add(struct jwork *w, int64_t steps)
{
    w->steps += steps;
    return w->steps <= w->most;
}

/* -- making ------------------------------------------------------------------------------------------------- */

static inline struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
static inline struct jv jv_bool(bool b) { return (struct jv){.kind = JV_BOOL, .b = b}; }
static inline struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
static inline struct jv jv_real(double r) { return (struct jv){.kind = JV_REAL, .r = r}; }
static inline struct jv jv_undefined(const char *name) { return (struct jv){.kind = JV_UNDEFINED, .name = name}; }
static inline struct jv jv_text(struct jtext t) { return (struct jv){.kind = JV_TEXT, .text = t}; }
/* Of the template's own; p lives as long as the value. */
struct jv jv_word(const char *p);
struct jv jv_list_of(struct jv *item, int64_t n);
/* The document as values in the arena, all of its text the data's. */
struct jv jv_from_json(struct arena *a, const struct json *v);
/* The part [from, to) of a text. */
struct jtext jtext_part(struct jtext t, size_t from, size_t to);
void jmap_put(struct jwork *w, struct arena *a, struct jmap *m, struct jv key,
              struct jv value); /* an equal key's value is replaced */

/* -- asking ------------------------------------------------------------------------------------------------- */

const char *jv_type(const struct jv *v); /* as Python calls it: "str", "dict" */
bool jv_true(const struct jv *v);
bool jv_is_number(const struct jv *v); /* also true and false, as in Python */
double jv_as_real(const struct jv *v);
int64_t jv_as_int(const struct jv *v); /* of INT and BOOL */
bool jtext_same(struct jtext t, const char *word);
/* Equal as in Python; where values lie deeper in each other than JV_DEPTH they count as unequal. */
enum { JV_DEPTH = 200 };
bool jv_equal(struct jwork *w, const struct jv *a, const struct jv *b, int depth);
/* < 0, 0, > 0; *fails where Python knows no order between them. */
int jv_compare(struct jwork *w, const struct jv *a, const struct jv *b, bool *fails, int depth);
const struct jv *jmap_get(struct jwork *w, const struct jmap *m, const struct jv *key);
const struct jv *jmap_word(struct jwork *w, const struct jmap *m, const char *key);

/* -- characters --------------------------------------------------------------------------------------------- */

/* Text is valid UTF-8 throughout, so characters are counted by their first bytes. */
int64_t jtext_length(struct jwork *w, struct jtext t);
size_t jtext_at(struct jwork *w, struct jtext t, int64_t character); /* its first byte; t.n behind the last one */
/* Bytes of the white space (as Python's str.isspace sees it) at t.p[at], 0: none; and of that which ends at `end`. */
size_t jtext_space(struct jtext t, size_t at);
size_t jtext_space_before(struct jtext t, size_t end);

/* -- text that grows ---------------------------------------------------------------------------------------- */

struct jbuild {
    struct str text, who;
};
void jbuild_add(struct jbuild *b, struct jtext t);
void jbuild_bytes(struct jbuild *b, const char *p, size_t n, bool data);
static inline void jbuild_puts(struct jbuild *b, const char *p) { jbuild_bytes(b, p, __builtin_strlen(p), false); }
struct jtext jbuild_done(struct jbuild *b, struct arena *a); /* into the arena; b is empty then */
void jbuild_free(struct jbuild *b);

#endif
