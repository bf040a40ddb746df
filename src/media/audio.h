/* SPDX-License-Identifier: Apache-2.0 */
/* audio.h: sound in memory: fp32 [frames, channels], full scale is 1. Floor 1: base. Order: Local. */
#ifndef TUTTI_MEDIA_AUDIO_H
#define TUTTI_MEDIA_AUDIO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct audio {
    int64_t frames; /* one value of every channel each */
    int channels;
    int rate; /* frames a second */
    float *p;
};
void audio_free(struct audio *a);

/* One channel, the mean of all. */
void audio_to_mono(struct audio *a);
/* At another rate: a low-pass filter of windowed sines (Smith, "Digital Audio Resampling"), 6 zeros of the sinc each
 * side under a squared cosine, cutting at 0.99 of the lower rate's half. ceil(frames * rate / a->rate) frames.
 *   fails   ERR_REQUEST: rates out of 1 to 768000; ERR_CORRUPT: more than max_samples values */
int audio_resample(struct audio *a, int rate, int64_t max_samples, struct err *e);

/* -- log-mel ------------------------------------------------------------------------------------------------ */

/* What a model of speech hears: the energy of short windows in bands of pitch, as a logarithm. */
struct mel_config {
    int rate;     /* of the sound; another is refused */
    int window;   /* frames of a window, Hann (periodic), and of its Fourier transform */
    int hop;      /* frames from one to the next; windows are centred, the ends mirrored */
    int bands;    /* triangles of equal area on Slaney's scale, from 0 to rate / 2 */
    bool whisper; /* max(log10, the largest - 8), (x + 4) / 4, the last window left out; else the natural logarithm */
};
struct mel_config mel_usual(int bands); /* 16 kHz, 400, 160, whisper: Radford et al. 2022 */
/* *out: fp32 [bands, *n_windows]; xfree. The sound has one channel and more than window / 2 frames. */
int audio_mel(const struct audio *a, const struct mel_config *c, float **out, int64_t *n_windows, struct err *e);

#endif
