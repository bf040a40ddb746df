/* SPDX-License-Identifier: Apache-2.0 */
/* media.h: the table of media: what a file of pictures, sound or moving pictures is by its first bytes or its name, and
 * who decodes it. A decoder is a file of its own, the only one that names its library; to add one: that file, and its
 * row in media.c.
 *
 * Invariants
 *   1. What a header says of sizes is compared with media_limits before anything of that size is allocated.
 *   2. The same bytes give the same picture, whoever decodes them when: decoders keep nothing between calls.
 *   3. Errors say what is wrong with the bytes, not whose they are: callers prefix the file. ERR_CORRUPT: damaged, or
 *      beyond a limit; ERR_REQUEST: of a kind that this build, or anybody here, cannot decode, by name.
 * Floor 1: base. Order: Local; any number of threads.
 */
#ifndef TUTTI_MEDIA_MEDIA_H
#define TUTTI_MEDIA_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "media/audio.h"
#include "media/image.h"
#include "media/video.h"

enum media_kind { MEDIA_IMAGE, MEDIA_AUDIO, MEDIA_VIDEO, MEDIA_KINDS };

struct media_limits {
    int64_t max_pixels;  /* of a picture, and of one frame of a video */
    int64_t max_samples; /* of sound, over its channels */
    int64_t max_frames;  /* of a video, decoded or wanted */
};
struct media_limits media_limits_usual(void);

struct media_row {
    const char *name; /* "JPEG" */
    enum media_kind kind;
    const char *extensions; /* "jpg jpeg" */
    bool (*begins)(const unsigned char *p, size_t n);
    bool (*there)(void); /* this build has its library; NULL: every build has */
    const char *library; /* which */
    /* One of them, of the row's kind. Pictures keep what is gray gray; which way up they are is obeyed. */
    int (*image)(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
    int (*audio)(struct audio *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
    int (*video)(struct video *out, const void *p, size_t n, const struct video_wish *wish,
                 const struct media_limits *l, struct err *e);
};
extern const struct media_row media_rows[]; /* ends with name NULL */

/* By its first bytes, of which 64 are enough; NULL: none that is known. */
const struct media_row *media_of(const void *p, size_t n);
/* By the last part of a name's extension, in letters of any size: "x.seg.JPG" is a JPEG. NULL: none. */
const struct media_row *media_of_name(const char *name);
const char *media_kind_name(enum media_kind k); /* "an image", "a sound", "a video" */
/* "no WebP, no FFmpeg": what this build was made without; "" when it has everything. */
void media_missing(char out[128]);

/* Each by the row of its first bytes; what is of another kind, or of none, is ERR_REQUEST. Frees nothing on success:
 * image_free, audio_free, video_free. channels: 1, 3, or 0 as it is. */
int media_image(struct image *out, const void *p, size_t n, int channels, const struct media_limits *l, struct err *e);
int media_audio(struct audio *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
int media_video(struct video *out, const void *p, size_t n, const struct video_wish *wish, const struct media_limits *l,
                struct err *e);

/* The rows' functions. */
int image_jpeg(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
int image_png(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
int image_webp(struct image *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
bool image_webp_there(void);
/* The picture as a PNG, for people to look at. */
void image_png_write(struct str *out, const struct image *m);
int audio_sndfile(struct audio *out, const void *p, size_t n, const struct media_limits *l, struct err *e);
bool audio_sndfile_there(void);
int video_ffmpeg(struct video *out, const void *p, size_t n, const struct video_wish *wish,
                 const struct media_limits *l, struct err *e);
bool video_ffmpeg_there(void);

#endif
