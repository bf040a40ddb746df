/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps write */
/* Conversations from lines, tables and shards have the same tokens; tokenizing them goes on after a kill or a failure
 * at any write, with the same file, bad records listed once. */
#include "data_test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "data/chat_tokenize.h"
#include "sanitized.h"

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
    errno = ENOSPC;
    return -1;
}

/* -- the same, whatever holds it ------------------------------------------------------------------------------ */

static void read_all(const char *path, const struct tokenizer *t, int32_t **ids, unsigned char **mask, int64_t *n)
{
    struct tokenfile f;
    struct err e;
    assert_ok(tokenfile_open(&f, path, &e), &e);
    assert_true(tokenfile_masked(&f) && f.head.eos == tokenizer_eos(t) && f.n_documents == 30);
    *n = f.n_tokens;
    *ids = xmalloc((size_t)*n * sizeof **ids);
    *mask = xmalloc((size_t)*n);
    assert_ok(tokenfile_read(&f, 0, *n, *ids, &e), &e);
    assert_ok(tokenfile_mask(&f, 0, *n, *mask, &e), &e);
    tokenfile_close(&f);
}

static void test_tables_and_shards(void **state)
{
    (void)state;
    static const char *const inputs[] = {FIXTURE("shards/talk.jsonl"), FIXTURE("shards/talk.parquet"),
                                         FIXTURE("shards/talk-json.parquet"), FIXTURE("shards/talk.tar")};
    struct tokenizer *t = tokenizer_new_byte();
    char *dir = scratch_new(), *out = fs_join(dir, "t.tok");
    int32_t *first = NULL, *ids;
    unsigned char *first_mask = NULL, *mask;
    int64_t first_n = 0, n;
    for (int i = 0; i < 4; i++) {
        struct tokenize_input how = {.chat = {"mistral", NULL, CHAT_ANSWERS}};
        struct tokenize_result r;
        struct err e;
        assert_ok(tokenize(t, &inputs[i], 1, &how, out, 2, &r, &e), &e);
        read_all(out, t, &ids, &mask, &n);
        if (i) {
            if (n != first_n || memcmp(ids, first, (size_t)n * sizeof *ids) || memcmp(mask, first_mask, (size_t)n))
                fail_msg("%s: other tokens than of lines", inputs[i]);
            xfree(ids);
            xfree(mask);
        } else {
            first = ids;
            first_mask = mask;
            first_n = n;
        }
    }
    int64_t trained = 0;
    for (int64_t i = 0; i < first_n; i++) trained += first_mask[i];
    assert_true(trained > 500 && trained < first_n / 2);
    assert_int_equal(first[first_n - 1], tokenizer_eos(t)); /* what ends an answer is learnt with it */
    assert_int_equal(first_mask[first_n - 1], 1);
    xfree(first);
    xfree(first_mask);
    xfree(out);
    tokenizer_free(t);
    scratch_free(dir);
}

/* -- going on ------------------------------------------------------------------------------------------------- */

enum { RECORDS = 5200 };
struct fixture {
    char *dir, *paths[2], *out, *wanted;
    struct tokenizer *t;
    struct chat *c;
};

static void begin(struct fixture *f)
{
    struct str text = {0};
    struct err e;
    f->dir = scratch_new();
    f->t = tokenizer_new_byte();
    struct chat_rules rules = {.template_name = "plain", .train_on = CHAT_ANSWERS, .side = CHAT_PLAIN};
    assert_ok(chat_open(&f->c, &rules, f->t, &e), &e);
    for (int i = 0; i < RECORDS; i++) {
        if (i % 1031 == 1030) str_puts(&text, "no json\n");
        else if (i % 997 == 500) str_puts(&text, "{\"other\": 1}\n");
        else
            str_printf(&text,
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"q %d\"}, {\"role\": \"assistant\", "
                       "\"content\": \"a %d\"}]}\n",
                       i, i * 7);
        if (i == 2600) {
            f->paths[0] = put_text(f->dir, "a.jsonl", text.p);
            str_clear(&text);
        }
    }
    f->paths[1] = put_text(f->dir, "b.jsonl", text.p);
    f->out = fs_join(f->dir, "out.tok");
    f->wanted = fs_join(f->dir, "wanted.tok");
    str_free(&text);
}

static void end(struct fixture *f)
{
    chat_close(f->c);
    tokenizer_free(f->t);
    xfree(f->paths[0]);
    xfree(f->paths[1]);
    xfree(f->out);
    xfree(f->wanted);
    scratch_free(f->dir);
}

static int run_once(const struct fixture *f, const char *out, int n_threads, int64_t work_from,
                    struct tokenize_result *r, struct err *e)
{
    struct source *s;
    struct str told = {0};
    struct bad_list bad;
    bool busy;
    struct source_options o = {.whole_records = true, .skip_bad = true, .tell_bad = tokenize_tell, .tell_ctx = &told};
    assert_ok(source_open_with(&s, (const char *const *)f->paths, 2, &o, e), e);
    bad_list_init(&bad, out);
    struct tokenfile_head head = {.vocab = tokenizer_vocab(f->t), .eos = tokenizer_eos(f->t), .key = source_key(s)};
    struct tokenfile_writer *w;
    struct tokenize_run run = {.vocab = tokenizer_vocab(f->t),
                               .tokenizer = f->t,
                               .source = s,
                               .out_path = out,
                               .key = head.key,
                               .work_from = work_from,
                               .told = &told,
                               .bad = &bad,
                               .n_threads = n_threads};
    int code = tokenfile_create(&w, &busy, out, &head, e);
    if (!code) {
        code = chat_tokenize(f->c, true, &run, w, r, e);
        int listed = bad_list_end(&bad, code ? NULL : e);
        if (!code) code = listed;
        if (code) tokenfile_abandon(w);
        else code = tokenfile_publish(w, e);
    }
    if (!code) tokenize_run_done(&run);
    bad_list_fini(&bad);
    str_free(&told);
    source_close(s);
    return code;
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

/* Runs to the end: the file and the list of bad records are those of a run that nothing stopped. */
static struct tokenize_result finish(const struct fixture *f, int n_threads, const char *what)
{
    struct tokenize_result r;
    struct err e;
    struct str a = {0}, b = {0};
    int code = run_once(f, f->out, n_threads, 0, &r, &e);
    if (code) fail_msg("%s: %s", what, e.text);
    same_files(f->out, f->wanted, what);
    str_printf(&a, "%s.skipped", f->out);
    str_printf(&b, "%s.skipped", f->wanted);
    same_files(a.p, b.p, what);
    assert_int_equal(r.bad, 10);
    assert_int_equal(r.documents, RECORDS - 10);
    str_clear(&a);
    str_printf(&a, "%s.work", f->out);
    assert_false(fs_exists(a.p));
    str_free(&a);
    str_free(&b);
    assert_int_equal(unlink(f->out), 0);
    return r;
}

static void test_goes_on(void **state)
{
    (void)state;
    struct fixture f;
    struct tokenize_result r, again;
    struct err e;
    begin(&f);
    assert_ok(run_once(&f, f.wanted, 1, INT64_MAX, &r, &e), &e); /* without work */
    assert_true(r.bytes_before <= 0 && r.bytes > 100000);
    int64_t went_on = 0, failed = 0;
    bool through = false;
    for (int n = 1; !through; n += 1 + (n > 8 ? 2 * CASE_STRIDE : 0)) {
        char what[64];
        pid_t child = fork();
        if (child == 0) {
            writes = (typeof(writes)){.kill_at = n};
            _exit(run_once(&f, f.out, 1 + n % 3, 0, &r, &e) ? 1 : 0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        through = WIFEXITED(status);
        if (through) assert_int_equal(WEXITSTATUS(status), 0);
        else assert_int_equal(WTERMSIG(status), SIGKILL);
        snprintf(what, sizeof what, "killed at write %d", n);
        again = finish(&f, 1 + n % 2, what);
        assert_int_equal(again.bytes, r.bytes);
        went_on += again.bytes_before > 0;

        writes = (typeof(writes)){.fail_at = n};
        int code = run_once(&f, f.out, 2, 0, &r, &e);
        writes.fail_at = 0;
        if (code) {
            failed++;
            if (code != ERR_IO || !strstr(e.text, "No space left")) fail_msg("write %d: %d: %s", n, code, e.text);
            assert_false(fs_exists(f.out));
        }
        assert_ok(code ? OK : unlink(f.out), &e);
        snprintf(what, sizeof what, "after write %d failed", n);
        again = finish(&f, 2, what);
        r.bytes = again.bytes;
    }
    if (went_on < 4 || failed < 4) fail_msg("went on %d times, failed %d times", (int)went_on, (int)failed);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables_and_shards), cmocka_unit_test(test_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
