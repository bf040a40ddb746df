/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_jinja.c: any bytes as a template: refused with its place, or rendered, twice with the same result, within
 * limits, with each byte's writer known and valid UTF-8. */
#include <string.h>

#include "base/mem.h"
#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char talk[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \" <|x|> \xC3\xA9 "
    "\"},"
    "{\"role\": \"assistant\", \"content\": \"<think>\\na\\n</think> b\", \"tool_calls\": [{\"function\": {\"name\": "
    "\"f\","
    "\"arguments\": {\"a\": [1, 2.5, null, true]}}}]}], \"tools\": [{\"function\": {\"name\": \"f\"}}]}";

static void check(const struct jinja_output *o)
{
    CHECK(o->data.n == o->text.n, "%zu bytes, %zu writers", o->text.n, o->data.n);
    for (size_t at = 0; at < o->text.n;) {
        int len = o->text.p[at] ? str_utf8(o->text.p + at, NULL) : 1;
        CHECK(len, "byte %zu of what came out is no UTF-8", at);
        at += (size_t)len;
    }
    size_t end = 0;
    for (int i = 0; i < o->n_answers; i++) {
        CHECK(o->answers[i].from <= o->answers[i].to && o->answers[i].to <= o->text.n, "an answer outside");
        end = o->answers[i].to;
    }
    (void)end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct jinja *t;
    struct json *v;
    struct err e = {0};
    if (n > 20000) return 0;
    if (jinja_parse(&t, (const char *)data, n, "fuzz.jinja", &e)) {
        CHECK(!t && !strncmp(e.text, "fuzz.jinja:", 11), "an error without its place: %s", e.text);
        return 0;
    }
    CHECK(!json_parse(&v, talk, sizeof talk - 1, "talk", &e), "%s", e.text);
    struct jinja_scope *s = jinja_scope_new();
    jinja_set_messages(s, "messages", json_get(v, "messages"), "role");
    jinja_set_json(s, "tools", json_get(v, "tools"));
    jinja_set_text(s, "bos_token", "<s>");
    jinja_set_bool(s, "add_generation_prompt", true);
    struct jinja_output first, second;
    int code = jinja_render(t, s, NULL, &first, &e), again = jinja_render(t, s, NULL, &second, &e);
    CHECK(code == again, "%d and then %d", code, again);
    if (code) CHECK(!strncmp(e.text, "fuzz.jinja:", 11), "an error without its place: %s", e.text);
    if (!code) {
        check(&first);
        CHECK(first.text.n == second.text.n && !memcmp(str_text(&first.text), str_text(&second.text), first.text.n),
              "two renderings differ");
    }
    jinja_output_fini(&first);
    jinja_output_fini(&second);
    jinja_scope_free(s);
    jinja_free(t);
    json_free(v);
    return 0;
}
