/* SPDX-License-Identifier: Apache-2.0 */
/* A model over several ranks says what one rank says: logits of every family over tp (key heads cut, or too few to cut)
 * and pp, with prompts in pieces, several sequences, forks and cuts; over pp to the bit. Scores of an evaluation by
 * replicas are those of one, to the bit. What cannot be cut is refused on every rank. */
#include "decode/written.h"

#include "decode/decoding_ranks.h"
#include "decode/evaluate.h"
#include "sanitized.h"

enum { TEXT = 44, VOCAB = 67, MOST = 4096 };

struct said {
    float logits[MOST][VOCAB];
    int n;
};

struct layout_job {
    struct written *x;
    int tp, pp;
    struct said *said;
    const char *tasks; /* NULL: logits */
    struct evaluation *score;
    int refused;
    const char *why;
};

static void step(struct decoding *d, struct said *s, const struct decoding_part *p, int n)
{
    const float *logits;
    struct err e = {0};
    int64_t rows = 0;
    if (decoding_step(d, p, n, &logits, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) rows += p[i].wanted < p[i].n ? p[i].wanted : p[i].n;
    assert_true(s->n + rows <= MOST);
    for (int64_t i = 0; i < rows; i++) memcpy(s->logits[s->n++], logits + i * VOCAB, sizeof *s->logits);
}

/* Two texts together, the first fed in pieces; a fork of it that writes another end, cut back and ended alike. */
static void say(struct decoding *d, struct said *s)
{
    int32_t a[TEXT], b[TEXT];
    for (uint32_t i = 0; i < TEXT; i++) {
        a[i] = (int32_t)(rng_u32(3, 1, i) % VOCAB);
        b[i] = (int32_t)(rng_u32(3, 2, i) % VOCAB);
    }
    int one = decoding_open(d), two = decoding_open(d);
    step(d, s, &(struct decoding_part){one, a, 13, 1}, 1);
    step(d, s, (struct decoding_part[]){{one, a + 13, 6, 6}, {two, b, 17, 3}}, 2);
    int fork = decoding_fork(d, one);
    step(d, s, (struct decoding_part[]){{fork, b, 2, 1}, {one, a + 19, 1, 1}, {two, b + 17, 1, 1}}, 3);
    decoding_cut(d, fork, 19);
    step(d, s, (struct decoding_part[]){{fork, a + 19, 5, 5}, {one, a + 20, 4, 4}}, 2);
    for (int i = 24; i < 27; i++) step(d, s, (struct decoding_part[]){{one, a + i, 1, 1}, {two, b + i - 6, 1, 1}}, 2);
    decoding_close(d, fork);
    decoding_close(d, one);
    decoding_close(d, two);
    one = decoding_open(d); /* takes over pages */
    int64_t had = decoding_reuse(d, one, a, 25);
    assert_int_equal(had, 16);
    step(d, s, &(struct decoding_part){one, a + had, 25 - had, 2}, 1);
    step(d, s, &(struct decoding_part){one, a + 25, 1, 0}, 1); /* nothing wanted */
    decoding_close(d, one);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
}

static struct decoding_options options_of(const struct decoding_ranks *ranks)
{
    return (struct decoding_options){.threads = 1, .dtype = DT_F32, .sequences = 3, .rows = 32, .ranks = ranks};
}

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct layout_job *j = arg;
    struct decoding_ranks g;
    struct weights *w;
    struct device *dev;
    struct decoding *d;
    struct tokenizer *t = tokenizer_new_byte();
    int rc = decoding_ranks_init(&g, world, j->tp, j->pp, e);
    if (rc || weights_open(&w, j->x->dir, e) || device_cpu_new(&dev, 1, e)) fail_msg("%s", e->text);
    struct decoding_options o = options_of(&g);
    rc = decoding_new(&d, w, dev, &o, e);
    if (j->refused) {
        assert_true(rc == j->refused && strstr(e->text, j->why));
    } else if (rc) {
        fail_msg("%s", e->text);
    } else if (!g.leads) {
        rc = decoding_follow(d, e);
    } else if (j->tasks) {
        struct evaluation v;
        rc = evaluate_shared(d, t, j->tasks, g.ranks.host.replicate, &v, e);
        if (!rc && comm_rank(world) == comm_size(world) - 1) *j->score = v; /* of the last replica */
        else if (!rc) evaluation_fini(&v);
    } else {
        say(d, j->said);
    }
    decoding_free(d);
    device_free(dev);
    weights_close(w);
    tokenizer_free(t);
    decoding_ranks_fini(&g);
    return j->refused ? OK : rc;
}

static void run_over(struct layout_job *j, int n)
{
    struct err e = {0};
    if (comm_run_local(n, &(struct comm_config){0}, run_rank, j, &e)) fail_msg("tp %d pp %d: %s", j->tp, j->pp, e.text);
}

static void compare(const struct said *got, const struct said *want, bool bits, const char *what)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < want->n; i++)
        for (int v = 0; v < VOCAB; v++) {
            float a = got->logits[i][v], b = want->logits[i][v];
            if (bits ? memcmp(&a, &b, sizeof a) != 0 : !(fabsf(a - b) <= 2e-4f * (1 + fabsf(b))))
                fail_msg("%s: row %d, token %d: %.9g, wanted %.9g", what, i, v, (double)a, (double)b);
        }
}

static void test_layouts(void **state)
{
    (void)state;
    static const struct {
        int tp, pp;
    } layout[] = {{2, 1}, {3, 1}, {1, 2}, {2, 3}};
    struct said *alone = xcalloc(1, sizeof *alone), *got = xcalloc(1, sizeof *got);
    for (int family = SANITIZED ? MODEL_LLAMA : 0; family < TOY_TEXTS; family += CASE_STRIDE) {
        struct written x;
        written_open(&x, (enum model_family)family, TEXT);
        struct decoding *d = written_decoding(&x, 3, 32, 0);
        alone->n = 0;
        say(d, alone);
        decoding_free(d);
        for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
            char what[64];
            snprintf(what, sizeof what, "family %d, tp %d, pp %d", family, layout[i].tp, layout[i].pp);
            struct layout_job j = {.x = &x, .tp = layout[i].tp, .pp = layout[i].pp, .said = got};
            got->n = 0;
            run_over(&j, j.tp * j.pp);
            compare(got, alone, j.tp == 1, what);
        }
        written_close(&x);
    }
    xfree(alone);
    xfree(got);
}

static void test_replicas(void **state)
{
    (void)state;
    struct written x;
    struct evaluation want, got;
    struct err e = {0};
    struct str lines = {0};
    struct tokenizer *t = tokenizer_new_byte();
    for (int i = 0; i < 29; i++) {
        str_printf(&lines, "{\"task\":\"t%d\",\"text\":\"%.*s\"}\n", i % 2, 2 + i, "0123456789!0123456789#0123456789");
        if (i % 3 == 0)
            str_printf(&lines, "{\"prompt\":\"0%d\",\"choices\":[\"12\",\"34\",\"%d\"],\"answer\":%d}\n", i, i, i % 2);
        if (i % 7 == 0) str_printf(&lines, "{\"prompt\":\"%d\",\"target\":\"a\",\"max_tokens\":3}\n", i);
    }
    written_open(&x, MODEL_LLAMA, TEXT);
    char *path = fs_join(x.dir, "tasks.jsonl");
    if (fs_write_atomic(path, lines.p, lines.n, &e)) fail_msg("%s", e.text);
    struct decoding *d = written_decoding(&x, 3, 32, 0);
    if (evaluate(d, t, path, &want, &e)) fail_msg("%s", e.text);
    decoding_free(d);
    for (int n = 2; n <= 5; n += 3) {
        struct layout_job j = {.x = &x, .tp = 1, .pp = 1, .tasks = path, .score = &got};
        run_over(&j, n);
        assert_true(got.n_tasks == want.n_tasks && got.records == want.records && got.tokens == want.tokens);
        for (int i = 0; i < want.n_tasks; i++) {
            assert_string_equal(got.task[i].name, want.task[i].name);
            struct task_score a = got.task[i], b = want.task[i];
            a.name = b.name = NULL;
            if (a.kind != TASK_TEXT) a.nats_error = b.nats_error = 0; /* NaN */
            if (memcmp(&a, &b, sizeof a)) fail_msg("%d replicas: %s has another score", n, want.task[i].name);
        }
        evaluation_fini(&got);
    }
    evaluation_fini(&want);
    written_close(&x);
    str_free(&lines);
    xfree(path);
    tokenizer_free(t);
}

static void test_refused(void **state)
{
    (void)state;
    struct written x;
    struct decoding_ranks g;
    struct err e = {0};
    written_open(&x, MODEL_LLAMA, TEXT);
    struct layout_job j = {.x = &x, .tp = 7, .pp = 1, .refused = ERR_REQUEST, .why = "share out"};
    run_over(&j, 7);
    j = (struct layout_job){.x = &x, .tp = 1, .pp = 6, .refused = ERR_REQUEST, .why = "too few for 6 stages"};
    run_over(&j, 6);
    assert_int_equal(decoding_ranks_init(&g, NULL, 2, 1, &e), ERR_REQUEST);
    written_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
