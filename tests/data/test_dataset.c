/* SPDX-License-Identifier: Apache-2.0 */
/* Sample order, blending, batches, evaluation, the cache, and fetching ahead. */
#include "data_test.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "data/dataset.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/tokenfile.h"
#include "data/tokenize.h"

/* Every prefix is in proportion, every source's samples are taken in turn, none twice, none left out. */
static void test_blend(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 40; round++) {
        int n = 1 + (int)(dice(&seed) % 17), depth = 0;
        double weights[17], total = 0;
        for (int i = 0; i < n; i++) {
            weights[i] = dice(&seed) % 5 ? (double)(1 + dice(&seed) % 1000) : 0;
            if (i == 0 && weights[i] == 0) weights[i] = 1;
            total += weights[i];
        }
        while (1 << depth < n) depth++;
        struct blend b;
        blend_init(&b, weights, n, (int64_t[]){0}, 1);
        int64_t taken[17] = {0};
        for (int64_t k = 0; k < 3000; k++) {
            int64_t r;
            int s = blend_pick(&b, k, &r);
            assert_in_range(s, 0, n - 1);
            assert_true(weights[s] > 0);
            assert_int_equal(r, taken[s]);
            taken[s]++;
            for (int i = 0; i < n; i++) {
                double fair = (double)(k + 1) * weights[i] / total;
                if ((double)taken[i] > fair + depth + 1e-6 || (double)taken[i] < fair - depth - 1e-6)
                    fail_msg("after %lld: source %d of %d has %lld, fair is %g", (long long)k + 1, i, n,
                             (long long)taken[i], fair);
            }
        }
        blend_fini(&b);
    }
}

static void test_blend_far_out(void **state)
{
    (void)state;
    struct blend b;
    blend_init(&b, (double[]){0.7, 0.2, 0.1}, 3, (int64_t[]){0}, 1);
    const int64_t far = (int64_t)1 << 50;
    int64_t next[3] = {-1, -1, -1};
    for (int64_t k = far; k < far + 1000; k++) {
        int64_t r;
        int s = blend_pick(&b, k, &r);
        if (next[s] >= 0) assert_int_equal(r, next[s]);
        next[s] = r + 1;
    }
    assert_true(next[0] > (int64_t)(0.699999 * (double)far) && next[0] < (int64_t)(0.700001 * (double)far));
    blend_fini(&b);
}

static void test_order(void **state)
{
    (void)state;
    const int64_t n = 1001;
    int64_t first[1001], same = 0, in_place = 0;
    for (int pass = 0; pass < 3; pass++) {
        bool seen[1001] = {false};
        for (int64_t i = 0; i < n; i++) {
            int64_t epoch, s = order_pick(5, 2, true, n, pass * n + i, &epoch);
            assert_int_equal(epoch, pass);
            assert_in_range(s, 0, n - 1);
            assert_false(seen[s]);
            seen[s] = true;
            if (pass == 0) first[i] = s;
            else same += first[i] == s;
            in_place += s == i;
            assert_int_equal(order_pick(5, 2, true, n, pass * n + i, NULL), s);
        }
    }
    assert_true(same < 20 && in_place < 20); /* shuffled, and every epoch anew */
    for (int64_t i = 0; i < 3 * n; i++) assert_int_equal(order_pick(5, 2, false, n, i, NULL), i % n);
    assert_int_not_equal(order_pick(5, 2, true, 1 << 30, 7, NULL), order_pick(6, 2, true, 1 << 30, 7, NULL));
    assert_int_not_equal(order_pick(5, 2, true, 1 << 30, 7, NULL), order_pick(5, 3, true, 1 << 30, 7, NULL));
}

/* A text whose i-th byte is known, so that tokens tell where they come from. */
static char *put_counting(const char *dir, const char *name, size_t n)
{
    char *text = xmalloc(n);
    for (size_t i = 0; i < n; i++) text[i] = (char)(32 + i * 7 % 89);
    char *path = put_file(dir, name, text, n);
    xfree(text);
    return path;
}

static struct dataset *open_one(const char *path, const char *cache, int64_t seq_len, bool shuffled)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source source = {.path = path, .weight = 1};
    struct dataset *d;
    struct err e;
    assert_ok(dataset_open(&d,
                           &(struct dataset_options){.sources = &source,
                                                     .n_sources = 1,
                                                     .tokenizer = t,
                                                     .seq_len = seq_len,
                                                     .seed = 1,
                                                     .shuffled = shuffled,
                                                     .cache_dir = cache},
                           &e),
              &e);
    tokenizer_free(t);
    return d;
}

static void test_sequential_samples_overlap_by_one(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_counting(dir, "t.txt", 1000);
    struct dataset *d = open_one(path, dir, 10, false);
    struct err e;
    int32_t sample[11];
    assert_int_equal(dataset_n_tokens(d), 1001);
    assert_int_equal(dataset_n_samples(d), 100);
    for (int64_t k = 0; k < 250; k++) {
        assert_ok(dataset_sample(d, k, sample, &e), &e);
        for (int64_t i = 0; i <= 10; i++) {
            int64_t at = k % 100 * 10 + i;
            assert_int_equal(sample[i], at == 1000 ? 256 : 32 + at * 7 % 89);
        }
    }
    dataset_close(d);
    xfree(path);
    scratch_free(dir);
}

static uint64_t print_of(const char *dir, const char *text, size_t n, bool shuffled)
{
    char *path = put_file(dir, "same.txt", text, n);
    struct dataset *d = open_one(path, dir, 16, shuffled);
    uint64_t print = dataset_fingerprint(d);
    dataset_close(d);
    xfree(path);
    return print;
}

/* Equal for equal files, whatever the order; other for a change anywhere; also of one sample. */
static void test_fingerprint(void **state)
{
    (void)state;
    char *dir = scratch_new(), text[20000];
    const size_t sizes[] = {16, 40, 64 * 16, sizeof text - 16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], used = n / 16 * 16;
        for (size_t k = 0; k < sizeof text; k++) text[k] = (char)(32 + k * 7 % 89);
        uint64_t want = print_of(dir, text, n, true);
        assert_int_equal(want, print_of(dir, text, n, false));
        assert_int_not_equal(want, print_of(dir, text, n + 1, true));
        size_t places[] = {0, used / 2, used - 1};
        for (int p = 0; p < 3; p++) {
            text[places[p]] ^= 1;
            assert_int_not_equal(want, print_of(dir, text, n, true));
            text[places[p]] ^= 1;
        }
    }
    scratch_free(dir);
}

static void test_batch_parts_make_the_whole(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_counting(dir, "t.txt", 5000);
    struct dataset *d = open_one(path, dir, 16, true);
    struct batch whole, part;
    struct err e;
    batch_init(&whole, 12, 16);
    batch_init(&part, 3, 16);
    for (int64_t step = 0; step < 60; step++) {
        assert_ok(dataset_batch(d, step, 12, 0, &whole, &e), &e);
        int64_t trained = 0;
        for (int64_t first = 0; first < 12; first += 3) {
            assert_ok(dataset_batch(d, step, 12, first, &part, &e), &e);
            assert_memory_equal(part.tokens, whole.tokens + first * 16, 3 * 16 * 4);
            assert_memory_equal(part.targets, whole.targets + first * 16, 3 * 16 * 4);
            trained += part.n_trained;
        }
        assert_int_equal(trained, whole.n_trained);
        assert_int_equal(trained, 12 * 16); /* nothing is masked here */
        for (int64_t i = 0; i < 12 * 16; i++) {
            assert_int_equal(whole.positions[i], i % 16);
            assert_int_equal(whole.documents[i], 0);
            if (i % 16 < 15) assert_int_equal(whole.targets[i], whole.tokens[i + 1]);
        }
    }
    batch_fini(&whole);
    batch_fini(&part);
    dataset_close(d);
    xfree(path);
    scratch_free(dir);
}

static void test_documents(void **state)
{
    (void)state;
    char *dir = scratch_new();
    char *path =
        put_text(dir, "d.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cde\"}\n{\"text\":\"f\"}\n{\"text\":\"ghijk\"}\n");
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source source = {.path = path, .weight = 1};
    struct dataset_options o = {.sources = &source,
                                .n_sources = 1,
                                .tokenizer = t,
                                .seq_len = 14,
                                .cache_dir = dir,
                                .reset_positions = true,
                                .mask_boundaries = true};
    struct dataset *d;
    struct batch b;
    struct err e;
    assert_ok(dataset_open(&d, &o, &e), &e);
    batch_init(&b, 1, 14);
    assert_ok(dataset_batch(d, 0, 1, 0, &b, &e), &e);
    const int32_t positions[] = {0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4};
    const int32_t documents[] = {0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3};
    const int32_t targets[] = {'b', 256, -1, 'd', 'e', 256, -1, 256, -1, 'h', 'i', 'j', 'k', 256};
    assert_memory_equal(b.positions, positions, sizeof positions);
    assert_memory_equal(b.documents, documents, sizeof documents);
    assert_memory_equal(b.targets, targets, sizeof targets);
    assert_int_equal(b.n_trained, 11);
    batch_fini(&b);
    dataset_close(d);
    tokenizer_free(t);
    xfree(path);
    scratch_free(dir);
}

static void test_blended_sources(void **state)
{
    (void)state;
    char *dir = scratch_new(), *a = put_counting(dir, "a.txt", 400), *b_path = put_counting(dir, "b.txt", 90);
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source sources[] = {{.path = a, .weight = 3}, {.path = b_path, .weight = 1}};
    struct dataset_options o = {.sources = sources,
                                .n_sources = 2,
                                .tokenizer = t,
                                .seq_len = 8,
                                .seed = 4,
                                .shuffled = true,
                                .cache_dir = dir};
    struct dataset *d;
    struct err e;
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_n_samples(d), 50 + 11);
    int64_t from[2] = {0};
    int seen_epochs = 0;
    for (int64_t k = 0; k < 400; k++) {
        int source;
        int64_t epoch, sample;
        dataset_where(d, k, &source, &epoch, &sample);
        from[source]++;
        if (epoch > seen_epochs) seen_epochs = (int)epoch;
    }
    assert_int_equal(from[0], 300);
    assert_int_equal(from[1], 100);
    assert_int_equal(seen_epochs, 100 / 11);

    dataset_close(d);
    tokenizer_free(t);
    xfree(a);
    xfree(b_path);
    scratch_free(dir);
}

/* Two sources whose every token is another one: what stands in a batch tells where it comes from. */
enum { A = 1000, B = 777, EVAL_VOCAB = A + B };

static char *put_numbers(const char *dir, const char *name, int from, int n)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct tokenfile_head head = {.vocab = EVAL_VOCAB, .eos = 256, .fingerprint = tokenizer_fingerprint(t)};
    struct tokenfile_writer *w;
    struct err e;
    char *path = fs_join(dir, name);
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &head, &e), &e);
    for (int32_t i = from; i < from + n; i++) assert_ok(tokenfile_append(w, &i, 1, &e), &e);
    assert_ok(tokenfile_publish(w, &e), &e);
    tokenizer_free(t);
    return path;
}

static struct dataset *open_two(const char *a, const char *b, int64_t seq_len, uint64_t seed, double weight)
{
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source sources[] = {{.path = a, .weight = weight}, {.path = b, .weight = 1}};
    struct dataset_options o =
        {.sources = sources, .n_sources = 2, .tokenizer = t, .seq_len = seq_len, .seed = seed, .shuffled = seed % 2};
    struct dataset *d;
    struct err e;
    assert_ok(dataset_open(&d, &o, &e), &e);
    tokenizer_free(t);
    return d;
}

/* How often each token is a target of what is evaluated, read in parts as `ranks` ranks would. */
static void count_targets(const struct dataset *d, int64_t global, int64_t most, int ranks, int *times)
{
    struct batch b;
    struct err e;
    int64_t seq = dataset_seq_len(d), part = global / ranks;
    memset(times, 0, EVAL_VOCAB * sizeof *times);
    batch_init(&b, part, seq);
    for (int64_t i = 0; i < dataset_eval_batches(d, global, most); i++)
        for (int r = 0; r < ranks; r++) {
            assert_ok(dataset_eval_batch(d, i, global, most, r * part, &b, &e), &e);
            int64_t trained = 0;
            for (int64_t k = 0; k < part * seq; k++) {
                if (b.targets[k] < 0) continue;
                assert_int_equal(b.targets[k], b.tokens[k] + 1);
                times[b.targets[k]]++;
                trained++;
            }
            assert_int_equal(b.n_trained, trained);
        }
    batch_fini(&b);
}

/* Of the targets in [lo, hi), the share that was taken once; none may be taken twice. */
static double taken(const int *times, int lo, int hi)
{
    int n = 0;
    for (int i = lo; i < hi; i++) {
        if (times[i] > 1) fail_msg("token %d is evaluated %d times", i, times[i]);
        n += times[i];
    }
    return (double)n / (hi - lo);
}

static void test_evaluation(void **state)
{
    (void)state;
    char *dir = scratch_new(), *a = put_numbers(dir, "a.tok", 0, A), *b = put_numbers(dir, "b.tok", A, B);
    int times[EVAL_VOCAB], other[EVAL_VOCAB];
    for (int64_t seq = 1; seq <= 40; seq += 3)
        for (int64_t most = 0; most < 12; most += 1 + most / 4) {
            struct dataset *d = open_two(a, b, seq, 1, 1), *e = open_two(a, b, seq, 2, 50);
            int64_t samples = (A - 1 + seq - 1) / seq + (B - 1 + seq - 1) / seq,
                    n = most * 6 < samples ? most * 6 : samples;
            bool all = most == 0 || n == samples;
            count_targets(d, 6, most, 1, times);
            assert_int_equal(dataset_eval_batches(d, 6, most), all ? (samples + 5) / 6 : most);
            assert_int_equal(dataset_eval_tokens(d), A - 1 + B - 1);
            assert_true(times[0] == 0 && times[A] == 0); /* nothing comes before a source's first token */
            for (int ranks = 2; ranks <= 6; ranks += ranks == 3 ? 3 : 1) {
                count_targets(d, 6, most, ranks, other);
                assert_memory_equal(times, other, sizeof times);
            }
            count_targets(e, 6, most, 1, other); /* another seed, order and weights: the same samples */
            assert_memory_equal(times, other, sizeof times);
            if (all) {
                if (taken(times, 1, A) < 1 || taken(times, A + 1, A + B) < 1) fail_msg("%lld: not all", (long long)seq);
            } else { /* every stretch of the list has its share, to within one sample at each of its ends */
                double want = (double)(n * seq) / (A + B);
                for (int lo = 0; lo < EVAL_VOCAB - 300; lo += 100)
                    if (fabs(taken(times, lo, lo + 300) - want) * 300 > 2 * (double)seq + 2)
                        fail_msg("sequences of %lld, %lld batches: of tokens %d to %d %.3f are taken, of all %.3f",
                                 (long long)seq, (long long)most, lo, lo + 300, taken(times, lo, lo + 300), want);
            }
            dataset_close(d);
            dataset_close(e);
        }
    xfree(a);
    xfree(b);
    scratch_free(dir);
}

static int count_tok(const char *dir)
{
    char **names;
    int n, found = 0;
    struct err e;
    assert_ok(fs_list(dir, &names, &n, &e), &e);
    for (int i = 0; i < n; i++) found += str_ends(names[i], ".tok");
    fs_list_free(names, n);
    return found;
}

/* A named file that cannot be opened is an error at once, and never taken for one that somebody else is reading. The
 * descriptors that are left serve the lock and the new token file, and not the text. */
static void test_unreadable_text_does_not_wait(void **state)
{
    (void)state;
    char *dir = scratch_new(), *cache = fs_join(dir, "cache"), *path = put_counting(dir, "t.txt", 1000), *file;
    struct tokenizer *t = tokenizer_new_byte();
    struct err e;
    struct rlimit before, few;
    int lowest = dup(0);
    assert_true(lowest > 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)lowest + 2, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int code = tokenize_cached(t, path, NULL, cache, NULL, &file, &e); /* who waited would wait without end */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_err(code, &e, ERR_REQUEST, "t.txt: cannot be read: Too many open files");
    assert_ok(tokenize_cached(t, path, NULL, cache, NULL, &file, &e), &e); /* the lock was let go */
    xfree(file);
    tokenizer_free(t);
    xfree(path);
    xfree(cache);
    scratch_free(dir);
}

static void test_cache(void **state)
{
    (void)state;
    char *dir = scratch_new(), *cache = fs_join(dir, "cache"), *path = put_counting(dir, "t.txt", 1000), *file, *again;
    struct tokenizer *t = tokenizer_new_byte(), *other;
    struct err e;
    assert_ok(tokenize_cached(t, path, NULL, cache, NULL, &file, &e), &e);
    assert_int_equal(truncate(file, 100), 0); /* damage: noticed and made again */
    assert_ok(tokenize_cached(t, path, NULL, cache, NULL, &again, &e), &e);
    assert_string_equal(file, again);
    struct tokenfile f;
    assert_ok(tokenfile_open(&f, file, &e), &e);
    assert_int_equal(f.n_tokens, 1001);
    tokenfile_close(&f);
    xfree(again);
    assert_int_equal(count_tok(cache), 1);
    assert_ok(tokenizer_open(&other, FIXTURE("gpt2.json"), &e), &e); /* another tokenizer, another file */
    assert_ok(tokenize_cached(other, path, NULL, cache, NULL, &again, &e), &e);
    assert_string_not_equal(file, again);
    xfree(again);
    xfree(put_counting(dir, "t.txt", 1001)); /* another text */
    assert_ok(tokenize_cached(t, path, NULL, cache, NULL, &again, &e), &e);
    assert_string_not_equal(file, again);
    xfree(again);
    assert_int_equal(count_tok(cache), 3);

    /* Two processes at once: both end up with the file. */
    xfree(put_counting(dir, "t.txt", 3000000));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(tokenize_cached(t, path, NULL, cache, NULL, &again, &e) ? 1 : 0);
    assert_ok(tokenize_cached(t, path, NULL, cache, NULL, &again, &e), &e);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(tokenfile_open(&f, again, &e), &e);
    assert_int_equal(f.n_tokens, 3000001);
    tokenfile_close(&f);
    xfree(again);
    xfree(file);
    tokenizer_free(t);
    tokenizer_free(other);
    xfree(path);
    xfree(cache);
    scratch_free(dir);
}

static void test_bad_requests(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_counting(dir, "t.txt", 100), *prefix = fs_join(dir, "made.tok");
    struct tokenizer *byte = tokenizer_new_byte(), *other;
    struct tokenize_result r;
    struct dataset *d;
    struct err e;
    assert_ok(tokenizer_open(&other, FIXTURE("gpt2.json"), &e), &e);
    assert_ok(tokenize(byte, (const char *[]){path}, 1, NULL, prefix, 2, &r, &e), &e);
    assert_int_equal(r.tokens, 101);
    struct dataset_source source = {.path = path, .weight = 1};
    struct dataset_options o = {.sources = &source,
                                .n_sources = 1,
                                .tokenizer = byte,
                                .seq_len = 101,
                                .cache_dir = dir};
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "t.txt|101 tokens|needs 102|100 or less");
    assert_null(d);
    o.seq_len = 100;
    assert_ok(dataset_open(&d, &o, &e), &e);
    dataset_close(d);
    o.seq_len = 0;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "sequence length");
    o.seq_len = 10;
    source.weight = -1;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "t.txt|weight");
    source.weight = 0;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "t.txt|weight 0|above 0");
    source = (struct dataset_source){.path = "/nowhere/t", .weight = 1};
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "/nowhere/t|/nowhere/t.tok");
    source.path = prefix;
    o.tokenizer = other;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "made.tok|another tokenizer|257");
    struct tokenfile_head head = {.vocab = 257, .eos = 7, .fingerprint = tokenizer_fingerprint(byte)};
    struct tokenfile_writer *w; /* the same tokenizer, another end of text */
    char *odd = fs_join(dir, "odd.tok");
    assert_ok(tokenfile_create(&w, &(bool){false}, odd, &head, &e), &e);
    for (int i = 0; i < 50; i++) assert_ok(tokenfile_end_document(w, &e), &e);
    assert_ok(tokenfile_publish(w, &e), &e);
    source.path = odd;
    o.tokenizer = byte;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "odd.tok|id 7|256");
    xfree(odd);
    o.n_sources = 0;
    assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "no data");
    xfree(put_file(dir, "bin/x", "\0\0", 2)); /* a folder with nothing but binaries */
    char *bin = fs_join(dir, "bin");
    assert_err(tokenize(byte, (const char *[]){bin}, 1, NULL, prefix, 2, &r, &e), &e, ERR_REQUEST, "bin|holds no text");
    assert_true(fs_exists(prefix)); /* what was there stays */
    xfree(bin);
    tokenizer_free(byte);
    tokenizer_free(other);
    xfree(prefix);
    xfree(path);
    scratch_free(dir);
}

static void test_prefetch(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_counting(dir, "t.txt", 5000);
    struct dataset *d = open_one(path, dir, 16, true);
    struct batch wanted;
    struct err e;
    batch_init(&wanted, 4, 16);
    for (int depth = 1, workers = 1; depth <= 8; workers < depth ? workers++ : (workers = 1, depth *= 2)) {
        struct prefetch *p;
        void *memory = workers % 2 ? NULL : xmalloc(prefetch_bytes(4, 16, 0, depth));
        struct prefetch_config c = {7, 8, 4, 4, depth, workers, memory};
        assert_ok(prefetch_new(&p, d, &c, &e), &e);
        for (int64_t step = 7; step < 60; step++) {
            const struct batch *got;
            assert_ok(prefetch_next(p, &got, &e), &e);
            assert_ok(dataset_batch(d, step, 8, 4, &wanted, &e), &e);
            assert_memory_equal(got->tokens, wanted.tokens, 4 * 16 * 4);
            assert_memory_equal(got->targets, wanted.targets, 4 * 16 * 4);
            assert_int_equal(got->n_trained, wanted.n_trained);
        }
        assert_true(prefetch_waited_s(p) >= 0);
        prefetch_free(p);
        assert_ok(prefetch_new(&p, d, &c, &e), &e);
        prefetch_free(p); /* never used */
        xfree(memory);
    }
    batch_fini(&wanted);
    dataset_close(d);
    xfree(path);
    scratch_free(dir);
}

/* A damaged token is an error at the step that first reads its chunk: the batches before are good, and the error
 * stays. */
static void test_prefetch_error(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_counting(dir, "t.txt", 40000), *tok = fs_join(dir, "x.tok");
    struct tokenizer *t = tokenizer_new_byte();
    struct tokenize_result r;
    struct err e;
    assert_ok(tokenize(t, (const char *[]){path}, 1, NULL, tok, 2, &r, &e), &e);
    FILE *f = fopen(tok, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 4096 + 2 * 33333, SEEK_SET), 0);
    assert_int_equal(fwrite("\xFF\xFF", 1, 2, f), 2);
    assert_int_equal(fclose(f), 0);
    struct dataset *d = open_one(tok, dir, 10, false);
    dataset_close(d);
    for (int workers = 1; workers <= 4; workers++) {
        struct prefetch *p;
        const struct batch *b;
        d = open_one(tok, dir, 10, false);
        assert_ok(prefetch_new(&p, d, &(struct prefetch_config){0, 10, 0, 10, 5, workers, NULL}, &e), &e);
        for (int i = 0; i < 327; i++) assert_ok(prefetch_next(p, &b, &e), &e); /* tokens 0 to 32700; a chunk has 8192 */
        for (int i = 0; i < 2; i++)
            assert_err(prefetch_next(p, &b, &e), &e, ERR_CORRUPT, "batch of step 328|x.tok|tokens 32768 to 40001");
        prefetch_free(p);
        if (workers < 4) dataset_close(d);
    }
    dataset_close(d);
    tokenizer_free(t);
    xfree(tok);
    xfree(path);
    scratch_free(dir);
}

/* ---- a share of the documents is held out ---- */
enum { RECORDS = 200, TWICE = 20 };

/* Records of numbers, the last TWICE of which say what the first ones do. */
static char *put_records(const char *dir, const char *name, int from)
{
    struct str s = {0};
    for (int i = 0; i < RECORDS; i++) {
        int n = i < RECORDS - TWICE ? i : i - (RECORDS - TWICE);
        str_printf(&s, "{\"text\": \"%d is the number %.*s\"}\n", from + n, n % 40,
                   "of this record, which goes on and on, so that");
    }
    char *path = put_file(dir, name, str_text(&s), s.n);
    str_free(&s);
    return path;
}

static struct dataset *open_side(const char *path, const char *cache, double share, bool valid, uint64_t seed,
                                 enum pack_kind pack)
{
    struct err e = {0};
    struct tokenizer *t;
    struct dataset *d;
    assert_ok(tokenizer_open(&t, "byte", &e), &e);
    struct dataset_source source = {.path = path, .weight = 1};
    struct dataset_options o = {.sources = &source,
                                .n_sources = 1,
                                .tokenizer = t,
                                .seq_len = 8,
                                .seed = seed,
                                .pack = pack,
                                .shuffled = !valid,
                                .held = {share, seed, valid},
                                .cache_dir = cache};
    assert_ok(dataset_open(&d, &o, &e), &e);
    tokenizer_free(t);
    return d;
}

/* Which numbers are in a side: how[n] is added to. Returns its documents. */
static int64_t count_numbers(const struct dataset *d, int from, int how[RECORDS])
{
    const struct tokenfile *f = dataset_file(d, 0);
    struct err e = {0};
    for (int64_t i = 0; i < f->n_documents; i++) {
        int64_t begin, end;
        int32_t ids[256];
        char text[257];
        assert_ok(tokenfile_document(f, i, &begin, &end, &e), &e);
        assert_true(end - begin > 1 && end - begin < 256);
        assert_ok(tokenfile_read(f, begin, end - begin, ids, &e), &e);
        for (int64_t k = 0; k < end - begin - 1; k++) text[k] = (char)ids[k];
        text[end - begin - 1] = 0;
        assert_int_equal(ids[end - begin - 1], f->head.eos);
        assert_non_null(strstr(text, " is the number "));
        how[atoi(text) - from]++;
    }
    return f->n_documents;
}

static void test_held_out(void **state)
{
    (void)state;
    char *dir = scratch_new(), *cache = fs_join(dir, "cache"), *path = put_records(dir, "r.jsonl", 1000);
    const double shares[] = {0.05, 0.2, 0.5, 0.0001};
    int before[RECORDS] = {0};
    for (int s = 0; s < 4; s++)
        for (uint64_t seed = 1; seed < 4; seed++) {
            int train[RECORDS] = {0}, valid[RECORDS] = {0}, held = 0;
            struct dataset *a = open_side(path, cache, shares[s], false, seed, PACK_JOINED),
                           *b = open_side(path, cache, shares[s], true, seed,
                                          PACK_PADDED); /* whatever they are packed by */
            int64_t n = count_numbers(a, 1000, train) + count_numbers(b, 1000, valid);
            assert_int_equal(n, RECORDS);
            for (int i = 0; i < RECORDS - TWICE; i++) {
                if (train[i] && valid[i]) fail_msg("%d is in both", i);
                assert_int_equal(train[i] + valid[i], i < TWICE ? 2 : 1);
                held += valid[i] > 0;
            }
            if (s < 3 && (held < shares[s] * RECORDS / 3 || held > shares[s] * RECORDS * 2))
                fail_msg("%d of %d are held out, wanted %g", held, RECORDS, shares[s]);
            assert_true(held >= 1 && held < RECORDS - TWICE);
            if (s == 2 && seed > 1) assert_memory_not_equal(valid, before, sizeof valid); /* the seed decides */
            memcpy(before, valid, sizeof valid);
            uint64_t print = dataset_fingerprint(a);
            dataset_close(a);
            dataset_close(b);
            a = open_side(path, cache, shares[s], false, seed, PACK_JOINED); /* out of the cache */
            assert_true(dataset_fingerprint(a) == print);
            dataset_close(a);
        }
    /* A token file is cut as its text is; more text beside a document moves it to no other side. */
    int from_text[RECORDS] = {0}, from_tokens[RECORDS] = {0}, more[RECORDS] = {0};
    struct dataset *d = open_side(path, cache, 0.2, true, 7, PACK_PADDED),
                   *whole = open_side(path, cache, 0, false, 7, PACK_JOINED);
    count_numbers(d, 1000, from_text);
    dataset_close(d);
    char *tokens = fs_join(dir, "copy.tok"), command[600];
    snprintf(command, sizeof command, "cp %s %s && head -150 %s >%s/less.jsonl", dataset_file(whole, 0)->path, tokens,
             path, dir);
    assert_int_equal(system(command), 0);
    dataset_close(whole);
    d = open_side(tokens, cache, 0.2, true, 7, PACK_PADDED);
    count_numbers(d, 1000, from_tokens);
    dataset_close(d);
    assert_memory_equal(from_text, from_tokens, sizeof from_text);
    char *less = fs_join(dir, "less.jsonl");
    d = open_side(less, cache, 0.2, true, 7, PACK_PADDED);
    count_numbers(d, 1000, more);
    dataset_close(d);
    for (int i = 0; i < 150; i++) assert_int_equal(more[i], from_text[i] > 0);
    /* One document: its end. */
    char *one = put_counting(dir, "one.txt", 1000);
    struct dataset *a = open_side(one, cache, 0.1, false, 1, PACK_JOINED),
                   *b = open_side(one, cache, 0.1, true, 1, PACK_JOINED);
    int32_t last[2];
    struct err e = {0};
    assert_int_equal(dataset_n_tokens(a) + dataset_n_tokens(b), 1002);
    assert_int_equal(dataset_n_tokens(b), 101);
    assert_ok(tokenfile_read(dataset_file(b, 0), 0, 2, last, &e), &e);
    assert_int_equal(last[0], 32 + 900 * 7 % 89);
    dataset_close(a);
    dataset_close(b);
    xfree(one);
    xfree(less);
    xfree(tokens);
    xfree(path);
    xfree(cache);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blend),       cmocka_unit_test(test_blend_far_out),
        cmocka_unit_test(test_order),       cmocka_unit_test(test_sequential_samples_overlap_by_one),
        cmocka_unit_test(test_fingerprint), cmocka_unit_test(test_batch_parts_make_the_whole),
        cmocka_unit_test(test_documents),   cmocka_unit_test(test_blended_sources),
        cmocka_unit_test(test_evaluation),  cmocka_unit_test(test_unreadable_text_does_not_wait),
        cmocka_unit_test(test_cache),       cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_prefetch),    cmocka_unit_test(test_prefetch_error),
        cmocka_unit_test(test_held_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
