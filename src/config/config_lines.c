/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_lines.h"

#include <stdio.h>
#include <string.h>

bool config_lines_next(struct config_lines *r)
{
    const char *line = r->at, *end = strchr(line, '\n');
    if (!end) return false;
    r->at = end + 1;
    size_t spaces = strspn(line, " -"), n = strcspn(line + spaces, ":\n");
    r->level = spaces / 2 < CONFIG_LEVELS ? (int)(spaces / 2) : CONFIG_LEVELS - 1;
    size_t from = r->begins[r->level];
    snprintf(r->key + from, sizeof r->key - from, "%s%.*s", from ? "." : "", (int)n, line + spaces);
    for (int l = r->level + 1; l <= CONFIG_LEVELS; l++)
        r->begins[l] = strlen(r->key); /* items of a list lie two levels deeper */
    const char *value = line + spaces + n;
    value += strspn(value, ": ");
    if (value > end) value = end;
    r->whole = value;
    r->whole_n = (size_t)(end - value);
    snprintf(r->value, sizeof r->value, "%.*s", (int)(end - value), value);
    return true;
}
