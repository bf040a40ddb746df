/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_conf.c: any bytes as a configuration: no crash, an error says something, and what is accepted survives
 * print and parse. After a NUL byte the rest is taken as a command-line override.
 */
#include <stddef.h>
#include <string.h>

#include "base/conf.h"
#include "model/layer_pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct source {
    const char *path;
    struct conf_points weight;
};

struct config {
    const char *name;
    int64_t layers, vocab;
    double lr, betas[2];
    bool tied;
    int family;
    struct layer_pattern local;
    struct conf_list train;
};

#define AT(member) .offset = offsetof(struct config, member)

/* clang-format off */
static const struct conf_row item_rows[] = {
    {.path = "path", .type = CONF_STRING, .offset = offsetof(struct source, path), .doc = "where"},
    {.path = "weight", .type = CONF_POINTS, .offset = offsetof(struct source, weight), .otherwise = "1", .doc = "how much"},
    {.path = NULL},
};
/* clang-format on */

/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "run.name", .type = CONF_STRING, AT(name), .otherwise = "null", .doc = "name"},
    {.path = "model.layers", .type = CONF_INT, AT(layers), .otherwise = "4", .lo = 1, .hi = 1000, .doc = "blocks"},
    {.path = "model.vocab", .type = CONF_INT, AT(vocab), .otherwise = "null", .lo = 1, .hi = 1e9, .doc = "tokens"},
    {.path = "model.tied", .type = CONF_BOOL, AT(tied), .otherwise = "false", .doc = "tied"},
    {.path = "model.family", .type = CONF_CHOICE, AT(family), .otherwise = "gpt2", .choices = "llama|gpt2", .doc = "f"},
    {.path = "model.local", .type = CONF_WORD, AT(local), .n = LAYER_PATTERN_BYTES, .fits = layer_pattern_wanted,
     .otherwise = "x", .doc = "which layers"},
    {.path = "optimizer.lr", .type = CONF_REAL, AT(lr), .otherwise = "3e-4", .doc = "rate"},
    {.path = "optimizer.betas", .type = CONF_REALS, AT(betas), .n = 2, .otherwise = "[0.9, 0.95]", .lo = 0, .hi = 1,
     .doc = "decay"},
    {.path = "data.train", .type = CONF_LIST, AT(train), .otherwise = "[]", .item = item_rows,
     .item_bytes = sizeof(struct source), .item_short = "path", .doc = "text"},
    {.path = NULL},
};
/* clang-format on */

/* Reads, and prints what was read; the text is empty after an error. */
static void read_and_print(const char *text, size_t n, const char *override, struct str *out)
{
    struct arena *a = arena_new();
    struct config target = {0};
    struct err e = {0};
    struct conf *c = conf_new(rows, &target, a);
    int code = conf_read_text(c, text, n, "fuzz.yaml", &e);
    if (!code && override) code = conf_override(c, override, &e);
    if (!code) code = conf_finish(c, &e);
    CHECK((code == OK) == (*e.text == 0), "code %d with the text '%s'", code, e.text);
    if (!code) conf_print(rows, &target, out);
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str once = {0}, twice = {0};
    char *text = xmalloc(n + 1);
    if (n) memcpy(text, data, n);
    text[n] = 0;
    size_t first = strlen(text);
    read_and_print(text, first, first < n ? text + first + 1 : NULL, &once);
    if (once.n) {
        read_and_print(once.p, once.n, NULL, &twice);
        CHECK(!strcmp(str_text(&once), str_text(&twice)), "printed\n%s\nbut read back as\n%s", str_text(&once),
              str_text(&twice));
    }
    xfree(text);
    str_free(&once);
    str_free(&twice);
    return 0;
}
