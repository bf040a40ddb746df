/* SPDX-License-Identifier: Apache-2.0 */
/* suite: threads */
/* suite: wraps write flock */
/* Tokenizing on several threads and going on: the same file byte for byte for any number of threads and sizes of parts,
 * after a kill at any write, a failure of any write, and damage anywhere in the work file, which is not believed. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "base/conveyor.h"
#include "data/tokenize.h"
#include "data/tokenize_run.h"
#include "data/tokenize_work_format.h"
#include "data_test.h"
#include "sanitized.h"
#include "source/source.h"

/* -- writes that fail, or end the process, half done ---------------------------------------------------------- */

static struct {
    int64_t n, fail_at, kill_at; /* writes to files so far; 0: none */
} writes;
ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (fd <= 2) return __real_write(fd, p, n);
    writes.n++;
    if (writes.n == writes.kill_at) {
        if (n > 1) __real_write(fd, p, n / 2);
        kill(getpid(), SIGKILL);
    }
    if (writes.n != writes.fail_at) return __real_write(fd, p, n);
    if (n > 1 && writes.n % 2) return __real_write(fd, p, n / 2); /* a disk that is nearly full; the next call fails */
    errno = ENOSPC;
    return -1;
}

/* -- the conveyor ------------------------------------------------------------------------------------------- */

struct belt {
    int n, stop_at, fail; /* items; the item at which `fail` (1 read, 2 work, 3 deliver) happens */
    int n_read, n_delivered, follow_every;
    atomic_int worked[400];
};

struct numbered {
    int i;
};

static int belt_read(void *arg, void *item, bool *follows, struct err *e)
{
    struct belt *b = arg;
    int i = b->n_read;
    if (i == b->n) return 0;
    if (b->fail == 1 && i == b->stop_at) return err_set(e, ERR_IO, "read %d", i);
    ((struct numbered *)item)->i = i;
    *follows = i > 0 && i % b->follow_every != 0;
    b->n_read++;
    return 1;
}

static int belt_work(void *arg, int member, void *item, struct err *e)
{
    struct belt *b = arg;
    int i = ((struct numbered *)item)->i;
    (void)member;
    if (i > 0 && i % b->follow_every != 0) assert_int_equal(atomic_load(&b->worked[i - 1]), 1);
    assert_int_equal(atomic_fetch_add(&b->worked[i], 1), 0);
    return b->fail == 2 && i >= b->stop_at ? err_set(e, ERR_CORRUPT, "work %d", i) : OK;
}

static int belt_deliver(void *arg, void *item, struct err *e)
{
    struct belt *b = arg;
    int i = ((struct numbered *)item)->i;
    assert_int_equal(i, b->n_delivered);
    assert_int_equal(atomic_load(&b->worked[i]), 1);
    if (b->fail == 3 && i == b->stop_at) return err_set(e, ERR_IO, "deliver %d", i);
    b->n_delivered++;
    return OK;
}

static void test_conveyor(void **state)
{
    (void)state;
    static const struct conveyor_ops ops = {belt_read, belt_work, belt_deliver};
    for (int k = 0; k < 240 / CASE_STRIDE; k++) {
        struct belt b = {.n = k % 7 == 0 ? k % 3 : 50 + k % 300,
                         .fail = k % 4,
                         .stop_at = k % 40,
                         .follow_every = 1 + k % 5};
        struct numbered items[9];
        void *list[9];
        for (int i = 0; i < 9; i++) list[i] = &items[i];
        struct err e = {0};
        int code = conveyor_run(&ops, &b, list, 1 + k % 9, 1 + k % 6, &e);
        bool fails = b.fail && b.stop_at < b.n;
        assert_int_equal(b.n_delivered, fails ? b.stop_at : b.n);
        assert_int_equal(code, !fails ? OK : b.fail == 2 ? ERR_CORRUPT : ERR_IO);
        char text[32];
        snprintf(text, sizeof text, "%s %d", b.fail == 1 ? "read" : b.fail == 2 ? "work" : "deliver", b.stop_at);
        if (fails) assert_string_equal(e.text, text);
    }
}

/* Several belts: each has an order of its own, and one item at a time is delivered. */
enum { BELTS = 4 };
struct side {
    struct belt belts[BELTS];
    atomic_int delivering, reading[BELTS];
};
struct sided {
    struct numbered item; /* first, so that what works on a numbered item can */
    int belt;
};

static int sides_read(void *arg, void *item, bool *follows, struct err *e)
{
    struct side *s = arg;
    int belt = ((struct sided *)item)->belt;
    assert_int_equal(atomic_fetch_add(&s->reading[belt], 1), 0);
    int got = belt_read(&s->belts[belt], item, follows, e);
    assert_int_equal(atomic_fetch_sub(&s->reading[belt], 1), 1);
    return got;
}

static int sides_work(void *arg, int member, void *item, struct err *e)
{
    struct side *s = arg;
    return belt_work(&s->belts[((struct sided *)item)->belt], member, item, e);
}

static int sides_deliver(void *arg, void *item, struct err *e)
{
    struct side *s = arg;
    assert_int_equal(atomic_fetch_add(&s->delivering, 1), 0);
    int code = belt_deliver(&s->belts[((struct sided *)item)->belt], item, e);
    assert_int_equal(atomic_fetch_sub(&s->delivering, 1), 1);
    return code;
}

static void test_belts(void **state)
{
    (void)state;
    static const struct conveyor_ops ops = {sides_read, sides_work, sides_deliver};
    for (int k = 0; k < 120 / CASE_STRIDE; k++) {
        struct side s = {.delivering = 0};
        int n_belts = 2 + k % (BELTS - 1), n_each = 1 + k % 3, failing = k % 4 ? k % n_belts : -1;
        struct sided items[BELTS * 3];
        void *list[BELTS * 3];
        for (int i = 0; i < n_belts * n_each; i++) {
            items[i].belt = i / n_each;
            list[i] = &items[i];
        }
        for (int i = 0; i < n_belts; i++) s.belts[i] = (struct belt){.n = 10 * i + k, .follow_every = 1 + k % 5};
        if (failing >= 0)
            s.belts[failing] = (struct belt){.n = 60, .follow_every = 1, .fail = k % 4, .stop_at = k % 40};
        struct err e = {0};
        int code = conveyor_run_belts(&ops, &s, list, n_belts, n_each, 1 + k % 6, &e);
        assert_int_equal(code, failing < 0 ? OK : k % 4 == 2 ? ERR_CORRUPT : ERR_IO);
        for (int i = 0; i < n_belts; i++) {
            if (failing < 0) assert_int_equal(s.belts[i].n_delivered, s.belts[i].n);
            if (i == failing) assert_int_equal(s.belts[i].n_delivered, s.belts[i].stop_at);
        }
    }
}

/* -- texts -------------------------------------------------------------------------------------------------- */

static const struct parts_sizes small = {.stretch = 700, .part = 1500, .most = 4000};

struct texts {
    char *dir, *paths[4];
    int n_paths;
    bool skip_bad;
    int64_t unit_bytes;   /* of what is read at once (source_options); 0: the usual, more than there is */
    struct str documents; /* all, each followed by \1 */
};

static void add_words(struct str *s, uint64_t seed, int n, bool spaces)
{
    static const char *const words[] = {"the",
                                        "Quick",
                                        "\xC3\xBC"
                                        "ber",
                                        "12",
                                        "\xE4\xB8\x96\xE7\x95\x8C",
                                        "x=1;",
                                        "\xFF",
                                        "'s",
                                        "!?",
                                        "<|endoftext|>"};
    for (int i = 0; i < n; i++) {
        str_puts(s, words[rng_u32(seed, 1, (uint64_t)i) % 10]);
        if (spaces) str_putc(s, " \n  \t"[rng_u32(seed, 2, (uint64_t)i) % 5]);
    }
}

/* A text with seams, one without any, records, and a file in a folder that is no text. */
static void make_texts(struct texts *t)
{
    struct str text = {0}, long_word = {0}, records = {0};
    *t = (struct texts){.dir = scratch_new(), .n_paths = 4, .unit_bytes = 5000};
    add_words(&text, 1, 4000 / (SANITIZED ? 2 : 1), true);
    add_words(&long_word, 2, 2500, false);
    str_add(&t->documents, text.p, text.n);
    str_putc(&t->documents, 1);
    str_add(&t->documents, long_word.p, long_word.n);
    str_putc(&t->documents, 1);
    for (int i = 0; i < 300; i++) {
        char one[100];
        snprintf(one, sizeof one, "record %d of a text, and %d more of it", i, i * i);
        str_printf(&records, "{\"text\": \"%s\"}\n", one);
        str_printf(&t->documents, "%s\1", one);
    }
    t->paths[0] = put_file(t->dir, "a.txt", text.p, text.n);
    t->paths[1] = put_file(t->dir, "b.txt", long_word.p, long_word.n);
    t->paths[2] = put_file(t->dir, "c.jsonl", records.p, records.n);
    t->paths[3] = put_file(t->dir, "folder/no.bin", "\0\0\0\0", 4);
    xfree(t->paths[3]);
    xfree(put_text(t->dir, "folder/z.txt", "the last one"));
    t->paths[3] = fs_join(t->dir, "folder");
    str_puts(&t->documents, "the last one\1");
    str_free(&text);
    str_free(&long_word);
    str_free(&records);
}

static void free_texts(struct texts *t)
{
    for (int i = 0; i < 4; i++) xfree(t->paths[i]);
    str_free(&t->documents);
    scratch_free(t->dir);
}

static uint64_t key_now(const struct tokenizer *t, const struct source *s)
{
    return source_key(s) ^ tokenizer_fingerprint(t);
}

static int run_once(const struct texts *x, const struct tokenizer *t, const char *out, int n_threads,
                    const struct parts_sizes *sizes, int64_t work_from, struct tokenize_result *r, struct err *e)
{
    struct source *s;
    struct str told = {0};
    struct bad_list bad;
    bool busy;
    struct source_options o = {.skip_bad = x->skip_bad,
                               .tell_bad = tokenize_tell,
                               .tell_ctx = &told,
                               .unit_bytes = x->unit_bytes};
    assert_ok(source_open_with(&s, (const char *const *)x->paths, x->n_paths, &o, e), e);
    bad_list_init(&bad, out);
    struct tokenfile_head head = {.vocab = tokenizer_vocab(t), .eos = tokenizer_eos(t), .key = key_now(t, s)};
    struct tokenfile_writer *w;
    struct tokenize_run run = {.tokenizer = t,
                               .source = s,
                               .out_path = out,
                               .key = head.key,
                               .work_from = work_from,
                               .sizes = sizes,
                               .told = &told,
                               .bad = &bad,
                               .n_threads = n_threads};
    int code = tokenfile_create(&w, &busy, out, &head, e);
    if (!code) {
        code = tokenize_run(&run, w, r, e);
        if (code) tokenfile_abandon(w);
        else code = tokenfile_publish(w, e);
    }
    if (!code) tokenize_run_done(&run);
    if (!code) code = bad_list_end(&bad, e);
    bad_list_fini(&bad);
    str_free(&told);
    source_close(s);
    return code;
}

/* The same by the plainest way. */
static void plainly(const struct texts *x, const struct tokenizer *t, const char *out)
{
    struct source *s;
    struct err e;
    bool busy;
    assert_ok(source_open(&s, (const char *const *)x->paths, 4, NULL, &e), &e);
    struct tokenfile_head head = {.vocab = tokenizer_vocab(t), .eos = tokenizer_eos(t), .key = key_now(t, s)};
    struct tokenfile_writer *w;
    assert_ok(tokenfile_create(&w, &busy, out, &head, &e), &e);
    struct tokens ids = {0};
    struct str text = {0}, all = {0};
    int got;
    while ((got = source_next(s, &e)) > 0) {
        struct source_place where;
        const char *p;
        size_t n;
        source_where(s, &where);
        assert_ok(tokenfile_origin_next(w, where.path, where.offset, &e), &e);
        str_clear(&text);
        while (source_read(s, &p, &n, &e) > 0) str_add(&text, p, n);
        ids.n = 0;
        assert_ok(tokenizer_encode_text(t, text.p, text.n, &ids, &e), &e); /* what comes before a text, too */
        assert_ok(tokenfile_append(w, ids.ids, ids.n, &e), &e);
        assert_ok(tokenfile_end_document(w, &e), &e);
        str_add(&all, text.p, text.n);
        str_putc(&all, 1);
    }
    assert_ok(got, &e);
    assert_string_equal(all.p, x->documents.p);
    str_free(&text);
    str_free(&all);
    source_close(s);
    tokens_free(&ids);
    assert_ok(tokenfile_publish(w, &e), &e);
}

static void same_files(const char *a, const char *b, const char *what)
{
    char *p, *q;
    size_t n, m;
    struct err e;
    assert_ok(fs_read_all(a, 1 << 26, &p, &n, &e), &e);
    assert_ok(fs_read_all(b, 1 << 26, &q, &m, &e), &e);
    if (n != m || memcmp(p, q, n)) fail_msg("%s: another file (%zu bytes, wanted %zu)", what, n, m);
    xfree(p);
    xfree(q);
}

struct fixture {
    struct texts x;
    struct tokenizer *t;
    char *wanted, *out, *work;
};

static void begin(struct fixture *f, const char *tokenizer)
{
    struct err e;
    make_texts(&f->x);
    assert_ok(tokenizer_open(&f->t, tokenizer, &e), &e);
    f->wanted = fs_join(f->x.dir, "wanted.tok");
    f->out = fs_join(f->x.dir, "out.tok");
    f->work = fs_join(f->x.dir, "out.tok.work");
    plainly(&f->x, f->t, f->wanted);
}

static void end(struct fixture *f)
{
    tokenizer_free(f->t);
    xfree(f->wanted);
    xfree(f->out);
    xfree(f->work);
    free_texts(&f->x);
}

/* Runs to the end, and compares; nothing but the token file may be left. */
static struct tokenize_result finish(struct fixture *f, int n_threads, const char *what)
{
    struct tokenize_result r;
    struct err e;
    char **names;
    int n, code = run_once(&f->x, f->t, f->out, n_threads, &small, 0, &r, &e);
    if (code) fail_msg("%s: %s", what, e.text);
    same_files(f->out, f->wanted, what);
    assert_int_equal(r.documents, 303);
    assert_int_equal(r.bytes, (int64_t)f->x.documents.n - 303);
    assert_int_equal(r.skipped, 1);
    assert_ok(fs_list(f->x.dir, &names, &n, &e), &e);
    for (int i = 0; i < n; i++)
        if (str_starts(names[i], "out.tok") && strcmp(names[i], "out.tok")) fail_msg("%s: left %s", what, names[i]);
    fs_list_free(names, n);
    return r;
}

/* -- tests -------------------------------------------------------------------------------------------------- */

static void test_any_threads_and_sizes(void **state)
{
    (void)state;
    const char *const kinds[] = {FIXTURE("gpt2.json"), FIXTURE("llama3.json"), FIXTURE("prefix.json"), "byte"};
    for (size_t k = 0; k < 4; k++) {
        struct fixture f;
        begin(&f, kinds[k]);
        for (int i = 0; i < 24 / CASE_STRIDE; i++) {
            struct parts_sizes sizes = {.stretch = 1 + (size_t)rng_u32(7, 0, (uint64_t)i) % 3000};
            sizes.part = sizes.stretch / 2 + 1;
            sizes.most = sizes.part + 200 + (size_t)i * 50;
            struct tokenize_result r;
            struct err e;
            int64_t work_from = i % 2 ? 0 : INT64_MAX;
            f.x.unit_bytes = i % 3 == 0 ? 0 : 1 + 2000 * (i % 5);
            assert_ok(run_once(&f.x, f.t, f.out, 1 + i % 5, i % 8 == 7 ? NULL : &sizes, work_from, &r, &e), &e);
            same_files(f.out, f.wanted, kinds[k]);
            assert_int_equal(r.documents, 303);
            assert_int_equal(r.bytes_before, 0);
        }
        end(&f);
    }
}

/* A child that is killed in the middle of its n-th write, for every n until it gets through; then it goes on. Some are
 * killed again and again before. */
static void test_killed_at_any_write(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("gpt2.json"));
    int64_t went_on = 0;
    bool through = false;
    for (int n = 1; !through; n += 1 + (n > 12 ? CASE_STRIDE * 2 : 0)) {
        for (int again = 0; again < (n % 4 == 0 ? 3 : 1); again++) {
            pid_t child = fork();
            if (child == 0) {
                struct tokenize_result r;
                struct err e;
                writes.n = 0;
                writes.kill_at = n;
                _exit(run_once(&f.x, f.t, f.out, 1 + n % 3, &small, 0, &r, &e) ? 1 : 0);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            through = WIFEXITED(status);
            if (through) assert_int_equal(WEXITSTATUS(status), 0);
            else assert_int_equal(WTERMSIG(status), SIGKILL);
        }
        char what[64];
        snprintf(what, sizeof what, "killed at write %d", n);
        went_on += finish(&f, 1 + n % 4, what).bytes_before > 0;
        assert_int_equal(unlink(f.out), 0);
    }
    assert_true(went_on > 5);
    end(&f);
}

static void test_any_write_fails(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("llama3.json"));
    int failures = 0;
    for (int n = 1;; n += 1 + (n > 12 ? CASE_STRIDE * 2 : 0)) {
        struct tokenize_result r;
        struct err e;
        writes.n = 0;
        writes.fail_at = n;
        int code = run_once(&f.x, f.t, f.out, 2, &small, 0, &r, &e);
        bool reached = writes.n >= n;
        writes.fail_at = 0;
        if (code) {
            failures++;
            if (code != ERR_IO || !strstr(e.text, "No space left")) fail_msg("write %d: %d: %s", n, code, e.text);
            assert_false(fs_exists(f.out));
        }
        char what[64];
        snprintf(what, sizeof what, "after write %d failed", n);
        finish(&f, 2, what);
        assert_int_equal(unlink(f.out), 0);
        if (!reached) break;
    }
    assert_true(failures > 5);
    end(&f);
}

/* The work file of a run that was killed near its end. */
static void leave_work(struct fixture *f)
{
    pid_t child = fork();
    if (child == 0) {
        struct tokenize_result r;
        struct err e;
        writes.n = 0;
        writes.kill_at = 20;
        _exit(run_once(&f->x, f->t, f->out, 2, &small, 0, &r, &e) ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void test_damaged_work_is_not_believed(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("gpt2.json"));
    leave_work(&f);
    char *good;
    size_t n;
    struct err e;
    assert_ok(fs_read_all(f.work, 1 << 24, &good, &n, &e), &e);
    assert_true(n > 10000);
    for (size_t k = 0; k < 60 / CASE_STRIDE; k++) {
        char *bad = xmalloc(n);
        memcpy(bad, good, n);
        size_t at = k < 40 ? k * (n / 40) + k % 13 : (k - 40) * 3, length = n;
        if (k % 3 == 2) length = at; /* cut short */
        else bad[at] ^= (char)(1 << k % 8);
        xfree(put_file(f.x.dir, "out.tok.work", bad, length));
        char what[64];
        snprintf(what, sizeof what, "damaged at byte %zu of %zu", at, n);
        finish(&f, 2, what);
        xfree(bad);
    }
    xfree(good);
    end(&f);
}

/* Bytes of the record at p, of ids of two bytes. */
static size_t record_bytes(const char *p)
{
    struct work_record_head h;
    memcpy(&h, p, sizeof h);
    size_t ends = (size_t)h.n_begins * sizeof(struct part_begin) + ((size_t)h.n_ids * 2 + 3) / 4 * 4;
    return sizeof h + (ends + (size_t)h.n_ends * 4 + (size_t)h.told_bytes + 7) / 8 * 8;
}

/* A record that is whole, but does not follow the one before it: of two runs that wrote one file, or with one lost. */
static void test_records_of_two_runs_are_not_mixed(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("gpt2.json"));
    leave_work(&f);
    char *good;
    size_t n, from = sizeof(struct work_head);
    struct err e;
    assert_ok(fs_read_all(f.work, 1 << 24, &good, &n, &e), &e);
    for (int k = 0; k < 4; k++) {
        size_t bytes = record_bytes(good + from);
        assert_true(from + bytes < n);
        char *less = xmalloc(n), what[64];
        memcpy(less, good, from);
        memcpy(less + from, good + from + bytes, n - from - bytes);
        xfree(put_file(f.x.dir, "out.tok.work", less, n - bytes));
        snprintf(what, sizeof what, "without record %d", k);
        finish(&f, 2, what);
        xfree(less);
        from += bytes;
    }
    xfree(good);
    end(&f);
}

static void test_foreign_work_is_not_believed(void **state)
{
    (void)state;
    struct fixture f, other;
    begin(&f, FIXTURE("gpt2.json"));
    begin(&other, FIXTURE("llama3.json"));
    leave_work(&f);
    struct err e;
    assert_ok(fs_rename(f.work, other.work, &e), &e);
    assert_int_equal(finish(&other, 2, "another tokenizer's work").bytes_before, 0);
    leave_work(&f);
    FILE *text = fopen(f.x.paths[3], "ab");
    assert_null(text); /* a folder */
    xfree(put_text(f.x.dir, "folder/z.txt", "the last onE"));
    struct tokenize_result r;
    assert_ok(run_once(&f.x, f.t, f.out, 2, &small, 0, &r, &e), &e);
    assert_int_equal(r.bytes_before, 0); /* an input was changed */
    xfree(put_text(f.x.dir, "out.tok.work", "tuttiwrk, but not really"));
    assert_ok(run_once(&f.x, f.t, f.out, 2, &small, 0, &r, &e), &e);
    assert_int_equal(r.bytes_before, 0);
    end(&f);
    end(&other);
}

/* Bad records are listed once each and in order, whoever was killed in between. */
static void test_bad_records_are_listed_once(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("gpt2.json"));
    struct str records = {0}, wanted = {0};
    for (int i = 0; i < 400; i++) str_printf(&records, i % 37 == 36 ? "{bad %d\n" : "{\"text\": \"record %d\"}\n", i);
    xfree(put_file(f.x.dir, "c.jsonl", records.p, records.n));
    for (int i = 0; i < 400; i++)
        if (i % 37 == 36) str_printf(&wanted, "%s:%d:", f.x.paths[2], i + 1);
    xfree(f.x.paths[0]);
    f.x.paths[0] = xstrdup(f.x.paths[2]);
    f.x.n_paths = 1;
    f.x.skip_bad = true;
    char *list = fs_join(f.x.dir, "out.tok.skipped");
    for (int n = 2; n < 16; n += CASE_STRIDE) {
        pid_t child = fork();
        struct tokenize_result r;
        struct err e;
        if (child == 0) {
            writes.n = 0;
            writes.kill_at = n;
            _exit(run_once(&f.x, f.t, f.out, 2, &small, 0, &r, &e) ? 1 : 0);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_ok(run_once(&f.x, f.t, f.out, 2, &small, 0, &r, &e), &e);
        assert_int_equal(r.bad, 10);
        char *text;
        size_t length;
        assert_ok(fs_read_all(list, 1 << 20, &text, &length, &e), &e);
        const char *at = text, *place = wanted.p;
        for (int i = 0; i < 10; i++) { /* file:line: of each */
            size_t k = strcspn(strchr(place, ':') + 1, ":") + (size_t)(strchr(place, ':') + 2 - place);
            if (strncmp(at, place, k)) fail_msg("killed at write %d: %.80s, wanted %.*s", n, at, (int)k, place);
            place += k;
            at = strchr(at, '\n') + 1;
        }
        assert_int_equal(at - text, length);
        xfree(text);
    }
    xfree(list);
    str_free(&records);
    str_free(&wanted);
    end(&f);
}

/* Stopped by a flag: what was done is kept. */
static void test_given_up(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("gpt2.json"));
    struct err e;
    atomic_int stop = 1;
    char *cache = fs_join(f.x.dir, "cache"), *path;
    assert_int_equal(tokenize_cached(f.t, f.x.paths[0], NULL, cache, &stop, &path, &e), ERR_SIGNAL);
    assert_null(path);
    atomic_store(&stop, 0);
    assert_ok(tokenize_cached(f.t, f.x.paths[0], NULL, cache, &stop, &path, &e), &e);
    assert_true(fs_exists(path));
    xfree(path);
    xfree(cache);
    end(&f);
}

/* ---- another makes it between our look and our lock ---- */
static struct {
    const struct fixture *f;
    const char *cache;
    char *path;
    ino_t file;
} meanwhile;

static ino_t file_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    const struct fixture *f = meanwhile.f;
    meanwhile.f = NULL;
    if (f) {
        struct err e;
        assert_ok(tokenize_cached(f->t, f->x.paths[0], NULL, meanwhile.cache, NULL, &meanwhile.path, &e), &e);
        meanwhile.file = file_of(meanwhile.path);
    }
    return __real_flock(fd, how);
}

static void test_made_meanwhile(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f, FIXTURE("gpt2.json"));
    struct err e;
    char *cache = fs_join(f.x.dir, "cache"), *path;
    meanwhile.cache = cache;
    meanwhile.f = &f;
    assert_ok(tokenize_cached(f.t, f.x.paths[0], NULL, cache, NULL, &path, &e), &e);
    assert_string_equal(path, meanwhile.path);
    assert_true(file_of(path) == meanwhile.file); /* it was not made again */
    xfree(path);
    xfree(meanwhile.path);
    xfree(cache);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conveyor),
        cmocka_unit_test(test_belts),
        cmocka_unit_test(test_any_threads_and_sizes),
        cmocka_unit_test(test_killed_at_any_write),
        cmocka_unit_test(test_any_write_fails),
        cmocka_unit_test(test_damaged_work_is_not_believed),
        cmocka_unit_test(test_records_of_two_runs_are_not_mixed),
        cmocka_unit_test(test_foreign_work_is_not_believed),
        cmocka_unit_test(test_bad_records_are_listed_once),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_made_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
