/* SPDX-License-Identifier: Apache-2.0 */
/* family_defaults.c: rows of DEFAULT by their number's path; a value is text, as a config has it. */
#include "model/family_defaults.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A row names a number that there is. */
#define DEFAULT(family, number, value)                                                                                 \
    _Static_assert(offsetof(struct model_config, number) < sizeof(struct model_config), #number);
#include "model/families.def"

/* clang-format off */
static const struct {
    enum model_family family;
    const char *path, *value;
} rows[] = {
#define DEFAULT(family, number, value) {MODEL_##family, "model." #number, value},
#include "model/families.def"
};
/* clang-format on */

static int word(const char *words, const char *name)
{
    size_t n = strlen(name);
    int i = 0;
    for (; strncmp(words, name, n) || (words[n] && words[n] != '|'); i++) words = strchr(words, '|') + 1;
    return i;
}

static void set(struct model_config *c, const struct number *n, const char *value)
{
    void *at = (char *)c + n->row.offset;
    switch (n->row.type) {
    case CONF_INT: *(int64_t *)at = (int64_t)strtod(value, NULL); break;
    case CONF_REAL: *(double *)at = strtod(value, NULL); break;
    case CONF_BOOL: *(bool *)at = !strcmp(value, "true"); break;
    case CONF_CHOICE: *(int *)at = word(n->row.choices, value); break;
    default: memset(at, 0, LAYER_PATTERN_BYTES); memcpy(at, value, strlen(value));
    }
}

const char *family_default(enum model_family f, const char *path)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].family == f && !strcmp(rows[i].path, path)) return rows[i].value;
    return NULL;
}

void family_defaults(struct model_config *c, number_said_fn *said, const void *ctx)
{
    for (const struct number *n = model_numbers; n->row.path; n++) {
        const char *value = family_default(c->family, n->row.path);
        if (value && !said(ctx, n->row.path)) set(c, n, value);
    }
}
