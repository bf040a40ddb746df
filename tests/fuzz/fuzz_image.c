/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_image.c: any bytes as a picture: decoded within the limits, the same twice, or refused with words. */
#include <stdint.h>
#include <string.h>

#include "media/exif.h"
#include "media/media.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct media_limits limits = {.max_pixels = 1 << 18, .max_samples = 1 << 18, .max_frames = 16};
    struct image m, again;
    struct err e = {0};
    int turned = exif_orientation(data, n);
    CHECK(turned >= 1 && turned <= 8, "turned by %d", turned);
    if (media_image(&m, data, n, 0, &limits, &e)) {
        CHECK(e.text[0] && !m.p, "refused without a word");
        return 0;
    }
    CHECK(m.width * m.height <= limits.max_pixels && (m.channels == 1 || m.channels == 3), "more than was allowed");
    CHECK(!media_image(&again, data, n, 0, &limits, &e), "refused the second time: %s", e.text);
    CHECK(image_bytes(&m) == image_bytes(&again) && !memcmp(m.p, again.p, image_bytes(&m)), "another picture");
    image_free(&m);
    image_free(&again);
    return 0;
}
