/* SPDX-License-Identifier: Apache-2.0 */
/* config_lines.h: a printed config (config_print, config.yaml of a checkpoint), read line by line as keys and values.
 * For comparing two of them, which must not depend on whether this program still knows every key: parsing is
 * base/conf.h's. Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_CONFIG_LINES_H
#define TUTTI_CONFIG_CONFIG_LINES_H

#include <stdbool.h>
#include <stddef.h>

enum { CONFIG_LEVELS = 8, CONFIG_KEY = 128, CONFIG_VALUE = 4096 };

struct config_lines { /* two spaces per level, lists as "- key: value"; start from {.at = text} */
    const char *at;
    int level;
    size_t begins[CONFIG_LEVELS + 1];          /* where the part of each level begins in key */
    char key[CONFIG_KEY], value[CONFIG_VALUE]; /* "data.train.path", "\"a.txt\""; cut short where longer */
    const char *whole;                         /* the value in the text, of any length */
    size_t whole_n;
};
/* Reads a line into key and value; false at the end. A line that opens a section has an empty value. */
bool config_lines_next(struct config_lines *r);

#endif
