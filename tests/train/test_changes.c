/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Going on with another config than the checkpoint's: what breaks the promised order is refused by name unless a key
 * allows it, what changes the training is said in a line, what only says where and how fast is neither. */
#include "runs.h"

#include <fcntl.h>

#include "checkpoint/ckpt.h"
#include "config/changes.h"

#define FOUR "run.steps=4", "checkpoint.every=2", "optimizer.schedule.name=constant"
#define EIGHT "run.steps=8", "checkpoint.every=2", "optimizer.schedule.name=constant"

static void copy_run(const struct folder *f, const char *from, const char *to)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s/%s && cp -a %s/%s %s/%s", f->dir, to, f->dir, from, f->dir, to);
    assert_int_equal(system(command), 0);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct row {
        const char *key, *value, *says;
    } rows[] = {
        {"batch.global", "8", "batch.global: 8 here, 4 in the checkpoint"},
        {"data.seed", "2", "data.seed: 2 here, 1 in the checkpoint"},
        {"data.order", "sequential", "data.order: sequential here, shuffled in the checkpoint"},
        {"model.seq_len", "12", "model.seq_len: 12 here, 24 in the checkpoint"},
        {"run.seed", "5", "run.seed: 5 here, 1 in the checkpoint"},
        {"optimizer.name", "sgd", "optimizer.name: sgd here, adamw in the checkpoint"},
        {"optimizer.vectors.name", "sgd",
         "optimizer.vectors.name: sgd here, same in the checkpoint"}, /* leaves second moments behind */
        {"model.rope_theta", "500", "model.rope_theta: 5"},
        {"model.document_mask", "true", "model.document_mask: true here, false in the checkpoint"},
    };
    struct folder f;
    struct trainer_result r;
    struct err e;
    char key[100], allow[100], section[100];
    folder_open(&f);
    train_ok(&f, "a", KEYS(FOUR));
    uint64_t before = tree(&f, "a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(key, sizeof key, "%s=%s", rows[i].key, rows[i].value);
        snprintf(allow, sizeof allow, "checkpoint.allow_changes=[%s]", rows[i].key);
        snprintf(section, sizeof section, "checkpoint.allow_changes=%.*s", (int)strcspn(rows[i].key, "."), rows[i].key);
        if (train(&f, "a", KEYS(EIGHT, key), &r, &e) != ERR_REQUEST) fail_msg("%s: code %d: %s", key, e.code, e.text);
        assert_contains(e.text, rows[i].says);
        assert_contains(e.text, allow);
        assert_contains(e.text, "cannot resume");
        assert_true(tree(&f, "a") == before);
        copy_run(&f, "a", "b");
        assert_int_equal(train_ok(&f, "b", KEYS(EIGHT, key, allow)).first_step, 4);
        assert_int_equal(train_ok(&f, "b", KEYS("run.steps=9", key, "optimizer.schedule.name=constant")).first_step,
                         8); /* it is the run's now */
        copy_run(&f, "a", "b");
        assert_int_equal(train_ok(&f, "b", KEYS(EIGHT, key, section)).first_step, 4);
    }
    /* several at once: all are named; every one of them must be allowed */
    assert_int_equal(train(&f, "a", KEYS(EIGHT, "data.seed=2", "batch.global=8"), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "checkpoint.allow_changes=[data.seed,batch.global]");
    assert_int_equal(train(&f, "a", KEYS(EIGHT, "data.seed=2", "batch.global=8", "checkpoint.allow_changes=data"), &r,
                           &e),
                     ERR_REQUEST);
    assert_contains(e.text, "checkpoint.allow_changes=[batch.global]");
    assert_int_equal(train(&f, "a", KEYS(EIGHT, "checkpoint.allow_changes=[batch.globl]"), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "there is no key batch.globl");
    assert_true(tree(&f, "a") == before);
    assert_int_equal(train_ok(&f, "a", KEYS(EIGHT, "data.seed=2", "batch.global=8", "checkpoint.allow_changes=all"))
                         .first_step,
                     4);
    folder_close(&f);
}

/* What changes the training is said once, in a line; what does not is not. */
static void test_said_and_silent(void **state)
{
    (void)state;
    struct folder f;
    struct err e;
    int rc;
    folder_open(&f);
    train_ok(&f, "a", KEYS(FOUR));
    char *text = train_heard(&f, "a", 1,
                             KEYS("run.steps=6", "checkpoint.every=2", "optimizer.schedule.name=constant",
                                  "optimizer.lr=0.02", "precision.recipe=fp32", "batch.micro=1", "model.dropout=0.1"),
                             &rc, &e);
    if (rc) fail_msg("%s", e.text);
    assert_contains(text, "optimizer.lr: 0.02 here, 0.01 in the checkpoint");
    assert_contains(text, "precision.recipe: fp32 here, bf16 in the checkpoint");
    assert_contains(text, "batch.micro: 1 here, 2 in the checkpoint");
    assert_contains(text, "model.dropout: 0.1 here, 0 in the checkpoint");
    assert_contains(text, "run.steps: 6 here, 4 in the checkpoint");
    xfree(text);
    text = train_heard(&f, "a", 2,
                       KEYS("run.steps=6", "checkpoint.every=3", "optimizer.schedule.name=constant",
                            "optimizer.lr=0.02", "checkpoint.keep=7", "precision.recipe=fp32", "batch.micro=1",
                            "model.dropout=0.1", "parallel.zero=2", "memory.recompute=full", "run.log_every=3",
                            "comm.timeout_s=100", "run.tensorboard=false"),
                       &rc, &e);
    if (rc) fail_msg("%s", e.text);
    assert_contains(text, "resumed from");
    if (strstr(text, "in the checkpoint")) fail_msg("says %s", text);
    xfree(text);
    folder_close(&f);
}

static void edit(const struct folder *f, const char *from, const char *to)
{
    char command[400];
    snprintf(command, sizeof command, "sed -i 's/%s/%s/' %s", from, to, f->text);
    assert_int_equal(system(command), 0);
}

/* The tokens count, not the name of the file. */
static void test_data(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    char moved[160], command[400], two[300];
    folder_open(&f);
    train_ok(&f, "a", KEYS(FOUR));
    edit(&f, "^7. The quick", "7. The quack"); /* other words, as many bytes */
    assert_int_equal(train(&f, "a", KEYS(EIGHT), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "data.train: not the tokens that");
    edit(&f, "^7. The quack", "7. The quick");
    snprintf(command, sizeof command, "rm -f %s/a/data/* && echo more >>%s", f.dir, f.text);
    assert_int_equal(system(command), 0);
    assert_int_equal(train(&f, "a", KEYS(EIGHT), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "checkpoint.allow_changes=[data.train]");
    snprintf(command, sizeof command, "rm -f %s/a/data/*; head -n 400 %s >%s/moved.txt", f.dir, f.text, f.dir);
    assert_int_equal(system(command), 0);
    snprintf(moved, sizeof moved, "data.train=%s/moved.txt", f.dir);
    snprintf(two, sizeof two, "data.train=[{path: %s/moved.txt, weight: 2}, {path: %s/moved.txt, weight: 1}]", f.dir,
             f.dir);
    assert_int_equal(train(&f, "a", KEYS(EIGHT, two), &r, &e), ERR_REQUEST);
    assert_int_equal(train_ok(&f, "a", KEYS(EIGHT, moved)).first_step, 4); /* the same tokens from elsewhere */
    /* shares of sources */
    train_ok(&f, "b", KEYS(FOUR, two));
    snprintf(two, sizeof two, "data.train=[{path: %s/moved.txt, weight: 2}, {path: %s/moved.txt, weight: 3}]", f.dir,
             f.dir);
    assert_int_equal(train(&f, "b", KEYS(EIGHT, two), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "data.train.weight: 2, 3 here, 2, 1 in the checkpoint");
    assert_contains(e.text, "allow_changes=[data.train.weight]");
    assert_int_equal(train_ok(&f, "b", KEYS(EIGHT, two, "checkpoint.allow_changes=data.train.weight")).first_step, 4);
    folder_close(&f);
}

/* ---- configs of other versions ---- */
static int compare_data(const char *train, const struct changes_data *d, const char *config, const char *extra,
                        struct err *e)
{
    char *dir = scratch_new();
    struct config c;
    struct conf *conf;
    struct ckpt *ckpt;
    struct arena *a = arena_new();
    float one = 1;
    struct ckpt_attachment file = {.name = "config.yaml", .p = config, .bytes = config ? strlen(config) : 0};
    struct ckpt_info info = {.step = 1, .extra = extra, .attachments = &file, .n_attachments = config != NULL};
    struct ckpt_tensor t = {.group = "master", .name = "x", .dtype = DT_F32, .p = &one};
    assert_int_equal(ckpt_save(dir, &info, &t, 1, e), OK);
    assert_int_equal(ckpt_open(&ckpt, dir, e), OK);
    char *keys[] = {(char *)(uintptr_t)train, (char *)(uintptr_t) "optimizer.weight_decay=1e-5"};
    assert_int_equal(config_load(&c, &conf, a, NULL, keys, 2, e), OK);
    int rc = changes_check(ckpt, &c, d, e);
    ckpt_close(ckpt);
    arena_free(a);
    scratch_free(dir);
    return rc;
}

static int compare_train(const char *train, const char *config, const char *extra, struct err *e)
{
    struct changes_data d = {.train = 0xabc, .known = true};
    return compare_data(train, &d, config, extra, e);
}

static int compare_with(const char *config, const char *extra, struct err *e)
{
    return compare_train("data.train=a.txt", config, extra, e);
}

/* Weights by step are compared to their end, however many points there are. */
static void test_long_weights(void **state)
{
    (void)state;
    struct err e = {0};
    const char *same = "{\"data\": {\"train\": \"0000000000000abc\"}}";
    struct str points = {0}, train = {0}, config = {0};
    for (int i = 0; i < 400; i++) str_printf(&points, "{step: %d, weight: %d}, ", i, 1 + i % 3);
    assert_true(points.n > 8000);
    str_printf(&train, "data.train=[{path: a.txt, weight: [%s{step: 1000, weight: 5}]}]", points.p);
    str_printf(&config, "data:\n  train:\n    - path: a.txt\n      weight: [%s{step: 1000, weight: 5}]\n", points.p);
    if (compare_train(train.p, config.p, same, &e)) fail_msg("%s", e.text);
    str_clear(&config);
    str_printf(&config, "data:\n  train:\n    - path: a.txt\n      weight: [%s{step: 1000, weight: 6}]\n", points.p);
    assert_int_equal(compare_train(train.p, config.p, same, &e), ERR_REQUEST);
    assert_contains(e.text, "data.train.weight");
    str_free(&points);
    str_free(&train);
    str_free(&config);
}

#define DATA "data:\n  train:\n    - path: a.txt\n      weight: 1.0\n"
static void test_other_versions(void **state)
{
    (void)state;
    struct err e = {0};
    const char *same = "{\"data\": {\"train\": \"0000000000000abc\"}}",
               *other = "{\"data\": {\"train\": \"0000000000000abd\"}}";
    if (compare_with(NULL, same, &e)) fail_msg("%s", e.text); /* imported: no config */
    if (compare_with("data:\n  train:\n    - path: b.txt\n      weight: 1\n", same, &e))
        fail_msg("%s", e.text); /* the rest: defaults */
    assert_int_equal(compare_with("data:\n  train:\n    - path: a.txt\n      weight: 1.0\n", other, &e), ERR_REQUEST);
    assert_contains(e.text, "not the tokens");
    assert_int_equal(compare_with("data:\n  train:\n    - path: b.txt\n      weight: 1.0\n", "{}", &e),
                     ERR_REQUEST); /* only the path can tell */
    assert_contains(e.text, "data.train.path: a.txt here, b.txt in the checkpoint");
    if (compare_with("data:\n  train:\n    - path: a.txt\n      weight: 1.0\n", "{}", &e)) fail_msg("%s", e.text);
    /* Where packed documents end is compared with what says it; a checkpoint of an earlier version does not. */
    const struct changes_data packed = {.train = 0xabc, .ends = 0xdef, .known = true};
    const char *ends = "{\"data\": {\"train\": \"0000000000000abc\", \"ends\": \"0000000000000def\"}}",
               *other_ends = "{\"data\": {\"train\": \"0000000000000abc\", \"ends\": \"0000000000000dee\"}}";
    if (compare_data("data.train=a.txt", &packed, DATA, same, &e)) fail_msg("%s", e.text);
    if (compare_data("data.train=a.txt", &packed, DATA, ends, &e)) fail_msg("%s", e.text);
    assert_int_equal(compare_data("data.train=a.txt", &packed, DATA, other_ends, &e), ERR_REQUEST);
    assert_contains(e.text, "not the tokens");
    if (compare_with("data:\n  train:\n    - path: a.txt\n      weight: 1.0\n", ends, &e)) fail_msg("%s", e.text);
    /* The column tells too, where the checkpoint does not know its tokens; named and not known to a config, it is said.
     */
    const char *column = "data:\n  train:\n    - path: a.txt\n      column: body\n      weight: 1.0\n";
    assert_int_equal(compare_with(column, "{}", &e), ERR_REQUEST);
    assert_contains(e.text, "data.train.column: null here, body in the checkpoint");
    if (compare_with(column, same, &e)) fail_msg("%s", e.text);
    if (compare_with(DATA "optimizer:\n  name: adamw\n  betas: [0.90, 9.5e-01]\nnew_section:\n  new_key: 1\n", same,
                     &e))
        fail_msg("%s", e.text);
    if (compare_with(DATA "optimizer:\n  weight_decay: 1.0e-05\nmodel:\n  rope_theta: 1.0e4\n", same, &e))
        fail_msg("%s", e.text);
    assert_int_equal(compare_with(DATA "model:\n  rope_theta: 10001\n", same, &e), ERR_REQUEST);
    assert_int_equal(compare_with(DATA "run:\n  seed: 3\nbatch:\n  global: 99\n", same, &e), ERR_REQUEST);
    assert_contains(e.text, "allow_changes=[batch.global,run.seed]");
}

/* ---- every key of the table ---- */
static bool takes(struct conf *f, const char *key, const char *value)
{
    char text[400];
    struct err e = {0};
    snprintf(text, sizeof text, "%s=%s", key, value);
    return conf_override(f, text, &e) == OK;
}

/* A number of the row's range from which a factor of ten, one and a sign lead to others: 10 and 100 end alike. */
static const char *round_number(const struct conf_row *r)
{
    static const char *const choices[] = {"10", "100", "1000", "100000", "0.1", "0.01"};
    if (r->type != CONF_INT && r->type != CONF_REAL) return NULL;
    for (int i = 0; i < 6; i++) {
        double v = atof(choices[i]);
        bool any = r->lo == 0 && r->hi == 0, whole = v == (double)(int64_t)v;
        if ((any || (v >= r->lo && v <= r->hi)) && (r->type == CONF_REAL || whole)) return choices[i];
    }
    return NULL;
}

/* What a key may become: the k-th of its values that differ from `now`; false: there is no k-th. */
static bool other_value(const struct conf_row *r, const char *now, int k, char out[200])
{
    double v = atof(now), to[] = {v * 10, v / 10, v + 1, v - 1, -v, v + 2, v + 0.25};
    if (r->type == CONF_INT || r->type == CONF_REAL) {
        if (k < 7) snprintf(out, 200, "%.17g", to[k]);
        return k < 7;
    }
    if (r->type == CONF_CHOICE) {
        const char *w = r->choices;
        for (; k > 0 && w; k--) w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL;
        if (w) snprintf(out, 200, "%.*s", (int)strcspn(w, "|"), w);
        return w != NULL;
    }
    if (r->type == CONF_REALS) {
        snprintf(out, 200, "[");
        for (int i = 0; i < r->n; i++)
            snprintf(out + strlen(out), 200 - strlen(out), "%s%s", i ? ", " : "", i + 1 < r->n ? "0.5" : "0.25");
        snprintf(out + strlen(out), 200 - strlen(out), "]");
        return k < 1;
    }
    static const char *const texts[][2] = {[CONF_BOOL] = {"true", "false"},
                                           [CONF_STRING] = {"10", "100"},
                                           [CONF_WORD] = {"xo", "M*"},
                                           [CONF_NUMBERS] = {"[10]", "[100]"},
                                           [CONF_POINTS] = {"10", "100"}};
    if (k < 2) snprintf(out, 200, "%s", texts[r->type][k]);
    return k < 2;
}

struct walk {
    struct config c;
    struct conf *f;
    struct ckpt *ckpt;
    int said;         /* a file that the log goes to, and with it what a failed assertion says */
    int n;            /* pairs of unlike values */
    struct str wrong; /* what is told when the log is a terminal's again */
};

/* One key differs: what is said and refused is what its effect is, and no other key is named. */
static void differs(struct walk *w, const struct conf_row *r, const char *value)
{
    struct err e = {0};
    char text[4000], own[200];
    struct changes_data d = {.train = 0xabc, .known = true};
    const char *key = r->path;
    int effect = changes_effect(key);
    ssize_t n = ftruncate(w->said, 0);
    int rc = changes_check(w->ckpt, &w->c, &d, &e);
    if (!n) n = pread(w->said, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    snprintf(own, sizeof own, "%s: ", key);
    if (effect < 0) str_printf(&w->wrong, "%s: no rule says what follows where it differs\n", key);
    if ((rc == ERR_REQUEST) != (effect == CHANGES_REFUSED) || (rc && !strstr(e.text, own)))
        str_printf(&w->wrong, "%s=%s: code %d: %s\n", key, value, rc, e.text);
    if ((strstr(text, own) != NULL) != (effect != CHANGES_SILENT))
        str_printf(&w->wrong, "%s=%s: said: %s\n", key, value, text);
    w->n++;
}

static void walk_key(struct walk *w, const struct conf_row *r, const char *now)
{
    char value[200];
    int unlike = 0;
    for (int k = 0; other_value(r, now, k, value); k++) {
        if (conf_same(r, value, now) || !takes(w->f, r->path, value)) continue;
        differs(w, r, value);
        unlike++;
    }
    if (!unlike) str_printf(&w->wrong, "%s: no other value than %s was found\n", r->path, now);
    if (!takes(w->f, r->path, now)) str_printf(&w->wrong, "%s: %s is not taken back\n", r->path, now);
}

/* Every key once by a factor of ten, once by one, once by a sign, of its default and of a round number. */
static void test_every_key(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct walk w = {.said = -1};
        struct err e = {0};
        struct str printed = {0};
        char *dir = scratch_new(), *keys[] = {(char *)(uintptr_t) "data.train=a.txt"};
        struct arena *a = arena_new();
        float one = 1;
        assert_int_equal(config_load(&w.c, &w.f, a, NULL, keys, 1, &e), OK);
        for (const struct conf_row *r = config_rows; round && r->path; r++)
            if (round_number(r) && !takes(w.f, r->path, round_number(r))) fail_msg("%s", r->path);
        config_print(&w.c, &printed);
        struct ckpt_attachment file = {.name = "config.yaml", .p = str_text(&printed), .bytes = printed.n};
        struct ckpt_info info = {.step = 1,
                                 .extra = "{\"data\": {\"train\": \"0000000000000abc\"}}",
                                 .attachments = &file,
                                 .n_attachments = 1};
        struct ckpt_tensor t = {.group = "master", .name = "x", .dtype = DT_F32, .p = &one};
        assert_int_equal(ckpt_save(dir, &info, &t, 1, &e), OK);
        assert_int_equal(ckpt_open(&w.ckpt, dir, &e), OK);
        char *path = fs_join(dir, "said");
        int spoken = dup(2);
        w.said = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
        assert_true(w.said >= 0 && spoken >= 0 && dup2(w.said, 2) == 2);
        for (const struct conf_row *r = config_rows; r->path; r++) {
            const char *now = round ? round_number(r) : r->otherwise;
            if (changes_effect(r->path) < 0) str_printf(&w.wrong, "%s: no rule says what follows\n", r->path);
            if (r->type != CONF_LIST && now) walk_key(&w, r, now);
        }
        dup2(spoken, 2);
        close(spoken);
        close(w.said);
        if (w.wrong.n) fail_msg("%s", str_text(&w.wrong));
        assert_true(w.n > (round ? 400 : 500));
        ckpt_close(w.ckpt);
        str_free(&printed);
        xfree(path);
        arena_free(a);
        scratch_free(dir);
    }
}

/* A list that is empty here and was not there is a difference like any other. */
static void test_lists(void **state)
{
    (void)state;
    struct err e = {0};
    const char *same = "{\"data\": {\"train\": \"0000000000000abc\"}}";
    assert_int_equal(compare_with(DATA "train:\n  freeze:\n    - name: head.weight\n", same, &e), ERR_REQUEST);
    assert_contains(e.text, "train.freeze.name: nothing here, head.weight in the checkpoint");
    assert_int_equal(compare_train("data.train=[{path: a.txt, weight: 10}]",
                                   "data:\n  train:\n    - path: a.txt\n      weight: 100\n", same, &e),
                     ERR_REQUEST);
    assert_contains(e.text, "data.train.weight: 1.0e+01 here, 100 in the checkpoint");
    if (compare_train("data.train=[{path: a.txt, weight: 10}]",
                      "data:\n  train:\n    - path: a.txt\n      weight: 1.0e1\n", same, &e))
        fail_msg("%s", e.text);
}

int main(void)
{
    setenv("LOG", "info", 1); /* what is said is tested */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_said_and_silent), cmocka_unit_test(test_data),
        cmocka_unit_test(test_other_versions), cmocka_unit_test(test_long_weights),    cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
