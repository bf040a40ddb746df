/* SPDX-License-Identifier: Apache-2.0 */
#include "data/energon_yaml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"

enum { META_BYTES = 64 << 20 };

int energon_tree(const char *path, struct arena *a, struct conf_node **root, struct err *e)
{
    char *text;
    size_t n;
    *root = NULL;
    int code = fs_read_all(path, META_BYTES, &text, &n, e);
    if (code) return code;
    code = conf_yaml_read(root, text, n, path, a, e);
    xfree(text);
    if (!code && (!*root || (*root)->kind != CONF_NODE_MAP))
        code = err_set(e, ERR_CORRUPT, "%s: wanted a map of names, as Megatron-Energon writes it", path);
    return code;
}

const struct conf_node *energon_member(const struct conf_node *v, const char *key)
{
    if (!v || v->kind != CONF_NODE_MAP) return NULL;
    for (const struct conf_node *m = v->first; m; m = m->next)
        if (!strcmp(m->key, key)) return conf_node_is_null(m) ? NULL : m;
    return NULL;
}

const char *energon_text(const struct conf_node *v) { return v && v->kind == CONF_NODE_SCALAR ? v->text : NULL; }

bool energon_number(const char *text, double *x)
{
    char *end;
    if (!text || !*text) return false;
    *x = strtod(text, &end);
    return !*end && isfinite(*x);
}
