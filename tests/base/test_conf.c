/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration: every refusal with its exact words and line, overrides, and print-parse-print. */
#include <float.h>

#include "base/check.h"
#include "base/conf.h"
#include "base/conf_yaml.h"
#include "base/rng.h"

struct source {
    const char *path;
    double weight;
    bool loop;
};

struct config {
    int64_t layers, vocab;
    const char *dir, *from;
    double lr, betas[2], temperature;
    struct conf_numbers steps;
    int family, device;
    bool tied;
    struct conf_list train, valid;
};

#define AT(member) .offset = offsetof(struct config, member)
#define IN(member) .offset = offsetof(struct source, member)

static const struct conf_row item_rows[] = {
    {.path = "path", .type = CONF_STRING, IN(path), .doc = "a file or folder"},
    {.path = "weight", .type = CONF_REAL, IN(weight), .otherwise = "1", .lo = 0, .hi = 1e18, .doc = "its share"},
    {.path = "end.loop", .type = CONF_BOOL, IN(loop), .otherwise = "true", .doc = "start again"},
    {.path = NULL},
};

#define SOURCES .item = item_rows, .item_bytes = sizeof(struct source), .item_short = "path"

/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "model.layers", .type = CONF_INT, AT(layers), .otherwise = "4", .lo = 1, .hi = 1000, .doc = "blocks"},
    {.path = "model.vocab", .type = CONF_INT, AT(vocab), .otherwise = "null", .lo = 1, .hi = 1e18, .doc = "tokens"},
    {.path = "model.tied", .type = CONF_BOOL, AT(tied), .otherwise = "false", .doc = "tied"},
    {.path = "model.family", .type = CONF_CHOICE, AT(family), .otherwise = "llama", .choices = "gpt2|llama|mixtral",
     .doc = "family"},
    {.path = "data.train", .type = CONF_LIST, AT(train), SOURCES, .doc = "text to learn"},
    {.path = "optimizer.lr", .type = CONF_REAL, AT(lr), .otherwise = "3.0e-4", .lo = 0, .hi = 1e18, .doc = "rate"},
    {.path = "optimizer.betas", .type = CONF_REALS, AT(betas), .n = 2, .otherwise = "[0.9, 0.95]", .lo = 0, .hi = 1,
     .doc = "decay"},
    {.path = "optimizer.steps", .type = CONF_NUMBERS, AT(steps), .otherwise = "[]", .lo = 0.5, .hi = 9, .doc = "some"},
    {.path = "model.from", .type = CONF_STRING, AT(from), .otherwise = "null", .doc = "weights"},
    {.path = "data.valid", .type = CONF_LIST, AT(valid), SOURCES, .otherwise = "[]", .doc = "text to test on"},
    {.path = "run.dir", .type = CONF_STRING, AT(dir), .otherwise = "runs/x", .doc = "where"},
    {.path = "run.device", .type = CONF_CHOICE, AT(device), .otherwise = "cpu", .choices = "cpu|null", .doc = "machine"},
    {.path = "run.sample.temperature", .type = CONF_REAL, AT(temperature), .otherwise = "1", .doc = "heat"},
    {.path = NULL},
};
/* clang-format on */

struct session {
    struct arena *a;
    struct config v;
    struct conf *c;
    struct err e;
};

static void session_start(struct session *s)
{
    memset(s, 0, sizeof *s);
    s->a = arena_new();
    s->c = conf_new(rows, &s->v, s->a);
}

static int session_read(struct session *s, const char *text)
{
    session_start(s);
    return conf_read_text(s->c, text, strlen(text), "t.yaml", &s->e);
}

static void refuses_with_place_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } table[] = {
        {"model:\n  layrs: 4\n", "t.yaml:2: model.layrs: unknown key; did you mean model.layers?"},
        {"modle:\n  layers: 4\n", "t.yaml:1: modle: unknown key; did you mean model?"},
        {"\n\nlr: 1\n", "t.yaml:3: lr: unknown key; did you mean optimizer.lr?"},
        {"run: {colour: red}", "t.yaml:1: run.colour: unknown key; known here: dir, device, sample"},
        {"model: {layers: 0}", "t.yaml:1: model.layers: wanted an integer from 1 to 1000, got '0'"},
        {"model: {layers: 1e9}", "t.yaml:1: model.layers: wanted an integer from 1 to 1000, got '1e9'"},
        {"model: {layers: 2.5}", "t.yaml:1: model.layers: wanted an integer from 1 to 1000, got '2.5'"},
        {"model: {layers: 0x10}", "t.yaml:1: model.layers: wanted an integer from 1 to 1000, got '0x10'"},
        {"model: {layers: 99999999999999999999}",
         "t.yaml:1: model.layers: wanted an integer from 1 to 1000, got '99999999999999999999'"},
        {"model: {vocab: 0}", "t.yaml:1: model.vocab: wanted an integer of at least 1, got '0'"},
        {"model:\n  layers: \"4\"\n", "t.yaml:2: model.layers: wanted an integer from 1 to 1000, got '4' in quotes"},
        {"model:\n  layers: [4]\n", "t.yaml:2: model.layers: wanted an integer from 1 to 1000, got a list of 1"},
        {"optimizer: {lr: fast}", "t.yaml:1: optimizer.lr: wanted a number of at least 0, got 'fast'"},
        {"optimizer: {lr: inf}", "t.yaml:1: optimizer.lr: wanted a number of at least 0, got 'inf'"},
        {"optimizer: {lr: 1e999}", "t.yaml:1: optimizer.lr: wanted a number of at least 0, got '1e999'"},
        {"optimizer: {betas: [0.9]}",
         "t.yaml:1: optimizer.betas: wanted a list of 2 numbers from 0 to 1, got a list of 1"},
        {"optimizer: {betas: [0.9,\n 2]}",
         "t.yaml:2: optimizer.betas: wanted a list of 2 numbers from 0 to 1, got '2'"},
        {"optimizer: {steps: 3}",
         "t.yaml:1: optimizer.steps: wanted a list of at most 128 numbers from 0.5 to 9, got '3'"},
        {"optimizer: {steps: [3,\n 4, 0.25]}",
         "t.yaml:2: optimizer.steps: wanted a list of at most 128 numbers from 0.5 to 9, got '0.25'"},
        {"model: {tied: yes}", "t.yaml:1: model.tied: wanted true or false, got 'yes'"},
        {"model: {family: lama}",
         "t.yaml:1: model.family: wanted gpt2, llama or mixtral; got 'lama'; did you mean llama?"},
        {"model: {family: [x]}", "t.yaml:1: model.family: wanted gpt2, llama or mixtral; got a list of 1"},
        {"run: {dir: {a: 1}}", "t.yaml:1: run.dir: wanted text, got a map"},
        {"run: fast", "t.yaml:1: run: is a section (it holds keys), got 'fast'"},
        {"data:\n  train:\n    - weight: 2\n", "t.yaml:3: data.train[0].path: is required (a file or folder)"},
        {"data:\n  train:\n    - a\n    - {path: b, wieght: 2}\n",
         "t.yaml:4: data.train[1].wieght: unknown key; did you mean weight?"},
        {"data: {train: [a, [b]]}", "t.yaml:1: data.train: an item is text or a map here, got a list of 1"},
        {"data: {train: null}", "t.yaml:1: data.train: is required and has no default (text to learn)"},
        {"run: {dir: a}\nmodel: {layers: 1}\nrun: {dir: b}\n",
         "t.yaml:3: run: given twice, first on line 1; keep one of the two"},
        {"run.dir: a\nrun: {dir: b}\n", "t.yaml:2: run.dir: given twice, first at t.yaml:1; keep one of the two"},
        {"a: b\n---\nc: d\n", "t.yaml:2: a second document; a configuration is one document"},
        {"model: &m {layers: 2}", "t.yaml:1: anchors (&name) and aliases (*name) are not supported; write the value "
                                  "out, and put text that begins with & or * in quotes"},
        {"run: {dir: !x y}", "t.yaml:1: tags (!name) are not supported; put text that begins with ! in quotes"},
        {"- a\n- b\n", "t.yaml:1: wanted keys with values (key: value), got a list of 2"},
        {"[a]: b", "t.yaml:1: a key must be a plain word"},
        {"model:\n  layers: 4\n tied: true\n", "t.yaml:3: not valid YAML: while parsing a block mapping, did not find "
                                               "expected key"},
        {"run: {dir: \"a\\0b\"}", "t.yaml:1: text with a NUL character"},
        {"a: b\nrun: \xff", "t.yaml:2: not a text file in UTF-8: invalid leading UTF-8 octet"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct session s;
        assert_int_equal(session_read(&s, table[i].text), ERR_REQUEST);
        assert_string_equal(s.e.text, table[i].want);
        arena_free(s.a);
    }
    struct session s;
    assert_int_equal(session_read(&s, "model:\n\tlayers: 4\n"), ERR_REQUEST);
    assert_contains(s.e.text, "t.yaml:2: not valid YAML");
    assert_contains(s.e.text, "indent with spaces, not tabs");
    arena_free(s.a);
    char deep[200];
    memset(deep, '[', sizeof deep);
    session_start(&s);
    assert_int_equal(conf_read_text(s.c, deep, sizeof deep, "t.yaml", &s.e), ERR_REQUEST);
    assert_string_equal(s.e.text, "t.yaml:1: nested deeper than 32");
    assert_int_equal(conf_read_file(s.c, "/nonexistent.yaml", &s.e), ERR_REQUEST);
    assert_string_equal(s.e.text, "/nonexistent.yaml: no such file");
    arena_free(s.a);
}

static void defaults_fill_what_is_not_said(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_read(&s, "# nothing\n"), OK);
    assert_true(s.v.layers == 4 && s.v.vocab == 0 && !s.v.tied && s.v.family == 1);
    assert_true(s.v.lr == 3.0e-4 && s.v.betas[1] == 0.95 && s.v.steps.n == 0 && s.v.from == NULL && s.v.valid.n == 0);
    assert_string_equal(s.v.dir, "runs/x");
    assert_int_equal(conf_finish(s.c, &s.e), ERR_REQUEST);
    assert_string_equal(s.e.text, "t.yaml: data.train: is required and has no default (text to learn)");
    arena_free(s.a);
}

static void reads_values_of_every_type(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_read(&s, "model: {layers: 1e2, vocab: 50257, tied: true, family: gpt2, from: 'a b'}\n"
                                      "optimizer:\n  betas: [0, 1]\n  lr: 1\n"
                                      "data:\n  train:\n    - one\n    - path: two\n      weight: 2.5\n"
                                      "      end: {loop: false}\n  valid: three\n"
                                      "run:\n  dir: null\n  sample:\n"),
                     OK);
    assert_int_equal(conf_finish(s.c, &s.e), OK);
    assert_true(s.v.layers == 100 && s.v.vocab == 50257 && s.v.tied && s.v.family == 0 && s.v.lr == 1);
    assert_string_equal(s.v.from, "a b");
    assert_string_equal(s.v.dir, "runs/x"); /* null asks for the default */
    const struct source *train = s.v.train.items, *valid = s.v.valid.items;
    assert_int_equal(s.v.train.n, 2);
    assert_string_equal(train[0].path, "one");
    assert_true(train[0].weight == 1 && train[0].loop);
    assert_string_equal(train[1].path, "two");
    assert_true(train[1].weight == 2.5 && !train[1].loop);
    assert_int_equal(s.v.valid.n, 1);
    assert_string_equal(valid[0].path, "three");
    arena_free(s.a);
}

static void remembers_where_values_came_from(void **state)
{
    (void)state;
    struct session s;
    assert_int_equal(session_read(&s, "model:\n  layers: 3\ndata:\n  train:\n    - a\n    - b\n"), OK);
    assert_int_equal(conf_override(s.c, "optimizer.lr=1", &s.e), OK);
    assert_string_equal(conf_where(s.c, "model.layers"), "t.yaml:2");
    assert_string_equal(conf_where(s.c, "model.tied"), "default");
    assert_string_equal(conf_where(s.c, "optimizer.lr"), "command line");
    assert_string_equal(conf_where(s.c, "data.train[1]"), "t.yaml:6");
    assert_string_equal(conf_where(s.c, "data.train[1].path"), "t.yaml:6");
    assert_string_equal(conf_where(s.c, "data.train[1].weight"), "t.yaml:6");
    assert_string_equal(conf_where(s.c, "data.train[9].path"), "t.yaml:5");
    assert_int_equal(conf_error(s.c, &s.e, "model.layers", "%d do not divide", 3), ERR_REQUEST);
    assert_string_equal(s.e.text, "t.yaml:2: model.layers: 3 do not divide");
    arena_free(s.a);
}

static void overrides_win_and_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* want NULL: accepted */
    } table[] = {
        {"model.layers=7", NULL},
        {"optimizer.betas=[0.5, 0.6]", NULL},
        {"optimizer.steps=[0.5, 9]", NULL},
        {"optimizer.steps=[1, 2.5, 3]", NULL},
        {"run.dir=C:\\odd: path #1", NULL},
        {"data.train=[x, {path: y, weight: 2}]", NULL},
        {"model={tied: true, family: gpt2}", NULL},
        {"model.from=null", NULL},
        {"model.layers", "command line: 'model.layers': wanted key=value, such as run.steps=100"},
        {"=4", "command line: '=4': wanted key=value, such as run.steps=100"},
        {"model.layer=4", "command line: model.layer: unknown key; did you mean model.layers?"},
        {"model.layers=four", "command line: model.layers: wanted an integer from 1 to 1000, got 'four'"},
        {"lora.rank=8", "command line: lora.rank: unknown key; known here: model, data, optimizer, run"},
        {"modle.layers=8", "command line: modle.layers: unknown key; did you mean model.layers?"},
        {"run.sample.lora.rank=8", "command line: run.sample.lora.rank: unknown key; known here: temperature"},
        {"model.family=gpt3", "command line: model.family: wanted gpt2, llama or mixtral; got 'gpt3'"},
        {"data.train=[x, {path: y, wight: 2}]", "command line: data.train[1].wight: unknown key; did you mean weight?"},
        {"data.train=", "command line: data.train: is required and has no default (text to learn)"},
    };
    struct session s;
    assert_int_equal(session_read(&s, "model: {layers: 3}\ndata: {train: [a, b, c]}\n"), OK);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int code = conf_override(s.c, table[i].text, &s.e);
        assert_int_equal(code, table[i].want ? ERR_REQUEST : OK);
        if (table[i].want) assert_string_equal(s.e.text, table[i].want);
    }
    assert_int_equal(conf_override(s.c, "data.train=[a", &s.e), ERR_REQUEST);
    assert_contains(s.e.text, "command line: [a: not valid YAML: ");
    assert_int_equal(conf_override(s.c, "run.dir=\xff", &s.e), ERR_REQUEST);
    assert_true(s.v.steps.n == 3 && s.v.steps.v[1] == 2.5 && s.v.steps.v[3] == 0);
    assert_true(s.v.layers == 7 && s.v.betas[0] == 0.5 && s.v.tied && s.v.family == 0);
    assert_string_equal(s.v.dir, "C:\\odd: path #1");
    assert_int_equal(s.v.train.n, 2);
    assert_string_equal(((const struct source *)s.v.train.items)[1].path, "y");
    assert_int_equal(conf_override(s.c, "data.train=one path.txt", &s.e), OK);
    assert_int_equal(s.v.train.n, 1);
    assert_string_equal(((const struct source *)s.v.train.items)[0].path, "one path.txt");
    arena_free(s.a);
}

/* `null` is the default everywhere but where it is the name of a choice. */
static void null_is_a_choice_where_it_names_one(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int device;
    } table[] = {{"run.device=null", 1}, {"run.device='null'", 1}, {"run.device=cpu", 0},   {"run={device: null}", 1},
                 {"run={device: ~}", 0}, {"run={device: }", 0},    {"model.family=null", 0}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct session s;
        assert_int_equal(session_read(&s, "data: {train: a}\n"), OK);
        if (conf_override(s.c, table[i].text, &s.e)) fail_msg("%s: %s", table[i].text, s.e.text);
        assert_int_equal(s.v.device, table[i].device);
        assert_int_equal(s.v.family, 1); /* llama, the default, whatever was said */
        arena_free(s.a);
    }
}

/* Numbers that every reader of YAML takes for numbers: 1.1 wants a point before an exponent. */
static void numbers_print_with_a_point_before_the_exponent(void **state)
{
    (void)state;
    struct config v = {.lr = 3e-5, .betas = {1e-20, 0.95}, .temperature = 2.5e-7, .dir = "", .device = 1};
    struct str s = {0};
    conf_print(rows, &v, &s);
    assert_contains(str_text(&s), "lr: 3.0e-05\n");
    assert_contains(str_text(&s), "betas: [1.0e-20, 0.95]\n");
    assert_contains(str_text(&s), "temperature: 2.5e-07\n");
    assert_contains(str_text(&s), "device: null\n");
    str_free(&s);
}

/* Random structs: print, parse, print: the same text and the same values. */
static void what_is_printed_reads_back_equal(void **state)
{
    (void)state;
    static const char *const texts[] = {"plain/path-1.txt",
                                        "",
                                        "null",
                                        "true",
                                        "12",
                                        "-x",
                                        "a: b",
                                        "#c",
                                        "two\nlines",
                                        "caf\xC3\xA9",
                                        "\xC2\x85\xE2\x80\xA8\xEF\xBB\xBF",
                                        "q\"\\'",
                                        " lead",
                                        "1e5",
                                        "~",
                                        "\x7F\x01",
                                        "\xF0\x9F\x98\x80",
                                        "*a",
                                        "&a",
                                        "{a}",
                                        "[a]",
                                        "@",
                                        "nan",
                                        "no"};
    const uint64_t n_texts = sizeof texts / sizeof *texts;
    for (uint64_t i = 0; i < 400; i++) {
        struct session s;
        session_start(&s);
        struct source sources[3];
        uint64_t k = i * 20;
        for (int j = 0; j < 3; j++)
            sources[j] = (struct source){.path = texts[rng_u64(1, 1, k + (uint64_t)j) % n_texts],
                                         .weight = rng_uniform(1, 2, k + (uint64_t)j) * 1e6,
                                         .loop = (i + 1) & 1};
        struct config in = {.layers = 1 + (int64_t)(rng_u64(1, 3, i) % 1000),
                            .vocab = i % 3 ? (int64_t)i : 0,
                            .dir = texts[i % n_texts],
                            .from = i % 2 ? texts[i / 2 % n_texts] : NULL,
                            .lr = rng_uniform(1, 4, i),
                            .betas = {rng_uniform(1, 5, i), 1.0 / 3},
                            .temperature = -DBL_MIN,
                            .family = (int)(i % 3),
                            .device = i & 1,
                            .tied = i & 1,
                            .train = {sources, (int)(i % 4)},
                            .valid = {sources + 1, (int)(i % 3)}};
        struct str once = {0}, twice = {0};
        for (in.steps.n = 0; in.steps.n < (int64_t)(i % (CONF_NUMBERS_MOST + 1)); in.steps.n++)
            in.steps.v[in.steps.n] = 0.5 + 8 * rng_uniform(1, 6, 1000 * i + (uint64_t)in.steps.n);
        conf_print(rows, &in, &once);
        if (conf_read_text(s.c, once.p, once.n, "printed", &s.e)) fail_msg("%s in\n%s", s.e.text, once.p);
        conf_print(rows, &s.v, &twice);
        assert_string_equal(once.p, twice.p);
        assert_true(in.lr == s.v.lr && in.betas[0] == s.v.betas[0] && in.betas[1] == s.v.betas[1]);
        assert_memory_equal(&in.steps, &s.v.steps, sizeof in.steps);
        assert_true(in.device == s.v.device && in.temperature == s.v.temperature && in.layers == s.v.layers &&
                    in.vocab == s.v.vocab);
        assert_string_equal(in.dir, s.v.dir);
        for (int j = 0; j < in.train.n; j++) {
            const struct source *got = (const struct source *)s.v.train.items + j;
            assert_string_equal(got->path, sources[j].path);
            assert_true(got->weight == sources[j].weight && got->loop == sources[j].loop);
        }
        str_free(&once);
        str_free(&twice);
        arena_free(s.a);
    }
}

static void help_names_every_key(void **state)
{
    (void)state;
    struct str s = {0};
    conf_print_help(rows, &s);
    for (const struct conf_row *row = rows; row->path; row++) {
        assert_contains(str_text(&s), row->path);
        assert_contains(str_text(&s), row->doc);
    }
    assert_contains(str_text(&s), "data.train[].weight");
    assert_contains(str_text(&s), "integer 1..1000; default 4");
    assert_contains(str_text(&s), "gpt2|llama|mixtral; default llama");
    assert_contains(str_text(&s), "list; required");
    str_free(&s);
}

/* ---- points ---- */
static const struct conf_row points_rows[] = {
    {.path = "run.weight", .type = CONF_POINTS, .otherwise = "1", .lo = 0, .hi = 10, .doc = "by step"},
    {.path = NULL},
};

/* Reads and prints; the error's text where it is refused. */
static void points_read(const char *text, struct conf_points *v, struct str *out)
{
    struct arena *a = arena_new();
    struct err e = {0};
    struct conf *c = conf_new(points_rows, v, a);
    int code = conf_read_text(c, text, strlen(text), "p.yaml", &e);
    if (!code) code = conf_finish(c, &e);
    str_clear(out);
    if (code) str_puts(out, e.text);
    else conf_print(points_rows, v, out);
    arena_free(a);
}

static void test_points(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        int n;
    } good[] = {
        {"{}", "weight: 1\n", 0},
        {"run: {weight: 2.5}", "weight: 2.5\n", 0},
        {"run: {weight: [{step: 3, weight: 1}]}", "weight: [{step: 3, weight: 1}]\n", 1},
        {"run: {weight: [{step: 0, weight: 1}, {weight: 0, step: 900000000000}]}",
         "weight: [{step: 0, weight: 1}, {step: 900000000000, weight: 0}]\n", 2},
    };
    static const char *const bad[][2] = {
        {"11", "run.weight"},
        {"-1", "run.weight"},
        {"nan", "run.weight"},
        {"[]", "list of points"},
        {"{step: 0, weight: 1}", "list of points"},
        {"[1, 2]", "points such as {step: 100, weight: 0.5}"},
        {"[{step: 0}]", "points such as"},
        {"[{step: 0, weight: 1, end: 2}]", "points such as"},
        {"[{step: 0, weight: 11}]", "run.weight"},
        {"[{step: -1, weight: 1}]", "whole number from 0"},
        {"[{step: 0.5, weight: 1}]", "whole number from 0"},
        {"[{step: 5, weight: 1}, {step: 5, weight: 2}]", "step 5 after step 5; steps rise"},
        {"[{step: 5, weight: 1}, {step: 4, weight: 2}]", "step 4 after step 5; steps rise"},
    };
    struct conf_points v;
    struct str once = {0}, twice = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        points_read(good[i].text, &v, &once);
        if (!strstr(str_text(&once), good[i].says)) fail_msg("%s: %s", good[i].text, str_text(&once));
        assert_int_equal(v.n, good[i].n);
        points_read(once.p, &v, &twice);
        assert_string_equal(once.p, twice.p);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[200];
        snprintf(text, sizeof text, "run:\n  weight: %s\n", bad[i][0]);
        points_read(text, &v, &once);
        if (!strstr(str_text(&once), bad[i][1]) || !strstr(str_text(&once), "p.yaml"))
            fail_msg("%s: %s", bad[i][0], str_text(&once));
    }
    str_free(&once);
    str_free(&twice);
}

/* A word alone is read without the library, and as the library reads it: before a line's end it goes through that. */
static void words_are_read_as_yaml_reads_them(void **state)
{
    (void)state;
    static const char *const words[] = {"",      "4",    "1e-3",     "-1",  "0.5", "null",
                                        "~",     "true", "fp8-e5m2", "a+b", "a_b", ".5",
                                        "-",     "--",   "---",      "...", "a:",  "a: b",
                                        "x #y",  "x#y",  "#",        "[]",  "{}",  "'a'",
                                        "\"a\"", "&a",   "*a",       "!a",  "%a",  "|",
                                        "? a",   "- a",  "a\nb",     "@a",  "`a",  "\xc3\xa4\xc3\xb6",
                                        "a\tb",  "y",    "0x1F",     "+1"};
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct err e = {0}, e_line = {0};
        struct conf_node *word = NULL, *line = NULL;
        char *with = arena_printf(a, "%s\n", words[i]);
        int rc = conf_yaml_read(&word, words[i], strlen(words[i]), "t", a, &e);
        assert_int_equal(rc, conf_yaml_read(&line, with, strlen(with), "t", a, &e_line));
        assert_string_equal(e.text, e_line.text);
        assert_int_equal(!word, !line);
        if (!word) continue;
        assert_int_equal(word->kind, line->kind);
        assert_int_equal(word->line, line->line);
        assert_int_equal(word->quoted, line->quoted);
        if (word->kind == CONF_NODE_SCALAR) assert_string_equal(word->text, line->text);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_read_as_yaml_reads_them),
        cmocka_unit_test(refuses_with_place_and_remedy),
        cmocka_unit_test(defaults_fill_what_is_not_said),
        cmocka_unit_test(reads_values_of_every_type),
        cmocka_unit_test(remembers_where_values_came_from),
        cmocka_unit_test(overrides_win_and_are_checked),
        cmocka_unit_test(what_is_printed_reads_back_equal),
        cmocka_unit_test(null_is_a_choice_where_it_names_one),
        cmocka_unit_test(numbers_print_with_a_point_before_the_exponent),
        cmocka_unit_test(test_points),
        cmocka_unit_test(help_names_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
