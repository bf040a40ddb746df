/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* What samples can be made of, trained: conversations (joined and packed), fill-in-the-middle, and both with plain
 * texts in samples of parts; over tp, pp and cp, stopped and gone on with on other ranks: the losses and counts of one
 * rank. */
#include "runs.h"

#include "sanitized.h"
#include "token/tokenizer.h"

/* Conversations of some words each, and texts. */
static void make_texts(const struct folder *f)
{
    static const char *const words[] = {"one", "two", "sun", "moon", "red", "blue"};
    struct err e = {0};
    struct str talk = {0}, plain = {0};
    char path[160];
    for (unsigned i = 0; i < 40; i++) {
        str_puts(&talk, "{\"messages\":[");
        for (unsigned k = 0; k < 1 + i % 3; k++)
            str_printf(&talk,
                       "%s{\"role\":\"user\",\"content\":\"%s %u?\"},{\"role\":\"assistant\",\"content\":\"%s %s\"}",
                       k ? "," : "", words[(i + k) % 6], i, words[(i * k + 1) % 6], words[i % 5]);
        str_puts(&talk, "]}\n");
        str_printf(&plain, "{\"text\":\"%s and %s are %u, said the %s one of all\"}\n", words[i % 6], words[i % 4], i,
                   words[i % 5]);
    }
    snprintf(path, sizeof path, "%s/talk.jsonl", f->dir);
    assert_int_equal(fs_write_atomic(path, talk.p, talk.n, &e), OK);
    snprintf(path, sizeof path, "%s/plain.jsonl", f->dir);
    assert_int_equal(fs_write_atomic(path, plain.p, plain.n, &e), OK);
    str_free(&talk);
    str_free(&plain);
}

/* A tokenizer with the tokens of fill-in-the-middle behind all others. */
static void make_tokenizer(const struct folder *f)
{
    static const char *const names[] = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"};
    struct str text = {0};
    struct tokenizer *t;
    struct err e = {0};
    char *json, path[160];
    size_t n;
    assert_int_equal(fs_read_all(TEST_DIR "/data/fixtures/gpt2.json", 8 << 20, &json, &n, &e), OK);
    assert_int_equal(tokenizer_parse(&t, json, n, "fixture", &e), OK);
    char *end = strstr(json, "],\"normalizer\"");
    assert_non_null(end);
    str_add(&text, json, (size_t)(end - json));
    for (int i = 0; i < 3; i++)
        str_printf(&text,
                   ",{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
                   "\"rstrip\":false,\"normalized\":false}",
                   tokenizer_vocab(t) + i, names[i]);
    str_puts(&text, end);
    tokenizer_free(t);
    snprintf(path, sizeof path, "%s/tokenizer.json", f->dir);
    assert_int_equal(fs_write_atomic(path, text.p, text.n, &e), OK);
    str_free(&text);
    xfree(json);
}

static const struct kind {
    const char *name;
    bool talk, plain;
    const char *keys[5];
} kinds[] = {
    {"talk", true, false, {"data.pack=best_fit"}},
    {"talk-joined", true, false, {"model.document_mask=true", "data.reset_positions=true"}},
    {"fim", false, true, {"data.pack=best_fit", "data.fim.rate=0.6"}},
    {"fim-joined", false, true, {"data.fim.rate=1", "data.fim.spm_rate=0.3"}},
    {"parts", true, true, {"data.pack=best_fit", "data.fim.rate=0.5", "data.parts=2"}},
    {"none", false, true, {"data.pack=best_fit"}}, /* fim, without it */
};

static void run_kind(const struct folder *f, const struct kind *k, const char *name, int ranks, const char *layout,
                     const char *steps)
{
    char data[500], tokenizer[200];
    const char *keys[20];
    int n = 0;
    struct trainer_result r = {0};
    struct err e;
    snprintf(tokenizer, sizeof tokenizer, "data.tokenizer=%s", k->talk && !k->plain ? "byte" : f->dir);
    snprintf(data, sizeof data, "data.train=[%s%s%s%s%s%s%s]", k->talk ? "{path: " : "", k->talk ? f->dir : "",
             k->talk ? "/talk.jsonl, chat: plain}" : "", k->talk && k->plain ? ", " : "", k->plain ? "{path: " : "",
             k->plain ? f->dir : "", k->plain ? "/plain.jsonl}" : "");
    const char *const more[] = {data,
                                tokenizer,
                                "model.seq_len=32",
                                "optimizer.schedule.name=constant",
                                "optimizer.schedule.warmup_steps=0",
                                "precision.recipe=fp32",
                                "checkpoint.every=3",
                                "run.compare_every=0",
                                layout,
                                steps};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) keys[n++] = more[i];
    for (int i = 0; i < 5 && k->keys[i]; i++) keys[n++] = k->keys[i];
    keys[n] = NULL;
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
}

struct course {
    double loss[7];
    int64_t tokens[7];
};
static struct course course_of(const struct folder *f, const char *name)
{
    struct course c = {0};
    struct json *line[16];
    int n = read_metrics(f, name, line, 16);
    for (int i = 0; i < n; i++) {
        int64_t step = json_int(json_get(line[i], "step"), 0);
        assert_true(step >= 1 && step <= 6);
        c.loss[step] = json_real(json_get(line[i], "loss"), NAN);
        c.tokens[step] = json_int(json_get(line[i], "tokens"), -1);
        json_free(line[i]);
    }
    assert_int_equal(n, 6);
    return c;
}

static void same_over_ranks(void **state)
{
    (void)state;
    static const struct {
        int ranks[2];
        const char *layout[2];
    } ways[] = {{{2, 2}, {"parallel.tp=2", "parallel.pp=2"}},
                {{2, 4}, {"parallel.cp=2", "parallel.tp=2"}},
                {{4, 3}, {"parallel.cp=4", "parallel.zero=3"}},
                {{4, 2}, {"parallel.pp=2", "parallel.cp=2"}}};
    struct folder f;
    folder_open(&f);
    make_texts(&f);
    make_tokenizer(&f);
    struct course fim = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char part[40];
        run_kind(&f, &kinds[i], kinds[i].name, 1, "parallel.tp=1", "run.steps=6");
        struct course a = course_of(&f, kinds[i].name);
        if (i == 2) fim = a;
        if (i + 1 == sizeof kinds / sizeof *kinds) { /* what fill-in-the-middle trains on is something else */
            assert_true(fabs(fim.loss[1] - a.loss[1]) > 1e-4);
            assert_int_equal(fim.tokens[6], a.tokens[6]); /* and as much */
            continue;
        }
        assert_true(!kinds[i].talk || a.tokens[6] < 6 * 4 * 32 * 2 / 3); /* answers only */
        for (size_t w = i % 4; w < sizeof ways / sizeof *ways; w += i < 2 ? 2 * CASE_STRIDE : 4) {
            snprintf(part, sizeof part, "%s-%zu", kinds[i].name, w);
            run_kind(&f, &kinds[i], part, ways[w].ranks[0], ways[w].layout[0], "run.steps=3");
            run_kind(&f, &kinds[i], part, ways[w].ranks[1], ways[w].layout[1], "run.steps=6");
            struct course b = course_of(&f, part);
            for (int s = 1; s <= 6; s++) {
                if (a.tokens[s] != b.tokens[s])
                    fail_msg("%s, step %d: %lld tokens, %lld on one rank", part, s, (long long)b.tokens[s],
                             (long long)a.tokens[s]);
                if (fabs(a.loss[s] - b.loss[s]) > 3e-5 * a.loss[s])
                    fail_msg("%s, step %d: loss %.9f, and %.9f on one rank", part, s, b.loss[s], a.loss[s]);
            }
        }
    }
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_over_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
