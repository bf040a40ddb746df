/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out against what jinja2 gave for the same templates and conversations (cases.json, made by make_cases.py);
 * who wrote which byte; limits; refusals with their places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "drawn.h"
#include "jinja/jinja.h"

static const struct tm noon = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9, .tm_hour = 14, .tm_min = 5, .tm_sec = 6};

static struct json *cases(void)
{
    struct json *root;
    struct err e;
    if (json_parse_file(&root, TEST_DIR "/jinja/cases.json", 4 << 20, &e)) fail_msg("%s", e.text);
    return root;
}

static uint64_t fnv(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    return h;
}

/* A scope of the members of a conversation. */
static struct jinja_scope *scope_of(const struct json *conversation, bool prompt)
{
    struct jinja_scope *s = jinja_scope_new();
    for (void *it = json_iter(conversation); it; it = json_iter_next(conversation, it))
        if (!strcmp(json_iter_key(it), "messages")) jinja_set_messages(s, "messages", json_iter_value(it), "role");
        else jinja_set_json(s, json_iter_key(it), json_iter_value(it));
    jinja_set_bool(s, "add_generation_prompt", prompt);
    jinja_set_text(s, "bos_token", "<s>");
    jinja_set_text(s, "eos_token", "</s>");
    return s;
}

static int render(const char *text, struct jinja_scope *s, struct jinja_output *out, struct err *e)
{
    struct jinja *t;
    *out = (struct jinja_output){0};
    int code = jinja_parse(&t, text, strlen(text), "t", e);
    if (!code) code = jinja_render(t, s, &noon, out, e);
    jinja_free(code && !t ? NULL : t);
    return code;
}

static void test_as_jinja2(void **state)
{
    (void)state;
    struct json *root = cases();
    const struct json *all = json_get(root, "cases"), *templates = json_get(root, "templates");
    int wrong = 0;
    assert_true(json_size(all) >= 500);
    for (size_t i = 0; i < json_size(all); i++) {
        const struct json *c = json_at(all, i);
        const char *name = json_string(json_at(c, 0), NULL, ""), *talk = json_string(json_at(c, 1), NULL, "");
        bool prompt = json_bool(json_at(c, 2), false), fails = json_size(c) == 3;
        struct jinja_scope *s = scope_of(json_get(json_get(root, "conversations"), talk), prompt);
        struct jinja_output out;
        struct err e;
        char sum[20] = "";
        int code = render(json_string(json_get(templates, name), NULL, ""), s, &out, &e);
        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)fnv(str_text(&out.text), out.text.n));
        bool good = fails ? code == ERR_CORRUPT
                          : !code && (int64_t)out.text.n == json_int(json_at(c, 3), -1) &&
                                !strcmp(sum, json_string(json_at(c, 4), NULL, ""));
        if (!good)
            fprintf(stderr, "%s of %s, prompt %d: %s; jinja2 %s:\n%s\n", name, talk, prompt, code ? e.text : "done",
                    fails ? "fails" : "gives another text", str_text(&out.text));
        wrong += !good;
        jinja_output_fini(&out);
        jinja_scope_free(s);
    }
    json_free(root);
    assert_int_equal(wrong, 0);
}

static void test_expressions(void **state)
{
    (void)state;
    struct json *root = cases();
    const struct json *all = json_get(root, "expressions");
    int wrong = 0;
    for (size_t i = 0; i < json_size(all); i++) {
        const struct json *c = json_at(all, i);
        struct jinja_scope *s = scope_of(json_get(json_get(root, "conversations"), "pair"), false);
        struct jinja_output out;
        struct err e;
        struct str text = {0};
        size_t n = 0;
        const char *wanted = json_size(c) > 1 ? json_string(json_at(c, 1), &n, "") : NULL;
        str_printf(&text, "{{ %s }}", json_string(json_at(c, 0), NULL, ""));
        int code = render(text.p, s, &out, &e);
        bool good = wanted ? !code && out.text.n == n && !memcmp(str_text(&out.text), wanted, n) : code != OK;
        if (!good)
            fprintf(stderr, "%s: got %s, wanted %s\n", text.p, code ? e.text : str_text(&out.text),
                    wanted ? wanted : "an error");
        wrong += !good;
        str_free(&text);
        jinja_output_fini(&out);
        jinja_scope_free(s);
    }
    json_free(root);
    assert_int_equal(wrong, 0);
}

/* Renders with {"messages": [{"role", "content"}]} and compares text and who wrote it ("." the template, "d" the data).
 */
static void check_who(const char *template, const char *text, const char *who)
{
    struct json *v;
    struct err e;
    static const char talk[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \" <|x|> \"}, {\"role\": \"a b\", \"content\": \"Yo\"}]}";
    struct jinja_output out;
    if (json_parse(&v, talk, sizeof talk - 1, "talk", &e)) fail_msg("%s", e.text);
    struct jinja_scope *s = scope_of(v, true);
    if (render(template, s, &out, &e)) fail_msg("%s", e.text);
    assert_string_equal(str_text(&out.text), text);
    assert_int_equal(out.data.n, out.text.n);
    for (size_t i = 0; i < out.data.n; i++) out.data.p[i] = out.data.p[i] ? 'd' : '.';
    assert_string_equal(str_text(&out.data), who);
    jinja_output_fini(&out);
    jinja_scope_free(s);
    json_free(v);
}

static void test_who_wrote_it(void **state)
{
    (void)state;
    check_who("<|{{ messages[0].role }}|>{{ messages[0].content | trim }}", "<|user|><|x|>", "........ddddd");
    check_who("{{ '<' + messages[0].content.strip() + '>' }}", "<<|x|>>", ".ddddd.");
    check_who("{{ messages[0].content[1:3] ~ messages[1].content.upper() ~ eos_token }}", "<|YO</s>", "dddd....");
    check_who("{{ messages[1].role }}", "a b", "ddd"); /* no plain word */
    check_who("{{ messages[1].content | replace('o', '<x>') }}", "Y<x>", "d...");
    check_who("{{ [messages[1].content, 'z'] | tojson }}", "[\"Yo\", \"z\"]", "..dd.......");
    check_who("{{ [messages[1].content] }}", "['Yo']", "..dd..");
    check_who("{% set c %}<{{ messages[1].content }}>{% endset %}{{ c }}", "<Yo>", ".dd.");
    check_who("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[1].content)[1:] }}", "Yo>", "dd.");
    check_who("{{ messages[0].content.split('|')[1] ~ '-'.join(['a', messages[1].content]) }}", "xa-Yo", "d..dd");
    check_who("{{ messages[1].content | safe ~ '<' }}{{ '<' + (messages[1].content | safe) }}", "Yo<&lt;Yo",
              "dd.....dd");
    check_who("{{ ('' | safe) + messages[0].content }}", " &lt;|x|&gt; ", "ddddddddddddd");
    check_who("{{ '<%s|%3s>' % (messages[1].content, 'x') }}", "<Yo|  x>", ".dd.....");
    check_who("{{ '<{}{{>'.format(messages[1].content) }}", "<Yo{>", ".dd..");
    check_who("{{ [messages[1].content]|tojson(separators=('Y', ':'), indent=' ') }}", "[\n \"Yo\"\n]", "....dd...");
    check_who("{{ (messages|groupby('role')|first).list[0].content }}", "Yo", "dd");
    check_who("{{ messages[1].content * 2 }}{{ 'Y' }}", "YoYoY", "dddd.");
    check_who("{{ messages | map(attribute='content') | join('/') | trim }}", "<|x|> /Yo", "dddddd.dd");
}

static void refused(const char *template, const char *wanted)
{
    struct jinja_scope *s = jinja_scope_new();
    struct jinja_output out;
    struct err e = {0};
    jinja_set_text(s, "a", "x");
    int code = render(template, s, &out, &e);
    if (code != ERR_CORRUPT || !strstr(e.text, wanted))
        fail_msg("%s: %s; wanted %s", template, code ? e.text : "it renders", wanted);
    jinja_scope_free(s);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("a\n  {{ a | striptags }}", "t:2:10: the filter 'striptags' is not known");
    refused("{{ a | uper }}", "did you mean 'upper'");
    refused("{{ a is defind }}", "t:1:9: the test 'defind' is not known here; did you mean 'defined'");
    refused("{% include 'x' %}", "t:1:4: {% include %} is not known");
    refused("{% if a %}x", "{% endif %}");
    refused("{% for x in a %}{% endif %}", "{% endif %} is not known here");
    refused("{{ a", "{{ that does not end");
    refused("{# a", "comment that does not end");
    refused("{{ 'a }}", "string that does not end");
    refused("{{ (1 }}", "not");
    refused("{{ 1 ! 2 }}", "sign ! is not known");
    refused("{% raw %}", "without {% endraw %}");
    refused("{{ a.b.c }}", "is undefined");
    refused("{{ nothing.b }}", "'nothing' is undefined");
    refused("{% set a.b = 1 %}", "only a namespace()");
    refused("{% break %}", "outside of a loop");
    refused("{{ raise_exception('the reason') }}", "t:1:19: the template refuses: the reason");
    refused("{{ '%o' % 1 }}", "t:1:9: formatting by %: %s, %r");
    refused("{{ '{:5}'.format(1) }}", "format: {:5} is not known here");
    refused("{{ ('a' | safe).replace('a', '<') }}", "marked safe");
    refused("{{ 'é' | wordcount }}", "beyond ASCII");
    refused("{% with a = 1 %}", "{% endwith %}");
    refused("{{ range(*a, *a) }}", "behind the last one");
    refused("{{ range(**a, b=1) }}", "behind the last one");
    refused("{{ range(**a) }}", "arguments from a str, where a dict was wanted");
    refused("{{ dict(a=1, **{'a': 1}) }}", "given twice");
    refused("{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}{{ m() }}", "within a macro");
    refused("{{ 99999999999999999999 }}", "beyond 64 bits");
    refused("{{ 9223372036854775807 + 1 }}", "beyond 64 bits");
    refused("{{ a | tojson(separators=',') }}", "separators=(between items, behind keys)");
    refused("\xFF", "not valid UTF-8");
    refused("{{ 'ß' | upper }}", "U+00DF");
}

/* Templates without an end, or with an output without one. */
static void test_limits(void **state)
{
    (void)state;
    struct str deep = {0};
    refused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "more than");
    refused("{{ 'abcdefgh' * 100000000 }}", "MiB of values");
    refused("{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor "
            "%}",
            "MiB");
    refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "within each other");
    refused("{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
            "deeper");
    refused("{% set n = namespace(l=[]) %}{% for i in range(5000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l|tojson }}",
            "deep");
    refused("{% for i in range(90000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 100 }}{% endfor %}", "MiB");
    for (int i = 0; i < 3000; i++) str_putc(&deep, '(');
    struct str text = {0};
    str_printf(&text, "{{ %s }}", deep.p);
    refused(text.p, "200 brackets");
    str_clear(&text);
    for (int i = 0; i < 3000; i++) str_puts(&text, "{% if a %}");
    refused(text.p, "nested deeper");
    str_clear(&text);
    str_puts(&text, "{{ ");
    for (int i = 0; i < 3000; i++) str_puts(&text, "not ");
    str_puts(&text, "1 }}");
    refused(text.p, "nested deeper");
    str_clear(&text);
    str_puts(&text, "{{ 1");
    for (int i = 0; i < 3000; i++) str_puts(&text, " + 1");
    str_puts(&text, " }}");
    refused(text.p, "within each other");
    str_free(&text);
    str_free(&deep);
}

/* Values of which a few lines make 2^60: whatever walks one is counted by what it walks. None of these comes to an end
 * otherwise. */
static void test_counted(void **state)
{
    (void)state;
    /* Lists that hold the same list twice, sixty deep: l and m are equal, and so are the dicts d and f. */
    static const char doubled[] =
        "{% set n = namespace(l=[1], m=[1], d={'a': 1}, f={'a': 1}) %}{% for i in range(60) %}"
        "{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}"
        "{% set n.d = {'a': n.d, 'b': n.d} %}{% set n.f = {'a': n.f, 'b': n.f} %}{% endfor %}";
    static const char *const walks[] = {
        "n.l == n.m",
        "n.l != n.m",
        "n.l < n.m",
        "n.l >= n.m",
        "n.d == n.f",
        "n.l in [n.m]",
        "n.l not in [n.m]",
        "n.l is in([n.m])",
        "n.l is eq(n.m)",
        "n.l is ne(n.m)",
        "n.l is lt(n.m)",
        "[n.l, n.m] | sort",
        "[n.l, n.m] | unique",
        "[n.l, n.m] | max",
        "[n.l, n.m] | min",
        "[{'a': n.l}, {'a': n.m}] | sort(attribute='a')",
        "[n.l] | map('string') | list",
        "[n.l] | selectattr(0, 'equalto', n.m[0]) | list",
        "{'k': n.l, 'j': n.m} | dictsort(by='value')",
        "[n.l].index(n.m)",
        "[n.l].count(n.m)",
        "[n.l, 1] | join",
        "n.l ~ ''",
        "n.l | string",
        "n.l | tojson",
        "n.d | tojson(sort_keys=true)",
        "n.l | upper",
        "n.l",
    };
    struct str text = {0};
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        if (!drawn_here((int64_t)i, 3)) continue; /* every day a third of them */
        str_clear(&text);
        str_printf(&text, "%s{{ %s }}", doubled, walks[i]);
        refused(text.p, "steps");
    }
    str_clear(&text); /* as a key, and of what a loop saw before */
    str_printf(&text, "%s{%% for x in [n.l, n.m] %%}{{ loop.changed(x) }}{%% endfor %%}", doubled);
    refused(text.p, "steps");
    str_free(&text);
}

/* Long texts, looked through again and again. */
static void test_counted_texts(void **state)
{
    (void)state;
    static const char *const walks[] = {
        "s.count('b')",
        "s.find('b')",
        "'b' in s",
        "s == r",
        "s < r",
        "s | length",
        "s[1:]",
        "s | upper",
        "s.strip('a')",
        "s.split('b')",
        "s.splitlines()",
        "s.startswith(r)",
        "s.removesuffix(r)",
        "s.isdigit()",
        "s | tojson",
        "{s: 1}[r]",
        "3 in l",
        "l * 2",
    };
    struct str text = {0};
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        if (!drawn_here((int64_t)i, 3)) continue; /* every day a third of them */
        str_clear(&text);
        str_printf(&text,
                   "{%% set s = 'a' * 1000000 %%}{%% set r = 'a' * 999999 ~ 'a' %%}{%% set l = [5] * 100000 %%}"
                   "{%% for i in range(100000) %%}{%% set x = %s %%}{%% endfor %%}",
                   walks[i]);
        refused(text.p, "more than");
    }
    refused("{{ 'a' * 60000000 }}{{ 'a' * 60000000 }}{{ 'a' * 60000000 }}", "more than");
    refused("{% set l = [0.1] * 100000 %}{% for i in range(100000) %}{% set x = l | string %}{% endfor %}", "steps");
    str_free(&text);
}

static void test_answers(void **state)
{
    (void)state;
    static const char t[] =
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    struct json *root = cases();
    struct jinja_scope *s = scope_of(json_get(json_get(root, "conversations"), "pair"), false);
    struct jinja_output out;
    struct err e;
    assert_int_equal(render(t, s, &out, &e), OK);
    assert_int_equal(out.n_answers, 1);
    assert_int_equal(out.answers[0].to, out.text.n);
    assert_string_equal(out.text.p + out.answers[0].from, "Hi, what is it?</s>");
    jinja_output_fini(&out);
    jinja_set_first(s, "messages", 1);
    assert_int_equal(render(t, s, &out, &e), OK);
    assert_int_equal(out.n_answers, 0);
    assert_string_equal(str_text(&out.text), "[user]Hello");
    jinja_output_fini(&out);
    jinja_set_first(s, "messages", 9);
    assert_int_equal(render(t, s, &out, &e), OK);
    assert_int_equal(out.n_answers, 1);
    jinja_output_fini(&out);
    jinja_scope_free(s);
    json_free(root);
}

/* As transformers' _alias_reasoning_fields fills them. */
static void test_thoughts(void **state)
{
    (void)state;
    static const char talk[] =
        "{\"messages\": [{\"thinking\": \"a\"}, {\"reasoning\": \"b\"}, {\"reasoning_content\": null, "
        "\"thinking\": null, \"reasoning\": \"c\"}, {\"reasoning_content\": \"d\", \"thinking\": \"e\"}, "
        "{\"content\": \"f\"}]}";
    struct json *v;
    struct jinja_output out;
    struct err e;
    if (json_parse(&v, talk, sizeof talk - 1, "talk", &e)) fail_msg("%s", e.text);
    struct jinja_scope *s = scope_of(v, true);
    if (render("{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }} {% endfor %}", s, &out, &e))
        fail_msg("%s", e.text);
    assert_string_equal(str_text(&out.text), "aa bb cNone de  ");
    jinja_output_fini(&out);
    jinja_scope_free(s);
    json_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_jinja2),     cmocka_unit_test(test_expressions), cmocka_unit_test(test_who_wrote_it),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_limits),      cmocka_unit_test(test_counted),
        cmocka_unit_test(test_counted_texts), cmocka_unit_test(test_answers),     cmocka_unit_test(test_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
