/* SPDX-License-Identifier: Apache-2.0 */
/* ignore.c: --ignore KEY,KEY, for commands that read a Hugging Face directory without a config of tutti's
 * (model.ignore). */
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"

int cli_take_ignore(const char *command, int *argc, char **argv, struct cli_ignore *out)
{
    const char *given = NULL;
    *out = (struct cli_ignore){.text = NULL};
    int rc = cli_take(command, argc, argv, "--ignore", &given);
    if (rc || !given) return rc;
    out->text = xstrdup(given);
    int n = 1;
    for (const char *c = given; *c; c++) n += *c == ',';
    out->keys = xcalloc((size_t)n, sizeof *out->keys);
    char *rest = out->text;
    for (char *key = strsep(&rest, ","); key; key = strsep(&rest, ",")) out->keys[out->list.n++] = key;
    out->list.keys = out->keys;
    return 0;
}

void cli_ignore_fini(struct cli_ignore *g)
{
    xfree(g->keys);
    xfree(g->text);
}
