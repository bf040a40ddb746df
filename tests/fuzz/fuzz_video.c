/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_video.c: any bytes as a video, the first two choosing the clip: frames within the limits, or refused with words.
 */
#include <stdint.h>

#include "media/media.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct media_limits limits = {.max_pixels = 1 << 14, .max_samples = 1 << 18, .max_frames = 16};
    struct video v;
    struct err e = {0};
    if (n < 2) return 0;
    struct video_wish w = {.from_s = data[0] / 64.0, .rate = data[1] % 32, .most = data[1] % 5};
    if (media_video(&v, data + 2, n - 2, &w, &limits, &e)) {
        CHECK(e.text[0] && !v.n, "refused without a word");
        return 0;
    }
    CHECK(v.n > 0 && v.n <= limits.max_frames, "%lld frames", (long long)v.n);
    for (int64_t i = 0; i < v.n; i++)
        CHECK(v.frame[i].width * v.frame[i].height <= limits.max_pixels, "more than was allowed");
    video_free(&v);
    return 0;
}
