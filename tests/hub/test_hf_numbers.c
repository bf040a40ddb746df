/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a model's numbers against config.json: what is written of published models is what always was, byte for
 * byte; no key stands for two numbers; and every number that is written comes back, so a new row is tested without
 * further work. */
#include "said.h"

#include "base/json.h"
#include "hub/hf_numbers.h"

#define FIXTURES TEST_DIR "/checkpoint/fixtures/"
#define EACH(n, rows) for (const struct number *n = (rows); n->row.path; n++)
#define SPELT(s, n) for (const struct spelling *s = (n)->theirs; s < (n)->theirs + NUMBER_SPELLINGS && s->in; s++)

static int parse(const char *text, struct hf_model *m, struct err *e)
{
    static const char *const keys[] = {"quantization_config"};
    struct hf_ignore ignore = {.keys = keys, .n = 1};
    struct json *v;
    int rc = json_parse_published(&v, text, strlen(text), "config.json", e);
    if (rc) return rc;
    rc = hf_config_parse(m, v, &ignore, "config.json", e);
    json_free(v);
    return rc;
}

static void put(struct str *s, const struct hf_model *m)
{
    str_clear(s);
    hf_config_put(&(struct json_out){.s = s, .pretty = true}, NULL, m, DT_BF16);
    str_putc(s, '\n');
}

static char *read_file(const char *folder, const char *name)
{
    struct err e = {0};
    char *path = fs_join(folder, name), *text;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e));
    xfree(path);
    return text;
}

static void exported_files_stay(void **state)
{
    (void)state;
    struct err e = {0};
    char **names;
    int n;
    assert_ok(fs_list(FIXTURES "published", &names, &n, &e));
    assert_true(n >= 13);
    for (int i = 0; i < n; i++) {
        struct hf_model m;
        struct str s = {0};
        char *text = read_file(FIXTURES "published", names[i]), *want = read_file(FIXTURES "exported", names[i]);
        assert_ok(parse(text, &m, &e));
        put(&s, &m);
        assert_string_equal(s.p, want);
        str_free(&s);
        xfree(want);
        xfree(text);
    }
    fs_list_free(names, n);
}

static void a_key_is_one_number(void **state)
{
    (void)state;
    const unsigned most = IN_LONGROPE;
    for (unsigned in = 1; in <= most; in <<= 1) EACH(n, model_numbers) SPELT(s, n) if (s->in & in && s->key)
        {
            const struct number *found = hf_number_spelt(s->key, in);
            if (found != n) fail_msg("%s is %s and %s", s->key, n->row.path, found->row.path);
            EACH(other, model_numbers)
            SPELT(t, other)
            if (t != s && t->in & in && t->at && t->at == s->at) fail_msg("%s and %s at %d", s->key, t->key, s->at);
        }
}

/* ---- every number comes back ---- */
static double get(const struct number *n, const void *base)
{
    const void *at = (const char *)base + n->row.offset;
    switch (n->row.type) {
    case CONF_INT: return (double)*(const int64_t *)at;
    case CONF_REAL: return *(const double *)at;
    case CONF_BOOL: return *(const bool *)at;
    default: return *(const int *)at;
    }
}

static void set(const struct number *n, void *base, double v)
{
    void *at = (char *)base + n->row.offset;
    if (n->row.type == CONF_INT) *(int64_t *)at = (int64_t)v;
    if (n->row.type == CONF_REAL) *(double *)at = v;
    if (n->row.type == CONF_BOOL) *(bool *)at = v != 0;
    if (n->row.type == CONF_CHOICE) *(int *)at = (int)v;
}

/* The model with another value of the number, written and read: the value is there, and nothing else is written
 * otherwise. */
static bool comes_back(const struct hf_model *m, const struct number *n, double v)
{
    struct hf_model changed = *m, again;
    struct err e;
    struct str once = {0}, twice = {0};
    set(n, &changed.model, v);
    if (changed.model.mla.kv_rank) changed.model.kv_heads = changed.model.heads;
    put(&once, &changed);
    bool back = parse(once.p, &again, &e) == OK && get(n, &again.model) == v;
    if (back) put(&twice, &again);
    back = back && !strcmp(once.p, twice.p);
    str_free(&once);
    str_free(&twice);
    return back;
}

static bool some_comes_back(const struct hf_model *m, const struct number *n)
{
    double was = get(n, &m->model);
    if (n->row.type == CONF_BOOL || n->row.type == CONF_CHOICE) return comes_back(m, n, !was);
    const double others[] = {was * 2, was / 2, was + 1, was - 1};
    for (int i = 0; i < 4; i++)
        if (others[i] != was && others[i] >= n->row.lo && others[i] <= n->row.hi && comes_back(m, n, others[i]))
            return true;
    return false;
}

/* Latent attention has as many key heads as query heads, and heads of the sizes of their parts. */
static bool follows(enum hf_family f, const struct number *n)
{
    bool heads = !strcmp(n->row.path, "model.kv_heads") || !strcmp(n->row.path, "model.head_dim");
    return heads && (f == HF_DEEPSEEK_V2 || f == HF_DEEPSEEK_V3);
}

static void every_number_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned rope;
    } models[] = {{"gpt2.json", 0},
                  {"llama-3.1-8b-instruct.json", IN_LLAMA3},
                  {"mixtral-8x7b.json", 0},
                  {"deepseek-v2.json", IN_YARN},
                  {"deepseek-v3-bf16.json", IN_YARN}};
    int written = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct hf_model m;
        struct err e = {0};
        char *text = read_file(FIXTURES "published", models[i].name);
        assert_ok(parse(text, &m, &e));
        EACH(n, model_numbers)
        SPELT(s, n) if (s->in & (1u << m.family | models[i].rope) && s->at && !follows(m.family, n))
        {
            if (!some_comes_back(&m, n))
                fail_msg("%s: %s (%s) does not come back", models[i].name, n->row.path, s->key);
            written++;
        }
        xfree(text);
    }
    assert_true(written >= 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exported_files_stay),
        cmocka_unit_test(a_key_is_one_number),
        cmocka_unit_test(every_number_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
