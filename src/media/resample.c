/* SPDX-License-Identifier: Apache-2.0 */
/* resample.c: sound at another rate. With both rates divided by what they share, out frame i lies at i * from / to; its
 * weights depend on i mod `to` alone, so that there are `to` sets of them. Cost: taps of a set a value. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "media/audio.h"

enum { ZEROS = 6, RATE_MAX = 768000 };
static const double ROLLOFF = 0.99;

void audio_to_mono(struct audio *a)
{
    if (a->channels == 1) return;
    for (int64_t i = 0; i < a->frames; i++) {
        double sum = 0;
        for (int c = 0; c < a->channels; c++) sum += a->p[i * a->channels + c];
        a->p[i] = (float)(sum / a->channels);
    }
    a->channels = 1;
}

static int shared_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* [to, taps]: of in frames first .. first + taps - 1 before the place. */
static double *weights(int from, int to, int half, double cut)
{
    int taps = 2 * half + from;
    double *w = xmalloc((size_t)to * (size_t)taps * sizeof *w);
    for (int i = 0; i < to; i++)
        for (int k = 0; k < taps; k++) {
            double t = ((double)(k - half) / from - (double)i / to) * cut;
            double x = t < -ZEROS ? -ZEROS : t > ZEROS ? ZEROS : t, window = cos(x * M_PI / ZEROS / 2);
            double sinc = x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
            w[i * taps + k] = sinc * window * window * cut / from;
        }
    return w;
}

int audio_resample(struct audio *a, int rate, int64_t max_samples, struct err *e)
{
    if (rate < 1 || rate > RATE_MAX || a->rate < 1 || a->rate > RATE_MAX)
        return err_set(e, ERR_REQUEST, "sound at %d frames a second, wanted at %d; rates from 1 to %d are known",
                       a->rate, rate, RATE_MAX);
    if (rate == a->rate) return OK;
    int divisor = shared_divisor(a->rate, rate), from = a->rate / divisor, to = rate / divisor;
    double cut = (from < to ? from : to) * ROLLOFF;
    int half = (int)ceil(ZEROS * from / cut), taps = 2 * half + from;
    double frames = ceil((double)a->frames * to / from);
    if (frames * a->channels > (double)max_samples || (double)to * taps > 1 << 26)
        return err_set(e, ERR_CORRUPT, "a sound of %lld frames at %d a second cannot be had at %d: that is too much",
                       (long long)a->frames, a->rate, rate);
    double *w = weights(from, to, half, cut);
    struct audio out = {.frames = (int64_t)frames, .channels = a->channels, .rate = rate};
    out.p = xmalloc(to_size(out.frames * out.channels + 1) * sizeof *out.p);
    for (int64_t i = 0; i < out.frames; i++) {
        int64_t first = i / to * from - half;
        const double *row = w + i % to * taps;
        for (int c = 0; c < a->channels; c++) {
            double sum = 0;
            for (int k = 0; k < taps; k++)
                if (first + k >= 0 && first + k < a->frames) sum += row[k] * a->p[(first + k) * a->channels + c];
            out.p[i * a->channels + c] = (float)sum;
        }
    }
    xfree(w);
    audio_free(a);
    *a = out;
    return OK;
}
