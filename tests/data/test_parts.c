/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that are joined of parts of several sources: what stands in a row, against the files; every prediction of a
 * source once an epoch; shares exact in every sample; any split over ranks the same rows. Sources that weigh next to
 * nothing. Where documents end is part of what packed data is known by. */
#include "data_test.h"

#include <math.h>

#include "data/dataset.h"
#include "data/dataset_weights.h"
#include "data/sampler.h"
#include "data/tokenfile.h"

enum { EOS = 256, VOCAB = 1000, SOURCES = 3, SEQ = 48, GLOBAL = 6 };

/* Every token of a source tells which it is of and nearly where: source s has 300 + 200 s + at % 199. */
static int32_t token_at(int source, int64_t at) { return 300 + 200 * source + (int32_t)(at % 199); }

static char *put_source(const char *dir, int source, int64_t n_documents, bool masked, bool *ends, int64_t *n_tokens)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct tokenfile_head head = {.vocab = VOCAB, .eos = EOS, .fingerprint = tokenizer_fingerprint(t)};
    struct tokenfile_writer *w;
    struct err e;
    char name[32];
    uint64_t seed = 9 + (uint64_t)source;
    snprintf(name, sizeof name, "s%d-%d.tok", source, masked);
    char *path = fs_join(dir, name);
    int64_t at = 0;
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &head, &e), &e);
    for (int64_t i = 0; i < n_documents; i++) {
        for (int64_t n = i % 13 == 5 ? 70 : (int64_t)(dice(&seed) % 15); n > 0; n--, at++) {
            int32_t id = token_at(source, at);
            unsigned char trained = !masked || at % 3 != 1;
            assert_ok(tokenfile_append_masked(w, &id, &trained, 1, &e), &e);
        }
        assert_ok(tokenfile_end_document(w, &e), &e);
        ends[at++] = true;
    }
    assert_ok(tokenfile_publish(w, &e), &e);
    tokenizer_free(t);
    *n_tokens = at;
    return path;
}

struct made {
    char *path[SOURCES];
    bool *ends[SOURCES];
    int64_t n[SOURCES];
    bool masked[SOURCES];
    char *predicted[SOURCES][2]; /* how often, in even and odd epochs: a sample may have parts of two */
    int64_t epoch[SOURCES], taken[SOURCES];
};

/* The row as the files have it; returns how many targets it has. */
static int64_t check_row(const struct dataset *d, struct made *m, int64_t k, const struct batch *b, int64_t row,
                         enum pack_kind kind)
{
    int64_t at = row * SEQ, end = at + SEQ, parts = dataset_parts(d), trained = 0;
    int32_t document = 0;
    for (int64_t j = 0; j < parts; j++) {
        int source;
        int64_t epoch, sample;
        struct cuts_pieces p;
        struct err e;
        dataset_where(d, dataset_part(d, k, j), &source, &epoch, &sample);
        assert_true(sample >= 0);
        assert_ok(dataset_pieces(d, dataset_part(d, k, j), &p, &e), &e);
        m->taken[source]++;
        if (epoch > m->epoch[source]) {
            memset(m->predicted[source][epoch % 2], 0, (size_t)m->n[source]);
            m->epoch[source] = epoch;
        }
        for (int64_t i = 0; i < p.n; i++, document++) /* a piece ends with its document, or with the part */
            for (int64_t x = p.p[i].begin, position = 0; x < p.p[i].begin + p.p[i].n; x++, at++, position++) {
                bool here = m->ends[source][x], next = m->ends[source][x + 1],
                     loss = next || !m->masked[source] || (x + 1) % 3 != 1;
                if (kind == PACK_JOINED && here) loss = false; /* mask_boundaries */
                assert_int_equal(b->tokens[at], here ? EOS : token_at(source, x));
                assert_int_equal(b->targets[at], !loss ? -1 : next ? EOS : token_at(source, x + 1));
                assert_int_equal(b->positions[at], position);
                assert_int_equal(b->documents[at], document);
                m->predicted[source][epoch % 2][x + 1]++;
                trained += loss;
            }
        xfree(p.p);
    }
    for (; at < end; at++, document++) {
        assert_true(kind != PACK_JOINED);
        assert_int_equal(b->tokens[at], EOS);
        assert_int_equal(b->targets[at], -1);
        assert_int_equal(b->positions[at], 0);
        assert_int_equal(b->documents[at], document);
    }
    return trained;
}

static struct dataset *open_three(const struct made *m, enum pack_kind kind, int64_t parts, bool shuffled)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source sources[SOURCES];
    for (int s = 0; s < SOURCES; s++) sources[s] = (struct dataset_source){.path = m->path[s], .weight = s ? 1 : 2};
    struct dataset_options o = {.sources = sources,
                                .n_sources = SOURCES,
                                .tokenizer = t,
                                .seq_len = SEQ,
                                .seed = 21,
                                .shuffled = shuffled,
                                .reset_positions = true,
                                .mask_boundaries = true,
                                .pack = kind,
                                .window = 40,
                                .parts = parts,
                                .global_batch = GLOBAL};
    struct dataset *d;
    struct err e;
    assert_ok(dataset_open(&d, &o, &e), &e);
    tokenizer_free(t);
    return d;
}

static void check_kind(struct made *m, enum pack_kind kind, int64_t parts)
{
    struct dataset *d = open_three(m, kind, parts, true);
    struct batch whole, part;
    struct err e;
    int64_t first_place[4] = {0}, once[SOURCES] = {0};
    batch_init(&whole, GLOBAL, SEQ);
    batch_init(&part, 2, SEQ);
    for (int s = 0; s < SOURCES; s++) {
        for (int i = 0; i < 2; i++) memset(m->predicted[s][i], 0, (size_t)m->n[s]);
        m->epoch[s] = m->taken[s] = 0;
    }
    for (int64_t step = 0; step < 30; step++) {
        int64_t trained = 0;
        assert_ok(dataset_batch(d, step, GLOBAL, 0, &whole, &e), &e);
        for (int64_t row = 0; row < GLOBAL; row++) {
            int64_t k = step * GLOBAL + row, before[SOURCES], seen = 0;
            memcpy(before, m->taken, sizeof before);
            trained += check_row(d, m, k, &whole, row, kind);
            for (int64_t j = 0; j < parts; j++) {
                int64_t q = dataset_part(d, k, j);
                assert_in_range(q, k * parts, k * parts + parts - 1);
                assert_false(seen >> (q - k * parts) & 1);
                seen |= (int64_t)1 << (q - k * parts);
                if (q == k * parts) first_place[j]++;
            }
            if (parts == 4) /* as the weights say, in every sample */
                for (int s = 0; s < SOURCES; s++) assert_int_equal(m->taken[s] - before[s], s ? 1 : 2);
            for (int s = 0; s < SOURCES; s++) {
                double epochs;
                assert_int_equal(dataset_used(d, (k + 1) * parts, s, &epochs), m->taken[s]);
                int64_t n = dataset_cuts(d, s)->n;
                assert_true(fabs(epochs - (double)m->taken[s] / (double)n) < 1e-12);
                for (int64_t i = 0; i < m->n[s]; i++)
                    assert_true(m->predicted[s][0][i] <= 1 && m->predicted[s][1][i] <= 1);
                if (m->taken[s] == n && !once[s]++) { /* an epoch ends with this sample: all of it, once */
                    int64_t all = 0;
                    for (int64_t i = 0; i < m->n[s]; i++) all += m->predicted[s][0][i];
                    assert_int_equal(all, dataset_cuts(d, s)->n_inputs);
                }
            }
        }
        assert_int_equal(whole.n_trained, trained);
        for (int64_t first = 0; first < GLOBAL; first += 2) {
            assert_ok(dataset_batch(d, step, GLOBAL, first, &part, &e), &e);
            for (int f = 0; f <= BATCH_DOCUMENTS; f++)
                assert_memory_equal(part.field[f], (int32_t *)whole.field[f] + first * SEQ, 2 * SEQ * 4);
        }
    }
    for (int64_t j = 0; j < parts; j++) assert_in_range(first_place[j], 180 / parts / 2, 180 * 3 / parts / 2);
    batch_fini(&whole);
    batch_fini(&part);
    dataset_close(d);
}

static void test_rows(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct made m;
    for (int s = 0; s < SOURCES; s++) {
        m.ends[s] = xcalloc(10000, sizeof(bool));
        m.masked[s] = s == 1;
        m.path[s] = put_source(dir, s, 60 + 20 * s, m.masked[s], m.ends[s], &m.n[s]);
        assert_true(m.n[s] < 10000);
        for (int i = 0; i < 2; i++) m.predicted[s][i] = xcalloc((size_t)m.n[s] + 1, 1);
    }
    for (int kind = PACK_JOINED; kind <= PACK_PADDED; kind++)
        for (int64_t parts = 2; parts <= 4; parts++) check_kind(&m, (enum pack_kind)kind, parts);
    for (int s = 0; s < SOURCES; s++) {
        xfree(m.path[s]);
        xfree(m.ends[s]);
        for (int i = 0; i < 2; i++) xfree(m.predicted[s][i]);
    }
    scratch_free(dir);
}

/* One part is what samples were without parts; in file order parts stand as they come. */
static void test_one_part(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct made m = {0};
    struct batch a, b;
    struct err e;
    for (int s = 0; s < SOURCES; s++) {
        m.ends[s] = xcalloc(10000, sizeof(bool));
        m.path[s] = put_source(dir, s, 60, false, m.ends[s], &m.n[s]);
    }
    batch_init(&a, GLOBAL, SEQ);
    batch_init(&b, GLOBAL, SEQ);
    struct dataset *none = open_three(&m, PACK_BEST_FIT, 0, true), *one = open_three(&m, PACK_BEST_FIT, 1, true),
                   *four = open_three(&m, PACK_BEST_FIT, 4, false);
    for (int64_t step = 0; step < 9; step++) {
        assert_ok(dataset_batch(none, step, GLOBAL, 0, &a, &e), &e);
        assert_ok(dataset_batch(one, step, GLOBAL, 0, &b, &e), &e);
        for (int f = 0; f <= BATCH_DOCUMENTS; f++) assert_memory_equal(a.field[f], b.field[f], GLOBAL * SEQ * 4);
    }
    assert_true(dataset_fingerprint(none) == dataset_fingerprint(one));
    assert_true(dataset_fingerprint(none) != dataset_fingerprint(four));
    for (int64_t k = 0; k < 50; k++)
        for (int64_t j = 0; j < 4; j++) assert_int_equal(dataset_part(four, k, j), 4 * k + j);
    dataset_close(none);
    dataset_close(one);
    dataset_close(four);
    batch_fini(&a);
    batch_fini(&b);
    for (int s = 0; s < SOURCES; s++) {
        xfree(m.path[s]);
        xfree(m.ends[s]);
    }
    scratch_free(dir);
}

/* Weights change with steps, whatever the parts of a sample. */
static void test_weights(void **state)
{
    (void)state;
    static const struct dataset_point early[] = {{0, 1}, {3, 0}}, late[] = {{0, 0}, {3, 1}};
    const struct dataset_source sources[] = {{.path = "early", .points = early, .n_points = 2},
                                             {.path = "late", .points = late, .n_points = 2}};
    struct dataset_options o = {.sources = sources, .n_sources = 2, .global_batch = GLOBAL, .parts = 4};
    struct blend b;
    struct err e;
    assert_ok(weights_check(&o, &e), &e);
    assert_ok(weights_blend(&b, &o, &e), &e);
    for (int64_t k = 0; k < 6 * GLOBAL * 4; k++) {
        int64_t r;
        assert_int_equal(blend_pick(&b, k, &r), k / 4 / GLOBAL >= 3);
        assert_int_equal(r, k % (3 * GLOBAL * 4));
    }
    blend_fini(&b);
}

static void test_refused(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source s = {.path = "nowhere", .weight = 1};
    struct dataset_options o = {.sources = &s, .n_sources = 1, .tokenizer = t, .seq_len = SEQ, .global_batch = 4};
    struct dataset *d;
    struct err e;
    o.parts = 5;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "48 tokens in 5 parts|divisor");
    o.parts = -1;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "divisor");
    o.parts = 4;
    o.group = 2;
    o.pack = PACK_PADDED;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "group|one source|4 parts");
    tokenizer_free(t);
}

/* ---- sources that weigh next to nothing ---- */
static void test_light_sources(void **state)
{
    (void)state;
    struct err e;
    for (int at = 0; at < 3; at++) { /* before the heavy ones, between them, behind */
        double light[] = {1e-7, 1e-11, 1e-13, 1e-15};
        for (int i = 0; i < 4; i++) {
            double w[3] = {1, 0.7, 1.9};
            w[at] = light[i];
            double share = w[at] / (w[0] + w[1] + w[2]);
            struct blend b;
            int64_t from = 0, r, many = (int64_t)(1000 / share);
            blend_init(&b, w, 3, &from, 1);
            int64_t n = blend_count(&b, many, at);
            if (n < 997 || n > 1003) fail_msg("%g at %d: %lld of %lld", light[i], at, (long long)n, (long long)many);
            int64_t lo = 0, hi = many; /* the first sample of it, which is its sample 0 */
            while (hi - lo > 1) {
                int64_t mid = lo + (hi - lo) / 2;
                if (blend_count(&b, mid, at) > 0) hi = mid;
                else lo = mid;
            }
            assert_int_equal(blend_pick(&b, hi - 1, &r), at);
            assert_int_equal(r, 0);
            blend_fini(&b);
        }
        struct dataset_source s[3] = {{.path = "a", .weight = 1},
                                      {.path = "b", .weight = 1},
                                      {.path = "c", .weight = 2}};
        struct dataset_options o = {.sources = s, .n_sources = 3};
        struct blend b;
        s[at].weight = 1e-16;
        assert_err(weights_blend(&b, &o, &e), &e, ERR_REQUEST, "weight 1e-16|less than one sample|leave it out");
        s[at].weight = 1e-15;
        assert_ok(weights_blend(&b, &o, &e), &e);
        blend_fini(&b);
    }
}

/* ---- where documents end ---- */

/* Two documents with an end of text inside one of them: the same tokens, and as many documents. */
static char *put_two(const char *dir, const char *name, bool first)
{
    static const int32_t ids[] = {'a', EOS, 'b', EOS, 'c', EOS};
    struct tokenizer *t = tokenizer_new_byte();
    struct tokenfile_head head = {.vocab = VOCAB, .eos = EOS, .fingerprint = tokenizer_fingerprint(t)};
    struct tokenfile_writer *w;
    struct err e;
    char *path = fs_join(dir, name);
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &head, &e), &e);
    assert_ok(tokenfile_append(w, ids, first ? 3 : 1, &e), &e);
    assert_ok(tokenfile_end_document(w, &e), &e);
    assert_ok(tokenfile_append(w, ids + (first ? 4 : 2), first ? 1 : 3, &e), &e);
    assert_ok(tokenfile_end_document(w, &e), &e);
    assert_ok(tokenfile_publish(w, &e), &e);
    tokenizer_free(t);
    return path;
}

static void test_ends(void **state)
{
    (void)state;
    char *dir = scratch_new();
    uint64_t print[3][2], ends[3][2];
    struct tokenizer *t = tokenizer_new_byte();
    for (int pack = PACK_JOINED; pack <= PACK_PADDED; pack++)
        for (int i = 0; i < 2; i++) {
            char *path = put_two(dir, i ? "x.tok" : "y.tok", i);
            struct dataset_source s = {.path = path, .weight = 1};
            struct dataset_options o = {.sources = &s, .n_sources = 1, .tokenizer = t, .seq_len = 4, .pack = pack};
            struct dataset *d;
            struct err e;
            assert_ok(dataset_open(&d, &o, &e), &e);
            print[pack][i] = dataset_fingerprint(d);
            ends[pack][i] = dataset_ends_fingerprint(d);
            dataset_close(d);
            o.window = 1; /* where windows begin is no matter of the file's */
            assert_ok(dataset_open(&d, &o, &e), &e);
            assert_true(dataset_ends_fingerprint(d) == ends[pack][i]);
            dataset_close(d);
            xfree(path);
        }
    for (int pack = PACK_JOINED; pack <= PACK_PADDED; pack++) {
        assert_true(print[pack][0] == print[pack][1]); /* as checkpoints of earlier versions have it */
        assert_int_equal(ends[pack][0] != ends[pack][1], pack != PACK_JOINED);
    }
    assert_true(ends[PACK_JOINED][0] == 0 && ends[PACK_BEST_FIT][0] == ends[PACK_PADDED][0]);
    tokenizer_free(t);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_one_part),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_weights), cmocka_unit_test(test_light_sources), cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
