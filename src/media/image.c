/* SPDX-License-Identifier: Apache-2.0 */
#include "media/image.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

size_t image_bytes(const struct image *m) { return to_size(m->width * m->height * m->channels); }

int image_new(struct image *m, int64_t width, int64_t height, int channels, int64_t max_pixels, struct err *e)
{
    CHECK(channels == 1 || channels == 3, "a picture of %d channels", channels);
    *m = (struct image){0};
    if (width < 1 || height < 1 || width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX)
        return err_set(e, ERR_CORRUPT, "a picture of %lld x %lld pixels; wanted 1 to %d a side", (long long)width,
                       (long long)height, IMAGE_SIDE_MAX);
    if (width * height > max_pixels)
        return err_set(e, ERR_CORRUPT,
                       "a picture of %lld x %lld pixels, more than %lld (data.image.max_pixels); raise that if it is "
                       "meant to be so large",
                       (long long)width, (long long)height, (long long)max_pixels);
    *m = (struct image){.width = width, .height = height, .channels = channels};
    m->p = xmalloc(image_bytes(m));
    return OK;
}

void image_free(struct image *m)
{
    xfree(m->p);
    *m = (struct image){0};
}

void image_to_channels(struct image *m, int channels)
{
    if (m->channels == channels) return;
    CHECK(channels == 1 || channels == 3, "a picture of %d channels", channels);
    struct image to = {.width = m->width, .height = m->height, .channels = channels};
    size_t n = to_size(m->width * m->height);
    to.p = xmalloc(image_bytes(&to));
    for (size_t i = 0; i < n && channels == 3; i++) memset(to.p + 3 * i, m->p[i], 3);
    for (size_t i = 0; i < n && channels == 1; i++) { /* 0.299, 0.587, 0.114, times 65536, rounded to nearest */
        const unsigned char *c = m->p + 3 * i;
        to.p[i] = (unsigned char)((c[0] * 19595u + c[1] * 38470u + c[2] * 7471u + 0x8000u) >> 16);
    }
    image_free(m);
    *m = to;
}

/* Of the turned picture, pixel (x, y) is this one of the old. Rows are TIFF's values of orientation: whether the sides
 * are exchanged first, then which of the old axes run backwards. */
static const struct {
    bool swap, back_x, back_y;
} turns[9] = {
    [2] = {false, true, false}, [3] = {false, true, true}, [4] = {false, false, true}, [5] = {true, false, false},
    [6] = {true, false, true},  [7] = {true, true, true},  [8] = {true, true, false},
};

void image_orient(struct image *m, int orientation)
{
    if (orientation < 2 || orientation > 8) return;
    bool swap = turns[orientation].swap;
    struct image to = {.width = swap ? m->height : m->width,
                       .height = swap ? m->width : m->height,
                       .channels = m->channels};
    to.p = xmalloc(image_bytes(&to));
    size_t c = (size_t)m->channels;
    for (int64_t y = 0; y < to.height; y++)
        for (int64_t x = 0; x < to.width; x++) {
            int64_t from_x = swap ? y : x, from_y = swap ? x : y;
            if (turns[orientation].back_x) from_x = m->width - 1 - from_x;
            if (turns[orientation].back_y) from_y = m->height - 1 - from_y;
            memcpy(to.p + to_size(y * to.width + x) * c, m->p + to_size(from_y * m->width + from_x) * c, c);
        }
    image_free(m);
    *m = to;
}
