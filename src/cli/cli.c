/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share: options, usage errors, and reading a config. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer.h"
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

bool cli_wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

int cli_option(const char *command, int argc, char **argv, int *i, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (!strncmp(argv[*i], name, n) && argv[*i][n] == '=') {
        *value = argv[*i] + n + 1;
        return 1;
    }
    if (strcmp(argv[*i], name)) return 0;
    if (*i + 1 >= argc) {
        cli_usage(command, "%s wants a value", name);
        return -1;
    }
    *value = argv[++*i];
    return 1;
}

int cli_int(const char *command, const char *name, const char *text, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || !*text || *end || v < lo || v > hi) {
        cli_usage(command, "%s: wanted a whole number from %lld to %lld, got '%s'", name, (long long)lo, (long long)hi,
                  text);
        return -1;
    }
    *out = v;
    return 0;
}

int cli_real(const char *command, const char *name, const char *text, double lo, double hi, double *out)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (errno || !*text || *end || !(v >= lo && v <= hi)) {
        cli_usage(command, "%s: wanted a number from %g to %g, got '%s'", name, lo, hi, text);
        return -1;
    }
    *out = v;
    return 0;
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

/* A key of the config's table, alone or with "=VALUE" behind it. */
static bool is_key(const char *word)
{
    size_t n = strcspn(word, "=");
    for (const struct conf_row *r = config_rows; r->path; r++)
        if (strlen(r->path) == n && !strncmp(r->path, word, n)) return true;
    return false;
}

int cli_take(const char *command, int *argc, char **argv, const char *name, const char **value)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        int got = cli_option(command, *argc, argv, &i, name, value);
        if (got < 0) return 2;
        if (!got) argv[kept++] = argv[i];
    }
    *argc = kept;
    return 0;
}

/* How a key or -n was meant, as far as a wrong option shows. */
static int no_option(const char *command, const char *word)
{
    const char *bare = word + strspn(word, "-");
    if (is_key(bare))
        return cli_usage(command, "there is no option %s: a key has no dashes, and is one word with its value: %s%s",
                         word, bare, strchr(bare, '=') ? "" : "=VALUE");
    if (!strncmp(word, "-n", 2) && word[2] >= '0' && word[2] <= '9')
        return cli_usage(command, "there is no option %s: write -n %s", word, word + 2);
    if (!strcmp(word, "-np") || !strcmp(word, "--ranks") || !strcmp(word, "--nproc") || !strcmp(word, "-N"))
        return cli_usage(command, "there is no option %s: ranks are -n RANKS", word);
    return cli_usage(command, "there is no option %s", word);
}

/* A key whose value was not written into the same word, or a value with spaces. */
static int too_many(const char *command, int argc, char **argv, int i)
{
    const char *word = argv[i], *before = argv[i - 1];
    if (is_key(word))
        return cli_usage(command, "%s: a key and its value are one word: %s=%s", word, word,
                         i + 1 < argc ? argv[i + 1] : "VALUE");
    if (is_key(before) && before[strlen(before) - 1] == '=')
        return cli_usage(command, "one argument too many: %s (a key and its value are one word: %s%s)", word, before,
                         word);
    if (is_key(before))
        return cli_usage(command,
                         "one argument too many: %s (a value with a space in it is put in quotes, several are a list: "
                         "'%.*s=[A, B]')",
                         word, (int)strcspn(before, "="), before);
    return cli_usage(command, "one argument too many: %s", word);
}

bool cli_take_flag(int *argc, char **argv, const char *name)
{
    int kept = 1, n = *argc;
    for (int i = 1; i < n; i++)
        if (strcmp(argv[i], name)) argv[kept++] = argv[i];
    *argc = kept;
    return kept < n;
}

int cli_config_args(const char *command, int argc, char **argv, struct cli_args *a)
{
    const char *v;
    *a = (struct cli_args){.ranks = 1};
    for (int i = 1; i < argc; i++) {
        int got = cli_option(command, argc, argv, &i, "-n", &v);
        if (got < 0) return 2;
        if (got) {
            if (cli_int(command, "-n", v, 1, 1 << 20, &a->ranks)) return 2;
            a->ranks_given = true;
        } else if (!strcmp(argv[i], "--json")) {
            a->json = true;
        } else if (argv[i][0] == '-') {
            return no_option(command, argv[i]);
        } else if (strchr(argv[i], '=')) {
            if (a->n_overrides == CLI_MAX_KEYS) return cli_usage(command, "more than %d keys", CLI_MAX_KEYS);
            a->overrides[a->n_overrides++] = argv[i];
        } else if (!a->config) {
            a->config = argv[i];
        } else if (!a->word && !strcmp(command, "explain") && !is_key(argv[i])) {
            a->word = argv[i];
        } else {
            return too_many(command, argc, argv, i);
        }
    }
    if (!a->config) return cli_usage(command, "which CONFIG?");
    return 0;
}
