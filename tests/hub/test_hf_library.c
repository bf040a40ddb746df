/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of keys against the newest transformers and peft (fixtures/library_keys.json, made by
 * tests/golden/make_keys.py): every key that their classes write is known; what changes their numbers or shapes is
 * passed over nowhere, and is read: another value is refused, or makes another model; a file that leaves a key out
 * means what it means to their class, or is refused. */
#include "said.h"

#include <math.h>

#include "base/json.h"
#include "hub/hf.h"
#include "hub/hf_generation.h"
#include "hub/hf_keys.h"
#include "hub/hf_numbers.h"
#include "hub/hf_same.h"
#include "hub/hf_tokenizer_keys.h"
#include "hub/peft.h"
#include "hub/peft_keys.h"

#define LIST TEST_DIR "/checkpoint/fixtures/library_keys.json"

static const struct json *root;
static int open_list(void **state)
{
    struct err e;
    struct json *list;
    (void)state;
    if (json_parse_published_file(&list, LIST, 1 << 20, &e)) {
        print_error("%s\n", e.text);
        return -1;
    }
    root = list;
    return 0;
}
static int close_list(void **state)
{
    (void)state;
    json_free((struct json *)(uintptr_t)root);
    return 0;
}

static bool has(const struct json *list, const char *word)
{
    for (size_t i = 0; list && i < json_size(list); i++)
        if (!strcmp(json_string(json_at(list, i), NULL, ""), word)) return true;
    return false;
}

/* ---- a family, and the text of its config with one key changed ---- */
struct family {
    const char *name;
    const struct json *of;
    unsigned in;
};

static struct family family_at(void *it)
{
    struct family f = {.name = json_iter_key(it), .of = json_iter_value(it)};
    for (int k = 0; k < HF_N; k++)
        if (!strcmp(hf_family_name((enum hf_family)k), f.name)) f.in = k == HF_LLAVA ? IN_LLAVA : 1u << k;
    if (!strcmp(f.name, "clip_vision_model")) f.in = IN_CLIP;
    if (!strcmp(f.name, "siglip_vision_model")) f.in = IN_SIGLIP;
    if (!f.in) fail_msg("%s is no family", f.name);
    return f;
}
#define EACH_FAMILY(f)                                                                                                 \
    for (void *it_ = json_iter(json_get(root, "families")); it_;                                                       \
         it_ = json_iter_next(json_get(root, "families"), it_))                                                        \
        for (struct family f = family_at(it_), *once_ = &f; once_; once_ = NULL)

/* One key: its other value, or NULL and it is left out; what is done to its own number. */
struct edit {
    const char *key;
    const struct json *value;
    bool moved;
    double times, plus;
};

static void put(struct json_out *o, const char *key, const struct json *v, const struct edit *x);

static void put_members(struct json_out *o, const struct json *v, const struct edit *x)
{
    bool there = false;
    for (void *it = json_iter(v); it; it = json_iter_next(v, it)) {
        const char *key = json_iter_key(it);
        bool it_is = x && !strcmp(key, x->key);
        there |= it_is;
        if (!it_is) put(o, key, json_iter_value(it), NULL);
        else if (x->moved) put(o, key, json_iter_value(it), x);
        else if (x->value) put(o, key, x->value, NULL);
    }
    if (x && !there && x->value) put(o, x->key, x->value, NULL);
}

static void put(struct json_out *o, const char *key, const struct json *v, const struct edit *x)
{
    switch (json_kind(v)) {
    case JSON_NULL: json_put_null(o, key); break;
    case JSON_BOOL: json_put_bool(o, key, json_bool(v, false) ^ (x != NULL)); break;
    case JSON_INT:
        json_put_int(o, key, (int64_t)((double)json_int(v, 0) * (x ? x->times : 1) + (x ? x->plus : 0)));
        break;
    case JSON_REAL: { /* Infinity, as their files say that there is no limit: a number beyond any */
        double r = json_real(v, 0);
        json_put_real(o, key, isfinite(r) ? r * (x ? x->times : 1) + (x ? x->plus : 0) : 1e300);
        break;
    }
    case JSON_STRING: json_put_string(o, key, json_string(v, NULL, "")); break;
    case JSON_ARRAY:
        json_begin_array(o, key);
        for (size_t i = 0; i < json_size(v); i++) put(o, NULL, json_at(v, i), NULL);
        json_end_array(o);
        break;
    case JSON_OBJECT:
        json_begin_object(o, key);
        put_members(o, v, NULL);
        json_end_object(o);
    }
}

static const struct json *written(const struct family *f) { return json_get(f->of, "written"); }

/* A tower's config stands in LLaVA's. */
static void text_of(const struct family *f, const struct edit *x, struct str *s)
{
    struct json_out o = {.s = s};
    bool tower = f->in & IN_TOWER, siglip = f->in == IN_SIGLIP;
    json_begin_object(&o, NULL);
    if (!tower) {
        put_members(&o, written(f), x);
    } else {
        const struct json *llava = json_get(json_get(json_get(root, "families"), "llava"), "written");
        for (void *it = json_iter(llava); it; it = json_iter_next(llava, it)) {
            const char *key = json_iter_key(it);
            if (!strcmp(key, "vision_config")) {
                json_begin_object(&o, key);
                put_members(&o, written(f), x);
                json_end_object(&o);
            } else if (siglip && !strcmp(key, "vision_feature_layer")) {
                json_put_int(&o, key, -1);
            } else if (siglip && !strcmp(key, "vision_feature_select_strategy")) {
                json_put_string(&o, key, "full");
            } else {
                put(&o, key, json_iter_value(it), NULL);
            }
        }
    }
    json_end_object(&o);
}

static int parse(const struct family *f, const struct edit *x, struct hf_model *m, struct err *e)
{
    struct str text = {0};
    struct json *v;
    text_of(f, x, &text);
    int rc = json_parse_published(&v, text.p, text.n, "config.json", e);
    if (!rc) {
        rc = hf_config_parse(m, v, NULL, "config.json", e);
        json_free(v);
    }
    str_free(&text);
    return rc;
}

/* ---- config.json ---- */
/* What the measure says of these is so for a reason. */
static bool is_known(const struct family *f, const char *key)
{
    static const struct {
        const char *family, *key;
    } rows[] = {
        {NULL, "return_dict"},                         /* how their code hands out what it computed */
        {"gpt2", "reorder_and_upcast_attn"},           /* rounding; in float64 their code does not run with it */
        {"nemotron_h", "time_step_min"},               /* docs/state-spaces.md: releases differ */
        {"nemotron_h", "mtp_hybrid_override_pattern"}, /* of modules that are refused where there are any */
        {"siglip_vision_model", "vision_use_head"},    /* of a head whose weights a text does not see */
        {"deepseek_v3", "num_nextn_predict_layers"},   /* the files say which modules there are */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((!rows[i].family || !strcmp(rows[i].family, f->name)) && !strcmp(rows[i].key, key)) return true;
    return false;
}

static void every_key_is_known_and_none_that_counts_is_passed_over(void **state)
{
    (void)state;
    int bad = 0;
    EACH_FAMILY(f)
    {
        for (void *it = json_iter(written(&f)); it; it = json_iter_next(written(&f), it))
            if (hf_key_kind(f.in, json_iter_key(it)) == HF_KEY_UNKNOWN)
                bad++, print_error("%s: %s is written and is no row\n", f.name, json_iter_key(it));
        static const char *const counts[] = {"numbers", "shape", "error"};
        for (int k = 0; k < 3; k++) {
            const struct json *list = json_get(f.of, counts[k]);
            for (size_t i = 0; i < json_size(list); i++) {
                const char *key = json_string(json_at(list, i), NULL, "");
                if (!is_known(&f, key) && hf_key_kind(f.in, key) == HF_KEY_HARMLESS)
                    bad++, print_error("%s: %s (%s) is passed over\n", f.name, key, counts[k]);
            }
        }
    }
    assert_int_equal(bad, 0);
}

/* What we write is called as their class calls it, type by type. */
static void types_are_called_as_their_library_calls_them(void **state)
{
    (void)state;
    int types = 0;
    EACH_FAMILY(f)
    {
        struct hf_model m;
        struct err e = {0};
        struct str text = {0};
        struct json *ours;
        struct json_out o = {.s = &text};
        if (f.in & IN_TOWER) continue;
        if (parse(&f, NULL, &m, &e)) fail_msg("%s: %s", f.name, e.text);
        hf_config_put(&o, NULL, &m, DT_F32);
        assert_int_equal(json_parse_published(&ours, text.p, text.n, "config.json", &e), OK);
        assert_string_equal(json_string(json_get(ours, "model_type"), NULL, ""), f.name);
        assert_string_equal(json_string(json_at(json_get(ours, "architectures"), 0), NULL, "ours"),
                            json_string(json_at(json_get(written(&f), "architectures"), 0), NULL, "theirs"));
        types++;
        json_free(ours);
        str_free(&text);
    }
    assert_int_equal(types, HF_N);
}

static void what_counts_is_read(void **state)
{
    (void)state;
    int bad = 0;
    EACH_FAMILY(f)
    {
        struct hf_model m;
        struct err e = {0};
        if (parse(&f, NULL, &m, &e)) fail_msg("%s as their class writes it: %s", f.name, e.text);
        static const char *const counts[] = {"numbers", "shape"};
        for (int k = 0; k < 2; k++) {
            const struct json *list = json_get(f.of, counts[k]);
            for (size_t i = 0; i < json_size(list); i++) {
                const char *key = json_string(json_at(list, i), NULL, "");
                const struct json *v = json_get(written(&f), key);
                if (!v || (json_kind(v) != JSON_BOOL && json_kind(v) != JSON_INT && json_kind(v) != JSON_REAL))
                    continue;
                static const double by[][2] = {{2, 0}, {1, 1}, {0.5, 0}};
                bool read = is_known(&f, key);
                for (int b = 0; b < 3 && !read; b++) {
                    struct hf_model other;
                    struct edit x = {key, NULL, true, by[b][0], by[b][1]};
                    read = parse(&f, &x, &other, &e) || !hf_same(&m, &other);
                }
                if (!read)
                    bad++, print_error("%s: %s (%s) is read as if nothing were changed\n", f.name, key, counts[k]);
            }
        }
    }
    assert_int_equal(bad, 0);
}

/* Ids of tokens are left out: those of a class are of another vocabulary, and the tokenizer's files say them. */
static bool is_id(const char *key) { return strstr(key, "token_id") != NULL; }

static void what_is_left_out_means_what_it_means_to_them(void **state)
{
    (void)state;
    int bad = 0;
    EACH_FAMILY(f)
    for (void *it = json_iter(written(&f)); it; it = json_iter_next(written(&f), it)) {
        struct hf_model without, with;
        struct err e = {0}, other = {0};
        const char *key = json_iter_key(it);
        const struct json *absent = json_get(json_get(f.of, "absent"), key);
        struct edit out = {.key = key}, said = {.key = key, .value = absent ? absent : json_iter_value(it)};
        if (is_id(key) || is_known(&f, key) || parse(&f, &out, &without, &e)) continue; /* missed by name */
        if (parse(&f, &said, &with, &other))
            bad++, print_error("%s: without %s a model, with what their class takes: %s\n", f.name, key, other.text);
        else if (!hf_same(&without, &with))
            bad++, print_error("%s: without %s another model than with what their class takes\n", f.name, key);
    }
    assert_int_equal(bad, 0);
}

/* ---- the other files ---- */
static void other_files_are_known(void **state)
{
    (void)state;
    int bad = 0;
    const struct json *generation = json_get(root, "generation"), *adapter = json_get(root, "adapter"),
                      *lora = json_get(adapter, "lora"), *kinds = json_get(adapter, "kinds");
    assert_true(json_size(generation) > 40 && json_size(lora) > 30 && json_size(kinds) > 20);
    for (void *it = json_iter(generation); it; it = json_iter_next(generation, it))
        if (!hf_generation_knows(json_iter_key(it)))
            bad++, print_error("generation_config.json: %s is no row\n", json_iter_key(it));
    const struct json *tokenizer = json_get(root, "tokenizer");
    assert_true(json_size(tokenizer) > 60);
    for (size_t i = 0; i < json_size(tokenizer); i++)
        if (!hf_tokenizer_knows(json_string(json_at(tokenizer, i), NULL, "")))
            bad++, print_error("tokenizer_config.json: %s is no row\n", json_string(json_at(tokenizer, i), NULL, ""));
    for (void *it = json_iter(lora); it; it = json_iter_next(lora, it))
        if (!peft_keys_know(json_iter_key(it)))
            bad++, print_error("adapter_config.json: %s is no row\n", json_iter_key(it));
    assert_true(has(json_get(kinds, "LORA"), "init_lora_weights"));
    assert_int_equal(bad, 0);
}

static int open_adapter(const char *config, struct err *e)
{
    static const unsigned char none[10] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'}; /* a file without tensors */
    struct peft *p;
    struct hf_model m;
    struct family llama = {.name = "llama", .of = json_get(json_get(root, "families"), "llama"), .in = 1u << HF_LLAMA};
    if (parse(&llama, NULL, &m, e)) fail_msg("%s", e->text);
    int rc = peft_open_memory(&p, config, strlen(config), none, sizeof none, "adapter", &m, e);
    if (!rc) peft_close(p);
    return rc;
}

/* Of kinds of adapters one is read, and of ways to begin those whose base is the model. */
static void adapters_beside_another_base_are_refused(void **state)
{
    (void)state;
    const struct json *kinds = json_get(json_get(root, "adapter"), "kinds"),
                      *begin = json_get(json_get(root, "adapter"), "begin");
    char config[256], says[80];
    struct err e = {0};
    for (void *it = json_iter(kinds); it; it = json_iter_next(kinds, it)) {
        snprintf(config, sizeof config, "{\"peft_type\":\"%s\",\"r\":2,\"lora_alpha\":4}", json_iter_key(it));
        snprintf(says, sizeof says, "peft_type: %s", json_iter_key(it));
        assert_true(open_adapter(config, &e));
        assert_true((strstr(e.text, says) != NULL) == (strcmp(json_iter_key(it), "LORA") != 0));
    }
    int others = 0;
    for (void *it = json_iter(begin); it; it = json_iter_next(begin, it)) {
        const char *how = json_iter_key(it), *base = json_string(json_iter_value(it), NULL, "");
        bool word = strcmp(how, "true") && strcmp(how, "false"), same = !strcmp(base, "same base");
        same = same && strcmp(how, "lora_ga"); /* which takes gradients that were not there when this was measured */
        snprintf(config, sizeof config,
                 "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"init_lora_weights\":%s%s%s}", word ? "\"" : "",
                 how, word ? "\"" : "");
        assert_true(open_adapter(config, &e));
        if ((strstr(e.text, "init_lora_weights") == NULL) != same) fail_msg("%s: %s, %s", how, base, e.text);
        others += !same;
    }
    assert_true(others >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_known_and_none_that_counts_is_passed_over),
        cmocka_unit_test(types_are_called_as_their_library_calls_them),
        cmocka_unit_test(what_counts_is_read),
        cmocka_unit_test(what_is_left_out_means_what_it_means_to_them),
        cmocka_unit_test(other_files_are_known),
        cmocka_unit_test(adapters_beside_another_base_are_refused),
    };
    return cmocka_run_group_tests(tests, open_list, close_list);
}
