/* SPDX-License-Identifier: Apache-2.0 */
/* mel.c: sound → energies in bands of pitch. The transform of a window is the plain sum (window * (window / 2 + 1)
 * products, a few million a second of sound): windows of speech are short, and 400 is no power of two. */
#include <math.h>

#include "base/mem.h"
#include "media/audio.h"

enum { WINDOW_MAX = 8192, BANDS_MAX = 512 };

struct mel_config mel_usual(int bands)
{
    return (struct mel_config){.rate = 16000, .window = 400, .hop = 160, .bands = bands, .whisper = true};
}

/* Slaney's scale ("Auditory Toolbox", 1998): even steps of 200/3 Hz up to 1000 Hz, then even ratios. */
static double mel_of(double hz) { return hz < 1000 ? hz * 3 / 200 : 15 + 27 * log(hz / 1000) / log(6.4); }

static double hz_of(double mel) { return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) / 27 * log(6.4)); }

/* [bands, window / 2 + 1] */
static double *triangles(const struct mel_config *c)
{
    int bins = c->window / 2 + 1;
    double *w = xcalloc((size_t)(c->bands * bins), sizeof *w), top = mel_of(c->rate / 2.0);
    for (int b = 0; b < c->bands; b++) {
        double lo = hz_of(top * b / (c->bands + 1)), mid = hz_of(top * (b + 1) / (c->bands + 1)),
               hi = hz_of(top * (b + 2) / (c->bands + 1));
        for (int i = 0; i < bins; i++) {
            double hz = (double)i * c->rate / c->window, up = (hz - lo) / (mid - lo), down = (hi - hz) / (hi - mid);
            double v = up < down ? up : down;
            w[b * bins + i] = v > 0 ? v * 2 / (hi - lo) : 0;
        }
    }
    return w;
}

/* Frame i, mirrored at both ends. */
static double mirrored(const struct audio *a, int64_t i)
{
    if (i < 0) i = -i;
    if (i >= a->frames) i = 2 * (a->frames - 1) - i;
    return a->p[i];
}

struct transform {
    int window, bins;
    double *hann, *cosine, *sine; /* of 2 pi i / window, i below window */
    double *in, *power;           /* [window], [bins] */
};

static struct transform transform_new(int window)
{
    struct transform t = {.window = window, .bins = window / 2 + 1};
    t.hann = xmalloc((size_t)window * sizeof *t.hann);
    t.cosine = xmalloc((size_t)window * sizeof *t.cosine);
    t.sine = xmalloc((size_t)window * sizeof *t.sine);
    t.in = xmalloc((size_t)window * sizeof *t.in);
    t.power = xmalloc((size_t)t.bins * sizeof *t.power);
    for (int i = 0; i < window; i++) {
        t.cosine[i] = cos(2 * M_PI * i / window);
        t.sine[i] = sin(2 * M_PI * i / window);
        t.hann[i] = 0.5 - 0.5 * t.cosine[i];
    }
    return t;
}

static void transform_free(struct transform *t)
{
    xfree(t->hann);
    xfree(t->cosine);
    xfree(t->sine);
    xfree(t->in);
    xfree(t->power);
}

/* |DFT|^2 of the window centred at a frame. */
static void power_at(struct transform *t, const struct audio *a, int64_t centre)
{
    for (int i = 0; i < t->window; i++) t->in[i] = t->hann[i] * mirrored(a, centre - t->window / 2 + i);
    for (int k = 0; k < t->bins; k++) {
        double re = 0, im = 0;
        for (int i = 0, at = 0; i < t->window; i++) {
            re += t->in[i] * t->cosine[at];
            im += t->in[i] * t->sine[at];
            at += k;
            if (at >= t->window) at -= t->window;
        }
        t->power[k] = re * re + im * im;
    }
}

static void as_logarithm(const struct mel_config *c, float *out, int64_t n)
{
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double v = out[i] < 1e-10 ? 1e-10 : out[i];
        out[i] = (float)(c->whisper ? log10(v) : log(v));
        if (out[i] > most) most = out[i];
    }
    for (int64_t i = 0; i < n && c->whisper; i++) out[i] = (float)(((out[i] > most - 8 ? out[i] : most - 8) + 4) / 4);
}

int audio_mel(const struct audio *a, const struct mel_config *c, float **out, int64_t *n_windows, struct err *e)
{
    *out = NULL;
    if (c->window < 2 || c->window > WINDOW_MAX || c->hop < 1 || c->bands < 1 || c->bands > BANDS_MAX)
        return err_set(e, ERR_REQUEST,
                       "log-mel of %d bands, windows of %d frames every %d; wanted up to %d bands and "
                       "%d frames",
                       c->bands, c->window, c->hop, BANDS_MAX, WINDOW_MAX);
    if (a->channels != 1 || a->rate != c->rate)
        return err_set(e, ERR_REQUEST, "log-mel of %d channels at %d frames a second; wanted 1 at %d", a->channels,
                       a->rate, c->rate);
    if (a->frames <= c->window / 2)
        return err_set(e, ERR_REQUEST, "a sound of %lld frames; log-mel needs more than half a window of %d",
                       (long long)a->frames, c->window);
    int64_t n = a->frames / c->hop + !c->whisper;
    if (!n)
        return err_set(e, ERR_REQUEST, "a sound of %lld frames; one every %d is wanted", (long long)a->frames, c->hop);
    struct transform t = transform_new(c->window);
    double *bands = triangles(c);
    float *mel = xmalloc(to_size(c->bands * n) * sizeof *mel);
    for (int64_t w = 0; w < n; w++) {
        power_at(&t, a, w * c->hop);
        for (int b = 0; b < c->bands; b++) {
            double sum = 0;
            for (int i = 0; i < t.bins; i++) sum += bands[b * t.bins + i] * t.power[i];
            mel[b * n + w] = (float)sum;
        }
    }
    as_logarithm(c, mel, c->bands * n);
    transform_free(&t);
    xfree(bands);
    *out = mel;
    *n_windows = n;
    return OK;
}
