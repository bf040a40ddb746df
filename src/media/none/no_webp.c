/* SPDX-License-Identifier: Apache-2.0 */
/* no_webp.c: a build without libwebp: media.c refuses WebP by name. */
#include "media/media.h"

bool image_webp_there(void) { return false; }

int image_webp(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    (void)out, (void)p, (void)n, (void)l;
    return err_set(e, ERR_REQUEST, "this tutti was built without libwebp");
}
