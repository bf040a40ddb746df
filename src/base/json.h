/* SPDX-License-Identifier: Apache-2.0 */
/* json.h: reading and writing JSON.
 * Documents come from outside: depth and size are limited, a syntax error is ERR_CORRUPT with "file:line". Strings are
 * UTF-8 and may hold NUL: json_string and json_iter_key_text tell their length.
 * Order: Local.
 */
#ifndef TUTTI_BASE_JSON_H
#define TUTTI_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct json; /* a value inside a document */
enum json_kind { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Parse what tutti itself writes; a key given twice is an error. `what` names the document in errors. The root is freed
 * with json_free; values inside are borrowed. */
int json_parse(struct json **root, const char *text, size_t n, const char *what, struct err *e);
int json_parse_file(struct json **root, const char *path, size_t limit, struct err *e);
/* The same for what other programs write, as Python's json reads it. A byte order mark is passed over; of equal keys
 * the last one counts; an integer beyond 64 bits is a JSON_REAL, and so are NaN, Infinity and what is too large for a
 * double: json_real gives NaN for these three. So a number that nobody asks for is no error, and one that is used fits
 * no range. */
int json_parse_published(struct json **root, const char *text, size_t n, const char *what, struct err *e);
int json_parse_published_file(struct json **root, const char *path, size_t limit, struct err *e);
void json_free(struct json *root);

enum json_kind json_kind(const struct json *v);
const struct json *json_get(const struct json *object, const char *key); /* NULL when absent or not an object */
size_t json_size(const struct json *v);                                  /* items of an array or object */
const struct json *json_at(const struct json *array, size_t i);
/* Walks an object in document order: for (it = json_iter(o); it; it = json_iter_next(o, it)) */
void *json_iter(const struct json *object);
void *json_iter_next(const struct json *object, void *it);
const char *json_iter_key(void *it); /* for keys with names we know: one that holds NUL is spelt otherwise */
void json_iter_key_text(void *it, struct str *out);   /* the key itself, which may hold NUL; out->n bytes and a NUL */
const char *json_iter_key_bytes(void *it, size_t *n); /* the same, borrowed */
const struct json *json_iter_value(void *it);
/* Looks for many keys of one object: what a large one's memory is waited for together. A key may hold NUL. */
struct json_asked {
    const char *key;
    size_t n;
    uint64_t hash; /* not the caller's */
    void *it;      /* the answer, as json_iter would come to it; NULL: the key is absent, or there is no object */
};
void json_ask(const struct json *object, struct json_asked *asked, size_t n);

/* The value itself; the default when v is NULL or of another kind. */
const char *json_string(const struct json *v, size_t *n, const char *otherwise);
int64_t json_int(const struct json *v, int64_t otherwise);
double json_real(const struct json *v, double otherwise); /* integers too */
const char *json_real_text(const struct json *v);         /* a JSON_REAL's own spelling; NULL: it is none */
bool json_bool(const struct json *v, bool otherwise);
/* Required members; errors name what and key ("model: vocab: wanted an integer, got a string"). */
int json_need_int(const struct json *object, const char *key, int64_t lo, int64_t hi, int64_t *out, const char *what,
                  struct err *e);
/* The string holds no NUL. */
int json_need_string(const struct json *object, const char *key, const char **out, const char *what, struct err *e);

/* Writing: a small stateful printer onto a str; commas and escapes are its job. Reals are printed with the
 * fewest digits that read back the same, NaN and Inf as null; bytes that are not UTF-8 become U+FFFD.
 * Start from {.s = &str}. Unbalanced begin and end are bugs. */
struct json_out {
    struct str *s;
    int depth;
    bool need_comma;
    bool pretty;
};
void json_begin_object(struct json_out *o, const char *key); /* key NULL inside arrays and at the root */
/* The root of what a command prints with --json: an object whose first member is "schema": "tutti.NAME.VERSION". A
 * field that goes, or means something else, makes a new version; a field more does not. docs/json.md lists them all. */
void json_begin_document(struct json_out *o, const char *name, int version);
void json_end_object(struct json_out *o);
void json_begin_array(struct json_out *o, const char *key);
void json_end_array(struct json_out *o);
void json_put_int(struct json_out *o, const char *key, int64_t v);
void json_put_real(struct json_out *o, const char *key, double v);
void json_put_real_digits(struct json_out *o, const char *key, double v, int significant_digits);
void json_put_bool(struct json_out *o, const char *key, bool v);
void json_put_string(struct json_out *o, const char *key, const char *v);
void json_put_null(struct json_out *o, const char *key);
/* A value of a document and all in it. It must hold no NUL: json_holds_nul asks texts and keys, however deep. */
void json_put_value(struct json_out *o, const char *key, const struct json *v);
bool json_holds_nul(const struct json *v);

#endif
