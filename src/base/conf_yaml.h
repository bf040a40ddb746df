/* SPDX-License-Identifier: Apache-2.0 */
/* conf_yaml.h: one YAML document as a tree of nodes that know their line. For conf.c, conf_values.c and conf_print.c,
 * and for the small YAML files of others (data/energon.c).
 *
 * The tree holds what a configuration needs and refuses the rest of YAML with a sentence: anchors and aliases,
 * tags, several documents, duplicate keys, keys that are not scalars, nesting deeper than 32.
 * Order: Local.
 */
#ifndef TUTTI_BASE_CONF_YAML_H
#define TUTTI_BASE_CONF_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"

enum conf_node_kind { CONF_NODE_SCALAR, CONF_NODE_LIST, CONF_NODE_MAP };

struct conf_node {
    enum conf_node_kind kind;
    int line;         /* of the value, 1-based */
    bool quoted;      /* a scalar in quotes or a block: never null, never a number */
    const char *text; /* scalar: without NUL inside */
    const char *key;  /* as a member of a map */
    int key_line;
    struct conf_node *first; /* members or items, in order */
    struct conf_node *next;
    int n; /* how many */
};

/* *root is NULL for a text without any content. Errors begin with "name:line: ". */
int conf_yaml_read(struct conf_node **root, const char *text, size_t n, const char *name, struct arena *a,
                   struct err *e);
/* "a map", "a list", "'text'": for messages; cut when long. */
const char *conf_node_show(const struct conf_node *v, char out[64]);
bool conf_node_is_null(const struct conf_node *v);

#endif
