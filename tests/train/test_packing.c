/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Packed documents: a document's loss is what it is alone, in every family, by plain loops and fast kernels, over every
 * way of context parallelism; training over ranks is training on one; and a run that is stopped goes on as if it had
 * not been, on other ranks too, with packing, samples joined of parts, weights by step and several epochs. */
#include "runs.h"

#include "sanitized.h"

/* Documents of 1 to 60 letters: some longer than a sample of 24. */
static void documents_open(struct folder *f, const char *name, int n)
{
    struct err e = {0};
    struct str s = {0};
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    for (int i = 0; i < n; i++) {
        int letters = i % 17 == 4 ? 60 : 1 + (int)(rng_u32(1, 1, (uint64_t)i) % 20);
        str_puts(&s, "{\"text\":\"");
        for (int k = 0; k < letters; k++) str_putc(&s, (char)('a' + rng_u32(2, (uint64_t)i, (uint64_t)k) % 26));
        str_puts(&s, "\"}\n");
    }
    assert_int_equal(fs_write_atomic(path, str_text(&s), s.n, &e), OK);
    str_free(&s);
}

static const char *const families[][12] = {
    {"model.family=gpt2", "model.kv_heads=4", NULL},
    {"model.family=llama", NULL},
    {"model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", NULL},
    {"model.family=deepseek", "model.kv_heads=4", "model.moe.experts=4", "model.moe.top_k=2", "model.mla.kv_rank=8",
     "model.mla.nope_dim=8", "model.mla.rope_dim=4", "model.mla.value_dim=8", NULL},
};

/* Validation of all documents by weights that were not trained. pack "groups": padded, in groups. */
static double loss_of(const struct folder *f, int family, const char *pack, int ranks, const char *cp,
                      const char *kernels, int64_t *tokens)
{
    char valid[200], name[100], pack_key[40], cp_key[60], kernels_key[40];
    const char *keys[40];
    int n = 0;
    struct trainer_result r = {0};
    struct err e = {0};
    snprintf(valid, sizeof valid, "data.valid=%s/valid.jsonl", f->dir);
    bool groups = !strcmp(pack, "groups");
    snprintf(pack_key, sizeof pack_key, "data.pack=%s", groups ? "padded" : pack);
    snprintf(kernels_key, sizeof kernels_key, "run.kernels=%s", kernels);
    snprintf(cp_key, sizeof cp_key, "parallel.cp_algorithm=%s", cp ? cp : "ring");
    snprintf(name, sizeof name, "%d-%s-%d-%s-%s", family, pack, ranks, cp ? cp : "one", kernels);
    for (int i = 0; families[family][i]; i++) keys[n++] = families[family][i];
    const char *const more[] = {valid,
                                pack_key,
                                kernels_key,
                                cp_key,
                                groups ? "data.group=2" : "data.group=0",
                                "data.window=16",
                                "optimizer.lr=0",
                                "run.steps=1",
                                "run.eval_every=1",
                                "run.eval_batches=0",
                                "checkpoint.every=0",
                                "run.compare_every=0",
                                "precision.recipe=fp32"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) keys[n++] = more[i];
    if (cp) keys[n++] = ranks == 2 ? "parallel.cp=2" : ranks == 3 ? "parallel.cp=3" : "parallel.cp=4";
    keys[n] = NULL;
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
    *tokens = r.tokens;
    return r.valid_loss;
}

static void alone_and_together(void **state)
{
    (void)state;
    static const char *const ways[] = {"ring", "all_gather", "all_to_all", "two_level"};
    struct folder f;
    folder_open(&f);
    documents_open(&f, "valid.jsonl", 30);
    snprintf(f.text, sizeof f.text, "%s/valid.jsonl", f.dir);
    for (int family = 0; family < 4; family++) {
        int64_t tokens;
        double alone = loss_of(&f, family, "padded", 1, NULL, "ref", &tokens);
        assert_true(alone > 1);
        for (int k = 0; k < 2; k++) {
            double packed = loss_of(&f, family, "best_fit", 1, NULL, k ? "auto" : "ref", &tokens);
            if (fabs(packed - alone) > 2e-6 * alone)
                fail_msg("family %d: %.9f in a sample of its own, %.9f packed", family, alone, packed);
        }
        double lined_up = loss_of(&f, family, "groups", family ? 1 : 2, family ? NULL : "ring", "auto", &tokens);
        if (fabs(lined_up - alone) > 2e-6 * alone)
            fail_msg("family %d: %.9f in a sample of its own, %.9f beside others", family, alone, lined_up);
        int ranks = family == 3 ? 4 : family == 1 ? 3 : 2; /* each way with one of the families */
        double apart = loss_of(&f, family, "best_fit", ranks, ways[family], "auto", &tokens);
        if (fabs(apart - alone) > 2e-6 * alone)
            fail_msg("family %d: %.9f in a sample of its own, %.9f packed over cp by %s", family, alone, apart,
                     ways[family]);
        if (family != 1) continue;
        double joined = loss_of(&f, family, "joined", 1, NULL, "auto", &tokens);
        assert_true(fabs(joined - alone) > 1e-4 * alone); /* where documents see each other the loss is another */
    }
    folder_close(&f);
}

/* ---- going on ---- */

/* Losses, tokens and use of sources of steps 1 .. 8. */
struct course {
    double loss[9], epochs[9][2];
    int64_t tokens[9], samples[9][2];
};

static struct course course_of(const struct folder *f, const char *name, bool packed)
{
    struct course c;
    memset(&c, 0, sizeof c);
    struct json *line[32];
    int n = read_metrics(f, name, line, 32);
    for (int i = 0; i < n; i++) {
        int64_t step = json_int(json_get(line[i], "step"), 0);
        const struct json *sources = json_get(line[i], "sources");
        assert_true(step >= 1 && step <= 8 && packed == (json_get(line[i], "padding") != NULL));
        c.loss[step] = json_real(json_get(line[i], "loss"), NAN);
        c.tokens[step] = json_int(json_get(line[i], "tokens"), -1);
        for (int s = 0; s < 2; s++) {
            c.samples[step][s] = json_int(json_get(json_at(sources, s), "samples"), -1);
            c.epochs[step][s] = json_real(json_get(json_at(sources, s), "epochs"), NAN);
        }
        json_free(line[i]);
    }
    assert_int_equal(n, 8);
    return c;
}

static int run_part(const struct folder *f, const char *name, int ranks, const char *pack, const char *parts,
                    const char *steps, const char *more, struct err *e)
{
    char data[400];
    struct trainer_result r = {0};
    snprintf(data, sizeof data,
             "data.train=[{path: %s/valid.jsonl, weight: [{step: 0, weight: 3}, {step: 3, weight: 0}, {step: 7, "
             "weight: "
             "2}]}, {path: %s/other.jsonl, weight: 1}]",
             f->dir, f->dir);
    const char *const keys[] = {data,
                                pack,
                                parts,
                                steps,
                                "data.window=16",
                                "data.weights=linear",
                                "optimizer.schedule.name=constant",
                                "optimizer.schedule.warmup_steps=0",
                                "precision.recipe=fp32",
                                "checkpoint.every=4",
                                more,
                                NULL};
    return train_ranks(f, name, ranks, keys, &r, e);
}

static void goes_on(void **state)
{
    (void)state;
    static const struct {
        const char *pack;
        int parts, before, after;
        const char *how_before, *how_after;
    } cases[] = {
        {"data.pack=best_fit", 1, 1, 4, "data.group=0", "parallel.cp=4"},
        {"data.pack=best_fit", 3, 4, 2, "parallel.cp=2", "parallel.pp=2"},
        {"data.pack=padded", 1, 3, 1, "data.group=0", "data.group=0"},
        {"data.pack=joined", 2, 4, 1, "parallel.tp=2", "data.group=0"},
        {"data.pack=best_fit", 1, 2, 3, "data.group=0", "data.group=0"},
    };
    struct folder f;
    struct err e;
    folder_open(&f);
    documents_open(&f, "valid.jsonl", 20); /* so few that there are several epochs */
    documents_open(&f, "other.jsonl", 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += CASE_STRIDE) {
        char whole[40], part[40], parts[40];
        bool packed = strcmp(cases[i].pack, "data.pack=joined") != 0;
        snprintf(parts, sizeof parts, "data.parts=%d", cases[i].parts);
        snprintf(whole, sizeof whole, "whole%zu", i);
        snprintf(part, sizeof part, "part%zu", i);
        if (run_part(&f, whole, 1, cases[i].pack, parts, "run.steps=8", "data.group=0", &e) ||
            run_part(&f, part, cases[i].before, cases[i].pack, parts, "run.steps=4", cases[i].how_before, &e) ||
            run_part(&f, part, cases[i].after, cases[i].pack, parts, "run.steps=8", cases[i].how_after, &e))
            fail_msg("%s", e.text);
        struct course a = course_of(&f, whole, packed), b = course_of(&f, part, packed);
        for (int s = 1; s <= 8; s++) {
            assert_int_equal(a.tokens[s], b.tokens[s]);
            if (fabs(a.loss[s] - b.loss[s]) > 2e-5 * a.loss[s])
                fail_msg("case %zu, step %d: loss %.9f, and %.9f where it went on", i, s, a.loss[s], b.loss[s]);
            for (int k = 0; k < 2; k++) {
                assert_int_equal(a.samples[s][k], b.samples[s][k]);
                assert_true(a.epochs[s][k] == b.epochs[s][k]);
            }
            assert_int_equal(a.samples[s][0] + a.samples[s][1], 4 * s * cases[i].parts);
        }
        assert_true(a.epochs[8][1] > 1.2); /* a second epoch was begun */
    }
    static const char *const changed[][2] = {{"data.pack", "data.pack=padded"},
                                             {"data.window", "data.window=8"},
                                             {"data.group", "data.group=2"},
                                             {"data.parts", "data.parts=2"},
                                             {"data.weights", "data.weights=stepwise"}};
    for (int i = 0; i < 5; i++) {
        int code = run_part(&f, "part0", 1, cases[0].pack, "data.parts=1", "run.steps=9", changed[i][1], &e);
        if (code != ERR_REQUEST || !strstr(e.text, changed[i][0])) fail_msg("%s: %d: %s", changed[i][0], code, e.text);
    }
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_and_together), cmocka_unit_test(goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
