/* SPDX-License-Identifier: Apache-2.0 */
/* no_ffmpeg.c: a build without FFmpeg's libraries: media.c refuses videos by name. */
#include "media/media.h"

bool video_ffmpeg_there(void) { return false; }

int video_ffmpeg(struct video *out, const void *p, size_t n, const struct video_wish *wish,
                 const struct media_limits *l, struct err *e)
{
    (void)out, (void)p, (void)n, (void)wish, (void)l;
    return err_set(e, ERR_REQUEST, "this tutti was built without FFmpeg");
}
