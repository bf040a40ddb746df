/* SPDX-License-Identifier: Apache-2.0 */
/* video.h: frames out of a moving picture. Floor 1: base. Order: Local. */
#ifndef TUTTI_MEDIA_VIDEO_H
#define TUTTI_MEDIA_VIDEO_H

#include <stdint.h>

#include "media/image.h"

/* Which frames: those that show at from_s, from_s + 1 / rate, ... , before to_s (to within 1 ms, to
 * which some files round times). */
struct video_wish {
    double from_s, to_s; /* to_s 0: to the end */
    double rate;         /* frames a second; 0: every frame there is */
    int64_t most;        /* so many at most; 0: all */
};
struct video {
    int64_t width, height; /* as it is shown, turned */
    double rate;           /* of the file, on average; 0: it does not say */
    double duration_s;     /* as the file says; 0: it does not */
    int64_t n;
    struct image *frame; /* [n] of 3 channels */
    double *time_s;      /* [n]: when each begins to show in the file */
    int64_t room;
};
void video_free(struct video *v);

#endif
