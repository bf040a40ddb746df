/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_json.c: any bytes as JSON: no crash, an error says where, and what parses survives write and parse. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "../json_line_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A key that holds NUL is not written by json_out: "?" stands for it, and such a document is not read again. */
static void copy(const struct json *v, const char *key, struct json_out *o, bool *nul);

static void copy_members(const struct json *v, struct json_out *o, bool *nul)
{
    struct str key = {0};
    for (void *it = json_iter(v); it; it = json_iter_next(v, it)) {
        json_iter_key_text(it, &key);
        bool held = strlen(str_text(&key)) != key.n;
        *nul = *nul || held;
        copy(json_iter_value(it), held ? "?" : str_text(&key), o, nul);
    }
    str_free(&key);
}

static void copy(const struct json *v, const char *key, struct json_out *o, bool *nul)
{
    switch (json_kind(v)) {
    case JSON_NULL: json_put_null(o, key); break;
    case JSON_BOOL: json_put_bool(o, key, json_bool(v, false)); break;
    case JSON_INT: json_put_int(o, key, json_int(v, 0)); break;
    case JSON_REAL: json_put_real(o, key, json_real(v, 0)); break;
    case JSON_STRING: json_put_string(o, key, json_string(v, NULL, "")); break;
    case JSON_ARRAY:
        json_begin_array(o, key);
        for (size_t i = 0; i < json_size(v); i++) copy(json_at(v, i), NULL, o, nul);
        json_end_array(o);
        break;
    case JSON_OBJECT:
        json_begin_object(o, key);
        copy_members(v, o, nul);
        json_end_object(o);
        break;
    }
}

/* As a document of others: what the strict reader takes, this one takes too, and what it gives is never a number
 * without bounds. */
static void read_published(const char *text, size_t n, bool strict)
{
    struct json *root;
    struct err e = {0};
    if (json_parse_published(&root, text, n, "fuzz.json", &e)) {
        CHECK(!strict, "refused as published only: %s", e.text);
        CHECK(strstr(e.text, "fuzz.json:"), "an error without its place: %s", e.text);
        return;
    }
    struct str out = {0};
    struct json_out o = {.s = &out};
    bool nul = false;
    copy(root, NULL, &o, &nul);
    str_free(&out);
    json_free(root);
}

/* Parses and writes again; false after an error, and where a key holds NUL. */
static bool read_and_write(const char *text, size_t n, bool pretty, struct str *out)
{
    struct json *root;
    struct err e = {0};
    if (json_parse(&root, text, n, "fuzz.json", &e)) {
        CHECK(strstr(e.text, "fuzz.json:"), "an error without its place: %s", e.text);
        return false;
    }
    struct json_out o = {.s = out, .pretty = pretty};
    bool nul = false;
    copy(root, NULL, &o, &nul);
    int64_t number;
    const char *text_member;
    json_need_int(root, "a", -5, 5, &number, "fuzz.json", &e);
    json_need_string(root, "b", &text_member, "fuzz.json", &e);
    json_free(root);
    return !nul;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_line line = {0};
    json_line_check(&line, (const char *)data, n, "text");
    str_free(&line.text);
    struct str once = {0}, twice = {0};
    struct json *root;
    bool strict = json_parse(&root, (const char *)data, n, "fuzz.json", NULL) == OK;
    json_free(root);
    read_published((const char *)data, n, strict);
    if (read_and_write((const char *)data, n, true, &once)) {
        CHECK(read_and_write(once.p, once.n, true, &twice), "what was written does not parse:\n%s", str_text(&once));
        CHECK(!strcmp(once.p, twice.p), "wrote\n%s\nand then\n%s", once.p, twice.p);
    }
    str_free(&once);
    str_free(&twice);
    return 0;
}
