/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: command lines read by tables, and the help that the same tables give. */
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* "a, b or c" of words with '|' between them. */
static void say_choices(const char *choices, struct str *out)
{
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        bool last = !p[n];
        str_printf(out, "%s%.*s", p == choices ? "" : last ? " or " : ", ", (int)n, p);
        p += n + !last;
    }
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; *p; p += strcspn(p, "|") + (p[strcspn(p, "|")] == '|'))
        if (strcspn(p, "|") == n && !strncmp(p, text, n)) return true;
    return false;
}

/* ---- one value ---- */
static int wrong(const struct cli_table *t, const struct cli_option *o, const char *text, const struct str *wanted)
{
    return cli_usage(t->command, "%s: wanted %s, got '%s'", o->name, str_text(wanted), text);
}

static bool read_int(const struct cli_option *o, const char *text, int64_t *out, struct str *wanted)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || !*text || *end || v < o->lo || v > o->hi) {
        str_printf(wanted, "a whole number from %lld to %lld", (long long)o->lo, (long long)o->hi);
        return false;
    }
    *out = v;
    return true;
}

static bool read_real(const struct cli_option *o, const char *text, double *out, struct str *wanted)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (errno || !*text || *end || !(v >= o->least && v <= o->most)) {
        str_printf(wanted, "a number from %g to %g", o->least, o->most);
        return false;
    }
    *out = v;
    return true;
}

/* 0, or 2 after saying what was wanted. */
static int read_value(const struct cli_table *t, const struct cli_option *o, const char *text, void *into)
{
    void *at = (char *)into + o->at;
    struct str wanted = {0};
    const char *other = NULL;
    bool ok = true;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)at = true; break;
    case CLI_INT: ok = read_int(o, text, at, &wanted); break;
    case CLI_REAL: ok = read_real(o, text, at, &wanted); break;
    case CLI_OWN: ok = !(other = o->read(into, text)); break;
    case CLI_CHOICE: ok = is_choice(o->choices, text); /* fall through */
    case CLI_TEXT:
        if (ok) *(const char **)at = text;
    }
    if (!ok && o->kind == CLI_CHOICE) say_choices(o->choices, &wanted);
    if (other) str_puts(&wanted, other);
    int rc = ok ? 0 : wrong(t, o, text, &wanted);
    str_free(&wanted);
    return rc;
}

/* ---- what stands in no table ---- */
/* How a key or -n was meant, as far as a wrong option shows; else the nearest option. */
static int no_option(const struct cli_table *t, const char *word)
{
    const char *bare = word + strspn(word, "-"), *names[64];
    int n = 0;
    if (t->takes_keys && cli_is_key(bare))
        return cli_usage(t->command, "there is no option %s: a key has no dashes, and is one word with its value: %s%s",
                         word, bare, strchr(bare, '=') ? "" : "=VALUE");
    if (t->takes_keys && !strncmp(word, "-n", 2) && word[2] >= '0' && word[2] <= '9')
        return cli_usage(t->command, "there is no option %s: write -n %s", word, word + 2);
    if (t->takes_keys &&
        (!strcmp(word, "-np") || !strcmp(word, "--ranks") || !strcmp(word, "--nproc") || !strcmp(word, "-N")))
        return cli_usage(t->command, "there is no option %s: ranks are -n RANKS", word);
    for (int i = 0; i < t->n_options && n < 64; i++)
        if (t->option[i].help) names[n++] = t->option[i].name;
    const char *near = str_nearest(word, names, n);
    return cli_usage(t->command, "there is no option %s%s%s%s", word, near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "");
}

/* A key whose value was not written into the same word, or a value with spaces. */
static int too_many(const struct cli_table *t, int argc, char **argv, int i)
{
    const char *word = argv[i], *before = argv[i - 1];
    if (t->takes_keys && cli_is_key(word))
        return cli_usage(t->command, "%s: a key and its value are one word: %s=%s", word, word,
                         i + 1 < argc ? argv[i + 1] : "VALUE");
    if (t->takes_keys && cli_is_key(before) && before[strlen(before) - 1] == '=')
        return cli_usage(t->command, "one argument too many: %s (a key and its value are one word: %s%s)", word, before,
                         word);
    if (t->takes_keys && cli_is_key(before))
        return cli_usage(t->command,
                         "one argument too many: %s (a value with a space in it is put in quotes, several are a list: "
                         "'%.*s=[A, B]')",
                         word, (int)strcspn(before, "="), before);
    return cli_usage(t->command, "one argument too many: %s", word);
}

/* ---- a command line ---- */
struct reading {
    const struct cli_table *t;
    void *into;
    int argc, n_words;
    char **argv;
    uint64_t given; /* a bit per option */
};

static int take_word(struct reading *r, int i)
{
    const struct cli_table *t = r->t;
    const struct cli_word *w = t->n_words ? &t->word[r->n_words < t->n_words ? r->n_words : t->n_words - 1] : NULL;
    bool key = t->takes_keys && r->n_words > 0 && cli_is_key(r->argv[i]);
    if (!w || key || (r->n_words >= t->n_words && !w->many)) return too_many(t, r->argc, r->argv, i);
    r->n_words++;
    void *at = (char *)r->into + w->at;
    if (!w->many) {
        *(const char **)at = r->argv[i];
        return 0;
    }
    struct cli_words *list = at;
    list->p = (const char **)(r->argv + 1); /* what stood there was looked at before */
    list->p[list->n++] = r->argv[i];
    return 0;
}

static int take_key(struct reading *r, char *text)
{
    struct cli_keys *k = (void *)((char *)r->into + r->t->keys);
    if (k->n == CLI_MAX_KEYS) return cli_usage(r->t->command, "more than %d keys", CLI_MAX_KEYS);
    k->p[k->n++] = text;
    return 0;
}

static const struct cli_option *option_find(const struct cli_table *t, const char *arg, size_t n)
{
    for (int i = 0; i < t->n_options; i++)
        if (strlen(t->option[i].name) == n && !strncmp(t->option[i].name, arg, n)) return &t->option[i];
    return NULL;
}

static int take_option(struct reading *r, int *i)
{
    const char *arg = r->argv[*i], *value = strchr(arg, '=');
    const struct cli_option *o = option_find(r->t, arg, value ? (size_t)(value - arg) : strlen(arg));
    if (!o) return no_option(r->t, arg);
    if (value) value++;
    if (!o->value && value) return cli_usage(r->t->command, "%s takes no value", o->name);
    if (o->value && !value) {
        if (*i + 1 >= r->argc) return cli_usage(r->t->command, "%s wants a value", o->name);
        value = r->argv[++*i];
    }
    r->given |= (uint64_t)1 << (o - r->t->option);
    return read_value(r->t, o, value, r->into);
}

static int take_all(struct reading *r)
{
    bool only_words = false;
    int rc = 0;
    for (int i = 1; i < r->argc && !rc; i++) {
        char *arg = r->argv[i];
        if (!only_words && !strcmp(arg, "--")) only_words = true;
        else if (!only_words && arg[0] == '-' && arg[1]) rc = take_option(r, &i);
        else if (!only_words && r->t->takes_keys && strchr(arg, '=')) rc = take_key(r, arg);
        else rc = take_word(r, i);
    }
    return rc;
}

static int what_lacks(const struct reading *r)
{
    const struct cli_table *t = r->t;
    for (int i = 0; i < t->n_options; i++)
        if (t->option[i].needed && !(r->given >> i & 1))
            return cli_usage(t->command, "%s %s is needed", t->option[i].name, t->option[i].value);
    if (r->n_words < t->n_words && !t->word[r->n_words].may_lack)
        return cli_usage(t->command, "which %s?", t->word[r->n_words].name);
    return 0;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

bool cli_read(const struct cli_table *t, int argc, char **argv, void *into, int *status)
{
    CHECK(t->n_options <= 64, "%s: %d options", t->command, t->n_options);
    *status = 0;
    if (asks_for_help(argc, argv)) {
        struct str s = {0};
        cli_help(t, into, &s);
        fputs(str_text(&s), stdout);
        str_free(&s);
        return false;
    }
    struct reading r = {.t = t, .into = into, .argc = argc, .argv = argv};
    *status = take_all(&r);
    if (!*status) *status = what_lacks(&r);
    return !*status;
}

/* ---- help ---- */
static void say_default(const struct cli_option *o, const void *into, struct str *out)
{
    const void *at = (const char *)into + o->at;
    const char *text = o->kind == CLI_TEXT || o->kind == CLI_CHOICE ? *(const char *const *)at : NULL;
    if (o->kind == CLI_INT && *(const int64_t *)at) str_printf(out, " (default %lld)", (long long)*(const int64_t *)at);
    if (o->kind == CLI_REAL && *(const double *)at > 0) str_printf(out, " (default %g)", *(const double *)at);
    if (text) str_printf(out, " (default %s)", text);
}

void cli_help(const struct cli_table *t, const void *into, struct str *out)
{
    size_t wide = 0;
    str_printf(out, "usage: tutti %s %s\n\n%s", t->command, t->usage, t->about);
    for (int i = 0; i < t->n_options; i++) {
        const struct cli_option *o = &t->option[i];
        size_t n = strlen(o->name) + (o->value ? 1 + strlen(o->value) : 0);
        if (o->help && n > wide) wide = n;
    }
    if (wide) str_puts(out, "\n");
    for (int i = 0; i < t->n_options; i++) {
        const struct cli_option *o = &t->option[i];
        if (!o->help) continue;
        int n = (int)(wide - strlen(o->name));
        str_printf(out, "  %s%s%-*s  ", o->name, o->value ? " " : "", o->value ? n - 1 : n, o->value ? o->value : "");
        if (o->kind == CLI_CHOICE) say_choices(o->choices, out);
        if (o->kind == CLI_CHOICE && *o->help) str_puts(out, ": ");
        for (const char *p = o->help; *p; p++) {
            str_putc(out, *p);
            if (*p == '\n') str_printf(out, "%*s", (int)wide + 4, "");
        }
        say_default(o, into, out);
        str_puts(out, "\n");
    }
    if (t->tell) t->tell(out);
}

/* ---- commands of commands ---- */
enum { COMMANDS_MOST = 32 };

const struct cli_command *cli_choose(const char *of, const struct cli_command *table, int n, const char *name)
{
    const char *names[COMMANDS_MOST];
    struct str all = {0};
    CHECK(n <= COMMANDS_MOST, "%d commands, room for %d", n, COMMANDS_MOST);
    for (int i = 0; i < n; i++) {
        if (!strcmp(name, table[i].name)) {
            str_free(&all);
            return &table[i];
        }
        names[i] = table[i].name;
        str_printf(&all, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", names[i]);
    }
    const char *near = str_nearest(name, names, n);
    fprintf(stderr, "tutti%s%s: there is no command '%s'; ", *of ? " " : "", of, name);
    if (near) fprintf(stderr, "did you mean '%s'? (see tutti%s%s --help)\n", near, *of ? " " : "", of);
    else fprintf(stderr, "wanted %s (see tutti%s%s --help)\n", str_text(&all), *of ? " " : "", of);
    str_free(&all);
    return NULL;
}

bool cli_lists(int argc, char **argv) { return argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")); }
