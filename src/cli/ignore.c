/* SPDX-License-Identifier: Apache-2.0 */
/* ignore.c: --ignore KEY,KEY, for commands that read a Hugging Face directory without a config of tutti's
 * (model.ignore). */
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"

void cli_ignore_init(struct cli_ignore *g, const char *given)
{
    *g = (struct cli_ignore){.text = NULL};
    if (!given) return;
    g->text = xstrdup(given);
    int n = 1;
    for (const char *c = given; *c; c++) n += *c == ',';
    g->keys = xcalloc((size_t)n, sizeof *g->keys);
    char *rest = g->text;
    for (char *key = strsep(&rest, ","); key; key = strsep(&rest, ",")) g->keys[g->list.n++] = key;
    g->list.keys = g->keys;
}

void cli_ignore_fini(struct cli_ignore *g)
{
    xfree(g->keys);
    xfree(g->text);
}
