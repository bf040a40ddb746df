/* SPDX-License-Identifier: Apache-2.0 */
/* conf.h: a closed-schema configuration read from YAML, from one table.
 *
 * The table says each key's path, type, range, default, choices and documentation, and where its value lands in
 * a C struct. Parsing, `key=value` overrides, defaults, printing the resolved file, --help and errors
 * (file:line, nearest key, wanted versus got) all derive from it. The YAML library (libyaml) is named in
 * conf_yaml.c only.
 *
 * Invariants
 *   1. An unknown key, a duplicate key, a wrong type, a value out of range is ERR_REQUEST with file:line.
 *   2. conf_print of a parsed struct parses back to an equal struct.
 *   3. `key: null` asks for the default. A default passes its own row's range: an integer or number that may be
 *      absent has the default "null", which stores 0 and prints as null. Where null is the name of a choice, the word
 *      means that choice.
 *   4. Later sources win, row by row; a list is replaced whole. Within one source a key is given once.
 *   5. After an error the target is unspecified: report and stop.
 * Order: Local.
 */
#ifndef TUTTI_BASE_CONF_H
#define TUTTI_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

enum conf_type {
    CONF_BOOL,    /* bool */
    CONF_INT,     /* int64_t; plain decimal, or 1e6 when integral */
    CONF_REAL,    /* double */
    CONF_STRING,  /* const char * in the arena; null gives NULL */
    CONF_CHOICE,  /* int: index into choices */
    CONF_WORD,    /* char[n], inside of the target: a short text that `fits` accepts */
    CONF_REALS,   /* double[], fixed count `n`: betas: [0.9, 0.95] */
    CONF_NUMBERS, /* struct conf_numbers: a list of numbers, as many as there are */
    CONF_POINTS,  /* struct conf_points: a number, or a list of {step: S, NAME: number}, NAME the row's: weight: 2, or
                     weight: [{step: 0, weight: 1}, {step: 100, weight: 0.5}]. Steps are whole, >= 0, and rise */
    CONF_LIST,    /* struct conf_list: items described by `item` (a table of their own); a single item that is
                     not in brackets is a list of one. Or of several `kinds`: then each is a struct conf_of_kind */
};

/* A kind of item, with a table of its own: `- name`, or `- name: {key: value}`. */
struct conf_kind {
    const char *name;
    const struct conf_row *rows; /* of its struct; ends with path NULL */
    size_t bytes;                /* of its struct */
    const char *doc;
};
struct conf_of_kind {
    const struct conf_kind *kind;
    void *value; /* the kind's struct, in the arena */
};

struct conf_row {
    const char *path; /* "model.layers" */
    enum conf_type type;
    size_t offset;         /* in the target struct */
    const char *otherwise; /* default as YAML text; NULL: required. "null" for absent strings */
    double lo, hi;         /* CONF_INT, CONF_REAL, CONF_NUMBERS and CONF_POINTS: inclusive range; lo == hi == 0: any */
    const char *choices;   /* CONF_CHOICE: "fp32|bf16|fp16" */
    int n;                 /* CONF_REALS: how many; CONF_WORD: bytes, with the 0 at the end */
    const char *(*fits)(const char *text); /* CONF_WORD: NULL: it does; else what was wanted */
    const struct conf_row *item;           /* CONF_LIST: rows of one item, paths relative; ends with path NULL */
    size_t item_bytes;
    bool item_pairs;        /* CONF_LIST: a map is a list of pairs; its keys are the items' first row, its values their
                               second */
    const char *item_short; /* CONF_LIST: a plain scalar item sets this path ("path") */
    const struct conf_kind *const *kinds; /* CONF_LIST: of these instead of `item`; ends with NULL */
    int need;        /* what must be so for the key to matter, as the table's owner counts it; 0: it does not say */
    bool plain_one;  /* CONF_LIST of items that are one text: a list of one is printed as that text */
    const char *doc; /* one line for --help and docs */
};

enum { CONF_NUMBERS_MOST = 128 };
struct conf_numbers {
    int64_t n;
    double v[CONF_NUMBERS_MOST]; /* zeros behind the n-th, so that equal lists are equal bytes */
};

struct conf_point {
    int64_t step;
    double value;
};
struct conf_points {
    double value;               /* n 0: the number */
    const struct conf_point *p; /* in the arena */
    int n;
};

struct conf_list {
    void *items; /* n structs of item_bytes each, in the arena */
    int n;
};

/* Rows end with path NULL. Tables and target outlive the conf; strings and lists live in the arena, and so does
 * the conf itself. */
struct conf;
struct conf *conf_new(const struct conf_row *rows, void *target, struct arena *a); /* fills in defaults */
int conf_read_file(struct conf *c, const char *path, struct err *e);
int conf_read_text(struct conf *c, const char *text, size_t n, const char *name, struct err *e);
/* "batch.micro=4", "data.train=a.txt", "data.train=[a.txt, {path: b.txt, weight: 2}]". A value that begins with
 * a quote or bracket is YAML; any other is taken as it stands. */
int conf_override(struct conf *c, const char *key_equals_value, struct err *e);
int conf_finish(struct conf *c, struct err *e); /* required keys present */
/* Where a value came from, for later errors: "tiny.yaml:7", "command line" or "default". Items too:
 * conf_where(c, "data.train[1].path"). */
const char *conf_where(const struct conf *c, const char *path);
/* An error that begins with the place of `path`: "tiny.yaml:7: model.heads: ..." */
int conf_error(const struct conf *c, struct err *e, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void conf_print(const struct conf_row *rows, const void *target, struct str *out); /* resolved YAML */
/* Whether two texts of YAML, as conf_print writes them, are the same value of a row that is no list (conf_same.c); one
 * that the row does not take is the same as its own letters only. */
bool conf_same(const struct conf_row *row, const char *a, const char *b);
void conf_print_help(const struct conf_row *rows, struct str *out); /* key, default, doc */

#endif
