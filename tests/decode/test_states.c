/* SPDX-License-Identifier: Apache-2.0 */
/* What models with state spaces write, and hybrids of them with attention: several texts in shared steps, in pieces and
 * with forks, say what each says alone and fed at once; a place that another text had begins anew; stages say what one
 * rank says, to the bit. A cache holds states first, pages in what is left. */
#include "decode/written.h"

#include "decode/decoding_ranks.h"
#include "sanitized.h"

enum { TEXT = 44, VOCAB = 67, MOST = 400 };

/* Logits, and the token of which text each is of. */
struct said {
    float logits[MOST][VOCAB];
    struct {
        int text, at;
    } of[MOST];
    int n;
};

/* Token i of a text; the third begins as the first. */
static int32_t token_of(int text, int i)
{
    return (int32_t)(rng_u32(3, (uint64_t)(text == 2 && i < 20 ? 0 : text), (uint64_t)i) % VOCAB);
}

/* The next tokens of texts: place, text, from where, how many; all logits are wanted. */
struct fed {
    int sequence, text, from, n;
};

static void step(struct decoding *d, struct said *s, const struct fed *p, int n)
{
    struct decoding_part part[3];
    int32_t ids[3][TEXT];
    const float *logits;
    struct err e = {0};
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < p[i].n; k++) ids[i][k] = token_of(p[i].text, p[i].from + k);
        part[i] = (struct decoding_part){p[i].sequence, ids[i], p[i].n, p[i].n};
    }
    if (decoding_step(d, part, n, &logits, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < p[i].n; k++, logits += VOCAB) {
            assert_true(s->n < MOST);
            s->of[s->n].text = p[i].text;
            s->of[s->n].at = p[i].from + k;
            memcpy(s->logits[s->n++], logits, sizeof *s->logits);
        }
}

static void say(struct decoding *d, struct said *s)
{
    int one = decoding_open(d), two = decoding_open(d);
    step(d, s, (struct fed[]){{one, 0, 0, 13}}, 1);
    step(d, s, (struct fed[]){{two, 1, 0, 17}, {one, 0, 13, 7}}, 2);
    int fork = decoding_fork(d, one); /* of the 20 tokens that two texts share */
    assert_true(fork >= 0);
    step(d, s, (struct fed[]){{fork, 2, 20, 2}, {one, 0, 20, 1}, {two, 1, 17, 1}}, 3);
    for (int i = 0; i < 5; i++) step(d, s, (struct fed[]){{one, 0, 21 + i, 1}, {fork, 2, 22 + i, 1}}, 2);
    decoding_close(d, one);
    decoding_close(d, two);
    one = decoding_open(d); /* states that another text left there */
    step(d, s, (struct fed[]){{one, 1, 0, 9}, {fork, 2, 27, 3}}, 2);
    decoding_close(d, fork);
    decoding_close(d, one);
    assert_int_equal(decoding_pages_left(d), decoding_pages(d));
}

static void of_texts_alone(struct written *x, float (*want)[TEXT][VOCAB])
{
    for (int k = 0; k < 3; k++) {
        struct decoding *d = written_decoding(x, 1, 64, 0);
        struct said *s = xcalloc(1, sizeof *s);
        step(d, s, (struct fed[]){{decoding_open(d), k, 0, TEXT}}, 1);
        memcpy(want[k], s->logits, sizeof *want);
        decoding_free(d);
        xfree(s);
    }
}

static const enum model_family families[] = {MODEL_MAMBA2, MODEL_NEMOTRON_H};

static void test_texts_share_steps(void **state)
{
    (void)state;
    float(*want)[TEXT][VOCAB] = xcalloc(3, sizeof *want);
    struct said *got = xcalloc(1, sizeof *got);
    for (int f = 0; f < 2; f++) {
        struct written x;
        written_open(&x, families[f], TEXT);
        of_texts_alone(&x, want);
        struct decoding *d = written_decoding(&x, 3, 32, 0);
        got->n = 0;
        say(d, got);
        decoding_free(d);
        double most = 0, worst = 0;
        for (int i = 0; i < got->n; i++)
            for (int v = 0; v < VOCAB; v++) {
                float a = got->logits[i][v], b = want[got->of[i].text][got->of[i].at][v];
                most = fmax(most, fabs((double)b));
                worst = fmax(worst, fabs((double)(a - b)));
            }
        /* Sums of at most 44 tokens in another order, in fp32: some roundings of the largest logit. */
        if (!(worst <= 2e-5 * most) || most < 0.1) fail_msg("family %d: %g of %g", families[f], worst, most);
        written_close(&x);
    }
    xfree(want);
    xfree(got);
}

/* ---- over ranks ---- */
struct job {
    struct written *x;
    int tp, pp;
    struct said *said;
    const char *why; /* it is refused with that */
};

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct decoding_ranks g;
    struct weights *w;
    struct device *dev;
    struct decoding *d;
    int rc = decoding_ranks_init(&g, world, j->tp, j->pp, e);
    if (rc || weights_open(&w, j->x->dir, e) || device_cpu_new(&dev, 1, e)) fail_msg("%s", e->text);
    struct decoding_options o = {.threads = 1, .dtype = DT_F32, .sequences = 3, .rows = 32, .ranks = &g};
    rc = decoding_new(&d, w, dev, &o, e);
    if (j->why) {
        if (rc != ERR_REQUEST || !strstr(e->text, j->why)) fail_msg("tp %d: %s", j->tp, rc ? e->text : "taken");
        rc = OK;
    } else if (rc) fail_msg("%s", e->text);
    else if (!g.leads) rc = decoding_follow(d, e);
    else say(d, j->said);
    decoding_free(d);
    device_free(dev);
    weights_close(w);
    decoding_ranks_fini(&g);
    return rc;
}

static void test_stages(void **state)
{
    (void)state;
    struct said *alone = xcalloc(1, sizeof *alone), *got = xcalloc(1, sizeof *got);
    for (int f = 0; f < 2; f++) {
        struct written x;
        struct err e = {0};
        written_open(&x, families[f], TEXT);
        struct decoding *d = written_decoding(&x, 3, 32, 0);
        alone->n = 0;
        say(d, alone);
        decoding_free(d);
        for (int pp = 2; pp <= (int)x.toy.g->cfg.model.layers; pp++) {
            struct job j = {.x = &x, .tp = 1, .pp = pp, .said = got};
            got->n = 0;
            if (comm_run_local(pp, &(struct comm_config){0}, run_rank, &j, &e)) fail_msg("pp %d: %s", pp, e.text);
            assert_int_equal(got->n, alone->n);
            for (int i = 0; i < got->n; i++)
                if (memcmp(got->logits[i], alone->logits[i], sizeof *got->logits))
                    fail_msg("family %d, pp %d: row %d", families[f], pp, i);
        }
        struct job j = {.x = &x, .tp = 2, .pp = 1, .why = "not shared out over tp"};
        if (comm_run_local(2, &(struct comm_config){0}, run_rank, &j, &e)) fail_msg("%s", e.text);
        written_close(&x);
    }
    xfree(alone);
    xfree(got);
}

/* A hybrid's cache of so many bytes: states of all sequences, and as many pages as fit into what is left. */
static void test_cache_of_bytes(void **state)
{
    (void)state;
    struct written x;
    struct err e = {0};
    written_open(&x, MODEL_NEMOTRON_H, TEXT);
    const struct model_config *m = &x.toy.g->cfg.model;
    const struct ssm_config *s = &m->ssm;
    size_t inner = (size_t)(s->heads * s->head_dim), bc = (size_t)(s->groups * s->state), of[2];
    of[0] = 3 * (size_t)(s->conv - 1) * (inner + 2 * bc) * sizeof(float);
    of[1] = 3 * inner * (size_t)s->state * sizeof(float);
    size_t states = (of[0] + 63) / 64 * 64 + (of[1] + 63) / 64 * 64;            /* of the one layer that has them */
    size_t page = 2 * 16 * (size_t)(m->kv_heads * m->head_dim) * sizeof(float); /* of the one that attends */
    struct decoding_options o = {.threads = 1, .dtype = DT_F32, .sequences = 3};
    struct decoding *d = written_decoding(&x, 3, 8, states + 5 * page - 1);
    assert_int_equal(decoding_pages(d), 4);
    decoding_free(d);
    d = written_decoding(&x, 3, 8, states + 5 * page);
    assert_int_equal(decoding_pages(d), 5);
    decoding_free(d);
    o.cache_bytes = states + 2 * page; /* one text of 44 needs three */
    assert_int_equal(decoding_new(&d, x.w, x.toy.dev, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "needs 3"));
    o.cache_bytes = states - 1;
    assert_int_equal(decoding_new(&d, x.w, x.toy.dev, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "sequences keep"));
    written_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_share_steps),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_cache_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
