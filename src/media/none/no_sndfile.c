/* SPDX-License-Identifier: Apache-2.0 */
/* no_sndfile.c: a build without libsndfile: media.c refuses sound by name. */
#include "media/media.h"

bool audio_sndfile_there(void) { return false; }

int audio_sndfile(struct audio *out, const void *p, size_t n, const struct media_limits *l, struct err *e)
{
    (void)out, (void)p, (void)n, (void)l;
    return err_set(e, ERR_REQUEST, "this tutti was built without libsndfile");
}
