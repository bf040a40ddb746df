/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_audio.c: any bytes as a sound: decoded within the limits, made log-mel, or refused with words. */
#include <stdint.h>

#include "base/mem.h"
#include "media/media.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct media_limits limits = {.max_pixels = 1 << 18, .max_samples = 1 << 19, .max_frames = 16};
    struct audio a;
    struct err e = {0};
    if (media_audio(&a, data, n, &limits, &e)) {
        CHECK(e.text[0] && !a.p, "refused without a word");
        return 0;
    }
    CHECK(a.frames > 0 && a.frames * a.channels <= limits.max_samples, "more than was allowed");
    audio_to_mono(&a);
    if (a.frames > 4000) a.frames = 4000;
    struct mel_config c = mel_usual(8);
    float *mel = NULL;
    int64_t windows;
    if (!audio_resample(&a, 16000, 1 << 16, &e) && a.frames < 1 << 14) audio_mel(&a, &c, &mel, &windows, &e);
    xfree(mel);
    audio_free(&a);
    return 0;
}
