/* SPDX-License-Identifier: Apache-2.0 */
/* What of a picture a model sees: boxes by chance that are a function of (seed, sample), the middle, the values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

#include "media/encode.h"
#include "media/view.h"
#include "sanitized.h"

static const struct view_rule usual = {
    .size = 16,
    .channels = 3,
    .scale = {0.08, 1},
    .ratio = {0.75, 4.0 / 3},
    .flip = 0.5,
    .resize = 18,
    .mean = {0.485, 0.456, 0.406},
    .std = {0.229, 0.224, 0.225},
};

static void test_random_boxes(void **state)
{
    (void)state;
    const int n = 4000;
    double share = 0, mirrored = 0, left = 0;
    for (int i = 0; i < n; i++) {
        struct view_choice v = view_random(&usual, 640, 480, 7, (uint64_t)i),
                           again = view_random(&usual, 640, 480, 7, (uint64_t)i);
        assert_memory_equal(&v.box, &again.box, sizeof v.box);
        assert_int_equal(v.mirrored, again.mirrored);
        assert_true(v.box.x >= 0 && v.box.y >= 0 && v.box.x + v.box.width <= 640 && v.box.y + v.box.height <= 480);
        double part = (double)(v.box.width * v.box.height) / (640 * 480),
               shape = (double)v.box.width / (double)v.box.height;
        assert_true(part > 0.078 && shape > 0.73 && shape < 1.36);
        share += part / n;
        mirrored += (double)v.mirrored / n;
        left += (double)v.box.x / (double)(640 - v.box.width + 1) / n;
    }
    assert_true(fabs(mirrored - 0.5) < 0.03 && fabs(left - 0.5) < 0.03);
    assert_true(share > 0.4 && share < 0.56); /* uniform shares, less those that do not fit */
    struct view_choice a = view_random(&usual, 640, 480, 7, 1), b = view_random(&usual, 640, 480, 8, 1),
                       c = view_random(&usual, 640, 480, 7, 2);
    assert_true(memcmp(&a.box, &b.box, sizeof a.box) && memcmp(&a.box, &c.box, sizeof a.box));
    struct view_choice thin = view_random(&usual, 3000, 2, 7, 1); /* no shape fits: the largest that does */
    assert_true(thin.box.height == 2 && thin.box.width <= 3 && thin.box.x > 1000);
    struct view_choice dot = view_random(&usual, 1, 1, 7, 1);
    assert_true(dot.box.width == 1 && dot.box.height == 1);
    assert_int_equal(view_random(&(struct view_rule){.scale = {1, 1}, .ratio = {1, 1}, .flip = 1}, 64, 64, 1, 1)
                         .box.width,
                     64);
}

/* The middle is what is left of the whole when it was resized. */
static void test_middle(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{40, 30}, {30, 40}, {18, 18}, {7, 90}, {200, 33}};
    struct view_rule r = usual;
    r.crop = CROP_CENTER;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct image m = picture(sizes[i][0], sizes[i][1], 3), whole, got;
        int64_t shorter = m.width < m.height ? m.width : m.height, w = m.width * 18 / shorter,
                h = m.height * 18 / shorter;
        image_resize(&whole, &m, (struct image_box){0, 0, m.width, m.height}, w, h, r.filter);
        view_image(&r, &m, 1, 1, &got);
        assert_int_equal(got.width, 16);
        for (int64_t y = 0; y < 16; y++)
            assert_memory_equal(got.p + y * 48,
                                whole.p + ((y + llrint((double)(h - 16) / 2)) * w + llrint((double)(w - 16) / 2)) * 3,
                                48);
        image_free(&m);
        image_free(&whole);
        image_free(&got);
    }
    struct image m = picture(1, 60000, 3), got; /* 18 by a million: only what is seen is made */
    view_image(&r, &m, 1, 1, &got);
    assert_int_equal(got.height, 16);
    image_free(&m);
    image_free(&got);
}

static void test_values(void **state)
{
    (void)state;
    struct view_rule r = usual;
    float *out = xmalloc(3 * 256 * sizeof *out);
    r.crop = CROP_CENTER;
    r.resize = 16;
    for (int channels = 1; channels <= 3; channels += 2)
        for (int of = 1; of <= 3; of += 2) {
            r.channels = channels;
            struct image m = picture(16, 16, of), seen = picture(16, 16, of);
            image_to_channels(&seen, channels);
            view_values(&r, &m, 1, 1, out);
            for (int i = 0; i < 256; i++)
                for (int c = 0; c < channels; c++) {
                    double v = (seen.p[i * channels + c] / 255.0 - r.mean[c]) / r.std[c];
                    if (fabs(out[c * 256 + i] - v) > 2e-6) fail_msg("%g, wanted %g", out[c * 256 + i], v);
                }
            image_free(&m);
            image_free(&seen);
        }
    r = usual;
    r.scale[0] = 1;
    r.ratio[0] = r.ratio[1] = 1;
    float *back = xmalloc(3 * 256 * sizeof *back);
    for (int flip = 0; flip < 2; flip++) {
        struct image m = picture(16, 16, 3);
        r.flip = flip;
        view_values(&r, &m, 1, 1, flip ? back : out);
        image_free(&m);
    }
    for (int i = 0; i < 3 * 256; i++) assert_true(out[i] == back[i / 16 * 16 + 15 - i % 16]);
    xfree(out);
    xfree(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_boxes), cmocka_unit_test(test_middle),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
