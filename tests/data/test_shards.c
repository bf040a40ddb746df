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
#include "data/energon_mix.h"
#include "data/prefetch.h"
#include "data/sample_keys.h"
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
                   "- parts/data-1.tar/s/{00010..00011}\n- parts/data-0.tar/s/00003\n- parts/data-2.tar/s/00025\n"
                   "- parts/data-2.tar/s/0002\n",
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
        {TYPE "field_map: {image: png, caption: txt}\n", "a: b", counts, "train",
         "has no field \"caption\"; it has image"},
        {"__module__: megatron.energon\n__class__: CrudeWebdataset\n", "a: b", counts, "train", "a cooker"},
        {"sample_type: {__class__: InterleavedSample}\n", "a: b", counts, "train", "pictures and texts in turn"},
        {TYPE MAP "split_config: split9.yaml\n", "a: b", counts, "train", "split9.yaml"},
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

/* ---- several folders in one ---- */

enum { PICTURES = 1, LABELS = 2 };

/* A folder of samples [from, to), `per` in a shard, all of them train; what: of which its samples are. */
static void folder_of(const struct room *r, const char *name, int from, int to, int per, int what)
{
    struct str tar = {0}, split = {0}, info = {0};
    char path[64], text[80];
    str_puts(&split, "split_parts:\n  val: []\n  train:\n");
    str_puts(&info, "{\"shard_counts\": {");
    for (int i = from, n; i < to; i += n) {
        n = to - i < per ? to - i : per;
        str_clear(&tar);
        for (int k = i; k < i + n; k++) {
            struct image m = sample_image(k);
            struct str file = {0};
            encode_png(&file, &m, (struct png_wish){0});
            snprintf(path, sizeof path, "s/%05d.png", k);
            if (what & PICTURES) tar_add(&tar, path, file.p, file.n);
            snprintf(path, sizeof path, "s/%05d.cls", k);
            snprintf(text, sizeof text, "%d", k % CLASSES);
            if (what & LABELS) tar_add(&tar, path, text, strlen(text));
            image_free(&m);
            str_free(&file);
        }
        tar_end(&tar);
        snprintf(path, sizeof path, "%s/%05d.tar", name, i);
        xfree(put_file(r, path, tar.p, tar.n));
        str_printf(&split, "  - '%05d.tar'\n", i);
        str_printf(&info, "%s\"%05d.tar\": %d", i > from ? ", " : "", i, n);
    }
    str_puts(&info, "}}");
    snprintf(path, sizeof path, "%s/.nv-meta/split.yaml", name);
    put_text(r, path, str_text(&split));
    snprintf(path, sizeof path, "%s/.nv-meta/.info.json", name);
    put_text(r, path, str_text(&info));
    snprintf(path, sizeof path, "%s/.nv-meta/dataset.yaml", name);
    put_text(r, path,
             what == (PICTURES | LABELS) ? TYPE MAP
             : what == PICTURES          ? "sample_type: {__class__: ImageSample}\nfield_map: {image: png}\n"
                                : "sample_type: {__module__: mine, __class__: ClassOnly}\nfield_map: {label: cls}\n");
    str_free(&tar);
    str_free(&split);
    str_free(&info);
}

/* mix.yaml as V2, with this for its train. */
static char *mix_of(const struct room *r, const char *train)
{
    struct str s = {0};
    str_puts(&s,
             "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  val: {path: a, split_part: train}\n"
             "  train:\n");
    str_puts(&s, train);
    char *path = put_file(r, "mix.yaml", s.p, s.n);
    str_free(&s);
    return path;
}

/* The samples of a leaf, in order. */
static void assert_leaf(const struct room *r, const struct energon_leaf *l, const int *wanted, int n)
{
    struct image_index *x;
    struct err e = {0};
    struct image_index_options o = index_of(r, l->name);
    o.energon = l;
    assert_ok(image_index_open(&x, &o, &e), &e);
    assert_int_equal(image_index_n(x), n);
    for (int k = 0; k < n; k++) assert_sample(x, k, wanted[k]);
    image_index_close(x);
}

static void test_mix(void **state)
{
    (void)state;
    struct room r = room_new();
    struct energon_mix m;
    struct err e = {0};
    folder_of(&r, "a", 0, 10, 4, PICTURES | LABELS);
    folder_of(&r, "b", 10, 30, 20, PICTURES | LABELS);
    put_text(&r, "old.yaml",
             "splits:\n  train:\n    datasets:\n    - {path: a, weight: 1}\n    - {path: ./b, weight: 3}\n");
    char *path =
        mix_of(&r, "    subset: {range: [50%, 100%]}\n    blend:\n    - weight: 6\n      path: a\n      subset: "
                   "{range: [2, 8]}\n    - {weight: 2, path: old.yaml, subflavors: {x: y}, subset: {range: "
                   "[20%, 60%]}}\n");
    assert_true(energon_mix_is(path));
    assert_ok(energon_mix_read(&m, path, "train", &e), &e);
    assert_int_equal(m.n, 3);
    static const double weights[] = {0.75, 0.0625, 0.1875};
    for (int i = 0; i < 3; i++) assert_float_equal(m.leaf[i].weight, weights[i], 1e-12);
    assert_leaf(&r, &m.leaf[0], (int[]){5, 6, 7}, 3); /* half of [2, 8) */
    assert_leaf(&r, &m.leaf[1], (int[]){4, 5}, 2);    /* of 20 % to 60 % the upper half */
    assert_leaf(&r, &m.leaf[2], (int[]){18, 19, 20, 21}, 4);
    energon_mix_free(&m);

    /* As the source of a dataset: each folder is one, by its share of the weight that the file has. */
    char *one = fs_join(r.dir, "b");
    struct dataset_source s[2] = {{.path = path, .weight = 1}, {.path = one, .weight = 3}};
    struct dataset_options o = pictures_of(&r, s, 2, CROP_CENTER);
    struct dataset *d;
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_n_sources(d), 4);
    assert_non_null(strstr(dataset_source_name(d, 1), "mix.yaml: "));
    static const int parts_of_64[] = {12, 1, 3, 48};
    for (int i = 0; i < 4; i++) {
        double epochs;
        assert_int_equal(dataset_used(d, 640, i, &epochs), 10 * parts_of_64[i]);
    }
    uint64_t mark = dataset_fingerprint(d);
    dataset_close(d);
    /* Other weights in the file are another dataset to go on with. */
    xfree(mix_of(&r, "    subset: {range: [50%, 100%]}\n    blend:\n    - weight: 5\n      path: a\n      subset: "
                     "{range: [2, 8]}\n    - {weight: 2, path: old.yaml, subset: {range: [20%, 60%]}}\n"));
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_true(dataset_fingerprint(d) != mark);
    dataset_close(d);

    /* Repetitions: an epoch of 2 * 10 + 1 * 20 samples has each of a twice and each of b once, in any order. */
    xfree(mix_of(&r, "    blend_epochized:\n    - {repetitions: 2, path: a}\n    - {repetitions: 1, path: b}\n"));
    o.n_sources = 1;
    assert_ok(dataset_open(&d, &o, &e), &e);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[2][20] = {{0}};
        for (int64_t k = 40 * epoch; k < 40 * (epoch + 1); k++) {
            int source;
            int64_t its, sample;
            dataset_where(d, k, &source, &its, &sample);
            seen[source][sample]++;
        }
        for (int i = 0; i < 20; i++) {
            assert_int_equal(seen[1][i], 1);
            if (i < 10) assert_int_equal(seen[0][i], 2);
        }
    }
    dataset_close(d);
    /* Beside another source the file has the weight that it was given, and files of repetitions multiply. */
    put_text(&r, "twice.yaml",
             "__class__: MetadatasetV2\nsplits: {train: {blend_epochized: [{repetitions: 2, path: a}]}}\n");
    xfree(mix_of(&r, "    blend_epochized:\n    - {repetitions: 1.5, path: twice.yaml}\n    - {path: b}\n"));
    o.n_sources = 2;
    s[1].weight = 1;
    assert_ok(dataset_open(&d, &o, &e), &e);
    static const int parts_of_100[] = {30, 20, 50};
    for (int i = 0; i < 3; i++) {
        double epochs;
        assert_int_equal(dataset_used(d, 1000, i, &epochs), 10 * parts_of_100[i]);
    }
    dataset_close(d);
    o.n_sources = 1;
    xfree(mix_of(&r, "    path: a\n"));
    /* Validation has all of its part once, whatever the weights. */
    o.images.part = "val";
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_n_samples(d), 10);
    dataset_close(d);
    struct tokenizer *bytes;
    assert_ok(tokenizer_open(&bytes, "byte", &e), &e);
    o.images.view.size = 0;
    o.images.part = "train";
    o.tokenizer = bytes;
    assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "is a metadataset of Megatron-Energon"));
    s[0].path = one;
    assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "is a folder of Megatron-Energon"));
    tokenizer_free(bytes);
    xfree(one);
    xfree(path);
    room_free(&r);
}

#define JOINER "      joiner: {__module__: megatron.energon, __class__: ImageClassificationSample}\n"

/* Keys by which folders are joined: many, each found with its number, none that was not put there. */
static void test_keys(void **state)
{
    (void)state;
    struct sample_keys k = {0};
    char key[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "s/%d", 7 * i);
        assert_int_equal(sample_keys_find(&k, key), -1);
        assert_true(sample_keys_add(&k, key, i));
        assert_false(sample_keys_add(&k, key, i + 1));
    }
    for (int i = 0; i < 21000; i++) {
        snprintf(key, sizeof key, "s/%d", i);
        assert_int_equal(sample_keys_find(&k, key), i % 7 ? -1 : i / 7);
    }
    sample_keys_free(&k);
}

static void test_join(void **state)
{
    (void)state;
    struct room r = room_new();
    struct energon_mix m;
    struct err e = {0};
    folder_of(&r, "p", 0, 12, 5, PICTURES);
    folder_of(&r, "q", 4, 20, 7, LABELS);
    folder_of(&r, "a", 0, 6, 6, PICTURES | LABELS);
    static const struct {
        const char *train, *says; /* NULL: it is read */
        int n, first;
    } cases[] = {
        {"      join: [{path: p}, {path: q, nonmatch: skip}]\n" JOINER, NULL, 8, 4},
        {"      join: [{path: q}, {path: p, nonmatch: skip}]\n" JOINER, NULL, 8, 4},
        {"      join: [{path: a}, {path: q, nonmatch: none}]\n" JOINER, NULL, 6, 0},
        {"      join: [{path: q, split_part: train}, {path: p, nonmatch: skip}]\n      split_part: val\n" JOINER,
         "split.yaml:2: the part \"val\" has no shard", 0, 0},
        {"      join: [{path: p}, {path: q, nonmatch: skip}]\n      subset: {range: [1, 3]}\n" JOINER, NULL, 2, 5},
        {"      join: [{path: p}, {path: q, nonmatch: skip}]\n      subset: {range: [1, 9]}\n" JOINER,
         "a subset of samples 1 to 9 of 8", 0, 0},
        {"      join: [{path: p}, {path: q, nonmatch: skip}]\n      subset: {range: [0%, 50%]}\n" JOINER, "in percent",
         0, 0},
        {"      join: [{path: p}, {path: q}]\n" JOINER, "sample s/00000 at byte 0: ", 0, 0},
        {"      join: [{path: p}, {path: q, nonmatch: none}]\n" JOINER, "has no label, nor has a partner", 0, 0},
        {"      join: [{path: p}, {path: p}]\n" JOINER, "names a label", 0, 0},
        {"      join: [{path: q}]\n" JOINER, "its type", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = mix_of(&r, cases[i].train);
        struct image_index *x = NULL;
        assert_ok(energon_mix_read(&m, path, "train", &e), &e);
        assert_int_equal(m.n, 1);
        struct image_index_options o = index_of(&r, m.leaf[0].name);
        o.energon = m.leaf;
        int code = image_index_open(&x, &o, &e);
        if (!cases[i].says) {
            assert_ok(code, &e);
            assert_int_equal(image_index_n(x), cases[i].n);
            for (int k = 0; k < cases[i].n; k++) assert_sample(x, k, cases[i].first + k);
        } else if (!code || (i + 1 < sizeof cases / sizeof *cases && !strstr(e.text, cases[i].says))) {
            fail_msg("case %zu: \"%s\", wanted \"%s\"", i, code ? e.text : "taken", cases[i].says);
        }
        image_index_close(x);
        energon_mix_free(&m);
        xfree(path);
    }
    /* With skip_bad what has no partner is listed, and pictures of another folder's shards are looked at. */
    char *path = mix_of(&r, "      join: [{path: q}, {path: p}]\n" JOINER);
    assert_ok(energon_mix_read(&m, path, "train", &e), &e);
    struct image_index_options o = index_of(&r, m.leaf[0].name);
    struct image_index *x;
    o.energon = m.leaf;
    o.skip_bad = true;
    assert_ok(image_index_open(&x, &o, &e), &e);
    assert_int_equal(image_index_n(x), 8);
    image_index_close(x);
    /* One key twice in a folder cannot be joined by. */
    folder_of(&r, "p", 0, 12, 5, PICTURES);
    put_text(&r, "p/.nv-meta/split.yaml", "split_parts: {train: [00000.tar, 00000.tar]}\n");
    o.skip_bad = false;
    for (int both = 0; both < 2; both++) {
        assert_int_equal(image_index_open(&x, &o, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "has the same key"));
        energon_mix_free(&m);
        xfree(path);
        path = mix_of(&r, "      join: [{path: p}, {path: q, nonmatch: skip}]\n" JOINER);
        assert_ok(energon_mix_read(&m, path, "train", &e), &e);
        o.energon = m.leaf;
    }
    energon_mix_free(&m);
    xfree(path);
    room_free(&r);
}

static void test_bad_mix(void **state)
{
    (void)state;
    struct room r = room_new();
    struct energon_mix m;
    struct err e = {0};
    folder_of(&r, "a", 0, 2, 2, PICTURES | LABELS);
    put_text(&r, "ring.yaml", "__class__: MetadatasetV2\nsplits: {train: {path: ring.yaml}}\n");
    put_text(&r, "e.yaml",
             "__class__: MetadatasetV2\nsplits: {train: {blend_epochized: [{repetitions: 2, path: a}]}}\n");
    put_text(&r, "c.jsonl", "{}\n");
    put_text(&r, "x.yaml", "__class__: MyBlend\nsplits: {train: {path: a}}\n");
    static const struct {
        const char *train, *says;
    } cases[] = {
        {"    {path: nowhere}\n", "mix.yaml:6: "},
        {"    {path: nowhere}\n", "no such folder or file"},
        {"    {path: 's3://b/a'}\n", "behind an address"},
        {"    {path: c.jsonl}\n", "crude data"},
        {"    {path: ring.yaml}\n", "in a circle"},
        {"    {path: x.yaml}\n", "MyBlend"},
        {"    {path: a, aux: {x: b}}\n", "aux: is for Python code"},
        {"    {path: a, split: train}\n", "mix.yaml:6: split: no such key"},
        {"    {path: a, weight: 2}\n", "weight: no such key"},
        {"    {path: a, shuffle_over_epochs_multiplier: 2}\n", "wanted 1"},
        {"    {path: a, shuffle_over_epochs_multiplier: null}\n", "wanted 1"},
        {"    {path: a, subset: {range: [50%, 25%]}}\n", "subset: wanted"},
        {"    {path: a, subset: {range: [0%, 101%]}}\n", "subset: wanted"},
        {"    {path: a, subset: {range: [3]}}\n", "subset: wanted"},
        {"    {path: a, dataset_config: ../x.yaml}\n", "the name of a file in .nv-meta"},
        {"    {blend: [{path: a, weight: 0}]}\n", "weight: wanted a number above 0"},
        {"    {blend: [{path: a, weight: nan}]}\n", "weight: wanted a number above 0"},
        {"    {blend: [{path: a, repetitions: 2}]}\n", "repetitions: no such key"},
        {"    {blend: [{path: e.yaml}]}\n", "do not mix"},
        {"    {blend: []}\n", "wanted a list"},
        {"    {blend: [a]}\n", "wanted a map"},
        {"    {blend: [{path: a}], subset: {range: [0, 1]}}\n", "wanted percents"},
        {"    {join: [{path: a}, {path: a}]}\n", "has no joiner"},
        {"    {join: {x: {path: a}}, joiner: {__class__: ImageClassificationSample}}\n", "wanted a list of folders"},
        {"    {join: [{path: a}], joiner: {__module__: mine, __class__: F}}\n", "Python code"},
        {"    {join: [{path: a}], joiner: {__class__: CaptioningSample}}\n", "CaptioningSample"},
        {"    {join: [{path: a, nonmatch: skip}], joiner: {__class__: ImageClassificationSample}}\n", "leave it out"},
        {"    {join: [{path: a}, {path: a, nonmatch: x}], joiner: {__class__: ImageClassificationSample}}\n",
         "error, skip or none"},
        {"    {join: [{path: e.yaml}], joiner: {__class__: ImageClassificationSample}}\n", "is no folder"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = mix_of(&r, cases[i].train);
        if (!energon_mix_read(&m, path, "train", &e)) fail_msg("case %zu was taken", i);
        if (!strstr(e.text, cases[i].says)) fail_msg("case %zu: \"%s\", wanted \"%s\"", i, e.text, cases[i].says);
        energon_mix_free(&m);
        assert_int_equal(energon_mix_read(&m, path, "test", &e), ERR_REQUEST);
        assert_non_null(strstr(e.text, "no part \"test\""));
        energon_mix_free(&m);
        xfree(path);
    }
    room_free(&r);
}

/* ---- batches ---- */

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
        cmocka_unit_test(test_index),       cmocka_unit_test(test_damaged_index), cmocka_unit_test(test_labels),
        cmocka_unit_test(test_bad_shards),  cmocka_unit_test(test_skip_bad),      cmocka_unit_test(test_energon),
        cmocka_unit_test(test_mix),         cmocka_unit_test(test_join),          cmocka_unit_test(test_bad_mix),
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_batches),       cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_many_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
