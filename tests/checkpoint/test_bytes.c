/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps pread */
/* Every byte of a checkpoint on its way in: compared when it is first touched, on every path, and a file that fails,
 * shrinks or is replaced is an error with its name. The linker puts this file between the program and pread
 * (--wrap). */
#include "said.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/str.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "hub/weights.h"

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
static struct {
    int64_t calls, fail_at, bytes;
} reads;

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    reads.bytes += (int64_t)n;
    if (++reads.calls == reads.fail_at) {
        errno = EIO;
        return -1;
    }
    return __real_pread(fd, p, n, at);
}

enum { ROWS = 3000, COLS = 1000 }; /* f32: 12 MB, three chunks of 4 MiB */

static float value(int64_t i) { return (float)(i % 16000057); }

/* A checkpoint of step 1 with one tensor, cut by rows into n boxes of as many ranks, and a config. */
static void save(const char *root, int n)
{
    struct err e;
    static const struct ckpt_attachment files[] = {{.name = "config.yaml", .p = "model: {}\n", .bytes = 10},
                                                   {.name = "tokenizer.json", .p = "{\"a\": 1}", .bytes = 8}};
    struct ckpt_info info = {.step = 1, .seed = 7, .attachments = files, .n_attachments = 2};
    float *all = xmalloc((size_t)ROWS * COLS * sizeof *all);
    for (int64_t i = 0; i < (int64_t)ROWS * COLS; i++) all[i] = value(i);
    assert_ok(ckpt_save_begin(root, 1, &e));
    for (int r = 0; r < n; r++) {
        int64_t lo, hi;
        region_split(ROWS, r, n, &lo, &hi);
        struct ckpt_tensor t = {.group = "param",
                                .name = "w",
                                .dtype = DT_F32,
                                .shape = {2, {ROWS, COLS}},
                                .box = {2, {lo, 0}, {hi, COLS}},
                                .p = all + lo * COLS};
        assert_ok(ckpt_save_rank(root, 1, r, &t, 1, &e));
    }
    assert_ok(ckpt_save_publish(root, n, &info, &e));
    xfree(all);
}

static char *member(const char *root, const char *name)
{
    char *dir = fs_join(root, "step-00000001"), *path = fs_join(dir, name);
    xfree(dir);
    return path;
}

static int read_box(struct ckpt *c, struct region box, struct err *e)
{
    float *x = xmalloc((size_t)region_volume(&box) * sizeof *x);
    int rc = ckpt_read(c, 0, &box, DT_F32, x, e);
    int64_t k = 0;
    for (int64_t i = box.lo[0]; rc == OK && i < box.hi[0]; i++)
        for (int64_t j = box.lo[1]; j < box.hi[1]; j++, k++)
            if (x[k] != value(i * COLS + j))
                fail_msg("element %lld, %lld is %g", (long long)i, (long long)j, (double)x[k]);
    xfree(x);
    return rc;
}

static void flip(const char *path, int64_t at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int was = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(was ^ 4, f), was ^ 4);
    assert_int_equal(fclose(f), 0);
}

/* XXH64 of all bytes of the stored tensor. */
static uint64_t sum_of_box(const char *root)
{
    struct err e;
    struct safetensors *s;
    char *path = member(root, "boxes-00000.safetensors");
    assert_ok(safetensors_open(&s, path, &e));
    const struct safetensors_entry *t = safetensors_at(s, 0);
    char *p = xmalloc(t->bytes);
    assert_ok(safetensors_read(s, t, 0, t->bytes, p, &e));
    uint64_t sum = hash64(p, t->bytes);
    xfree(p);
    safetensors_close(s);
    xfree(path);
    return sum;
}

/* The manifest as it was before there were chunks. */
static void make_old(const char *root)
{
    struct manifest m;
    struct err e;
    struct str text = {0};
    char *path = member(root, "manifest.json");
    assert_ok(manifest_read(&m, path, false, &e));
    assert_int_equal(m.tensors[0].boxes[0].n_chunks, 3);
    m.chunk = 0;
    m.version = 1;
    m.tensors[0].boxes[0].n_chunks = 0;
    m.tensors[0].boxes[0].hash = sum_of_box(root);
    manifest_print(&m, &text);
    assert_ok(fs_write_atomic(path, text.p, text.n, &e));
    manifest_fini(&m);
    str_free(&text);
    xfree(path);
}

static void parts_of_big_boxes(void **state)
{
    (void)state;
    struct err e;
    struct dice d = {.seed = 3};
    for (int old = 0; old < 2; old++) {
        char *root = scratch_new();
        struct ckpt *c;
        save(root, 1);
        if (old) make_old(root);
        for (int k = 0; k < 12; k++) {
            if (k % 4 == 0) assert_ok(ckpt_open(&c, root, &e));
            int64_t r0 = roll(&d, ROWS), c0 = roll(&d, COLS);
            struct region box = {2, {r0, c0}, {r0 + 1 + roll(&d, ROWS - r0), c0 + 1 + roll(&d, COLS - c0)}};
            assert_ok(read_box(c, box, &e));
            if (k % 4 == 3) ckpt_close(c);
        }
        scratch_free(root);
    }
}

static void count(void *ctx, const char *text)
{
    (void)text;
    ++*(int *)ctx;
}

/* A rank that reads a part reads its chunks and no more, and finds what is damaged in them; who reads others does
 * not. */
static void a_rank_compares_what_it_reads(void **state)
{
    (void)state;
    struct err e;
    struct ckpt *c;
    char *root = scratch_new(), *path = member(root, "boxes-00000.safetensors");
    const struct region first = {2, {0, 0}, {500, COLS}}, middle = {2, {1500, 10}, {1501, 11}},
                        last = {2, {2500, 0}, {ROWS, COLS}};
    save(root, 1);
    assert_ok(ckpt_open(&c, root, &e));
    reads.bytes = 0;
    assert_ok(read_box(c, first, &e));
    assert_true(reads.bytes < (4 << 20) + 10000); /* one chunk, and the header */
    assert_ok(read_box(c, first, &e));
    assert_true(reads.bytes < (6 << 20) + 10000); /* what was compared is not read whole again */
    ckpt_close(c);

    flip(path, -ROWS * COLS * 4 / 2); /* the middle chunk */
    assert_ok(ckpt_open(&c, root, &e));
    assert_ok(read_box(c, first, &e));
    assert_ok(read_box(c, last, &e));
    for (int i = 0; i < 2; i++)
        assert_err(ERR_CORRUPT, "boxes-00000.safetensors: tensor param/w: bytes 4198400 to", read_box(c, middle, &e));
    assert_err(ERR_CORRUPT, "was written: the file is damaged; use another checkpoint",
               read_box(c, (struct region){2, {0, 0}, {ROWS, 1}}, &e));
    int n = 0;
    assert_int_equal(ckpt_verify(c, count, &n), 1);
    assert_int_equal(n, 1);
    ckpt_close(c);

    flip(path, -ROWS * COLS * 4 / 2);
    make_old(root);
    flip(path, -ROWS * COLS * 4 / 2); /* one checksum for all of it: whatever is read, all is compared */
    assert_ok(ckpt_open(&c, root, &e));
    assert_err(ERR_CORRUPT, "boxes-00000.safetensors: tensor param/w", read_box(c, first, &e));
    assert_int_equal(ckpt_verify(c, count, &n), 1);
    ckpt_close(c);
    xfree(path);
    scratch_free(root);
}

/* The header of a file is compared too: an offset in it that still makes sense is not believed. */
static void headers_count(void **state)
{
    (void)state;
    struct err e;
    struct ckpt *c;
    char *root = scratch_new(), *path = member(root, "boxes-00001.safetensors"), *text;
    size_t n;
    save(root, 3);
    assert_ok(fs_read_all(path, 1 << 26, &text, &n, &e));
    char *at = strstr(text + 8, "\"tutti\":\"");
    assert_non_null(at);
    flip(path, at - text + 9); /* the version in the metadata: nothing else would notice */
    assert_ok(ckpt_open(&c, root, &e));
    assert_ok(read_box(c, (struct region){2, {0, 0}, {1000, COLS}}, &e));
    assert_err(ERR_CORRUPT, "boxes-00001.safetensors: checksum",
               read_box(c, (struct region){2, {0, 0}, {1001, COLS}}, &e));
    int k = 0;
    assert_int_equal(ckpt_verify(c, count, &k), 1);
    ckpt_close(c);
    xfree(text);
    xfree(path);
    scratch_free(root);
}

static void attachments_count(void **state)
{
    (void)state;
    struct err e;
    struct ckpt *c;
    char *root = scratch_new(), *path = member(root, "tokenizer.json"), *text;
    size_t n;
    save(root, 1);
    assert_ok(ckpt_open(&c, root, &e));
    assert_ok(ckpt_check_attachments(c, &e));
    for (int at = 0; at < 8; at++) {
        flip(path, at);
        assert_err(ERR_CORRUPT, "tokenizer.json: checksum ", ckpt_attachment(c, "tokenizer.json", &text, &n, &e));
        assert_null(text);
        assert_err(ERR_CORRUPT, "tokenizer.json: checksum ", ckpt_check_attachments(c, &e));
        assert_ok(ckpt_attachment(c, "config.yaml", &text, &n, &e));
        assert_string_equal(text, "model: {}\n");
        xfree(text);
        flip(path, at);
    }
    assert_int_equal(truncate(path, 7), 0); /* since the opening, which compared its size */
    assert_err(ERR_CORRUPT, "tokenizer.json: checksum ", ckpt_attachment(c, "tokenizer.json", &text, &n, &e));
    assert_int_equal(truncate(path, 0), 0);
    assert_err(ERR_CORRUPT, "tokenizer.json: checksum ", ckpt_attachment(c, "tokenizer.json", &text, &n, &e));
    ckpt_close(c);
    xfree(path);
    scratch_free(root);
}

/* What resuming, generating and exporting read; whichever read fails: an error with file and offset. */
static int read_everything(const char *root, struct err *e)
{
    struct ckpt *c;
    int rc = ckpt_open(&c, root, e);
    if (rc) return rc;
    rc = ckpt_check_attachments(c, e);
    if (rc == OK) rc = read_box(c, (struct region){2, {0, 0}, {ROWS, COLS}}, e);
    ckpt_close(c);
    return rc;
}

static void reads_that_fail(void **state)
{
    (void)state;
    struct err e;
    for (int old = 0; old < 2; old++) {
        char *root = scratch_new(),
             *dir = fs_join(root, "step-00000001"); /* named, so that none is chosen by what can be read */
        save(root, old ? 1 : 5);
        if (old) make_old(root);
        for (reads.fail_at = 1;; reads.fail_at++) {
            reads.calls = 0;
            int rc = read_everything(dir, &e);
            if (reads.calls < reads.fail_at) {
                assert_int_equal(rc, OK);
                break;
            }
            assert_int_equal(rc, ERR_IO);
            if (!strstr(e.text, dir) || !strstr(e.text, "cannot be read at offset ")) fail_msg("%s", e.text);
        }
        assert_true(reads.fail_at > 10);
        reads.fail_at = 0;
        xfree(dir);
        scratch_free(root);
    }
}

/* Cut short or replaced after the opening. */
static void files_that_change(void **state)
{
    (void)state;
    struct err e;
    struct ckpt *c;
    char *root = scratch_new(), *path = member(root, "boxes-00000.safetensors"),
         *other = member(root, "boxes-00001.safetensors");
    const struct region first = {2, {0, 0}, {10, COLS}}, all = {2, {0, 0}, {ROWS, COLS}};
    save(root, 2);
    assert_ok(ckpt_open(&c, root, &e));
    assert_ok(read_box(c, first, &e));
    assert_int_equal(truncate(path, 5000000), 0);
    assert_err(ERR_IO, "boxes-00000.safetensors: ends at or before byte 5000000: wanted ", read_box(c, all, &e));
    ckpt_close(c);
    char *dir = fs_join(root, "step-00000001");
    assert_err(ERR_CORRUPT, "boxes-00000.safetensors: has 5000000 bytes", ckpt_open(&c, dir, &e));
    xfree(dir);

    struct safetensors *s;
    unsigned char x[4];
    assert_ok(safetensors_open(&s, other, &e)); /* rests until it is read */
    char *text;
    size_t n;
    assert_ok(fs_read_all(other, 1 << 26, &text, &n, &e));
    assert_ok(fs_write_atomic(other, text, n, &e));
    assert_err(ERR_IO, "boxes-00001.safetensors: is not the file it was",
               safetensors_read(s, safetensors_at(s, 0), 0, 4, x, &e));
    safetensors_close(s);
    xfree(text);
    xfree(other);
    xfree(path);
    scratch_free(root);
}

static int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* Many ranks' files: a reader holds a few descriptors, since ranks that are threads share the process's. */
static void few_files_are_open(void **state)
{
    (void)state;
    struct err e;
    struct ckpt *c;
    char *root = scratch_new();
    int before = open_descriptors();
    save(root, 60);
    assert_ok(ckpt_open(&c, root, &e));
    for (int i = 0; i < 3; i++) assert_ok(read_box(c, (struct region){2, {0, i}, {ROWS, i + 1}}, &e));
    assert_true(open_descriptors() - before <= 8);
    assert_true(open_descriptors() - before > 0);
    ckpt_close(c);
    assert_int_equal(open_descriptors(), before);
    scratch_free(root);
}

/* Manifests whose chunks make no sense. */
static void broken_chunks_are_refused(void **state)
{
    (void)state;
    struct err e;
    static const struct {
        int64_t chunk;
        int n_chunks;
    } rows[] = {{(int64_t)4 << 20, 2}, {(int64_t)1 << 40, 3}, {(int64_t)2 << 20, 3}, {0, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *root = scratch_new(), *path = member(root, "manifest.json");
        struct manifest m;
        struct str text = {0};
        struct ckpt *c;
        save(root, 1);
        assert_ok(manifest_read(&m, path, false, &e));
        m.chunk = rows[i].chunk;
        m.tensors[0].boxes[0].n_chunks = rows[i].n_chunks;
        manifest_print(&m, &text);
        assert_ok(fs_write_atomic(path, text.p, text.n, &e));
        char *dir = fs_join(root, "step-00000001");
        assert_err(ERR_CORRUPT, "chunk", ckpt_open(&c, dir, &e));
        manifest_fini(&m);
        str_free(&text);
        xfree(dir);
        xfree(path);
        scratch_free(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_big_boxes), cmocka_unit_test(a_rank_compares_what_it_reads),
        cmocka_unit_test(headers_count),      cmocka_unit_test(attachments_count),
        cmocka_unit_test(reads_that_fail),    cmocka_unit_test(files_that_change),
        cmocka_unit_test(few_files_are_open), cmocka_unit_test(broken_chunks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
