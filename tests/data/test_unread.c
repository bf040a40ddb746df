/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps open stat lstat fstat access opendir readdir pread fsync */
/* What was not read is never "none": every call that looks at a disk, of everything that reads inputs, fails in turn,
 * once as a disk does and once as a network that lost its server, or gives less than there is. Wanted each time: an
 * error, or what all of it is; and afterwards, with everything there again, all of it: nothing that was made meanwhile
 * is taken for whole. */
#include "source_read.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "comm/comm.h"
#include "curate/clean_pass.h"
#include "curate/dedup.h"
#include "curate/rules.h"
#include "data/energon_mix.h"
#include "data/image_index.h"
#include "data/megatron.h"
#include "data/tokenize.h"
#include "media/media.h"
#include "sanitized.h"
#include "drawn.h"

/* -- calls that fail ----------------------------------------------------------------------------------------- */

enum how { FINE, IO, STALE, SHORT, EMPTY, N_HOWS }; /* SHORT, EMPTY: of reads alone; of others as FINE */
static int64_t n_calls, fail_at;                    /* 0: none fails */
static enum how how;

/* The call that fails: with this errno; 0: it does not. */
static int fails(void)
{
    if (++n_calls != fail_at) return 0;
    return how == IO ? EIO : how == STALE ? ESTALE : 0;
}

#define WRAP(type, name, args, pass, failed)                                                                           \
    type __real_##name args;                                                                                           \
    type __wrap_##name args;                                                                                           \
    type __wrap_##name args                                                                                            \
    {                                                                                                                  \
        int why = fails();                                                                                             \
        if (!why) return __real_##name pass;                                                                           \
        errno = why;                                                                                                   \
        return failed;                                                                                                 \
    }
WRAP(int, stat, (const char *path, struct stat *st), (path, st), -1)
WRAP(int, lstat, (const char *path, struct stat *st), (path, st), -1)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1)
WRAP(int, access, (const char *path, int mode), (path, mode), -1)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(struct dirent *, readdir, (DIR * d), (d), NULL)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    int why = flags & (O_WRONLY | O_RDWR) ? 0 : fails(); /* of reading alone */
    if (!why) return __real_open(path, flags, 0666);
    errno = why;
    return -1;
}

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    int why = fails();
    bool this = n_calls == fail_at;
    if (why) return errno = why, -1;
    if (this && how == EMPTY) return 0;
    return __real_pread(fd, p, this && how == SHORT ? (n + 1) / 2 : n, at);
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd) /* thousands of files are made and forgotten */
{
    (void)fd;
    return 0;
}

/* -- readers of inputs --------------------------------------------------------------------------------------- */

struct room {
    char *dir, *folder, *cache, *energon;
    struct tokenizer *t;
};
/* Reads into out what it is; a code. */
typedef int reader_fn(const struct room *r, struct str *out, struct err *e);

static int read_source(const struct room *r, struct str *out, struct err *e)
{
    return read_with(r->folder, &(struct source_options){0}, out, NULL, e);
}

static int read_skipping(const struct room *r, struct str *out, struct err *e)
{
    return read_with(r->folder, &(struct source_options){.skip_bad = true, .lines = true}, out, NULL, e);
}

static int read_units(const struct room *r, struct str *out, struct err *e)
{
    struct source *s;
    const char *path = r->folder;
    int64_t n = 0;
    str_clear(out);
    int code = source_open_with(&s, &path, 1, &(struct source_options){.unit_bytes = 40}, e);
    if (!code) code = source_units(s, &n, e);
    struct source *again = code ? NULL : source_again(s, NULL, NULL);
    for (int64_t i = 0; i < n && !code; i++) {
        source_unit(again, i);
        code = read_rest(again, out, e);
    }
    source_close(again);
    source_close(s);
    return code;
}

static int put_tokens(const char *path, struct str *out, struct err *e)
{
    struct tokenfile f;
    int code = tokenfile_open(&f, path, e);
    if (code) return code;
    int32_t *ids = xcalloc(to_size(f.n_tokens) + 1, sizeof *ids);
    code = tokenfile_read(&f, 0, f.n_tokens, ids, e);
    str_clear(out);
    for (int64_t i = 0; i < f.n_tokens && !code; i++) str_printf(out, "%d ", ids[i]);
    xfree(ids);
    tokenfile_close(&f);
    return code;
}

/* A cache that another call left counts, too: it is the second reader of the row that must find all in it. */
static int read_cached(const struct room *r, struct str *out, struct err *e)
{
    char *path;
    int code = tokenize_cached(r->t, r->folder, NULL, r->cache, NULL, &path, e);
    if (!code) code = put_tokens(path, out, e);
    xfree(path);
    return code;
}

/* `name` beside a file name.tok, and beside another, its .bin and .idx, is that file. */
static int read_found(const struct room *r, struct str *out, struct err *e)
{
    char *prefix = fs_join(r->dir, "made"), *found = tokenfile_find(prefix);
    int code = found ? put_tokens(found, out, e) : err_set(e, ERR_REQUEST, "%s: none", prefix);
    xfree(found);
    xfree(prefix);
    return code;
}

static int read_megatron(const struct room *r, struct str *out, struct err *e)
{
    char *prefix = fs_join(r->dir, "meg"), *found = megatron_find(prefix), *path = NULL;
    int code =
        found ? megatron_cached(r->t, found, r->cache, NULL, &path, e) : err_set(e, ERR_REQUEST, "%s: none", prefix);
    if (!code) code = put_tokens(path, out, e);
    xfree(path);
    xfree(found);
    xfree(prefix);
    return code;
}

/* Which shards are of the part, and which samples are left out, stands in files that may be there or not. */
static int read_energon(const struct room *r, struct str *out, struct err *e)
{
    struct image_index *x;
    struct image_index_options o = {.path = r->energon,
                                    .part = "train",
                                    .label = NULL,
                                    .classes = 10,
                                    .limits = media_limits_usual(),
                                    .cache_dir = r->cache};
    int code = image_index_open(&x, &o, e);
    if (code) return code;
    str_clear(out);
    str_printf(out, "%lld", (long long)image_index_n(x));
    for (int64_t i = 0; i < image_index_n(x) && !code; i++) {
        struct image_place p;
        struct str bytes = {0};
        code = image_index_where(x, i, &p, e);
        if (!code) code = image_index_read(x, &p, &bytes, e);
        if (!code) str_printf(out, " %d %zu", p.label, bytes.n);
        str_free(&bytes);
    }
    image_index_close(x);
    return code;
}

static int read_mix(const struct room *r, struct str *out, struct err *e)
{
    char *path = fs_join(r->dir, "mix.yaml");
    struct energon_mix m = {.n = 0};
    int code = energon_mix_is(path) ? energon_mix_read(&m, path, "train", e) : err_set(e, ERR_REQUEST, "no mix");
    str_clear(out);
    if (!code) str_printf(out, "%d", m.n);
    energon_mix_free(&m);
    xfree(path);
    return code;
}

/* Whose end of text is named by a file beside tokenizer.json. */
static int read_tokenizer(const struct room *r, struct str *out, struct err *e)
{
    char *folder = fs_join(r->dir, "tokenizer");
    struct tokenizer *t;
    int code = tokenizer_open(&t, folder, e);
    str_clear(out);
    if (!code) str_printf(out, "%d %d", tokenizer_eos(t), tokenizer_bos(t));
    if (!code) tokenizer_free(t);
    xfree(folder);
    return code;
}

static int read_talk(const struct room *r, struct str *out, struct err *e)
{
    char *path = NULL, *talk = fs_join(r->dir, "talk");
    struct tokenize_input input = {.chat = {.template_name = "plain"}};
    int code = tokenize_cached(r->t, talk, &input, r->cache, NULL, &path, e);
    if (!code) code = put_tokens(path, out, e);
    xfree(path);
    xfree(talk);
    return code;
}

/* The parts of a result, one behind the other. */
static int put_parts(const char *folder, struct str *out, struct err *e)
{
    char **names, *p;
    size_t size;
    int n, code = fs_list(folder, &names, &n, e);
    str_clear(out);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        if (!str_starts(names[i], "part-")) continue;
        char *path = fs_join(folder, names[i]);
        code = fs_read_all(path, 1 << 20, &p, &size, e);
        if (!code) str_add(out, p, size);
        if (!code) xfree(p);
        xfree(path);
    }
    fs_list_free(names, n);
    return code;
}

/* A pass goes on where one that failed was. */
static int read_clean(const struct room *r, struct str *out, struct err *e)
{
    static const char text[] = "rules: [length]";
    char *folder = fs_join(r->cache, "clean");
    const char *input = r->folder;
    struct rules *rules;
    struct pass_result result;
    struct pass_options o = {.inputs = &input,
                             .n_inputs = 1,
                             .out = folder,
                             .threads = 1,
                             .part_bytes = 60,
                             .most_bytes = 1 << 20,
                             .plain = true};
    int code = rules_parse(&rules, text, strlen(text), "rules", e);
    o.rules = rules;
    if (!code) code = pass_run(&o, &result, e);
    if (!code) pass_result_fini(&result);
    if (!code) code = put_parts(folder, out, e);
    rules_free(rules);
    xfree(folder);
    return code;
}

static int run_dedup(struct comm *world, void *config, struct err *e)
{
    struct dedup_result result;
    return dedup_run(world, config, &result, e);
}

static int read_dedup(const struct room *r, struct str *out, struct err *e)
{
    char *folder = fs_join(r->cache, "dedup"), *done = fs_join(folder, "dedup.json");
    const char *input = r->folder;
    struct dedup_config c = {.inputs = &input,
                             .n_inputs = 1,
                             .out = folder,
                             .steps = {DEDUP_EXACT, DEDUP_LINES},
                             .n_steps = 2,
                             .normal = NORMAL_SPACE,
                             .line_least = 4,
                             .shingles = "words:3",
                             .threshold = 0.7,
                             .hashes = 64,
                             .verify = true,
                             .repeat_least = 40,
                             .part_bytes = 1 << 20,
                             .unit_bytes = 60,
                             .memory = DEDUP_MEMORY_LEAST,
                             .samples = 3,
                             .list = true};
    bool finished = __real_access(done, F_OK) == 0;
    int code = finished ? OK : comm_run_local(1, &(struct comm_config){0}, run_dedup, &c, e);
    if (!code) code = put_parts(folder, out, e);
    xfree(folder);
    xfree(done);
    return code;
}

static const struct {
    const char *name;
    reader_fn *read;
    bool remakes; /* what the row makes is removed before each call */
} readers[] = {
    {"a folder", read_source, false},
    {"a folder, bad records skipped", read_skipping, false},
    {"a folder in parts", read_units, false},
    {"tokens, made", read_cached, true},
    {"tokens, found", read_cached, false},
    {"a token file by its prefix", read_found, false},
    {"Megatron's files", read_megatron, true},
    {"a folder of Energon's", read_energon, true},
    {"a metadataset", read_mix, false},
    {"a tokenizer", read_tokenizer, false},
    {"conversations", read_talk, true},
    {"a pass that cleans", read_clean, true},
    {"a search for duplicates", read_dedup, true},
};

/* -- the room ------------------------------------------------------------------------------------------------ */

static void copy_fixture(const struct room *r, const char *from, const char *to)
{
    char *p;
    size_t n;
    struct err e;
    assert_ok(fs_read_all(from, 1 << 26, &p, &n, &e), &e);
    xfree(put_file(r->dir, to, p, n));
    xfree(p);
}

static void add_member(struct str *tar, const char *name, const void *p, size_t n)
{
    char head[512] = {0};
    unsigned sum = 0;
    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "%07o", 0644u);
    snprintf(head + 124, 12, "%011zo", n);
    head[156] = '0';
    memcpy(head + 257,
           "ustar\0"
           "00",
           8);
    memset(head + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    str_add(tar, head, sizeof head);
    str_add(tar, p, n);
    while (tar->n % 512) str_putc(tar, 0);
}

static void put_energon(struct room *r)
{
    struct str tar = {0};
    static const char *const shards[] = {"energon/a.tar", "energon/b.tar"};
    for (int s = 0; s < 2; s++) {
        char name[16], label[2] = {(char)('1' + s), 0};
        str_clear(&tar);
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "%d.jpg", i);
            add_member(&tar, name, "\xFF\xD8\xFF picture", 11);
            snprintf(name, sizeof name, "%d.cls", i);
            add_member(&tar, name, label, 1);
        }
        for (int i = 0; i < 1024; i++) str_putc(&tar, 0);
        xfree(put_file(r->dir, shards[s], tar.p, tar.n));
    }
    str_free(&tar);
    xfree(put_text(r->dir, "energon/.nv-meta/dataset.yaml",
                   "sample_type: {__module__: megatron.energon, __class__: ImageClassificationSample}\n"
                   "field_map: {image: jpg, label: cls}\n"));
    xfree(put_text(r->dir, "energon/.nv-meta/split.yaml",
                   "split_parts: {train: [b.tar], val: [a.tar], test: []}\nexclude: [b.tar/1]\n"));
    xfree(put_text(r->dir, "energon/.nv-meta/.info.json", "{\"shard_counts\": {\"a.tar\": 3, \"b.tar\": 3}}"));
    xfree(put_text(r->dir, "mix.yaml",
                   "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    path: energon\n"));
}

static int room_new(void **state)
{
    struct room *r = xcalloc(1, sizeof *r);
    struct err e;
    r->dir = scratch_new();
    r->folder = fs_join(r->dir, "in");
    r->cache = fs_join(r->dir, "cache");
    r->energon = fs_join(r->dir, "energon");
    assert_ok(tokenizer_open(&r->t, "byte", &e), &e);
    xfree(put_text(r->dir, "in/a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n"));
    xfree(put_text(r->dir, "in/b.txt", "plain"));
    xfree(put_text(r->dir, "in/sub/c.csv", "id,text\n1,row\n"));
    xfree(put_text(r->dir, "in/sub/deep/d.json", "[{\"text\": \"listed\"}]"));
    xfree(put_text(r->dir, "in/dedup.json", "{\"schema\": \"tutti.dedup.1\"}"));
    xfree(put_text(r->dir, "in/removed-00000.jsonl", "{\"step\": \"exact\", \"text\": \"no\"}\n"));
    xfree(put_text(r->dir, "talk/a.jsonl", "{\"prompt\": \"q\", \"completion\": \"x\"}\n"));
    xfree(put_text(r->dir, "talk/b/c.json", "[{\"prompt\": \"r\", \"completion\": \"y\"}]"));
    char *link = fs_join(r->folder, "link");
    assert_int_equal(symlink("nowhere", link), 0);
    xfree(link);
    copy_fixture(r, FIXTURE("parquet/zstd-2-PLAIN.parquet"), "in/t.parquet");
    copy_fixture(r, FIXTURE("shards/gnu.tar"), "in/u.tar");
    put_energon(r);
    xfree(
        put_text(r->dir, "tokenizer/tokenizer.json",
                 "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}, \"added_tokens\": "
                 "[{\"id\": 2, \"content\": \"<e>\", \"special\": true}, {\"id\": 3, \"content\": \"</s>\", "
                 "\"special\": true}]}"));
    xfree(put_text(r->dir, "tokenizer/tokenizer_config.json", "{\"eos_token\": \"<e>\", \"bos_token\": \"<e>\"}"));
    char *made = fs_join(r->dir, "made.tok"), *prefix = fs_join(r->dir, "meg");
    const char *input = r->folder;
    struct tokenize_result result;
    struct tokenfile f;
    assert_ok(tokenize(r->t, &input, 1, NULL, made, 1, &result, &e), &e);
    assert_ok(tokenfile_open(&f, made, &e), &e);
    struct megatron_result written;
    const char *type;
    assert_ok(megatron_write(&f, prefix, &(struct megatron_export){0}, &written, &type, &e), &e);
    tokenfile_close(&f);
    xfree(made);
    xfree(prefix);
    *state = r;
    return 0;
}

static int room_free(void **state)
{
    struct room *r = *state;
    tokenizer_free(r->t);
    xfree(r->folder);
    xfree(r->cache);
    xfree(r->energon);
    scratch_free(r->dir);
    xfree(r);
    return 0;
}

static void forget(const struct room *r, bool remakes)
{
    struct err e;
    fail_at = 0;
    if (remakes) assert_ok(fs_remove_tree(r->cache, &e), &e);
}

static void test_every_call(void **state)
{
    const struct room *r = *state;
    struct str want = {0}, got = {0};
    struct err e;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        forget(r, readers[i].remakes);
        assert_ok(readers[i].read(r, &want, &e), &e);
        assert_true(want.n > 0);
        int64_t n_failed = 0, n_all = 0;
        for (how = IO; how < N_HOWS; how++)
            for (int64_t at = 1;; at++) {
                if (at > 8 && !drawn_here(at, 2)) continue; /* every day half of the later ones */
                forget(r, readers[i].remakes);
                n_calls = 0;
                fail_at = at;
                int code = readers[i].read(r, &got, &e);
                bool reached = n_calls >= at;
                fail_at = 0;
                if (!reached) break;
                n_all++;
                n_failed += code != 0;
                if (code && !*e.text) fail_msg("%s: call %lld, %d: no word", readers[i].name, (long long)at, how);
                if (!code && (got.n != want.n || memcmp(got.p, want.p, want.n)))
                    fail_msg("%s: call %lld failed (%d), and what was read is less: %.300s", readers[i].name,
                             (long long)at, how, str_text(&got));
                if (code && how == SHORT) fail_msg("%s: a short read: %s", readers[i].name, e.text);
                assert_ok(readers[i].read(r, &got, &e), &e);
                if (got.n != want.n || memcmp(got.p, want.p, want.n))
                    fail_msg("%s: call %lld had failed (%d), and what is left of that is taken for all: %.300s",
                             readers[i].name, (long long)at, how, str_text(&got));
            }
        print_message("%s: %lld calls failed, %lld were noticed\n", readers[i].name, (long long)n_all,
                      (long long)n_failed);
        if (n_failed < 4)
            fail_msg("%s: %lld calls, %lld failures", readers[i].name, (long long)n_all, (long long)n_failed);
    }
    str_free(&want);
    str_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_call, room_new, room_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
