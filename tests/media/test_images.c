/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of every kind that the decoders take, damage of every kind that they refuse, and what of them a model
 * sees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "media/encode.h"
#include "media/exif.h"
#include "media/media.h"
#include "media/resize.h"
#include "sanitized.h"

#include "media/pil_results.h"

static const struct media_limits usual = {.max_pixels = 1 << 24, .max_samples = 1 << 24, .max_frames = 1 << 12};

static uint64_t fnv(const void *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}

static void assert_image(const struct image *a, const struct image *b)
{
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->channels, b->channels);
    assert_memory_equal(a->p, b->p, image_bytes(b));
}

static struct image decoded(const struct str *s)
{
    struct image m;
    struct err e = {0};
    if (media_image(&m, s->p, s->n, 0, &usual, &e)) fail_msg("%s", e.text);
    return m;
}

/* The largest difference of two values. */
static int apart(const struct image *a, const struct image *b)
{
    int most = 0;
    assert_int_equal(image_bytes(a), image_bytes(b));
    for (size_t i = 0; i < image_bytes(a); i++) {
        int d = abs(a->p[i] - b->p[i]);
        if (d > most) most = d;
    }
    return most;
}

static void test_png(void **state)
{
    (void)state;
    static const struct png_wish wishes[] = {{0},
                                             {.interlaced = true},
                                             {.alpha = true},
                                             {.depth = 16},
                                             {.alpha = true, .depth = 16, .interlaced = true}};
    struct str s = {0};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        for (int channels = 1; channels <= 3; channels += 2)
            for (int size = 1; size < 40; size += 19) {
                struct image m = picture(size, 2 * size + 1, channels), got;
                encode_png(&s, &m, wishes[i]);
                got = decoded(&s);
                assert_image(&got, &m);
                image_free(&m);
                image_free(&got);
            }
    struct image m = picture(31, 17, 3);
    encode_png(&s, &m, (struct png_wish){.palette = true});
    for (size_t i = 0; i < image_bytes(&m); i++) m.p[i] &= i % 3 < 2 ? 0xe0 : 0xc0;
    struct image got = decoded(&s);
    assert_image(&got, &m);
    image_free(&m);
    image_free(&got);
    m = picture(31, 17, 1);
    encode_png(&s, &m, (struct png_wish){.depth = 1});
    for (size_t i = 0; i < image_bytes(&m); i++) m.p[i] = m.p[i] & 0x80 ? 255 : 0;
    got = decoded(&s);
    assert_image(&got, &m);
    image_free(&m);
    image_free(&got);
    str_free(&s);
}

static void test_jpeg(void **state)
{
    (void)state;
    static const struct jpeg_wish wishes[] = {{.quality = 98},
                                              {.quality = 98, .progressive = true},
                                              {.quality = 98, .cmyk = true},
                                              {.quality = 98, .ycck = true}};
    struct str s = {0};
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        for (int size = 8; size < 100; size += 29) {
            struct image m = smooth_picture(size, size + 3, 5), got;
            encode_jpeg(&s, &m, wishes[i]);
            got = decoded(&s);
            if (apart(&got, &m) > 12) fail_msg("wish %zu: %d apart", i, apart(&got, &m));
            image_free(&m);
            image_free(&got);
        }
    struct image m = smooth_picture(20, 30, 0);
    image_to_channels(&m, 1);
    encode_jpeg(&s, &m, (struct jpeg_wish){.quality = 98});
    struct image got = decoded(&s);
    assert_int_equal(got.channels, 1);
    assert_true(apart(&got, &m) <= 6);
    image_free(&got);
    struct err e = {0};
    assert_int_equal(media_image(&got, s.p, s.n, 3, &usual, &e), OK);
    assert_int_equal(got.channels, 3);
    image_free(&got);
    image_free(&m);
    str_free(&s);
}

static void test_orientation(void **state)
{
    (void)state;
    struct str s = {0};
    for (int o = 1; o <= 8; o++) {
        struct image m = picture(23, 11, 3);
        encode_png(&s, &m, (struct png_wish){.orientation = o});
        struct image got = decoded(&s);
        assert_int_equal(got.width, o < 5 ? 23 : 11);
        assert_int_equal(fnv(got.p, image_bytes(&got)), pil_turned[o]);
        image_free(&got);
        image_free(&m);
        m = smooth_picture(40, 24, 3);
        encode_jpeg(&s, &m, (struct jpeg_wish){.quality = 98, .orientation = o});
        got = decoded(&s);
        image_orient(&m, o);
        assert_int_equal(got.width, m.width);
        assert_true(apart(&got, &m) <= 12);
        image_free(&got);
        image_free(&m);
    }
    unsigned char block[64];
    for (int o = 0; o < 12; o++) { /* nonsense is upright; a cut or lying block reads nothing beyond itself */
        size_t n = exif_block(block, o, o % 2);
        assert_int_equal(exif_orientation(block, n), o >= 1 && o <= 8 ? o : 1);
        for (size_t cut = 0; cut < 26; cut++) {
            unsigned char *part = xmalloc(cut + 1);
            memcpy(part, block, cut);
            exif_orientation(part, cut);
            xfree(part);
        }
        memset(block + 10, 0xff, 4); /* where its tags are said to be */
        assert_int_equal(exif_orientation(block, n), 1);
    }
    str_free(&s);
}

static void test_resized_as_pil(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pil_resized / sizeof *pil_resized; i += CASE_STRIDE) {
        struct image m = picture(pil_resized[i].width, pil_resized[i].height, pil_resized[i].channels), got;
        int64_t w = pil_resized[i].to_width, h = pil_resized[i].to_height;
        image_resize(&got, &m, (struct image_box){0, 0, m.width, m.height}, w, h, pil_resized[i].filter);
        if (fnv(got.p, image_bytes(&got)) != pil_resized[i].sum)
            fail_msg("%lld x %lld x %d to %lld x %lld, filter %d differs", (long long)m.width, (long long)m.height,
                     m.channels, (long long)w, (long long)h, pil_resized[i].filter);
        for (int k = 0; k < 5; k++) { /* a part of it is that part */
            struct image_box b = {k * w / 7, k * h / 9, w - w * k / 7 - w * k / 11, h - h * k / 9 - h * k / 10};
            struct image part;
            image_resize_part(&part, &m, w, h, b, pil_resized[i].filter);
            for (int64_t y = 0; y < b.height; y++)
                assert_memory_equal(part.p + y * b.width * m.channels, got.p + ((b.y + y) * w + b.x) * m.channels,
                                    to_size(b.width * m.channels));
            image_free(&part);
        }
        image_free(&got);
        image_free(&m);
    }
    struct image m = picture(200, 100, 3);
    image_to_channels(&m, 1);
    assert_int_equal(fnv(m.p, image_bytes(&m)), pil_gray);
    image_free(&m);
}

/* A box is the picture that was cut out before: nothing beside it is seen. */
static void test_box(void **state)
{
    (void)state;
    struct image m = picture(60, 50, 3), cut = {.width = 21, .height = 17, .channels = 3}, a, b;
    cut.p = xmalloc(image_bytes(&cut));
    for (int64_t y = 0; y < 17; y++) memcpy(cut.p + y * 63, m.p + ((y + 9) * 60 + 30) * 3, 63);
    for (int f = 0; f < 2; f++) {
        image_resize(&a, &m, (struct image_box){30, 9, 21, 17}, 12, 29, (enum resize_filter)f);
        image_resize(&b, &cut, (struct image_box){0, 0, 21, 17}, 12, 29, (enum resize_filter)f);
        assert_image(&a, &b);
        image_free(&a);
        image_free(&b);
    }
    image_free(&m);
    image_free(&cut);
}

static void refused(const void *p, size_t n, const struct media_limits *l, const char *says)
{
    struct image m;
    struct err e = {0};
    if (!media_image(&m, p, n, 3, l, &e)) fail_msg("taken: wanted %s", says);
    if (!strstr(e.text, says)) fail_msg("said \"%s\", wanted \"%s\"", e.text, says);
    assert_null(m.p);
}

static void test_refused(void **state)
{
    (void)state;
    struct str s = {0};
    struct image m = smooth_picture(50, 40, 1), got;
    struct err e = {0};
    struct media_limits small = usual;
    encode_jpeg(&s, &m, (struct jpeg_wish){0});
    small.max_pixels = 1999;
    refused(s.p, s.n, &small, "max_pixels");
    small.max_pixels = 2000;
    assert_int_equal(media_image(&got, s.p, s.n, 3, &small, &e), OK);
    image_free(&got);
    for (size_t cut = 3; cut < s.n; cut += 7) refused(s.p, cut, &usual, "damaged");
    refused(s.p, s.n - 2, &usual, "damaged"); /* the end mark alone */
    encode_png(&s, &m, (struct png_wish){0});
    refused(s.p, s.n, &(struct media_limits){.max_pixels = 1999}, "max_pixels");
    for (size_t cut = 8; cut < s.n; cut += 11) refused(s.p, cut, &usual, "cut short");
    s.p[s.n / 2] ^= 1;
    refused(s.p, s.n, &usual, "PNG: damaged");
    /* a header that says 65535 x 65535 costs nothing */
    encode_png(&s, &m, (struct png_wish){0});
    memcpy(s.p + 16, "\0\0\xff\xff\0\0\xff\xff", 8);
    memcpy(s.p + 29, "\xe2\xb1\x5e\x01", 4);
    double from = clock_thread_s();
    refused(s.p, s.n, &usual, "");
    assert_true(clock_thread_s() - from < 5);
    refused("GIF89a...", 9, &usual, "GIF");
    refused("\0\0\0\x18"
            "ftypmp42",
            12, &usual, "a video");
    refused("RIFF....WAVEfmt ", 16, &usual, "a sound");
    refused("no picture at all", 17, &usual, "no image");
    refused("", 0, &usual, "no image");
    image_free(&m);
    str_free(&s);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(media_of_name("a/b.seg.JPG")->name, "JPEG");
    assert_string_equal(media_of_name("x.webm")->name, "Matroska");
    assert_int_equal(media_of_name("x.flac")->kind, MEDIA_AUDIO);
    assert_null(media_of_name("x.json"));
    assert_null(media_of_name("x.jp"));
    assert_null(media_of_name("x."));
    for (const struct media_row *r = media_rows; r->name; r++) assert_non_null(r->extensions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png),         cmocka_unit_test(test_jpeg),
        cmocka_unit_test(test_orientation), cmocka_unit_test(test_resized_as_pil),
        cmocka_unit_test(test_box),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
