/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with pictures from shards: captions, questions with one, two and no pictures, one by one and packed; which
 * token is which patch, what a loss is taken of, whose pixels are whose; batches as a function of (seed, step); and
 * what is wrong in a shard, named by its place. */
#include "scratch.h"

#include <stdio.h>
#include <string.h>

#include "data/dataset.h"
#include "media/encode.h"

enum { SIDE = 6, PATCHES = 4, MOST = 12, SEQ = 60, TOKEN = 300, EACH = 3 * SIDE * SIDE, PIXELS = MOST * EACH };

struct room {
    char *dir, *cache;
};

static struct image image_of(int i, int k) { return picture(9 + i % 3 + k, 8 + i % 4, 3); }

/* Pictures of sample i: captions have one, then one, two and none. */
static int pictures_in(int i) { return (int[]){1, 1, 2, 0}[i % 4]; }

static void text_of(int i, char out[200])
{
    static const char *const mark[] = {"<image>", "<image>\\n", "<image> and <image>", ""};
    if (i % 4 == 0) snprintf(out, 200, "caption %d\n", i);
    else
        snprintf(out, 200,
                 "{\"conversations\": [{\"from\": \"human\", \"value\": \"%sq%d?\"}, {\"from\": \"gpt\", "
                 "\"value\": \"a%d\"}]}",
                 mark[i % 4], i, i);
}

static void add_sample(struct str *tar, int i, int pictures, const char *text)
{
    char name[64];
    for (int k = 0; k < pictures; k++) {
        struct str file = {0};
        struct image m = image_of(i, k);
        encode_png(&file, &m, (struct png_wish){0});
        snprintf(name, sizeof name, "s/%05d%s.png", i, k ? ".b" : pictures > 1 ? ".a" : "");
        tar_add(tar, name, file.p, file.n);
        image_free(&m);
        str_free(&file);
    }
    snprintf(name, sizeof name, "s/%05d.%s", i, text[0] == '{' ? "json" : "txt");
    tar_add(tar, name, text, strlen(text));
}

static char *put(const struct room *r, const char *name, struct str *tar)
{
    char *path = fs_join(r->dir, name);
    tar_end(tar);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(tar->p, 1, tar->n, f) == tar->n);
    fclose(f);
    str_clear(tar);
    return path;
}

static char *shard(const struct room *r, const char *name, int from, int to)
{
    struct str tar = {0};
    char text[200];
    for (int i = from; i < to; i++) {
        text_of(i, text);
        add_sample(&tar, i, pictures_in(i), text);
    }
    char *path = put(r, name, &tar);
    str_free(&tar);
    return path;
}

static struct dataset_options options(const struct room *r, const struct dataset_source *s, int n,
                                      const struct tokenizer *t, enum pack_kind pack)
{
    struct dataset_options o = {.sources = s,
                                .n_sources = n,
                                .tokenizer = t,
                                .seq_len = SEQ,
                                .seed = 11,
                                .shuffled = true,
                                .reset_positions = true,
                                .mask_boundaries = true,
                                .pack = pack,
                                .global_batch = 4,
                                .cache_dir = r->cache};
    o.images = (struct image_rule){.view = {.size = SIDE, .channels = 3, .crop = CROP_CENTER, .resize = 7},
                                   .limits = media_limits_usual(),
                                   .part = "train"};
    for (int i = 0; i < 3; i++) o.images.view.mean[i] = 0.5, o.images.view.std[i] = 0.5;
    o.pictures = (struct text_pictures_rule){.patches = PATCHES, .places = 5, .lead = 1, .most = MOST, .token = TOKEN};
    return o;
}

static void assert_ok(int code, const struct err *e)
{
    if (code) fail_msg("%s", e->text);
}

/* What stands in the row from `at` on is document i: its text around its pictures' tokens, each the row of its patch, a
 * loss of the answer alone. *pictures: of the row before it. */
static int64_t assert_document(const struct batch *b, int64_t row, int64_t at, int i, int64_t n, int64_t *pictures)
{
    struct str text = {0}, trained = {0};
    char want[64], answer[64];
    int64_t tokens = 0;
    for (int64_t k = at; k < at + n; k++) {
        int64_t p = row * b->seq_len + k;
        bool is = b->tokens[p] == TOKEN;
        assert_int_equal(b->patches[p], is ? (*pictures + tokens / PATCHES) * 5 + 1 + tokens % PATCHES : -1);
        if (is && tokens % PATCHES == 0) str_puts(&text, "@");
        tokens += is;
        if (!is) str_printf(&text, "%c", b->tokens[p]);
        assert_true(b->targets[p] != TOKEN);
        if (b->targets[p] >= 0 && b->targets[p] < 256) str_printf(&trained, "%c", b->targets[p]);
    }
    if (i % 4 == 0) snprintf(want, sizeof want, "@caption %d", i);
    else
        snprintf(want, sizeof want, "User: %sq%d?\n\nAssistant: a%d", (const char *[]){"", "@\n", "@ and @", ""}[i % 4],
                 i, i);
    snprintf(answer, sizeof answer, i % 4 ? "a%d" : "caption %d", i);
    assert_true(!strncmp(str_text(&text), want, strlen(want)));
    assert_string_equal(str_text(&trained), answer);
    assert_int_equal(tokens, PATCHES * pictures_in(i));
    float *wanted = xmalloc(EACH * sizeof *wanted);
    for (int k = 0; k < pictures_in(i); k++) {
        struct image m = image_of(i, k);
        struct view_rule rule = {.size = SIDE, .channels = 3, .crop = CROP_CENTER, .resize = 7};
        for (int c = 0; c < 3; c++) rule.mean[c] = rule.std[c] = 0.5;
        view_values(&rule, &m, 0, 0, wanted);
        assert_memory_equal(b->pixels + row * PIXELS + (*pictures + k) * EACH, wanted, EACH * sizeof *wanted);
        image_free(&m);
    }
    *pictures += pictures_in(i);
    xfree(wanted);
    str_free(&text);
    str_free(&trained);
    return at + n;
}

/* Every row of a few epochs, alone and packed, whatever was in the batch before. */
static void check_rows(const struct room *r, const struct tokenizer *t, enum pack_kind pack)
{
    char *one = shard(r, "one.tar", 0, 9), *two = shard(r, "two.tar", 9, 14);
    struct dataset_source s[2] = {{.path = one, .weight = 2}, {.path = two, .weight = 1}};
    struct dataset_options o = options(r, s, 2, t, pack);
    struct err e = {0};
    struct dataset *d;
    struct batch b, part;
    int64_t documents = 0, rows = 0;
    assert_ok(dataset_open(&d, &o, &e), &e);
    assert_int_equal(dataset_pixels(d), PIXELS);
    assert_false(dataset_sees(d));
    batch_init_pictures(&b, 4, SEQ, PIXELS);
    batch_init_pictures(&part, 2, SEQ, PIXELS);
    for (int64_t step = 0; step < 12; step++) {
        assert_ok(dataset_batch(d, step, 4, 0, &b, &e), &e);
        for (int64_t row = 0; row < 4; row++, rows++) {
            int source;
            int64_t epoch, sample, at = 0, pictures = 0;
            struct cuts_pieces p;
            dataset_where(d, step * 4 + row, &source, &epoch, &sample);
            assert_ok(dataset_pieces(d, step * 4 + row, &p, &e), &e);
            for (int64_t k = 0; k < p.n; k++, documents++)
                at = assert_document(&b, row, at, (int)p.p[k].document + 9 * source, p.p[k].n, &pictures);
            for (; at < SEQ; at++) assert_int_equal(b.patches[row * SEQ + at], -1);
            for (int64_t k = pictures * EACH; k < PIXELS; k++) assert_true(b.pixels[row * PIXELS + k] == 0);
            xfree(p.p);
        }
        assert_ok(dataset_batch(d, step, 4, 2, &part, &e), &e);
        assert_memory_equal(part.pixels, b.pixels + 2 * PIXELS, 2 * PIXELS * sizeof(float));
        assert_memory_equal(part.patches, b.patches + 2 * SEQ, 2 * SEQ * sizeof(int32_t));
        assert_memory_equal(part.tokens, b.tokens + 2 * SEQ, 2 * SEQ * sizeof(int32_t));
    }
    assert_true(pack == PACK_PADDED ? documents == rows : documents > rows);
    assert_ok(dataset_eval_batch(d, 0, 4, 0, 0, &b, &e), &e);
    dataset_close(d);
    batch_fini(&b);
    batch_fini(&part);
    xfree(one);
    xfree(two);
}

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

static void test_rows(void **state)
{
    (void)state;
    struct tokenizer *t = tokenizer_new_byte();
    for (int pack = PACK_BEST_FIT; pack <= PACK_PADDED; pack++) {
        struct room r = room_new();
        check_rows(&r, t, (enum pack_kind)pack);
        room_free(&r);
    }
    tokenizer_free(t);
}

/* What is wrong with the shard's second sample. */
static void expect(int pictures, const char *text, int at, const char *word)
{
    struct room r = room_new();
    struct tokenizer *t = tokenizer_new_byte();
    struct str tar = {0};
    struct err e = {0};
    struct dataset *d = NULL;
    add_sample(&tar, 0, 1, "a caption");
    size_t begins = tar.n;
    add_sample(&tar, 1, pictures, text);
    if (at) tar.p[begins + 512 + (size_t)at] ^= 0x55;
    char *path = put(&r, "bad.tar", &tar);
    struct dataset_source s = {.path = path, .weight = 1};
    struct dataset_options o = options(&r, &s, 1, t, PACK_PADDED);
    o.pictures.most = 2;
    struct batch b;
    batch_init_pictures(&b, 4, SEQ, 2 * EACH);
    int code = dataset_open(&d, &o, &e);
    if (!code) code = dataset_batch(d, 0, 4, 0, &b, &e);
    char byte[40];
    snprintf(byte, sizeof byte, "byte %zu", begins);
    if (!code) fail_msg("%s is not refused", word);
    if (!strstr(e.text, word) || !strstr(e.text, "bad.tar") || !strstr(e.text, byte))
        fail_msg("wanted %s, bad.tar and %s: %s", word, byte, e.text);
    dataset_close(d);
    batch_fini(&b);
    xfree(path);
    str_free(&tar);
    tokenizer_free(t);
    room_free(&r);
}

#define ASKS(text)                                                                                                     \
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"" text "\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}"
static void test_wrong(void **state)
{
    (void)state;
    expect(2, ASKS("<image>q"), 0, "names 1 pictures (<image>), and the sample has 2");
    expect(0, ASKS("<image>q"), 0, "names 1 pictures (<image>), and the sample has 0");
    expect(1, ASKS("q"), 0, "names 0 pictures (<image>), and the sample has 1");
    expect(1, "\n", 0, ".txt is empty");
    expect(1, ASKS("<image>q"), 2, "no image");
    expect(1, ASKS("<image>q"), 60, "PNG");
    expect(1, ASKS("<image>a question that is much too long for a sample of sixty tokens"), 0, "not cut");
    expect(1, "{\"conversations\": 3}", 0, "conversations");
    struct room r = room_new();
    struct tokenizer *t = tokenizer_new_byte();
    struct dataset_source s = {.path = "https://example.org/s.tar", .weight = 1};
    struct dataset_options o = options(&r, &s, 1, t, PACK_PADDED);
    struct err e = {0};
    struct dataset *d;
    assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "read from files"));
    o.pack = PACK_JOINED;
    assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "whole documents"));
    tokenizer_free(t);
    room_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
