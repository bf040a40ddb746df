/* SPDX-License-Identifier: Apache-2.0 */
/* What an export says of the tokens that begin, end and fill texts: config.json and generation_config.json say the
 * same, all ends in both, and a key that says none where there is none; whoever reads either stops where the model
 * does. */
#include "said.h"

#include "hub/hf.h"

static int zeros(void *ctx, const char *name, const struct region *box, enum dtype dtype, void *out, struct err *e)
{
    (void)ctx, (void)name, (void)e;
    assert_int_equal(dtype, DT_F32);
    memset(out, 0, (size_t)region_volume(box) * sizeof(float));
    return OK;
}

static struct json *read(const char *dir, const char *name)
{
    struct err e;
    struct json *v;
    char *path = fs_join(dir, name), *text;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e));
    assert_ok(json_parse(&v, text, n, name, &e));
    xfree(text);
    xfree(path);
    return v;
}

/* A key's ids, a number or a list, are these. */
static void says(const struct json *root, const char *key, const int64_t *ids, int n)
{
    const struct json *v = json_get(root, key);
    bool list = v && json_kind(v) == JSON_ARRAY;
    int there = !v || json_kind(v) == JSON_NULL ? 0 : list ? (int)json_size(v) : 1;
    if (there != n) fail_msg("%s: %d ids, not %d", key, there, n);
    for (int i = 0; i < n; i++) assert_int_equal(json_int(list ? json_at(v, (size_t)i) : v, -1), ids[i]);
}

static void both_files_say_it(void **state)
{
    (void)state;
    static const struct {
        int64_t bos, pad, eos[4];
        int n;
    } rows[] = {{3, -1, {1}, 1}, {-1, 4, {1, 2, 5}, 3}, {3, 4, {2, 1}, 2}, {-1, -1, {0}, 0}, {0, 0, {0}, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e;
        struct hf *h;
        char *dir = scratch_new(), *out = fs_join(dir, "out");
        struct hf_model m = hf_model_default(HF_LLAMA);
        m.model.layers = 1, m.model.hidden = 8, m.model.heads = m.model.kv_heads = 2, m.model.head_dim = 4;
        m.model.ffn = 8, m.model.vocab = 8, m.model.max_positions = 8;
        m.bos = rows[i].bos, m.pad = rows[i].pad, m.n_eos = rows[i].n;
        memcpy(m.eos, rows[i].eos, sizeof rows[i].eos);
        struct hf_export x = {.model = &m, .dtype = DT_F32, .get = zeros};
        assert_ok(hf_export(out, &x, &e));
        static const char *const files[] = {"config.json", "generation_config.json"};
        for (int k = 0; k < 2; k++) {
            struct json *v = read(out, files[k]);
            says(v, "eos_token_id", m.eos, m.n_eos);
            says(v, "bos_token_id", &m.bos, m.bos >= 0);
            says(v, "pad_token_id", &m.pad, m.pad >= 0);
            json_free(v);
        }
        assert_ok(hf_open(&h, out, NULL, &e)); /* and tutti reads what it wrote */
        const struct hf_model *again = hf_model_get(h);
        assert_int_equal(again->n_eos, m.n_eos);
        assert_memory_equal(again->eos, m.eos, (size_t)m.n_eos * sizeof *m.eos);
        assert_int_equal(again->bos, m.bos);
        hf_close(h);
        xfree(out);
        scratch_free(dir);
    }
}

int main(void)
{
    setenv("LOG", "error", 1); /* the exports have no tokenizer */
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_files_say_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
