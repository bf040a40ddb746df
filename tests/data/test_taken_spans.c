/* SPDX-License-Identifier: Apache-2.0 */
/* What encoder and decoder are trained on: samples put together again are the text they were made of, in the counts
 * that their length says, cut anywhere; the same for any split of a batch, others in every epoch; what is refused. */
#include "data_test.h"

#include <math.h>

#include "data/dataset.h"

enum { SEQ = 40, GLOBAL = 6, EOS = 256, MARK = 300, START = 7, STEPS = 60 };

static int open_with(struct dataset **d, const char *path, struct dataset_options o, const char *dir, struct err *e)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source source = {.path = path, .weight = 1};
    o.sources = &source;
    o.n_sources = 1;
    o.tokenizer = t;
    o.seq_len = SEQ;
    o.shuffled = true;
    o.global_batch = GLOBAL;
    o.cache_dir = dir;
    int code = dataset_open(d, &o, e);
    tokenizer_free(t);
    return code;
}

static const struct span_rule rule = {0.3, 2, MARK, START, SEQ, 0};

static struct dataset *taking(const char *path, double rate, uint64_t seed, const char *dir)
{
    struct dataset *d;
    struct err e;
    struct dataset_options o = {.seed = seed, .spans = rule};
    o.spans.rate = rate;
    assert_ok(open_with(&d, path, o, dir, &e), &e);
    return d;
}

static void test_counts(void **state)
{
    (void)state;
    struct span_counts s;
    /* 512 tokens of which 15 % are taken out in spans of 3: T5's own sizes, 489 with 114 behind (Raffel et al.) */
    assert_true(span_counts_of(&s, 0.15, 3, 603, 0));
    assert_true(s.encoder + s.decoder <= 603 && s.taken == llround(0.15 * (double)s.text));
    assert_int_equal(s.encoder, s.text - s.taken + s.spans + 1);
    assert_int_equal(s.decoder, s.taken + s.spans + 1);
    assert_true(span_counts_of(&s, 0.15, 3, 626, 512));
    assert_int_equal(s.text, 568); /* what the published code makes 512 and 114 of */
    assert_int_equal(s.encoder, 512);
    assert_int_equal(s.decoder, 114);
    assert_false(span_counts_of(&s, 0.15, 3, 5, 0));
    assert_true(span_counts_of(&s, 0.15, 3, 6, 0));
    assert_true(s.text == 2 && s.taken == 1 && s.spans == 1 && s.encoder == 3 && s.decoder == 3);
    assert_false(span_counts_of(&s, 0.15, 3, 100, 99));
    for (int64_t seq = 6; seq < 300; seq++) /* never more spans than what stays or goes has tokens */
        for (int k = 1; k < 10; k++) {
            assert_true(span_counts_of(&s, 0.1 * k, 1 + k % 4, seq, 0));
            assert_true(s.spans >= 1 && s.spans <= s.taken && s.spans <= s.text - s.taken);
            assert_true(s.encoder + s.decoder <= seq && s.encoder + s.decoder > seq - 4);
        }
}

/* One sample against its text; adds up how long the first piece that stays is. */
static void check_sample(const struct span_counts *n, const int32_t *ids, const int32_t *targets, const int32_t *text,
                         double *first)
{
    int64_t at = 0, e = 0, d = n->encoder, spans = 0, before = START;
    for (int64_t i = 0; i < n->encoder; i++) assert_int_equal(targets[i], -1);
    while (ids[e] <= EOS && e < n->encoder - 1) {
        int64_t from = at;
        while (ids[e] <= EOS && e < n->encoder - 1) assert_int_equal(ids[e++], text[at++]);
        if (!spans) *first += (double)(at - from);
        assert_true(at > from);
        assert_int_equal(ids[e++], MARK - spans);
        assert_int_equal(ids[d], before);
        assert_int_equal(targets[d++], MARK - spans++);
        before = targets[d - 1];
        from = at;
        for (; targets[d] >= 0 && targets[d] <= EOS && d < n->encoder + n->decoder - 1; d++) {
            assert_int_equal(ids[d], before);
            assert_int_equal(targets[d], text[at++]);
            before = targets[d];
        }
        assert_true(at > from);
    }
    assert_int_equal(ids[e++], EOS);
    assert_int_equal(targets[d], EOS);
    assert_int_equal(ids[d++], before);
    assert_true(e == n->encoder && d == n->encoder + n->decoder && at == n->text && spans == n->spans);
    for (; d < SEQ; d++) assert_true(targets[d] == -1 && ids[d] == START);
}

static void check_samples(const char *path, const char *dir)
{
    struct dataset *h = taking(path, rule.rate, 5, dir), *plain = taking(path, 0, 5, dir);
    struct span_counts n;
    struct batch a, b, part;
    struct err e;
    double first = 0;
    assert_true(span_counts_of(&n, rule.rate, rule.mean, SEQ, 0));
    batch_init(&a, GLOBAL, SEQ);
    batch_init(&b, GLOBAL, SEQ);
    batch_init(&part, 2, SEQ);
    for (int64_t step = 0; step < STEPS; step++) {
        assert_ok(dataset_batch(h, step, GLOBAL, 0, &a, &e), &e);
        assert_ok(dataset_batch(plain, step, GLOBAL, 0, &b, &e), &e);
        assert_ok(dataset_batch(h, step, GLOBAL, 3, &part, &e), &e);
        assert_memory_equal(part.tokens, a.tokens + 3 * SEQ, 2 * SEQ * sizeof(int32_t));
        assert_memory_equal(part.targets, a.targets + 3 * SEQ, 2 * SEQ * sizeof(int32_t));
        assert_int_equal(a.n_trained, GLOBAL * n.decoder);
        for (int64_t r = 0; r < GLOBAL; r++)
            check_sample(&n, a.tokens + r * SEQ, a.targets + r * SEQ, b.tokens + r * SEQ, &first);
    }
    /* The first of the pieces is as long as any, on average. Of one a geometric law's deviation is no more than its
     * mean: within five of what the mean of all samples has. */
    double stays = (double)(n.text - n.taken) / (double)n.spans, samples = (double)GLOBAL * STEPS;
    assert_true(n.spans > 2 && fabs(first / samples - stays) < 5 * stays / sqrt(samples));
    batch_fini(&part);
    batch_fini(&b);
    batch_fini(&a);
    dataset_close(plain);
    dataset_close(h);
}

/* The seed decides what is taken out in training, and nothing of evaluation; an epoch takes out others. */
static void check_seeds(const char *path, const char *dir)
{
    struct dataset *one = taking(path, rule.rate, 5, dir), *other = taking(path, rule.rate, 6, dir);
    struct batch a, b;
    struct err e;
    batch_init(&a, GLOBAL, SEQ);
    batch_init(&b, GLOBAL, SEQ);
    assert_ok(dataset_eval_batch(one, 0, GLOBAL, 1, 0, &a, &e), &e);
    assert_ok(dataset_eval_batch(other, 0, GLOBAL, 1, 0, &b, &e), &e);
    assert_true(a.n_trained > 0 && a.n_trained == b.n_trained);
    assert_memory_equal(a.tokens, b.tokens, GLOBAL * SEQ * sizeof(int32_t));
    assert_memory_equal(a.targets, b.targets, GLOBAL * SEQ * sizeof(int32_t));
    int64_t samples = dataset_n_samples(one), first = -1, again = -1;
    for (int64_t k = 0; again < 0; k++) { /* one sample in two epochs */
        int source;
        int64_t sample, epoch;
        dataset_where(one, k, &source, &epoch, &sample);
        if (sample == 0 && first < 0) first = k;
        else if (sample == 0) again = k;
        assert_true(k < 3 * samples);
    }
    assert_ok(dataset_batch(one, first / GLOBAL, GLOBAL, 0, &a, &e), &e);
    assert_ok(dataset_batch(one, again / GLOBAL, GLOBAL, 0, &b, &e), &e);
    assert_memory_not_equal(a.targets + first % GLOBAL * SEQ, b.targets + again % GLOBAL * SEQ, SEQ * sizeof(int32_t));
    batch_fini(&b);
    batch_fini(&a);
    dataset_close(other);
    dataset_close(one);
}

/* Of the list of evaluation the last sample is short: its text does not fill it, and it has no target. */
static void check_short(const char *path, const char *dir)
{
    struct dataset *d = taking(path, rule.rate, 5, dir);
    struct span_counts n;
    struct batch a;
    struct err e;
    int64_t whole = (dataset_n_tokens(d) - 1) / SEQ, left = dataset_n_tokens(d) - whole * SEQ, trained = 0;
    assert_true(span_counts_of(&n, rule.rate, rule.mean, SEQ, 0));
    assert_true(left > 1 && left < n.text);
    batch_init(&a, GLOBAL, SEQ);
    for (int64_t i = 0; i < dataset_eval_batches(d, GLOBAL, 0); i++) {
        assert_ok(dataset_eval_batch(d, i, GLOBAL, 0, 0, &a, &e), &e);
        trained += a.n_trained;
    }
    assert_int_equal(trained, whole * n.decoder);
    batch_fini(&a);
    dataset_close(d);
}

static void test_samples(void **state)
{
    (void)state;
    char *dir = scratch_new(), text[8192], *at = text;
    for (int i = 0; i < 100; i++)
        at += sprintf(at, "{\"text\": \"%.*s number %d\"}\n", 3 + i % 17, "a text of some length", i);
    char *path = put_text(dir, "t.jsonl", text);
    check_samples(path, dir);
    check_seeds(path, dir);
    check_short(path, dir);
    xfree(path);
    scratch_free(dir);
}

static void test_refused(void **state)
{
    (void)state;
    char *dir = scratch_new(),
         *path = put_text(dir, "t.txt", "some text, and enough of it for a sample or two of them");
    struct dataset_options o = {.spans = rule};
    struct dataset *d;
    struct err e;
    o.spans.id = -1;
    assert_err(open_with(&d, path, o, dir, &e), &e, ERR_REQUEST, "data.spans.id|no token <extra_id_0>|model.vocab: 26");
    o.spans.id = 258;
    assert_err(open_with(&d, path, o, dir, &e), &e, ERR_REQUEST,
               "data.spans.id|count down from 258 into the tokenizer's 257");
    o.spans.id = MARK;
    o.spans.encoder = SEQ - 1;
    assert_err(open_with(&d, path, o, dir, &e), &e, ERR_REQUEST, "model.encoder_len|no text");
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts), cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
