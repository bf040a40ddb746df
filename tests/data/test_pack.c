/* SPDX-License-Identifier: Apache-2.0 */
/* Packing documents into samples, batches of them, groups of like length, weights that change. */
#include "data_test.h"

#include <math.h>

#include "data/dataset.h"
#include "data/dataset_weights.h"
#include "data/pack.h"
#include "data/sampler.h"
#include "data/tokenfile.h"

/* ---- packing ---- */

/* Best-fit decreasing, as it is described: every piece looks at all samples. */
static int64_t naive_best_fit(const int64_t *n_tokens, int64_t n, int64_t seq)
{
    int64_t *pieces = xcalloc(100000, sizeof *pieces), *room = xcalloc(100000, sizeof *room), n_pieces = 0,
            n_samples = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t left = n_tokens[i] - 1; left > 0; left -= seq) pieces[n_pieces++] = left < seq ? left : seq;
    for (int64_t len = seq; len > 0; len--)
        for (int64_t i = 0; i < n_pieces; i++) {
            if (pieces[i] != len) continue;
            int64_t best = -1;
            for (int64_t s = 0; s < n_samples; s++)
                if (room[s] >= len && (best < 0 || room[s] < room[best])) best = s;
            if (best < 0) room[best = n_samples++] = seq;
            room[best] -= len;
        }
    xfree(pieces);
    xfree(room);
    return n_samples;
}

/* Every prediction of every document is made once, in pieces that are whole unless the document is longer than a
 * sample; returns the sum over samples of a hash of who is in them, to tell packings apart. */
static uint64_t check_pack(const struct pack *p, const int64_t *n_tokens, int64_t n, int64_t seq, bool padded)
{
    int64_t *covered = xcalloc((size_t)n, sizeof *covered);
    uint64_t look = 0;
    for (int64_t s = 0; s < p->n_samples; s++) {
        int64_t used = 0;
        assert_true(p->first[s] < p->first[s + 1]);
        if (padded) assert_int_equal(p->first[s + 1] - p->first[s], 1);
        for (int64_t i = p->first[s]; i < p->first[s + 1]; i++) {
            const struct pack_piece *x = &p->pieces[i];
            assert_in_range(x->document, 0, n - 1);
            assert_true(x->n >= 1 && x->begin % seq == 0 && x->begin + x->n <= n_tokens[x->document] - 1);
            assert_true(x->n == seq || x->begin + x->n == n_tokens[x->document] - 1);
            covered[x->document] += x->n;
            used += x->n;
            look = look * 31 + (uint64_t)(x->document * 1000 + x->begin + s);
        }
        assert_true(used <= seq);
    }
    for (int64_t i = 0; i < n; i++) assert_int_equal(covered[i], n_tokens[i] > 1 ? n_tokens[i] - 1 : 0);
    assert_int_equal(p->first[p->n_samples], p->n_pieces);
    xfree(covered);
    return look;
}

/* Padded in groups: pieces of like length together, as many as fit of the next in length, samples by attention. */
static void check_lined_up(const struct pack *p, const int64_t *n_tokens, int64_t n, int64_t seq)
{
    int64_t *of_length = xcalloc((size_t)seq + 1, sizeof *of_length), n_samples = 0, room = 0, area = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t left = n_tokens[i] - 1; left > 0; left -= seq) of_length[left < seq ? left : seq]++;
    for (int64_t len = seq; len > 0; len--)
        for (int64_t i = 0; i < of_length[len]; i++) {
            if (len > room) room = seq, n_samples++;
            room -= len;
        }
    xfree(of_length);
    assert_int_equal(p->n_samples, n_samples);
    for (int64_t s = 0; s < p->n_samples; s++) {
        int64_t least = seq, most = 0, was = area;
        area = 0;
        for (int64_t i = p->first[s]; i < p->first[s + 1]; i++) {
            int64_t len = p->pieces[i].n;
            least = len < least ? len : least;
            most = len > most ? len : most;
            area += len * len;
        }
        assert_true(was <= area);
        for (int64_t i = 0; i < p->n_pieces; i++) /* nobody of another sample is between those of this one */
            if (i < p->first[s] || i >= p->first[s + 1]) assert_false(p->pieces[i].n > least && p->pieces[i].n < most);
    }
}

static void test_packing(void **state)
{
    (void)state;
    uint64_t seed = 11;
    const int64_t seqs[] = {1, 2, 63, 64, 65, 100, 1000, 4096, 5000};
    for (size_t q = 0; q < sizeof seqs / sizeof *seqs; q++)
        for (int round = 0; round < 4; round++) {
            int64_t seq = seqs[q], n = round ? (int64_t)(dice(&seed) % 300) : 0, n_tokens[300], all = 0;
            for (int64_t i = 0; i < n; i++) {
                uint64_t most = round == 1   ? 2 * (uint64_t)seq + 3
                                : round == 2 ? (uint64_t)seq / 3 + 2
                                             : (uint64_t)seq + 2;
                n_tokens[i] = (int64_t)(dice(&seed) % most);
                all += n_tokens[i] > 1 ? n_tokens[i] - 1 : 0;
            }
            struct pack p, other;
            struct pack_options o = {.kind = PACK_BEST_FIT, .seq = seq};
            pack_documents(&p, &o, n_tokens, n);
            uint64_t plain = check_pack(&p, n_tokens, n, seq, false);
            assert_int_equal(p.n_samples, naive_best_fit(n_tokens, n, seq));
            assert_true(p.n_samples * seq >= all && p.n_samples <= 2 * all / seq + 1);
            for (int s = 0; s < 3; s++) {
                o.shuffled = true;
                o.shuffle = dice(&seed);
                o.by_area = s == 2;
                pack_documents(&other, &o, n_tokens, n);
                uint64_t look = check_pack(&other, n_tokens, n, seq, false);
                assert_int_equal(other.n_samples, p.n_samples);
                if (n > 100 && seq > 2) assert_true(look != plain);
                pack_fini(&other);
            }
            pack_fini(&p);
            o = (struct pack_options){.kind = PACK_PADDED, .seq = seq, .by_area = true};
            pack_documents(&p, &o, n_tokens, n);
            uint64_t apart = check_pack(&p, n_tokens, n, seq, false);
            check_lined_up(&p, n_tokens, n, seq);
            o.shuffled = true;
            o.shuffle = dice(&seed);
            pack_documents(&other, &o, n_tokens, n);
            check_lined_up(&other, n_tokens, n, seq);
            uint64_t look = check_pack(&other, n_tokens, n, seq, false);
            if (n > 100 && seq > 2) assert_true(look != apart);
            pack_fini(&other);
            pack_fini(&p);
            o.by_area = false;
            pack_documents(&p, &o, n_tokens, n);
            check_pack(&p, n_tokens, n, seq, true);
            pack_fini(&p);
        }
}

/* ---- data sets ---- */
enum { VOCAB = 257 };

/* Token i of the file is i % 256 unless it ends a text, so that tokens tell where they come from; lengths are without
 * the end of text. */
static char *put_documents(const char *dir, const char *name, const int64_t *lengths, int64_t n, bool masked)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct tokenfile_head head = {.vocab = VOCAB, .eos = 256, .fingerprint = tokenizer_fingerprint(t)};
    struct tokenfile_writer *w;
    struct err e;
    char *path = fs_join(dir, name);
    int64_t at = 0;
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &head, &e), &e);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < lengths[i]; k++, at++) {
            int32_t id = (int32_t)(at % 256);
            unsigned char trained = !masked || at % 3 != 1;
            assert_ok(tokenfile_append_masked(w, &id, &trained, 1, &e), &e);
        }
        assert_ok(tokenfile_end_document(w, &e), &e);
        at++;
    }
    assert_ok(tokenfile_publish(w, &e), &e);
    tokenizer_free(t);
    return path;
}

static struct dataset *open_with(struct dataset_options o, const struct dataset_source *sources, int n)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset *d;
    struct err e;
    o.sources = sources;
    o.n_sources = n;
    o.tokenizer = t;
    o.seed = o.seed ? o.seed : 5;
    assert_ok(dataset_open(&d, &o, &e), &e);
    tokenizer_free(t);
    return d;
}

/* A row of a batch of packed documents, held against the pieces it is said to be made of. Marks what was predicted. */
static void check_row(const struct dataset *d, int64_t k, const struct batch *b, int64_t row, bool masked,
                      char *predicted)
{
    struct cuts_pieces p;
    struct err e;
    int64_t at = row * b->seq_len, end = at + b->seq_len;
    assert_ok(dataset_pieces(d, k, &p, &e), &e);
    const struct tokenfile *f = dataset_file(d, 0);
    for (int64_t i = 0; i < p.n; i++) {
        int64_t from, to;
        assert_ok(tokenfile_document(f, p.p[i].document, &from, &to, &e), &e);
        assert_true(p.p[i].begin >= from && p.p[i].begin + p.p[i].n < to);
        for (int64_t j = 0; j < p.p[i].n; j++, at++) {
            int64_t token = p.p[i].begin + j;
            assert_int_equal(b->tokens[at], token % 256);
            bool end_of_text = token + 1 == to - 1, trained = end_of_text || !masked || (token + 1) % 3 != 1;
            assert_int_equal(b->targets[at], !trained ? -1 : end_of_text ? 256 : (token + 1) % 256);
            assert_int_equal(b->positions[at], j);
            assert_int_equal(b->documents[at], i);
            if (predicted) assert_int_equal(predicted[token + 1]++, 0);
        }
    }
    for (int64_t i = p.n; at < end; at++, i++) {
        assert_int_equal(b->tokens[at], 256);
        assert_int_equal(b->targets[at], -1);
        assert_int_equal(b->positions[at], 0);
        assert_int_equal(b->documents[at], i);
    }
    xfree(p.p);
}

/* Some lengths: most short, one longer than a sample, some empty. */
static int64_t some_lengths(int64_t *lengths, int64_t n, int64_t most)
{
    uint64_t seed = 77;
    int64_t all = 0;
    for (int64_t i = 0; i < n; i++) {
        lengths[i] = i % 29 == 3 ? 0 : i == 40 ? 5 * most + 2 : (int64_t)(dice(&seed) % (uint64_t)most);
        all += lengths[i] + 1;
    }
    return all;
}

/* A number of who is in a sample, whatever the order of samples. */
static uint64_t company(const struct dataset *d, int64_t k)
{
    struct cuts_pieces p;
    struct err e;
    uint64_t all = 1;
    assert_ok(dataset_pieces(d, k, &p, &e), &e);
    for (int64_t i = 0; i < p.n; i++) all = all * 1000003 + (uint64_t)p.p[i].begin;
    xfree(p.p);
    return all * all;
}

static void test_packed_batches(void **state)
{
    (void)state;
    char *dir = scratch_new();
    int64_t lengths[600], n_tokens = some_lengths(lengths, 600, 40);
    for (int kind = PACK_BEST_FIT; kind <= PACK_PADDED; kind++)
        for (int masked = 0; masked < 2; masked++)
            for (int64_t group = 0; group <= 4; group += 4) {
                char *path = put_documents(dir, "x.tok", lengths, 600, masked);
                struct dataset_source source = {.path = path, .weight = 1};
                struct dataset *d = open_with((struct dataset_options){.seq_len = 50,
                                                                       .shuffled = true,
                                                                       .window = 37,
                                                                       .pack = (enum pack_kind)kind,
                                                                       .group = group,
                                                                       .global_batch = 8},
                                              &source, 1);
                struct batch whole, part;
                struct err e;
                batch_init(&whole, 8, 50);
                batch_init(&part, 3, 50);
                int64_t n = dataset_n_samples(d), per_epoch = group ? (n + group - 1) / group * group : n, other = 0;
                uint64_t look[2] = {0, 0}, met[2] = {0, 0};
                char *predicted = xcalloc((size_t)n_tokens, 1);
                int64_t padded = 0, trained = 0;
                for (int64_t k = 0; k < 2 * per_epoch; k++) {
                    int64_t row = k % 8, sample, epoch, last = k - row + 7;
                    int s;
                    if (row == 0) assert_ok(dataset_batch(d, k / 8, 8, 0, &whole, &e), &e);
                    if (k == per_epoch) memset(predicted, 0, (size_t)n_tokens);
                    check_row(d, k, &whole, row, masked, predicted);
                    dataset_where(d, k, &s, &epoch, &sample);
                    assert_int_equal(epoch, k / per_epoch);
                    met[epoch] += company(d, k);
                    look[epoch] = look[epoch] * 31 + (uint64_t)whole.tokens[row * 50];
                    if (k % per_epoch == per_epoch - 1) /* every prediction of every document, once */
                        for (int64_t i = 0, at = 0; i < 600; at += lengths[i++] + 1)
                            for (int64_t j = 0; j <= lengths[i]; j++) assert_int_equal(predicted[at + j], j > 0);
                    if (last < per_epoch && row == 7) {
                        padded += whole.n_padded;
                        trained += whole.n_trained;
                    }
                    if (k % 5) continue; /* any split over ranks has the same rows */
                    assert_ok(dataset_batch(d, k / 8, 8, row < 5 ? row : 5, &part, &e), &e);
                    for (int f = 0; f <= BATCH_DOCUMENTS; f++)
                        assert_memory_equal(part.field[f], (int32_t *)whole.field[f] + (row < 5 ? row : 5) * 50,
                                            150 * 4);
                    other++;
                }
                assert_true(look[0] != look[1] && other > 10 && trained > 0);
                double share = (double)padded / (double)(per_epoch / 8 * 8 * 50);
                assert_true(fabs(share - dataset_padding(d, 0)) < 0.06);
                bool alone = kind == PACK_PADDED && !group;
                if (kind == PACK_BEST_FIT) assert_true(dataset_padding(d, 0) < 0.12);
                else
                    assert_true(alone ? dataset_padding(d, 0) > 0.5
                                      : dataset_padding(d, 0) < 0.35); /* what groups save */
                assert_int_equal(met[0] != met[1], !alone);            /* documents meet others in every epoch */
                batch_fini(&whole);
                batch_fini(&part);
                dataset_close(d);
                xfree(predicted);
                xfree(path);
            }
    scratch_free(dir);
}

/* Samples of a group are of like length, those of one step are one group, and no group is of two sources. */
static void test_groups(void **state)
{
    (void)state;
    char *dir = scratch_new();
    int64_t lengths[600];
    some_lengths(lengths, 600, 40);
    char *a = put_documents(dir, "a.tok", lengths, 600, false), *b = put_documents(dir, "b.tok", lengths, 300, false);
    struct dataset_source sources[] = {{.path = a, .weight = 2}, {.path = b, .weight = 1}};
    struct dataset *d = open_with((struct dataset_options){.seq_len = 50,
                                                           .shuffled = true,
                                                           .window = 600,
                                                           .pack = PACK_PADDED,
                                                           .group = 8,
                                                           .global_batch = 8},
                                  sources, 2);
    struct err e;
    int64_t taken[2] = {0}, spread = 0, n_groups = 0;
    for (int64_t g = 0; g < 300; g++) {
        int source[8];
        int64_t least = 100, most = 0;
        for (int64_t i = 0; i < 8; i++) {
            int64_t epoch, sample;
            struct cuts_pieces p;
            dataset_where(d, 8 * g + i, &source[i], &epoch, &sample);
            assert_int_equal(source[i], source[0]);
            assert_ok(dataset_pieces(d, 8 * g + i, &p, &e), &e);
            for (int64_t k = 0; k < p.n; k++) {
                least = p.p[k].n < least ? p.p[k].n : least;
                most = p.p[k].n > most ? p.p[k].n : most;
            }
            xfree(p.p);
            taken[source[0]]++;
        }
        spread += most - least;
        n_groups++;
        for (int s = 0; s < 2; s++) {
            double epochs;
            assert_int_equal(dataset_used(d, 8 * g + 8, s, &epochs), taken[s]);
            assert_true(epochs > 0 || !taken[s]);
        }
    }
    assert_int_equal(taken[0], 2 * taken[1]);
    assert_true((double)spread / (double)n_groups <
                6); /* of lengths from 1 to 50, side by side: a group is 20 documents or more */
    dataset_close(d);
    xfree(a);
    xfree(b);
    scratch_free(dir);
}

/* Evaluation of packed documents: every prediction once, whatever the seed. */
static void test_packed_evaluation(void **state)
{
    (void)state;
    char *dir = scratch_new();
    int64_t lengths[200], n_tokens = some_lengths(lengths, 200, 30), wanted = 0;
    for (int64_t i = 0; i < 200; i++) wanted += lengths[i];
    char *path = put_documents(dir, "x.tok", lengths, 200, false);
    struct dataset_source source = {.path = path, .weight = 1};
    for (int kind = PACK_BEST_FIT; kind <= PACK_PADDED; kind++) {
        uint64_t sum[2] = {0};
        for (int s = 0; s < 2; s++) {
            struct dataset *d = open_with((struct dataset_options){.seq_len = 32,
                                                                   .shuffled = true,
                                                                   .seed = 3 + (uint64_t)s,
                                                                   .pack = (enum pack_kind)kind,
                                                                   .window = 50},
                                          &source, 1);
            struct batch b;
            struct err e;
            int64_t trained = 0;
            batch_init(&b, 6, 32);
            for (int64_t i = 0; i < dataset_eval_batches(d, 6, 0); i++) {
                assert_ok(dataset_eval_batch(d, i, 6, 0, 0, &b, &e), &e);
                trained += b.n_trained;
                for (int64_t k = 0; k < 6 * 32; k++) sum[s] = sum[s] * 31 + (uint64_t)b.targets[k];
            }
            assert_int_equal(trained, wanted);
            assert_int_equal(trained, dataset_eval_tokens(d));
            batch_fini(&b);
            dataset_close(d);
        }
        assert_int_equal(sum[0], sum[1]);
    }
    assert_true(n_tokens > wanted);
    xfree(path);
    scratch_free(dir);
}

/* ---- weights ---- */

/* What a source's weight is at a step, by the words of the header. */
static double weight_of(const struct dataset_source *s, int64_t step, bool ramps)
{
    double w = s->n_points ? s->points[0].weight : s->weight;
    for (int i = 0; i < s->n_points; i++) {
        const struct dataset_point *p = &s->points[i];
        if (p->step > step) break;
        w = p->weight;
        if (ramps && i + 1 < s->n_points)
            w += (p[1].weight - p->weight) * (double)(step - p->step) / (double)(p[1].step - p->step);
    }
    return w;
}

static void test_weights_by_step(void **state)
{
    (void)state;
    static const struct dataset_point fall[] = {{0, 1}, {100, 0.5}, {300, 0}, {400, 2}}, rise[] = {{50, 0}, {250, 3}},
                                      late[] = {{200, 0}, {201, 1}};
    const struct dataset_source sources[] = {{.path = "fall", .points = fall, .n_points = 4},
                                             {.path = "rise", .points = rise, .n_points = 2},
                                             {.path = "plain", .weight = 1},
                                             {.path = "late", .points = late, .n_points = 2}};
    const int64_t batch = 12;
    for (int ramps = 0; ramps < 2; ramps++)
        for (int64_t group = 0; group < 5; group += 4) {
            struct dataset_options o = {.sources = sources,
                                        .n_sources = 4,
                                        .global_batch = batch,
                                        .group = group,
                                        .ramps = ramps};
            struct blend b;
            struct err e;
            int64_t taken[4] = {0}, per = group ? group : 1;
            double fair[4] = {0};
            assert_ok(weights_check(&o, &e), &e);
            assert_ok(weights_blend(&b, &o, &e), &e);
            for (int64_t k = 0; k < 500 * batch / per; k++) {
                int64_t r, step = k * per / batch;
                double sum = 0;
                int s = blend_pick(&b, k, &r);
                assert_int_equal(r, taken[s]); /* in turn: none twice, none left out, across phases */
                taken[s]++;
                assert_true(weight_of(&sources[s], step, ramps) > 0 || (ramps && step > 0));
                for (int i = 0; i < 4; i++) sum += weight_of(&sources[i], step, ramps);
                for (int i = 0; i < 4; i++) {
                    fair[i] += weight_of(&sources[i], step, ramps) / sum;
                    if (k % 97 == 0) assert_int_equal(blend_count(&b, k + 1, i), taken[i]);
                    if (fabs((double)taken[i] - fair[i]) > 2 + 1e-6)
                        fail_msg("%d %lld: after %lld: source %d has %lld, fair is %g", ramps, (long long)group,
                                 (long long)k + 1, i, (long long)taken[i], fair[i]);
                }
            }
            blend_fini(&b);
        }
}

/* A ramp longer than its stairs: what each source has had at its end is what lines give. */
static void test_long_ramp(void **state)
{
    (void)state;
    static const struct dataset_point down[] = {{0, 1}, {100000, 0}}, up[] = {{0, 0}, {100000, 1}};
    const struct dataset_source sources[] = {{.path = "down", .points = down, .n_points = 2},
                                             {.path = "up", .points = up, .n_points = 2}};
    struct dataset_options o = {.sources = sources, .n_sources = 2, .global_batch = 8, .ramps = true};
    struct blend b;
    struct err e;
    assert_ok(weights_blend(&b, &o, &e), &e);
    assert_in_range(b.n_phases, 256, 258);
    for (int64_t k = 0; k <= 800000; k += 3125) { /* of the ends of stairs */
        double x = (double)k / 800000, fair = 800000 * (x * x / 2);
        assert_true(fabs((double)blend_count(&b, k, 1) - fair) < 10);
    }
    assert_in_range(blend_count(&b, 800000, 1), 399995, 400005);
    assert_int_equal(blend_count(&b, 900000, 1) - blend_count(&b, 800000, 1), 100000);
    blend_fini(&b);
}

static void test_refused(void **state)
{
    (void)state;
    char *dir = scratch_new();
    int64_t lengths[] = {0, 0, 0};
    char *path = put_documents(dir, "x.tok", lengths, 3, false);
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source s = {.path = path, .weight = 1};
    struct dataset_options o = {.sources = &s, .n_sources = 1, .tokenizer = t, .seq_len = 8, .pack = PACK_BEST_FIT};
    struct dataset *d;
    struct err e;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "x.tok|none of its 3 documents");
    o.pack = PACK_JOINED;
    o.group = 2;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "joined|group");
    o.pack = PACK_PADDED;
    o.global_batch = 3;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "2 samples|batches of 3|divisor");
    o.group = 0;
    const struct dataset_point bad[][2] = {{{0, 0}, {5, 0}},   {{3, 1}, {3, 2}},  {{4, 1}, {3, 2}},
                                           {{0, NAN}, {5, 1}}, {{0, -1}, {5, 1}}, {{0, INFINITY}, {5, 1}},
                                           {{-1, 1}, {5, 1}},  {{0, 1}, {5, 0}}};
    const char *const words[] = {"never be used",   "steps rise",      "steps rise", "wanted a number",
                                 "wanted a number", "wanted a number", "steps rise", "add up to 0 at step 5"};
    lengths[0] = 5;
    xfree(path);
    path = put_documents(dir, "x.tok", lengths, 3, false);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        s = (struct dataset_source){.path = path, .points = bad[i], .n_points = 2};
        assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, words[i]);
    }
    s = (struct dataset_source){.path = path, .weight = 0};
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "x.tok|weight 0|above 0");
    s.weight = NAN;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "x.tok|weight|above 0");
    tokenizer_free(t);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),         cmocka_unit_test(test_packed_batches),
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_packed_evaluation),
        cmocka_unit_test(test_weights_by_step), cmocka_unit_test(test_long_ramp),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
