/* SPDX-License-Identifier: Apache-2.0 */
/* energon_yaml.h: the small YAML and JSON files of Megatron-Energon as trees; for energon.c and energon_mix.c. JSON is
 * read as the YAML that it also is. Order: Local. */
#ifndef TUTTI_DATA_ENERGON_YAML_H
#define TUTTI_DATA_ENERGON_YAML_H

#include "base/conf_yaml.h"

/* The file's root, a map; path is kept as long as the arena. ERR_IO, ERR_CORRUPT. */
int energon_tree(const char *path, struct arena *a, struct conf_node **root, struct err *e);
/* NULL: v is no map, or has no such member, or it is null. */
const struct conf_node *energon_member(const struct conf_node *v, const char *key);
const char *energon_text(const struct conf_node *v); /* NULL: it is no scalar */
/* A finite number that takes up all of the text. */
bool energon_number(const char *text, double *x);

#endif
