/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share: usage errors and reading a config. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "token/tokenizer.h"
#include "config/setup.h"

int cli_fail(const struct err *e)
{
    fprintf(stderr, "tutti: %s\n", e->text);
    return err_exit_status(e->code);
}

int cli_usage(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "tutti %s: ", command);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, " (see tutti %s --help)\n", command);
    va_end(ap);
    return 2;
}

int cli_config(struct config *c, struct conf **conf, struct arena *a, const char *path, char *const *overrides,
               int n_overrides, int n_ranks, struct err *e)
{
    struct conf *f;
    struct tokenizer *t = NULL;
    int rc = config_load(c, &f, a, path, overrides, n_overrides, e);
    if (conf) *conf = f;
    if (!rc) rc = setup_model(c, f, a, &t, e);
    if (!rc) rc = config_resolve(c, f, t ? tokenizer_vocab(t) : 0, n_ranks, e);
    tokenizer_free(t);
    return rc;
}

bool cli_is_key(const char *word)
{
    size_t n = strcspn(word, "=");
    for (const struct conf_row *r = config_rows; r->path; r++)
        if (strlen(r->path) == n && !strncmp(r->path, word, n)) return true;
    return false;
}

enum packing cli_packing(const char *name)
{
    const int p = name ? packing_find(name) : PACKING_NONE;
    CHECK(p >= 0, "no packing is called %s", name);
    return (enum packing)p;
}

enum dtype cli_dtype(const char *name)
{
    for (int t = 0; t < DT_N; t++)
        if (!strcmp(dtype_name((enum dtype)t), name)) return (enum dtype)t;
    CHECK(false, "no type is called %s", name);
    return DT_F32;
}
