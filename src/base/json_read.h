/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.h: what a document is in memory; for json.c and the json_*.c that read only.
 *
 * Invariants
 *   1. Items of an array and members of an object lie side by side, members in the document's order, keys differing.
 *   2. Every text and key ends with a NUL that n does not count, and is valid UTF-8.
 *   3. A number that no int64_t holds, and every one with a point or an exponent, is kept as its text.
 * Includes: json.h. Order: Local; a document is read-only once read.
 */
#ifndef TUTTI_BASE_JSON_READ_H
#define TUTTI_BASE_JSON_READ_H

#include "base/json.h"

struct json {
    uint8_t kind; /* enum json_kind */
    bool truth;   /* JSON_BOOL */
    uint32_t n;   /* bytes of the text, items, members */
    union {
        int64_t integer;
        const char *text; /* JSON_STRING, JSON_REAL */
        struct json *items;
        struct json_member *members; /* before their table (json_find), where they are many */
    };
};

struct json_member {
    const char *key; /* where it holds NUL, its spelling without one follows behind its last NUL */
    uint32_t key_n;
    uint32_t at; /* where the key is in the document */
    struct json value;
};

/* The member of this key; NULL: there is none. */
struct json_member *json_find(const struct json *object, const char *key, size_t n);

/* Answers json_ask of an object. */
void json_find_many(const struct json *object, struct json_asked *asked, size_t n);

/* Reads a document as json_parse does, or as json_parse_published. */
int json_read(struct json **root, const char *text, size_t n, bool published, const char *what, struct err *e);

#endif
