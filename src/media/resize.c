/* SPDX-License-Identifier: Apache-2.0 */
#include "media/resize.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { BITS = 22 };

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[] = {[RESIZE_BICUBIC] = {cubic, 2}, [RESIZE_BILINEAR] = {triangle, 1}};

/* Of one direction: out i is the sum of in[first[i] .. first[i] + n[i]) times weight[i * room ...]. */
struct taps {
    int64_t room;
    int64_t *first;
    int *n;
    int32_t *weight;
};

/* Of `made` places of the `out` ones that `in` become, from `begin` on. */
static struct taps taps_new(int64_t in, int64_t out, int64_t begin, int64_t made, enum resize_filter filter)
{
    double scale = (double)in / (double)out, wide = scale < 1 ? 1 : scale, support = filters[filter].support * wide;
    struct taps t = {.room = (int64_t)ceil(support) * 2 + 1};
    t.first = xmalloc(to_size(made) * sizeof *t.first);
    t.n = xmalloc(to_size(made) * sizeof *t.n);
    t.weight = xcalloc(to_size(made * t.room), sizeof *t.weight);
    double *w = xmalloc(to_size(t.room) * sizeof *w);
    for (int64_t i = 0; i < made; i++) {
        double centre = ((double)(begin + i) + 0.5) * scale, sum = 0, from = centre - support + 0.5;
        int64_t lo = from < 0 ? 0 : (int64_t)from, hi = (int64_t)(centre + support + 0.5);
        if (hi > in) hi = in;
        for (int64_t k = 0; k < hi - lo; k++)
            sum += w[k] = filters[filter].weight(((double)(k + lo) - centre + 0.5) * (1 / wide));
        for (int64_t k = 0; k < hi - lo; k++) {
            double v = (sum != 0 ? w[k] / sum : w[k]) * (1 << BITS);
            t.weight[i * t.room + k] = (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
        }
        t.first[i] = lo;
        t.n[i] = (int)(hi - lo);
    }
    xfree(w);
    return t;
}

static void taps_free(struct taps *t)
{
    xfree(t->first);
    xfree(t->n);
    xfree(t->weight);
}

static unsigned char rounded(int32_t sum)
{
    int32_t v = sum >> BITS;
    return (unsigned char)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void row_3(unsigned char *to, const unsigned char *from, int64_t width, const struct taps *t)
{
    for (int64_t x = 0; x < width; x++) {
        const int32_t *w = t->weight + x * t->room;
        const unsigned char *p = from + 3 * t->first[x];
        int32_t a = 1 << (BITS - 1), b = a, c = a;
        for (int k = 0; k < t->n[x]; k++, p += 3) {
            a += p[0] * w[k];
            b += p[1] * w[k];
            c += p[2] * w[k];
        }
        *to++ = rounded(a);
        *to++ = rounded(b);
        *to++ = rounded(c);
    }
}

static void row_1(unsigned char *to, const unsigned char *from, int64_t width, const struct taps *t)
{
    for (int64_t x = 0; x < width; x++) {
        const int32_t *w = t->weight + x * t->room;
        int32_t a = 1 << (BITS - 1);
        for (int k = 0; k < t->n[x]; k++) a += from[t->first[x] + k] * w[k];
        to[x] = rounded(a);
    }
}

/* Rows of one picture → rows of another: sums of whole rows, one after the other. from: row `top` and those below. */
static void mix_rows(struct image *out, const unsigned char *from, int64_t top, const struct taps *t)
{
    int64_t bytes = out->width * out->channels;
    int32_t *sum = xmalloc(to_size(bytes) * sizeof *sum);
    for (int64_t y = 0; y < out->height; y++) {
        const int32_t *w = t->weight + y * t->room;
        for (int64_t i = 0; i < bytes; i++) sum[i] = 1 << (BITS - 1);
        for (int k = 0; k < t->n[y]; k++) {
            const unsigned char *p = from + (t->first[y] - top + k) * bytes;
            for (int64_t i = 0; i < bytes; i++) sum[i] += p[i] * w[k];
        }
        for (int64_t i = 0; i < bytes; i++) out->p[y * bytes + i] = rounded(sum[i]);
    }
    xfree(sum);
}

/* The box in width x height pixels, of them the part. */
static void resize(struct image *out, const struct image *from, struct image_box b, int64_t width, int64_t height,
                   struct image_box part, enum resize_filter filter)
{
    CHECK(b.x >= 0 && b.y >= 0 && b.width > 0 && b.height > 0 && b.x + b.width <= from->width &&
              b.y + b.height <= from->height,
          "a box of %lld x %lld at %lld, %lld in a picture of %lld x %lld", (long long)b.width, (long long)b.height,
          (long long)b.x, (long long)b.y, (long long)from->width, (long long)from->height);
    CHECK(part.x >= 0 && part.y >= 0 && part.width > 0 && part.height > 0 && part.x + part.width <= width &&
              part.y + part.height <= height,
          "%lld x %lld pixels at %lld, %lld of %lld x %lld", (long long)part.width, (long long)part.height,
          (long long)part.x, (long long)part.y, (long long)width, (long long)height);
    int c = from->channels;
    struct taps across = taps_new(b.width, width, part.x, part.width, filter),
                down = taps_new(b.height, height, part.y, part.height, filter);
    int64_t last = part.height - 1, top = down.first[0], rows = down.first[last] + down.n[last] - top;
    struct image wide = {.width = part.width, .height = rows, .channels = c};
    wide.p = xmalloc(image_bytes(&wide));
    for (int64_t y = 0; y < rows; y++) {
        const unsigned char *row = from->p + ((b.y + top + y) * from->width + b.x) * c;
        unsigned char *to = wide.p + y * part.width * c;
        if (b.width == width) memcpy(to, row + part.x * c, to_size(part.width * c));
        else if (c == 3) row_3(to, row, part.width, &across);
        else row_1(to, row, part.width, &across);
    }
    *out = (struct image){.width = part.width, .height = part.height, .channels = c};
    out->p = xmalloc(image_bytes(out));
    if (height == b.height) memcpy(out->p, wide.p + (part.y - top) * part.width * c, image_bytes(out));
    else mix_rows(out, wide.p, top, &down);
    image_free(&wide);
    taps_free(&across);
    taps_free(&down);
}

void image_resize_part(struct image *out, const struct image *from, int64_t width, int64_t height,
                       struct image_box part, enum resize_filter filter)
{
    resize(out, from, (struct image_box){0, 0, from->width, from->height}, width, height, part, filter);
}

void image_resize(struct image *out, const struct image *from, struct image_box b, int64_t width, int64_t height,
                  enum resize_filter filter)
{
    resize(out, from, b, width, height, (struct image_box){0, 0, width, height}, filter);
}
