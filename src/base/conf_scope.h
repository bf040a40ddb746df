/* SPDX-License-Identifier: Apache-2.0 */
/* conf_scope.h: what conf.c and conf_values.c share: a table of rows with the struct that it fills, and where a value
 * comes from. Private to the two. */
#ifndef TUTTI_BASE_CONF_SCOPE_H
#define TUTTI_BASE_CONF_SCOPE_H

#include "base/conf.h"
#include "base/conf_yaml.h"

/* What was set for a row, and where. */
struct setting {
    const char *where;   /* "tiny.yaml:7", "command line"; NULL: never set */
    int source;          /* which file or override set it: two settings by one source are a mistake */
    struct scope *items; /* CONF_LIST: n scopes */
};

struct scope {
    const struct conf_row *rows;
    int n_rows;
    char *target;
    const char *label;        /* "" or "data.train[1]." */
    struct setting *settings; /* one per row */
};

/* What is being read now; passed down instead of being a field so that nothing outlives the call. */
struct source {
    struct arena *arena;
    const char *name;
    bool has_lines; /* a file; the command line has none */
    int number;
    struct err *e;
};

/* "tiny.yaml:7: model.layers: " and then the text. */
int conf_refuse(const struct source *s, int line, const char *label, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Stores a value that is no list. Refuses what the row's type and range do not take. */
int conf_set_scalar(const struct source *s, const struct scope *sc, const struct conf_row *row,
                    const struct conf_node *v);
/* A row one of whose choices is called null means it by that word, and not the default. */
bool conf_chooses_null(const struct conf_row *row, const struct conf_node *v);

#endif
