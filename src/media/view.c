/* SPDX-License-Identifier: Apache-2.0 */
#include "media/view.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"

enum { TRIES = 10, DRAWS = 4 }; /* of each try: share, shape, x, y */

static int64_t at_most(int64_t v, int64_t most) { return v < most ? v : most; }

static double between(double lo, double hi, double u) { return lo + (hi - lo) * u; }

/* Of 0 .. n - 1. */
static int64_t pick(int64_t n, double u) { return at_most((int64_t)(u * (double)n), n - 1); }

/* The largest box of a legal shape, in the middle. */
static struct image_box middle_box(const struct view_rule *r, int64_t width, int64_t height)
{
    struct image_box b = {.width = width, .height = height};
    double shape = (double)width / (double)height;
    if (shape < r->ratio[0]) b.height = at_most(llrint((double)width / r->ratio[0]), height);
    else if (shape > r->ratio[1]) b.width = at_most(llrint((double)height * r->ratio[1]), width);
    if (b.width < 1) b.width = 1;
    if (b.height < 1) b.height = 1;
    b.x = (width - b.width) / 2;
    b.y = (height - b.height) / 2;
    return b;
}

struct view_choice view_random(const struct view_rule *r, int64_t width, int64_t height, uint64_t seed, uint64_t sample)
{
    uint64_t stream = rng_stream_at(rng_stream("data/image/view"), sample);
    struct view_choice v = {.mirrored = rng_uniform(seed, stream, TRIES * DRAWS) < r->flip};
    double area = (double)width * (double)height, low = log(r->ratio[0]), high = log(r->ratio[1]);
    for (uint64_t try = 0; try < TRIES; try++) {
        double u[DRAWS];
        for (uint64_t i = 0; i < DRAWS; i++) u[i] = rng_uniform(seed, stream, try * DRAWS + i);
        double wanted = area * between(r->scale[0], r->scale[1], u[0]), shape = exp(between(low, high, u[1]));
        struct image_box b = {.width = llrint(sqrt(wanted * shape)), .height = llrint(sqrt(wanted / shape))};
        if (b.width < 1 || b.height < 1 || b.width > width || b.height > height) continue;
        b.x = pick(width - b.width + 1, u[2]);
        b.y = pick(height - b.height + 1, u[3]);
        v.box = b;
        return v;
    }
    v.box = middle_box(r, width, height);
    return v;
}

/* The shorter side becomes r->resize, the longer one in proportion, rounded down; of that the middle square. */
static void middle(const struct view_rule *r, const struct image *m, struct image *out)
{
    int64_t shorter = m->width < m->height ? m->width : m->height, w = m->width * r->resize / shorter,
            h = m->height * r->resize / shorter;
    struct image_box b = {llrint((double)(w - r->size) / 2), llrint((double)(h - r->size) / 2), r->size, r->size};
    image_resize_part(out, m, w, h, b, r->filter);
}

static void mirror(struct image *m)
{
    for (int64_t y = 0; y < m->height; y++)
        for (int64_t x = 0; x < m->width / 2; x++)
            for (int c = 0; c < m->channels; c++) {
                unsigned char *a = m->p + (y * m->width + x) * m->channels + c,
                              *b = m->p + (y * m->width + m->width - 1 - x) * m->channels + c, was = *a;
                *a = *b;
                *b = was;
            }
}

void view_image(const struct view_rule *r, struct image *m, uint64_t seed, uint64_t sample, struct image *out)
{
    image_to_channels(m, r->channels);
    if (r->crop == CROP_CENTER) {
        middle(r, m, out);
        return;
    }
    struct view_choice v = view_random(r, m->width, m->height, seed, sample);
    image_resize(out, m, v.box, r->size, r->size, r->filter);
    if (v.mirrored) mirror(out);
}

void view_values(const struct view_rule *r, struct image *m, uint64_t seed, uint64_t sample, float *out)
{
    struct image seen;
    view_image(r, m, seed, sample, &seen);
    int64_t n = r->size * r->size;
    for (int c = 0; c < r->channels; c++) {
        float value[256];
        for (int i = 0; i < 256; i++) value[i] = ((float)i / 255.0f - (float)r->mean[c]) / (float)r->std[c];
        for (int64_t i = 0; i < n; i++) out[c * n + i] = value[seen.p[i * r->channels + c]];
    }
    image_free(&seen);
}
