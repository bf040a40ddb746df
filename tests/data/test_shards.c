/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of pictures as a data set: the index, labels of every kind, damage, Megatron-Energon's folder; and batches
 * that are a function of (seed, step), whoever fills them. */
#include "scratch.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/energon.h"
#include "data/prefetch.h"
#include "media/encode.h"
#include "sanitized.h"

enum { SIZE = 16, CLASSES = 10 };

struct room {
    char *dir, *cache;
};

static struct room room_new(void)
{
    char *dir = scratch_new();
    return (struct room){dir, fs_join(dir, "cache")};
}

static void room_free(struct room *r)
{
    xfree(r->cache);
    scratch_free(r->dir);
}

static char *put_file(const struct room *r, const char *name, const void *p, size_t n)
{
    char *path = fs_join(r->dir, name), *folder = xstrdup(path);
    struct err e = {0};
    *strrchr(folder, '/') = 0;
    assert_int_equal(fs_mkdirs(folder, &e), OK);
    unlink(path); /* another file, not another content of one that is open */
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(p, 1, n, f) == n);
    fclose(f);
    xfree(folder);
    return path;
}

static void put_text(const struct room *r, const char *name, const char *text)
{
    xfree(put_file(r, name, text, strlen(text)));
}

/* The picture of sample i, and what it is packed as. */
static struct image sample_image(int i) { return picture(20 + i % 7, 18 + i % 5, i % 3 ? 3 : 1); }

static void add_sample(struct str *tar, int i, const char *extension, const char *label)
{
    struct str file = {0};
    struct image m = sample_image(i);
    char name[64];
    encode_png(&file, &m, (struct png_wish){0});
    snprintf(name, sizeof name, "s/%05d.png", i);
    tar_add(tar, name, file.p, file.n);
    snprintf(name, sizeof name, "s/%05d.%s", i, extension);
    tar_add(tar, name, label, strlen(label));
    image_free(&m);
    str_free(&file);
}

/* Samples [from, to) with labels i % CLASSES as .cls; a folder and a file that is none beside them. */
static void shard_of(struct str *tar, int from, int to)
{
    char label[16];
    str_clear(tar);
    for (int i = from; i < to; i++) {
        snprintf(label, sizeof label, "%d\n", i % CLASSES);
        add_sample(tar, i, "cls", label);
    }
    tar_add(tar, "readme", "no sample", 9);
    tar_end(tar);
}

static struct image_index_options index_of(const struct room *r, const char *path)
{
    return (struct image_index_options){.path = path,
                                        .part = "train",
                                        .classes = CLASSES,
                                        .limits = media_limits_usual(),
                                        .cache_dir = r->cache};
}

static void assert_ok(int code, const struct err *e)
{
    if (code) fail_msg("%s", e->text);
}

/* That row k is sample i: its label and its picture. */
static void assert_sample(struct image_index *x, int64_t k, int i)
{
    struct image_place p;
    struct err e = {0};
    struct str bytes = {0}, key = {0};
    struct image got, m = sample_image(i);
    char name[32];
    assert_ok(image_index_where(x, k, &p, &e), &e);
    assert_int_equal(p.label, i % CLASSES);
    assert_ok(image_index_read(x, &p, &bytes, &e), &e);
    struct media_limits l = media_limits_usual();
    assert_ok(media_image(&got, bytes.p, bytes.n, 0, &l, &e), &e);
    assert_int_equal(got.width, m.width);
    assert_memory_equal(got.p, m.p, image_bytes(&m));
    assert_ok(image_index_key(x, &p, &key, &e), &e);
    snprintf(name, sizeof name, "s/%05d", i);
    assert_string_equal(str_text(&key), name);
    image_free(&got);
    image_free(&m);
    str_free(&bytes);
    str_free(&key);
}

static void test_index(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0};
    struct image_index *x;
    struct err e = {0};
    shard_of(&tar, 0, 30);
    xfree(put_file(&r, "d/a-0.tar", tar.p, tar.n));
    shard_of(&tar, 30, 41);
    xfree(put_file(&r, "d/a-1.tar", tar.p, tar.n));
    put_text(&r, "d/notes.txt", "passed over");
    char *folder = fs_join(r.dir, "d"), *braces = fs_join(r.dir, "d/a-{0..1}.tar");
    const char *ways[] = {folder, braces};
    uint64_t sum = 0;
    for (int w = 0; w < 2; w++)
        for (int again = 0; again < 2; again++) { /* made, then found */
            struct image_index_options o = index_of(&r, ways[w]);
            assert_ok(image_index_open(&x, &o, &e), &e);
            assert_int_equal(image_index_n(x), 41);
            assert_true(!sum || sum == image_index_sum(x));
            sum = image_index_sum(x);
            for (int k = 0; k < 41; k += 1 + again) assert_sample(x, k, k);
            image_index_close(x);
        }
    /* a shard that changes makes another index; one that changes under an open one is an error */
    struct image_index_options o = index_of(&r, folder);
    assert_ok(image_index_open(&x, &o, &e), &e);
    shard_of(&tar, 30, 40);
    xfree(put_file(&r, "d/a-1.tar", tar.p, tar.n));
    struct image_place p;
    struct str bytes = {0};
    assert_ok(image_index_where(x, 40, &p, &e), &e);
    assert_int_equal(image_index_read(x, &p, &bytes, &e), ERR_IO);
    assert_non_null(strstr(e.text, "a-1.tar"));
    image_index_close(x);
    assert_ok(image_index_open(&x, &o, &e), &e);
    assert_int_equal(image_index_n(x), 40);
    image_index_close(x);
    str_free(&bytes);
    str_free(&tar);
    xfree(folder);
    xfree(braces);
    room_free(&r);
}

/* Every byte of an index may be wrong: it is refused by name, or a row is. */
static void test_damaged_index(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0};
    struct image_index *x;
    struct err e = {0};
    shard_of(&tar, 0, 3);
    char *path = put_file(&r, "a.tar", tar.p, tar.n), **names, *p;
    struct image_index_options o = index_of(&r, path);
    int n_names;
    size_t n;
    assert_ok(image_index_open(&x, &o, &e), &e);
    image_index_close(x);
    assert_ok(fs_list(r.cache, &names, &n_names, &e), &e);
    assert_int_equal(n_names, 1);
    char *file = fs_join(r.cache, names[0]);
    assert_ok(fs_read_all(file, 1 << 20, &p, &n, &e), &e);
    assert_int_equal(n, 64 + 3 * 40);
    for (size_t i = 0; i < n; i += CASE_STRIDE) {
        p[i] ^= 4;
        assert_ok(fs_write_atomic(file, p, n, &e), &e);
        p[i] ^= 4;
        int code = image_index_open(&x, &o, &e);
        struct image_place place;
        for (int64_t k = 0; !code && k < image_index_n(x); k++) code = image_index_where(x, k, &place, &e);
        if (code != ERR_CORRUPT) fail_msg("byte %zu: %d", i, code);
        assert_non_null(strstr(e.text, names[0]));
        image_index_close(x);
    }
    for (size_t cut = 0; cut < n; cut += 13) {
        assert_ok(fs_write_atomic(file, p, cut, &e), &e);
        assert_int_equal(image_index_open(&x, &o, &e), ERR_CORRUPT);
    }
    assert_ok(fs_write_atomic(file, p, n, &e), &e);
    assert_ok(image_index_open(&x, &o, &e), &e);
    image_index_close(x);
    fs_list_free(names, n_names);
    xfree(file);
    xfree(p);
    xfree(path);
    str_free(&tar);
    room_free(&r);
}

static int open_one(const struct room *r, const struct str *tar, const char *label, struct image_index **x,
                    struct err *e)
{
    static int number; /* another name, another index */
    char name[32];
    snprintf(name, sizeof name, "one-%d.tar", number++);
    char *path = put_file(r, name, tar->p, tar->n);
    struct image_index_options o = index_of(r, path);
    o.label = label;
    int code = image_index_open(x, &o, e);
    xfree(path);
    return code;
}

static void test_labels(void **state)
{
    (void)state;
    static const struct {
        const char *extension, *text, *way;
        int64_t label;    /* -1: an error, */
        const char *says; /* with these words */
    } cases[] = {
        {"cls", "7", NULL, 7, NULL},
        {"cls", " 7 \n", NULL, 7, NULL},
        {"txt", "3", NULL, 3, NULL},
        {"json", "{\"label\": 4}", NULL, 4, NULL},
        {"json", "{\"label\": \"4\"}", NULL, 4, NULL},
        {"json", "{\"a\": [1, {\"b\": 9}]}", "json[a][1][b]", 9, NULL},
        {"json", "{\"y\": 2}", "json[x],json[y]", 2, NULL},
        {"seg.idx", "5", "cls,seg.idx", 5, NULL},
        {"cls", "10", NULL, -1, "wanted 0 to 9"},
        {"cls", "-1", NULL, -1, "wanted 0 to 9"},
        {"cls", "7x", NULL, -1, "no whole number"},
        {"cls", "", NULL, -1, "no whole number"},
        {"cls", "99999999999999999999", NULL, -1, "no whole number"},
        {"txt", "a dog on a hill\x1b[31m", NULL, -1, "captions"},
        {"json", "{\"label\": 4.5}", NULL, -1, "no whole number"},
        {"json", "{\"label\": ", NULL, -1, "json"},
        {"json", "{\"a\": [1]}", "json[a][1]", -1, "no whole number"},
        {"npy", "1", NULL, -1, "has no label"},
        {"cls", "1", "txt", -1, "has no label"},
        {"cls", "1", "json[", -1, "no place of a label"},
        {"cls", "1", "", -1, "no place of a label"},
        {"cls", "1", "cls[a]", -1, "no place of a label"},
    };
    struct room r = room_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str tar = {0};
        struct image_index *x;
        struct err e = {0};
        struct image_place p;
        add_sample(&tar, 0, cases[i].extension, cases[i].text);
        tar_end(&tar);
        int code = open_one(&r, &tar, cases[i].way, &x, &e);
        if (cases[i].label >= 0) {
            assert_ok(code, &e);
            assert_ok(image_index_where(x, 0, &p, &e), &e);
            assert_int_equal(p.label, cases[i].label);
        } else {
            assert_true(code == ERR_CORRUPT || code == ERR_REQUEST);
            if (!strstr(e.text, cases[i].says) || strchr(e.text, '\x1b'))
                fail_msg("case %zu: \"%s\", wanted \"%s\"", i, e.text, cases[i].says);
        }
        image_index_close(x);
        str_free(&tar);
    }
    room_free(&r);
}

static void refused(const struct room *r, const struct str *tar, const char *says)
{
    struct image_index *x;
    struct err e = {0};
    if (!open_one(r, tar, NULL, &x, &e)) fail_msg("taken, wanted \"%s\"", says);
    if (!strstr(e.text, says)) fail_msg("\"%s\", wanted \"%s\"", e.text, says);
}

static void test_bad_shards(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0};
    tar_add(&tar, "a.cls", "1", 1);
    tar_end(&tar);
    refused(&r, &tar, "has no picture (it has .cls)");
    str_clear(&tar);
    add_sample(&tar, 0, "jpg", "another picture");
    tar_end(&tar);
    refused(&r, &tar, "two pictures");
    str_clear(&tar);
    tar_end(&tar);
    refused(&r, &tar, "");
    str_clear(&tar);
    str_puts(&tar, "no tar at all");
    refused(&r, &tar, "no tar archive");
    str_clear(&tar);
    for (int i = 0; i < 600; i++) str_puts(&tar, "\x1f\x8b\x08"); /* begins like gzip, and is damaged */
    refused(&r, &tar, "");
    shard_of(&tar, 0, 6);
    for (size_t cut = 512; cut < tar.n - 1024; cut += 700) { /* a truncated shard is none, wherever it was cut */
        struct str part = {0};
        str_add(&part, tar.p, cut);
        struct image_index *x;
        struct err e = {0};
        assert_int_equal(open_one(&r, &part, NULL, &x, &e), ERR_CORRUPT);
        str_free(&part);
    }
    str_free(&tar);
    room_free(&r);
}

/* Bad samples are left out and listed: a damaged picture, a label that is none, a sample without a picture. */
static void test_skip_bad(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0}, file = {0};
    struct err e = {0};
    struct image_index *x;
    char label[8];
    for (int i = 0; i < 9; i++) {
        struct image m = sample_image(i);
        char name[32];
        encode_png(&file, &m, (struct png_wish){0});
        if (i == 2) file.p[file.n / 2] ^= 16;
        snprintf(name, sizeof name, "s/%05d.png", i);
        if (i != 4) tar_add(&tar, name, file.p, file.n);
        snprintf(name, sizeof name, "s/%05d.cls", i);
        snprintf(label, sizeof label, i == 6 ? "dog" : "%d", i);
        tar_add(&tar, name, label, strlen(label));
        image_free(&m);
    }
    tar_end(&tar);
    char *path = put_file(&r, "b.tar", tar.p, tar.n);
    struct image_index_options o = index_of(&r, path);
    assert_int_equal(image_index_open(&x, &o, &e), ERR_CORRUPT); /* its labels; pictures are not looked at */
    o.skip_bad = true;
    for (int again = 0; again < 2; again++) {
        assert_ok(image_index_open(&x, &o, &e), &e);
        static const int right[] = {0, 1, 3, 5, 7, 8};
        assert_int_equal(image_index_n(x), 6);
        for (int k = 0; k < 6; k++) assert_sample(x, k, right[k]);
        image_index_close(x);
    }
    char **names, *list;
    int n_names, lists = 0;
    size_t n;
    assert_ok(fs_list(r.cache, &names, &n_names, &e), &e);
    for (int i = 0; i < n_names; i++) {
        if (!str_ends(names[i], ".skipped")) continue;
        lists++;
        char *at = fs_join(r.cache, names[i]);
        assert_ok(fs_read_all(at, 1 << 20, &list, &n, &e), &e);
        xfree(at);
        assert_non_null(strstr(list, "00002"));
        assert_non_null(strstr(list, "00004"));
        assert_non_null(strstr(list, "00006"));
        int lines = 0;
        for (size_t k = 0; k < n; k++) lines += list[k] == '\n';
        assert_int_equal(lines, 3);
        xfree(list);
    }
    assert_int_equal(lists, 1);
    fs_list_free(names, n_names);
    xfree(path);
    str_free(&tar);
    str_free(&file);
    room_free(&r);
}

/* ---- Megatron-Energon ---- */

#define TYPE "sample_type:\n  __module__: megatron.energon\n  __class__: ImageClassificationSample\n"
#define MAP "field_map:\n  image: png,jpg\n  label: cls\n"

static void energon_folder(const struct room *r, const char *dataset, const char *split, const char *info)
{
    struct str tar = {0};
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "e/parts/data-%d.tar", i);
        shard_of(&tar, 10 * i, 10 * i + 4 + i);
        xfree(put_file(r, name, tar.p, tar.n));
    }
    put_text(r, "e/.nv-meta/dataset.yaml", dataset);
    put_text(r, "e/.nv-meta/split.yaml", split);
    put_text(r, "e/.nv-meta/.info.json", info);
    str_free(&tar);
}

static const char counts[] =
    "{\n  \"energon_version\": \"7.4.1\",\n  \"shard_counts\": {\n    \"parts/data-0.tar\": 4,\n"
    "    \"parts/data-1.tar\": 5,\n    \"parts/data-2.tar\": 6\n  }\n}";

static void test_energon(void **state)
{
    (void)state;
    struct room r = room_new();
    struct image_index *x;
    struct err e = {0};
    char *folder = fs_join(r.dir, "e");
    struct image_index_options o = index_of(&r, folder);
    energon_folder(&r, TYPE MAP,
                   "split_parts:\n  train:\n  - parts/data-{2..1}.tar\n  val:\n  - parts/data-0.tar\n  test: "
                   "[]\nexclude:\n"
                   "- parts/data-1.tar/{0..1}\n- parts/data-0.tar/3\n- parts/data-2.tar/5\n",
                   counts);
    assert_true(energon_is(folder));
    assert_ok(image_index_open(&x, &o, &e), &e);
    static const int train[] = {20, 21, 22, 23, 24, 12, 13, 14};
    assert_int_equal(image_index_n(x), 8);
    for (int k = 0; k < 8; k++) assert_sample(x, k, train[k]);
    image_index_close(x);
    o.part = "val";
    assert_ok(image_index_open(&x, &o, &e), &e);
    assert_int_equal(image_index_n(x), 3);
    assert_sample(x, 2, 2);
    image_index_close(x);

    static const struct {
        const char *dataset, *split, *info, *part, *says;
    } wrong[] = {
        {TYPE MAP, "split_parts: {train: [parts/data-0.tar]}", counts, "val", "no part \"val\""},
        {TYPE MAP, "split_parts: {train: [parts/data-0.tar]}\nexclude: [parts/data-0.tar]", counts, "train",
         "no shard"},
        {TYPE MAP, "split_parts: {train: [../x.tar]}", counts, "train", "outside"},
        {TYPE MAP, "split_parts: {train: 3}", counts, "train", "a list of names"},
        {TYPE MAP, "split_parts: {train: [parts/data-9.tar]}", counts, "train", "says nothing of"},
        {TYPE MAP, "split_parts: {train: [parts/data-0.tar]}", "{\"shard_counts\": {\"parts/data-0.tar\": 5}}", "train",
         "another version"},
        {TYPE MAP, "split_parts: {train: [parts/data-0.tar]}", "{\"shard_counts\": {\"parts/data-0.tar\": \"x\"}}",
         "train", "number of samples"},
        {TYPE MAP, "split_parts: {train: [parts/data-0.tar]}", "[]", "train", "a map"},
        {TYPE "sample_loader: loader.py:f\n", "a: b", counts, "train", "Python"},
        {TYPE, "a: b", counts, "train", "field_map"},
        {TYPE "field_map: {image: png}\n", "a: b", counts, "train", ""},
        {MAP, "a: b", counts, "train", "__class__"},
        {"sample_type: {__class__: CaptioningSample}\nfield_map: {image: png, caption: txt}\n",
         "split_parts: {train: [parts/data-0.tar]}", counts, "train", "CaptioningSample"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        energon_folder(&r, wrong[i].dataset, wrong[i].split, wrong[i].info);
        o.part = wrong[i].part;
        if (!image_index_open(&x, &o, &e)) fail_msg("case %zu was taken", i);
        if (!strstr(e.text, wrong[i].says)) fail_msg("case %zu: \"%s\"", i, e.text);
    }
    xfree(folder);
    room_free(&r);
}

/* ---- batches ---- */

static struct dataset_options pictures_of(const struct room *r, const struct dataset_source *s, int n,
                                          enum view_crop crop)
{
    return (struct dataset_options){
        .sources = s,
        .n_sources = n,
        .seq_len = 5,
        .seed = 11,
        .shuffled = true,
        .global_batch = 8,
        .cache_dir = r->cache,
        .images = {.view = {.size = SIZE,
                            .channels = 3,
                            .crop = crop,
                            .resize = SIZE,
                            .scale = {0.3, 1},
                            .ratio = {0.75, 4.0 / 3},
                            .flip = 0.5,
                            .mean = {0.5, 0.5, 0.5},
                            .std = {0.5, 0.5, 0.5}},
                   .limits = media_limits_usual(),
                   .classes = CLASSES,
                   .part = "train"},
    };
}

static void test_batches(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0};
    struct err e = {0};
    struct dataset *d;
    shard_of(&tar, 0, 21);
    char *one = put_file(&r, "one.tar", tar.p, tar.n);
    shard_of(&tar, 21, 40);
    char *two = put_file(&r, "two.tar", tar.p, tar.n);
    struct dataset_source s[2] = {{.path = one, .weight = 2}, {.path = two, .weight = 1}};
    struct dataset_options o = pictures_of(&r, s, 2, CROP_RANDOM);
    const int64_t pixels = 3 * SIZE * SIZE;
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_pixels(d), pixels);
    assert_int_equal(dataset_n_samples(d), 40);
    struct batch whole, part;
    batch_init_pictures(&whole, 8, 5, pixels);
    batch_init_pictures(&part, 3, 5, pixels);
    int seen[CLASSES] = {0};
    for (int64_t step = 0; step < 12; step++) {
        assert_ok(dataset_batch(d, step, 8, 0, &whole, &e), &e);
        assert_int_equal(whole.n_trained, 8);
        for (int row = 0; row < 8; row++) {
            int source;
            int64_t epoch, sample;
            dataset_where(d, step * 8 + row, &source, &epoch, &sample);
            assert_int_equal(whole.label[row], (sample + 21 * source) % CLASSES);
            seen[whole.label[row]]++;
        }
        for (int first = 0; first <= 5; first += 5) { /* any part of it is that part */
            assert_ok(dataset_batch(d, step, 8, first, &part, &e), &e);
            assert_memory_equal(part.pixels, whole.pixels + first * pixels, 3 * to_size(pixels) * sizeof(float));
            assert_memory_equal(part.label, whole.label + first, 3 * sizeof(int32_t));
        }
    }
    for (int c = 0; c < CLASSES; c++) assert_true(seen[c] > 0);
    for (int workers = 1; workers <= 3; workers += 2) { /* and whoever fills it */
        struct prefetch *p;
        struct prefetch_config c =
            {.first_step = 3, .global_batch = 8, .first = 0, .count = 8, .depth = 4, .workers = workers};
        assert_ok(prefetch_new(&p, d, &c, &e), &e);
        for (int64_t step = 3; step < 9; step++) {
            const struct batch *b;
            assert_ok(prefetch_next(p, &b, &e), &e);
            assert_ok(dataset_batch(d, step, 8, 0, &whole, &e), &e);
            assert_memory_equal(b->pixels, whole.pixels, 8 * to_size(pixels) * sizeof(float));
            assert_memory_equal(b->label, whole.label, 8 * sizeof(int32_t));
        }
        prefetch_free(p);
    }
    uint64_t mark = dataset_fingerprint(d);
    dataset_close(d);
    o.seed = 12; /* another order, and other views */
    struct dataset *other;
    assert_ok(dataset_open(&other, &o, &e), &e);
    assert_int_equal(dataset_fingerprint(other), mark);
    batch_fini(&part);
    batch_init_pictures(&part, 8, 5, pixels);
    assert_ok(dataset_batch(other, 8, 8, 0, &part, &e), &e);
    assert_true(memcmp(part.pixels, whole.pixels, 8 * to_size(pixels) * sizeof(float)) != 0);
    dataset_close(other);
    batch_fini(&whole);
    batch_fini(&part);
    str_free(&tar);
    xfree(one);
    xfree(two);
    room_free(&r);
}

/* Every sample once, the middle of it, and blanks behind the end. */
static void test_evaluation(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0};
    struct err e = {0};
    struct dataset *d;
    shard_of(&tar, 0, 11);
    char *one = put_file(&r, "one.tar", tar.p, tar.n);
    struct dataset_source s = {.path = one, .weight = 1};
    struct dataset_options o = pictures_of(&r, &s, 1, CROP_CENTER);
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_eval_batches(d, 4, 0), 3);
    assert_int_equal(dataset_eval_tokens(d), 11);
    struct batch b;
    float *wanted = xmalloc(3 * SIZE * SIZE * sizeof *wanted);
    batch_init_pictures(&b, 4, 5, 3 * SIZE * SIZE);
    for (int64_t i = 0; i < 3; i++) {
        assert_ok(dataset_eval_batch(d, i, 4, 0, 0, &b, &e), &e);
        assert_int_equal(b.n_trained, i < 2 ? 4 : 3);
        for (int row = 0; row < 4; row++) {
            int k = (int)i * 4 + row;
            assert_int_equal(b.label[row], k < 11 ? k % CLASSES : -1);
            if (k >= 11) continue;
            struct image m = sample_image(k);
            view_values(&o.images.view, &m, 0, 0, wanted);
            assert_memory_equal(b.pixels + row * 3 * SIZE * SIZE, wanted, 3 * SIZE * SIZE * sizeof *wanted);
            image_free(&m);
        }
    }
    dataset_close(d);
    batch_fini(&b);
    xfree(wanted);
    /* a picture that is damaged is an error that names its shard and key */
    for (size_t at = 0; at + 8 < tar.n; at++)
        if (!memcmp(tar.p + at, "IDAT", 4) && at > 4000) {
            tar.p[at + 6] ^= 1;
            break;
        }
    char *bad = put_file(&r, "bad.tar", tar.p, tar.n);
    s.path = bad;
    batch_init_pictures(&b, 11, 5, 3 * SIZE * SIZE);
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_eval_batch(d, 0, 11, 0, 0, &b, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "bad.tar: sample s/0000"));
    dataset_close(d);
    o.images.view.channels = 4;
    assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
    batch_fini(&b);
    xfree(one);
    xfree(bad);
    str_free(&tar);
    room_free(&r);
}

/* More shards than are held open at a time, read by several threads. */
struct reading {
    struct image_index *x;
    int from, wrong;
};

static void *read_many(void *ctx)
{
    struct reading *r = ctx;
    for (int k = 0; k < 600; k++) {
        struct image_place p;
        struct str bytes = {0};
        struct err e = {0};
        int i = (r->from + 131 * k) % 300;
        if (image_index_where(r->x, i, &p, &e) || image_index_read(r->x, &p, &bytes, &e) || p.label != i % CLASSES ||
            memcmp(bytes.p, "\x89PNG", 4) != 0)
            r->wrong++;
        str_free(&bytes);
    }
    return NULL;
}

static void test_many_shards(void **state)
{
    (void)state;
    struct room r = room_new();
    struct str tar = {0};
    struct err e = {0};
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "m/%03d.tar", i);
        shard_of(&tar, i, i + 1);
        xfree(put_file(&r, name, tar.p, tar.n));
    }
    char *folder = fs_join(r.dir, "m");
    struct image_index_options o = index_of(&r, folder);
    struct image_index *x;
    assert_ok(image_index_open(&x, &o, &e), &e);
    struct reading reading[3];
    pthread_t thread[3];
    for (int t = 0; t < 3; t++) {
        reading[t] = (struct reading){x, 97 * t, 0};
        assert_int_equal(pthread_create(&thread[t], NULL, read_many, &reading[t]), 0);
    }
    for (int t = 0; t < 3; t++) {
        pthread_join(thread[t], NULL);
        assert_int_equal(reading[t].wrong, 0);
    }
    image_index_close(x);
    xfree(folder);
    str_free(&tar);
    room_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),      cmocka_unit_test(test_damaged_index), cmocka_unit_test(test_labels),
        cmocka_unit_test(test_bad_shards), cmocka_unit_test(test_skip_bad),      cmocka_unit_test(test_energon),
        cmocka_unit_test(test_batches),    cmocka_unit_test(test_evaluation),    cmocka_unit_test(test_many_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
