/* SPDX-License-Identifier: Apache-2.0 */
/* image_webp.c: WebP by libwebp. A file of several pictures (an animation) is refused by name. */
#include <string.h>

#include <webp/decode.h>

#include "media/exif.h"
#include "media/media.h"

bool image_webp_there(void) { return true; }

/* The chunk EXIF of the file: RIFF, its size, WEBP, then chunks of a name, a size and bytes, padded to even. */
static int orientation_of(const unsigned char *p, size_t n)
{
    for (size_t at = 12; at + 8 <= n;) {
        size_t size = p[at + 4] | (size_t)p[at + 5] << 8 | (size_t)p[at + 6] << 16 | (size_t)p[at + 7] << 24;
        if (size > n - at - 8) break;
        if (!memcmp(p + at, "EXIF", 4)) return exif_orientation(p + at + 8, size);
        at += 8 + size + (size & 1);
    }
    return 1;
}

static const char *status_text(VP8StatusCode s)
{
    switch (s) {
    case VP8_STATUS_OUT_OF_MEMORY: return "not enough memory";
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it ends in the middle: it was cut short";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "a feature that libwebp does not know";
    default: return "not as the format has it";
    }
}

int image_webp(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    WebPDecoderConfig c;
    CHECK(WebPInitDecoderConfig(&c), "libwebp of another version than its header");
    VP8StatusCode s = WebPGetFeatures(p, n, &c.input);
    if (s) return err_set(e, ERR_CORRUPT, "damaged header: %s", status_text(s));
    if (c.input.has_animation)
        return err_set(e, ERR_REQUEST, "is an animation, where one picture was wanted; take its first frame");
    int code = image_new(out, c.input.width, c.input.height, 3, l->max_pixels, e);
    if (code) return code;
    c.output.colorspace = MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = out->p;
    c.output.u.RGBA.stride = (int)(3 * out->width);
    c.output.u.RGBA.size = image_bytes(out);
    s = WebPDecode(p, n, &c);
    WebPFreeDecBuffer(&c.output);
    if (s) {
        image_free(out);
        return err_set(e, ERR_CORRUPT, "damaged: %s", status_text(s));
    }
    image_orient(out, orientation_of(p, n));
    return OK;
}
